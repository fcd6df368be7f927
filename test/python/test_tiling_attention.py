# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention without the matrix of scores: numbers on the simulator, and traffic at full size."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from programs import check_close
from tilings import tile_keys_at_random
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import spyre_mlir
from spyre_mlir import declare_tensor_dim, name_tensor_dims, spyre_hint
from spyre_mlir.bundle.validate import validate
from spyre_mlir.dialects import context
from spyre_mlir.frontend import Imported, import_torch
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline

#: Of the largest value: in fp16 each tile of keys rounds the sums so far once more.
FLOOR = 3e-3

#: Cores, and parts of LX that the backend keeps with which the scores of all cases do not fit.
ROOMS = ((1, 0.9), (4, 0.97), (32, 0.995))


class Attention(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, **self.options)


def _heads(*shapes: tuple[int, int, int]) -> list[Tensor]:
    return [torch.randn(1, *shape).half() for shape in shapes]


def _seen(rows: int, keys: int) -> Tensor:
    """A random mask: row 3 sees nothing, row 5 no key of the first half, row 7 none of the second."""
    mask = torch.rand(rows, keys) > 0.4
    mask[3] = mask[5, : keys // 2] = mask[7, keys // 2 :] = False
    return mask


def _tensors(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.randn(shape).half() for shape in shapes]


class Masked(nn.Module):
    """Attention under a mask that is built from the positions of queries and keys."""

    def __init__(self, mask: Callable[[Tensor, Tensor], Tensor], form: str = "bool") -> None:
        super().__init__()
        self.mask, self.form = mask, form

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        seen = self.mask(torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])[None])
        if self.form == "bool":
            return scaled_dot_product_attention(q, k, v, attn_mask=seen)
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if self.form == "fill":
            return torch.softmax(scores.masked_fill(~seen, float("-inf")), -1) @ v
        bias = torch.full(seen.shape, float("-inf"), dtype=q.dtype).masked_fill(seen, 0.0)
        return torch.softmax(scores + bias, -1) @ v


