# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where each of the cases and samples runs, and the page docs/coverage.md that says so.

    python test/python/op_coverage.py      runs all and writes the page (about ten minutes)

The tests and the benchmark ``op-cases`` compare with the page, so it cannot go stale.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from op_cases import CASES
from op_samples import SAMPLES
from programs import FLOOR, SEED, Program, check_close

import spyre_mlir
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.piecewise import PiecewiseProgram
from spyre_mlir.remarks import HOST

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"
ALL: dict[str, Callable[[], Program]] = {**CASES, **SAMPLES}

DEVICE, BOTH, ON_HOST, PIECES, NOT = "device", "device and host", "host", "in pieces", "not"

#: A depthwise convolution of nine taps is nine sums, each rounded to 16 bits; PyTorch rounds once.
FLOORS = {"conv2d_depthwise": 2e-3}


class Outcome(NamedTuple):
    """Place of a program, and the reason if not on the device alone: its first host operation, or the diagnostic."""

    where: str
    reason: str = ""


def outcome(name: str) -> Outcome:
    """Compiles a program, runs it and compares its numbers with PyTorch's; AssertionError if they are wrong."""
    model, inputs = ALL[name]()
    try:
        program: Any = spyre_mlir.compile(copy.deepcopy(model), tuple(x.clone() for x in inputs))
    except CompileError as error:
        return Outcome(NOT, error.message)
    torch.manual_seed(SEED)
    results = program(*(x.clone() for x in inputs))
    check_close(name, results, model, inputs, FLOORS.get(name, FLOOR))
    if isinstance(program, PiecewiseProgram):
        return Outcome(PIECES, program.reason.message)
    if program.is_one_bundle:
        return Outcome(DEVICE)
    reasons = [remark.reason for remark in program.remarks if remark.kind == HOST]
    return Outcome(BOTH if program.bundles else ON_HOST, reasons[0])


_HEAD = """# Coverage of PyTorch's operations

The tables list {cases} small programs, from one operation to a layer of a model (`test/python/op_cases.py`), and \
{samples}
operations on random shapes (`test/python/op_samples.py`). All programs are in fp16, compiled with the defaults, and run
on the simulator. A result is correct if its error is at most four times the error of PyTorch in fp16, both against
float64; integers must be exact.

| where | programs | |
|---|---|---|
{counts}

Operations that the device does not have are often compiled to several device operations: `argmax`, `topk` up to 4, one
slice of `index_copy` and a `scatter` of up to 4 per row become comparisons with a constant table of positions;
interpolation becomes a matmul per dim with a constant matrix; operations that only move data become slices and copies
of up to 16 parts. Batch norms are folded into the convolutions before them, and complex numbers are pairs of real ones.

Writes through a view give the numbers of the model: `test/python/test_storage.py` tests each view of PyTorch. For any
other view, PyTorch runs the model and its functional form on the example inputs when the model is compiled, and a
difference is an error. `as_strided` addresses the tensor that its storage was allocated for. Tensors without elements,
and results that depend on nothing else, are computed when the model is compiled.

"Device and host" is the [fallback](host.md): bundles and host functions in turn. "In pieces" are models whose values
decide shapes or branches ([a program for each piece](host.md#values-that-decide)). Tests run a part of this page, the
benchmark `op-cases` all of it; `python test/python/op_coverage.py` writes it.
"""


def page(outcomes: Mapping[str, Outcome]) -> str:
    """The whole page."""
    kinds = {
        where: [name for name in ALL if outcomes[name].where == where]
        for where in (DEVICE, BOTH, ON_HOST, PIECES, NOT)
    }
    counts = (
        f"| {where} | {len(names)} | {100 * len(names) / len(ALL):.1f} % |" for where, names in kinds.items()
    )
    sections = [
        _HEAD.format(cases=len(CASES), samples=len(SAMPLES), counts="\n".join(counts)),
        _table("What does not run", kinds[NOT], outcomes),
        _table("What runs in pieces", kinds[PIECES], outcomes),
        _table("What takes turns with the host", kinds[BOTH], outcomes),
        _table("What the host runs alone", kinds[ON_HOST], outcomes),
        "## What the device runs\n\n" + "\n".join(f"- `{name}`" for name in kinds[DEVICE]) + "\n",
    ]
    return "\n".join(sections)


def _table(title: str, names: list[str], outcomes: Mapping[str, Outcome]) -> str:
    rows = (f"| `{name}` | {outcomes[name].reason.replace('|', '/')} |" for name in names)
    return "\n".join([f"## {title}", "", "| program | because |", "|---|---|", *rows, ""])


def listed(text: str) -> dict[str, Outcome]:
    """Return the outcomes that a page lists, the inverse of ``page``."""
    titles = {
        "What does not run": NOT,
        "What runs in pieces": PIECES,
        "What takes turns with the host": BOTH,
        "What the host runs alone": ON_HOST,
    }
    found = {}
    for section in text.split("\n## ")[1:]:
        title = section.split("\n", 1)[0]
        for name, reason in re.findall(r"^\| `(.+?)` \| (.*) \|$", section, re.MULTILINE):
            found[name] = Outcome(titles[title], reason)
        for name in re.findall(r"^- `(.+)`$", section, re.MULTILINE):
            found[name] = Outcome(DEVICE)
    return found


if __name__ == "__main__":
    PAGE.write_text(page({name: outcome(name) for name in ALL}), encoding="utf-8")
