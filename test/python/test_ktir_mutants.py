# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Randomly damaged texts of KTIR: the parser accepts them, or reports one diagnostic with a line."""

from __future__ import annotations

import functools
import random
import re

import pytest
import torch
from programs import Apply

import spyre_mlir
from spyre_mlir.dialects import context
from spyre_mlir.driver.ktir_program import KtirProgram
from spyre_mlir.errors import CompileError
from spyre_mlir.ktir.ktir_text import parse_ktir

_TOKEN = re.compile(r"%\w+|#?[\w.]+|->|>=|\s+|.", re.DOTALL)
_JUNK = (
    *"()[]{}<>\"':=,\\?\0é", "%x", "//", "\n", "-1", "9" * 20, "tensor<", "memref<4xf16>", "index", "ktdp.",
    "ktdp.load", "!ktdp.access_tile<4xindex>", "!ktdp.tile_future<", "#ktdp.memory_space<global>",
    "affine_set<(d0) : (d0 >= 0)>",
    "#a = affine_map<(d0) -> (d0)>\n", "ind(%0[%i])", '"ktdp.store"',
)  # fmt: skip


@functools.cache
def texts() -> tuple[str, ...]:
    """Programs with views, indirect tiles, sums of cores, loops and branches."""
    models = (
        (Apply(torch.matmul), [(64, 2048), (2048, 64)]),
        (Apply(lambda x, y: torch.softmax(x.t() @ y, -1)), [(70, 33), (70, 64)]),
    )
    programs = [
        spyre_mlir.compile(
            model, tuple(torch.ones(shape).half() for shape in shapes), target="ktir", sencores=4
        )
        for model, shapes in models
    ]
    return tuple(program.ktir[0] for program in programs if isinstance(program, KtirProgram))


def damaged(text: str, rng: random.Random) -> str:
    """Return the text with a token or a line lost, moved, doubled or replaced, or with its end cut off."""
    if rng.random() < 0.1:
        return text[: rng.randrange(len(text))]
    parts = text.splitlines(keepends=True) if rng.random() < 0.3 else _TOKEN.findall(text)
    one, other = (rng.randrange(len(parts)) for _ in range(2))
    change = rng.choice(("lost", "moved", "doubled", "replaced", "replaced"))
    if change == "replaced":
        parts[one] = rng.choice(_JUNK)
    elif change == "moved":
        parts[one], parts[other] = parts[other], parts[one]
    elif change == "doubled":
        parts.insert(other, parts[one])
    else:
        del parts[one : one + rng.randint(1, 8)]
    return "".join(parts)


@pytest.mark.parametrize("seed", range(120))
def test_a_damaged_text_is_one_diagnostic(seed: int) -> None:
    rng = random.Random(seed)
    text = rng.choice(texts())
    for _ in range(rng.choice((1, 1, 2, 5))):
        text = damaged(text, rng)
    try:
        parse_ktir(text, context(), "kernel.mlir")
    except CompileError as error:
        assert re.match(r"kernel\.mlir:\d+:\d+$", error.location or ""), str(error)
        assert "\n" not in error.message


@pytest.mark.parametrize("dims", ["[1, 0", "[1, =0]", "[1 0]"])
def test_dims_that_are_no_numbers_have_a_line(dims: str) -> None:
    """The parser of MLIR ends at these without a diagnostic."""
    line = f"%t = linalg.transpose ins(%x : tensor<4x8xf16>) outs(%y : tensor<8x4xf16>) permutation = {dims}"
    text = f"func.func @f(%x: tensor<4x8xf16>, %y: tensor<8x4xf16>) {{\n  {line}\n  return\n}}\n"
    with pytest.raises(CompileError, match="a list like") as error:
        parse_ktir(text, context(), "kernel.mlir")
    assert (error.value.location or "").startswith("kernel.mlir:2:")