class SelfAttention(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return scaled_dot_product_attention(x, x, x)


SAME = ((2, 256, 64),) * 3
BATCH = ((2, 2, 256, 64),) * 3
GROUPED = ((2, 4, 256, 64), (2, 2, 256, 64), (2, 2, 256, 64))
CASES: dict[str, tuple[nn.Module, Callable[[], list[Tensor]]]] = {
    "plain": (Attention(), lambda: _heads((2, 256, 64), (2, 512, 64), (2, 512, 64))),
    "causal": (Attention(is_causal=True), lambda: _heads(*SAME)),
    "mask": (Attention(), lambda: [*_heads(*SAME), _seen(256, 256)]),
    "float mask": (Attention(), lambda: [*_heads(*SAME), torch.randn(256, 256).half()]),
    "grouped": (Attention(enable_gqa=True), lambda: _heads((4, 256, 64), (2, 256, 64), (2, 256, 64))),
    "wide": (Attention(scale=0.1), lambda: _heads((3, 128, 128), (3, 384, 128), (3, 384, 128))),
    "batch": (Attention(), lambda: _tensors(*BATCH)),
    "batch causal": (Attention(is_causal=True), lambda: _tensors(*BATCH)),
    "batch mask": (Attention(), lambda: [*_tensors(*BATCH), torch.randn(2, 1, 256, 256).half()]),
    "batch grouped": (Attention(enable_gqa=True), lambda: _tensors(*GROUPED)),
    "batch grouped causal": (Attention(enable_gqa=True, is_causal=True), lambda: _tensors(*GROUPED)),
    "batch multi-query": (
        Attention(enable_gqa=True),
        lambda: _tensors((2, 4, 256, 64), (2, 1, 256, 64), (2, 1, 256, 64)),
    ),
    "one tensor": (SelfAttention(), lambda: _tensors((2, 2, 256, 64))),
    "window": (Masked(lambda i, j: (j <= i) & (j > i - 70)), lambda: _heads(*SAME)),
    "window of -inf": (Masked(lambda i, j: (j <= i) & (j > i - 70), "add"), lambda: _heads(*SAME)),
    "filled window": (Masked(lambda i, j: (j <= i) & (j > i - 64), "fill"), lambda: _heads(*SAME)),
    "chunks": (Masked(lambda i, j: (j <= i) & (i // 64 == j // 64)), lambda: _heads(*SAME)),
    "prefix": (Masked(lambda i, j: (j <= i) | (j < 100)), lambda: _heads(*SAME)),
    "last rows": (
        Masked(lambda i, j: j <= i + 192),
        lambda: _heads((2, 64, 64), (2, 256, 64), (2, 256, 64)),
    ),
    "blind rows": (Masked(lambda i, j: (j <= i) & (i > 80)), lambda: _heads(*SAME)),
    "five dims": (Attention(), lambda: _tensors(*((2, 2, 2, 128, 64),) * 3)),
}


@functools.cache
def imported(name: str) -> tuple[nn.Module, tuple[Tensor, ...], Imported]:
    torch.manual_seed(0)
    model, inputs = CASES[name][0], tuple(CASES[name][1]())
    return model, inputs, import_torch(model, inputs, context=context())


def check(name: str, module: ir.Module, **options: Any) -> spyre_mlir.Program:
    """Compile and run: the numbers equal PyTorch, and no check reports anything."""
    model, inputs, program = imported(name)
    made = spyre_mlir.compile(module, **options)
    assert not (findings := validate(made.bundle)), "\n".join(map(str, findings))
    operands = list(zip(program.arguments, program.operands(*inputs), strict=True))
    made.arrays.update({argument.name: array for argument, array in operands if argument.kind != "input"})
    results = made(*(array for argument, array in operands if argument.kind == "input"))
    check_close(name, program.bind(*inputs).finish([results]), model, inputs, FLOOR)
    return made


def runs(program: spyre_mlir.Program, opcode: str) -> int:
    """Return the number of designs of a bundle with an operation."""
    return sum(design.opcode == opcode for design in program.bundle.designs.values())


#: Of each case two rooms in turn, and three seeds of six, so that all are used alike.
IN_ROOMS = [(name, *ROOMS[(at + skip) % 3]) for at, name in enumerate(CASES) for skip in (0, 1)]
SEEDED = [(name, seed) for at, name in enumerate(CASES) for seed in range(at % 2, 6, 2)]


@pytest.mark.parametrize(("name", "sencores", "lx_frac_avail"), IN_ROOMS)
def test_scores_that_do_not_fit(name, sencores, lx_frac_avail):
    """The compiler chooses the tiles."""
    options = {"sencores": sencores, "lx_frac_avail": lx_frac_avail, "verify_each": True}
    made = check(name, imported(name)[2].module, **options)
    (remark,) = (each for each in made.remarks if each.pass_name == "online-softmax")
    loops = [each.reason for each in made.remarks if each.pass_name == "coarse-tiling"]
    is_tiled = any("attention0." in loop for loop in loops)
    assert remark.kind == ("tiling" if is_tiled else "no tiling") and "untiled" in remark.reason


def tiled(name: str, seed: int, *, apart: bool = False) -> ir.Module:
    """A case at level device-ops, in random tiles of keys and others."""
    module = ir.Module.parse(imported(name)[2].module.operation.get_asm(enable_debug_info=True), context())
    run_pipeline(module, SpyrePipeline().pipeline("device-ops"))
    if not apart:
        run_pipeline(
            module, "attach-target{lx-frac-avail=1.0},expand-attention"
        )  # without LX nothing is evaluated
    with module.context:
        tile_keys_at_random(module, seed, apart=apart)
    return module


@pytest.mark.parametrize(("name", "seed"), SEEDED)
def test_random_tiles_of_keys(name, seed):
    """The running maximum and the sums that follow it, in loops of any kind: a second exp corrects them."""
    options = {"sencores": (32, 4, 1)[seed % 3], "lx_frac_avail": (0.2, 0.97)[seed // 3]}
    made = check(name, tiled(name, seed), from_level="device-ops", **options)
    assert runs(made, "exp") > 1


#: Shapes of queries and of keys and values, and tiles.
HINTED = {
    "heads and keys": ((1, 2, 256, 64), (1, 2, 256, 64), {"heads": 2, "keys": 4}),
    "batch and keys": ((2, 2, 256, 64), (2, 2, 256, 64), {"batch": 2, "keys": 4}),
    "batch, heads and keys": ((2, 2, 256, 64), (2, 2, 256, 64), {"batch": 2, "heads": 2, "keys": 4}),
    "grouped": ((2, 4, 256, 64), (2, 2, 256, 64), {"heads": 4, "keys": 4}),
}


@pytest.mark.parametrize("name", HINTED)
def test_hints_on_keys(name):
    """From PyTorch: loops over batch and heads, in them one over keys, without the matrix of scores."""
    torch.manual_seed(0)
    queries, keys, tiles = HINTED[name]
    is_grouped = queries[1] != keys[1]
    model = Attention(enable_gqa=is_grouped)

    def hinted(q, k, v):
        with spyre_hint(tiles=tiles):
            return model(q, k, v)

    inputs = _tensors(queries, keys, keys)
    sizes = zip(("batch", "heads", "rows", "columns"), queries, strict=True)
    for dim, size in (*sizes, ("keys", keys[2]), ("groups", keys[1])):
        declare_tensor_dim(dim, size)
    for tensor, along in zip(inputs, ("rows", "keys", "keys"), strict=True):
        heads = "groups" if is_grouped and along == "keys" else "heads"
        name_tensor_dims(tensor, ["batch", heads, along, "columns"])
    program = spyre_mlir.compile(hinted, inputs)
    check_close("hinted", program(*inputs), model, inputs, FLOOR)
    assert runs(program, "exp") > 1
    told = [each.reason for each in program.remarks if each.pass_name == "coarse-tiling"]
    assert sum("6 operations in 4 tiles by loop 1.keys" in each for each in told) == 1, told
    assert not [each for each in program.remarks if "does not tile it" in each.reason]


def test_loops_that_not_all_share():
    """Copies of the values are in a separate loop within the attention: the maximum is complete before its use."""
    made = check("grouped", tiled("grouped", 1, apart=True), from_level="device-ops")
    (remark,) = (each for each in made.remarks if each.pass_name == "online-softmax")
    assert remark.kind == "no tiling" and "the maximum is computed over all keys first" in remark.reason
    assert runs(made, "exp") == 1


def test_the_same_without():
    """The option turns it off: one exp, of the whole matrix of scores."""
    made = check(
        "plain", imported("plain")[2].module, lx_frac_avail=0.995, tile_attention=False, tile_for_lx=False
    )
    assert runs(made, "exp") == 1
    assert not [each for each in made.remarks if each.pass_name == "online-softmax"]


@functools.cache
def large(keys: int, **options: Any) -> spyre_mlir.Program:
    """32 heads of 128 on 32 cores; compiled only."""
    inputs = tuple(torch.empty(1, 32, keys, 128, dtype=torch.float16) for _ in range(3))
    return spyre_mlir.compile(Attention(), inputs, **options)


def moved(program: spyre_mlir.Program) -> int:
    return sum(each.read_bytes + each.written_bytes for each in program.timeline().executions)


def _empty(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.empty(shape, dtype=torch.float16) for shape in shapes)


#: Attention with a batch at full size: options of it, shapes, and at most how many times its arguments are moved.
LARGE = {
    "batch": ({}, ((2, 32, 2048, 128),) * 3, 1.01),
    "batch causal": ({"is_causal": True}, ((2, 32, 2048, 128),) * 3, 1.2),
    "grouped": ({"enable_gqa": True}, ((1, 32, 2048, 128), *((1, 8, 2048, 128),) * 2), 1.01),
    "multi-query": ({"enable_gqa": True}, ((1, 32, 2048, 128), *((1, 1, 2048, 128),) * 2), 1.1),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", LARGE)
def test_what_batches_and_groups_move(name):
    """Device memory has neither the scores nor copies of keys and values for each head of a group.

    Where more moves, a remark has the price of tiles with which it does not, and that they take longer.
    """
    options, shapes, most = LARGE[name]
    program = spyre_mlir.compile(Attention(**options), _empty(*shapes))
    bound = sum(argument.bytes for argument in program.bundle.manifest.arguments)
    (remark,) = (remark for remark in program.remarks if remark.pass_name == "online-softmax")
    prices = re.findall(r"([\d.]+) us, ([\d,]+) bytes", remark.reason)
    fastest = min(float(time) for time, _ in prices)
    slower = [
        float(time) > 1.1 * fastest for time, size in prices if int(size.replace(",", "")) <= most * bound
    ]
    assert moved(program) <= (2 if any(slower) else most) * bound


def test_one_tensor_three_times():
    """Rows and keys are the same dim of one tensor, which loops tile separately."""
    (x,) = _empty((2, 32, 2048, 128))
    program = spyre_mlir.compile(SelfAttention(), (x,))
    assert moved(program) <= 1.3 * 4 * x.nbytes
    (remark,) = (each for each in program.remarks if each.pass_name == "online-softmax")
    assert remark.kind == "tiling"


class Weights(nn.Module):
    """Attention that gives its weights, too."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        weights = torch.softmax(q @ k.transpose(-1, -2), -1)
        return weights @ v, weights


def test_why_attention_stays_as_it_is():
    """A remark reports the reason and the cost."""
    program = spyre_mlir.compile(Weights(), _empty(*((2, 2048, 64),) * 3))
    (remark,) = (each for each in program.remarks if each.pass_name == "online-softmax")
    assert remark.kind == "no tiling"
    assert "the whole result of 'realdiv'" in remark.reason and " us, " in remark.reason


#: Keys, and at most how many times q, k, v and the result are moved. A stick more is the scale of the queries.
BOUNDS = ((512, 1.001), (4096, 1.6), (32768, 1.6))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("keys", "most"), BOUNDS)
def test_what_large_attention_moves(keys, most):
    """The matrix of scores, which is keys / 128 times as large as an operand, does not go through device memory."""
    assert moved(large(keys)) <= most * 4 * 32 * keys * 128 * 2


def test_without_it_scores_are_moved():
    """At 4096 they are 8 times q, k, v and the result together; written once and read once at the least."""
    untiled = large(4096, tile_attention=False, tile_for_lx=False)
    assert moved(untiled) >= 16 * 4 * 32 * 4096 * 128 * 2
