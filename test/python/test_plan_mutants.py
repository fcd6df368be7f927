# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mutants of plan files and of tables of buffers: each is right or one diagnostic, soon."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from plan_mutants import BASE, base_plan, plan_mutant, table_mutant

import spyre_mlir
from spyre_mlir.errors import CompileError
from spyre_mlir.optimization.bipartite import Child, most_shared
from spyre_mlir.plans import read_plan
from spyre_mlir.scratchpad.buffers import LIMIT, LifetimeBoundBuffer, MemorySpace, PlanError
from spyre_mlir.scratchpad.check import check_plan
from spyre_mlir.scratchpad.solvers import solver
from spyre_mlir.tools import spyre_plan

SOLVERS = ("portfolio", "greedy", "firstfit", "bestfit", "largest-first", "annealing")


@pytest.mark.parametrize("seed", range(60))
def test_a_mutated_table_is_planned_or_refused(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    """Status 0 and a plan, which the tool checks, or status 1 and one line."""
    monkeypatch.setenv("SPYRE_TRACEBACK", "1")
    note, text = table_mutant(seed)
    rng, path = random.Random(seed), tmp_path / "buffers.csv"
    path.write_text(text, encoding="utf-8", newline="")
    capacity, alignment = (
        rng.choice((0, 4096, 16384, 1 << 40, 1 << 63)),
        rng.choice((1, 128, 1 << 40, 1 << 70)),
    )
    status = spyre_plan.main(
        [str(path), f"--capacity={capacity}", f"--alignment={alignment}", f"--solver={rng.choice(SOLVERS)}"]
    )
    said = capsys.readouterr()
    assert status == 0 or (said.err.count("error: ") == 1 and not said.out), f"{note}: {said.err}"


@pytest.mark.parametrize("seed", range(40))
def test_a_mutated_plan_holds_or_is_refused(seed: int, tmp_path: Path):
    """The plan is refused with one sentence, or all its operations are operations of the program."""
    note, text = plan_mutant(seed)
    path = tmp_path / "plan.json"
    path.write_text(text, encoding="utf-8", newline="")
    try:
        program = spyre_mlir.compile(BASE, sencores=4, plan=str(path))
    except CompileError as error:
        assert "\n" not in str(error), f"{note}: {error}"
        return
    names = {operation["name"] for operation in program.plan()["operations"]}
    assert {operation.name for operation in read_plan(text, "plan").operations} <= names, note


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("1" + "0" * 5000, "more than 4300 digits"),
        ('{"\\ud800": 1}', "a name with an unpaired surrogate"),
        ("[" * 100_000, "nested too deeply"),
        ("[" * 950 + "]" * 950, "must be an integer|nested too deeply"),
        ("NaN", "NaN is not valid JSON"),
        ("1e400", "must be an integer but is Infinity"),
    ],
)
def test_values_that_json_takes_and_a_plan_does_not(value: str, reason: str):
    """Such a value is one diagnostic, whatever Python's reader of JSON does with it."""
    with pytest.raises(CompileError, match=reason):
        read_plan('{"version": ' + value + "}", "plan")


def test_the_unchanged_plan_holds():
    """The base of the mutants is valid: otherwise they would test nothing."""
    assert spyre_mlir.compile(BASE, sencores=4, plan=json.loads(base_plan())).plan()


def test_large_numbers_never_wrap_around():
    """Sizes whose sum is beyond 64 bits are refused; those below the limit are planned without overlap."""
    space = MemorySpace(LIMIT - 1, 1)
    large = [LifetimeBoundBuffer(name, LIMIT // 8, (at, at + 1)) for at, name in enumerate("ab")]
    for name in SOLVERS:
        check_plan(large, space, solver(name).plan(large, space))
        with pytest.raises(PlanError, match="together"):
            solver(name).plan([*large, LifetimeBoundBuffer("c", LIMIT - 1, (0, 1))], space)


def test_times_far_apart_are_only_an_order():
    """Lives from one end of the range to the other: what grew with their length would never end."""
    buffers = [LifetimeBoundBuffer(f"b{at}", 100, (1 - LIMIT, LIMIT - 1 - at)) for at in range(8)]
    plan = solver("portfolio").plan(buffers, MemorySpace(500, 1))
    check_plan(buffers, MemorySpace(500, 1), plan)
    assert len(plan.addresses) == 5


def test_long_chains_of_children_are_matched():
    """A thousand children that must each give way to the next do not recurse a thousand calls deep."""
    count = 3000
    children = [Child(at, count - at, (at, at + 1)) for at in range(count)]
    forced = Child(count, 1, (0,))
    assert most_shared([*children, forced]) == sum(child.size for child in children) + 1
