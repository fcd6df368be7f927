# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``hoist-loads`` moves operations only where the evaluated program takes less time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from spyre_mlir.dialects import context
from spyre_mlir.mlir import ir
from spyre_mlir.passes.hoist_loads import HoistLoads
from spyre_mlir.pipelines import run_pipeline

FILE = Path(__file__).parents[1] / "passes" / "hoist-loads.mlir"


@pytest.mark.parametrize(
    ("before", "after", "is_moved"),
    [(2, 1, True), (1, 1, False), (1, 2, False), (1, None, False), (None, 1, True)],
)
def test_loads_move_where_the_program_takes_less_time(before, after, is_moved) -> None:
    """The pass evaluates the unchanged program, then the moves; a plan that does not exist has no time."""
    times = [None if time is None else SimpleNamespace(nanoseconds=time) for time in (before, after)]
    evaluator = SimpleNamespace(time=lambda _: times.pop(0))
    module = ir.Module.parse(FILE.read_text(encoding="utf-8").split("// -----")[0], context())
    run_pipeline(module, "choose-layouts,work-distribution")
    old = str(module)
    HoistLoads().decide(module.operation, evaluator)
    assert (str(module) != old) == is_moved and times == []
