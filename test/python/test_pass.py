# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes as values: options in text and in Python, registration, remarks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest

from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.options import from_environment
from spyre_mlir.passes import find, load_all
from spyre_mlir.passes.base import Pass
from spyre_mlir.remarks import Remarks


@dataclass(frozen=True)
class PlanThings(Pass):
    """Plan all things."""

    name: ClassVar[str] = "test-plan-things"
    core_count: int = from_environment("TEST_CORES", 32)
    fraction: float = 0.2
    eager: bool = False
    solver: Literal["greedy", "exact"] = "greedy"
    note: str = ""
    tiles: tuple[int, ...] = ()
    limit: int | None = None

    def run(self, module: ir.Operation) -> None:
        self.remark(module, "planned", "it was time", before=3)


def test_options_survive_the_way_through_text() -> None:
    """The text of a pass holds what differs from the defaults, and parses back to an equal pass."""
    given = PlanThings(4, 0.5, True, "exact", "two w", (1, 2), 7)
    text = str(given)
    assert text == (
        'test-plan-things{core-count=4 fraction=0.5 eager=true solver=exact note="two w" tiles=1,2 limit=7}'
    )
    assert PlanThings.parse(text[text.index("{") + 1 : -1]) == given
    assert str(PlanThings()) == "test-plan-things"


def test_short_and_empty_values() -> None:
    """A bool may stand alone, none and {} are the empty values, braces hold lists."""
    assert PlanThings.parse("eager limit=none tiles={} ").eager is True
    assert PlanThings.parse("tiles={3, 4}").tiles == (3, 4)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("speed=1", "has no option 'speed'; its options: core-count, fraction, eager, solver, note"),
        ("core-count=many", "must be an integer, not 'many'"),
        ("eager=maybe", "must be 'true' or 'false', not 'maybe'"),
        ("solver=lucky", "must be one of greedy, exact, not 'lucky'"),
        ("core-count", "needs a value"),
        ("eager eager", "is given option 'eager' twice"),
        ("=3", "must have the form 'name=value'"),
    ],
)
def test_wrong_options_are_sentences(text: str, sentence: str) -> None:
    """Each error of an option names the pass and the known options."""
    with pytest.raises(CompileError, match=sentence) as raised:
        PlanThings.parse(text)
    assert "test-plan-things" in raised.value.message


def test_environment_gives_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable sets the default of its option; a bad one is an error that names the variable."""
    monkeypatch.setenv("TEST_CORES", "8")
    assert PlanThings().core_count == 8
    monkeypatch.setenv("TEST_CORES", "all")
    with pytest.raises(CompileError, match="TEST_CORES must be an integer"):
        PlanThings()


def test_a_name_is_taken_once() -> None:
    """Two classes of one pass name are an error that names both."""
    with pytest.raises(TypeError, match="Two passes are named 'test-plan-things'"):
        type("Other", (Pass,), {"name": "test-plan-things"})


def test_remarks_go_to_the_current_collector() -> None:
    """A remark is kept while a collector is current, and is one JSON line without absent costs."""
    remarks = Remarks()
    with ir.Context():
        module = ir.Module.parse("module {}").operation
        PlanThings().run(module)
        with remarks.collecting():
            PlanThings().run(module)
    assert [remark.reason for remark in remarks.of_kind("planned")] == ["it was time"]
    record = json.loads(remarks.json_lines())
    assert (record["pass_name"], record["before"], "after" in record) == ("test-plan-things", 3, False)


def test_a_file_is_a_pass() -> None:
    """Every pass of the folder is in the file of its name, has a docstring, and is found without a list."""
    ours = {name: p for name, p in load_all().items() if p.__module__.startswith("spyre_mlir.passes.")}
    for name, pass_ in ours.items():
        assert pass_.__module__ == f"spyre_mlir.passes.{name.replace('-', '_')}"
        assert pass_.__name__ == "".join(part.capitalize() for part in name.split("-")) or "-" not in name
        assert pass_.__doc__ and find(name) is pass_
