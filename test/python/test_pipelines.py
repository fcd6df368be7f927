# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pipelines: their text, the named pipeline, and errors, times and remarks of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from spyre_mlir.diagnostics import diagnostics_of
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.pipelines import Pipeline, SpyrePipeline, Timing, run_pipeline
from spyre_mlir.remarks import Remarks
from spyre_mlir.target.target import default_target


@dataclass(frozen=True)
class Misbehave(Pass):
    """Fail in the way that is asked for."""

    name: ClassVar[str] = "test-misbehave"
    how: str = ""

    def run(self, module: ir.Operation) -> None:
        self.remark(module, "seen", "always")
        if self.how == "refuse":
            raise CompileError("This cannot be compiled.", "model.py:3:1")
        if self.how == "crash":
            raise KeyError("missing")
        if self.how == "break-ir":
            function = module.regions[0].blocks[0].operations[0]
            function.regions[0].blocks[0].operations[0].erase()


def run(text: str, **options: object) -> str:
    with ir.Context():
        module = ir.Module.parse("func.func @f() {\n  return\n}")
        run_pipeline(module, text, **options)
        return str(module)


def test_text_round_trips() -> None:
    """Nesting, options with nested braces and blanks are kept; the text of a pipeline parses back."""
    text = "builtin.module(cse, func.func(canonicalize{a={b c} d='}'},scf.for(cse)) ,test-misbehave{how=x})"
    pipeline = Pipeline.parse(text)
    assert [step.text for step in pipeline.steps[:3]] == [
        "cse",
        "func.func(canonicalize{a={b c} d='}'})",
        "func.func(scf.for(cse))",
    ]
    assert pipeline.steps[3].ours == Misbehave("x")
    assert Pipeline.parse(str(pipeline)) == pipeline
    assert Pipeline.parse("builtin.module()") == Pipeline.parse("") == Pipeline()


@pytest.mark.parametrize(
    ("text", "location", "sentence"),
    [
        ("a,,b", "1:3", "name of a pass was expected"),
        ("a,", "1:3", "name of a pass was expected"),
        ("builtin.module(a,\nb", "2:2", "closes 'builtin.module\\('"),
        ("a{x=1", "1:3", "has no '}'"),
        ("a b", "1:3", "not 'b'"),
        ("func.func(test-misbehave)", "1:11", "runs on the whole module"),
        ("cse,test-misbehave{x=1}", "1:5", "has no option 'x'"),
    ],
)
def test_mistakes_have_a_place_in_the_text(text: str, location: str, sentence: str) -> None:
    """A mistake in a pipeline is reported at its line and column."""
    with pytest.raises(CompileError, match=sentence) as raised:
        Pipeline.parse(text)
    assert raised.value.location == f"pass-pipeline:{location}"


def test_refusal_surfaces_as_it_was_raised() -> None:
    """The caller receives the CompileError of the pass, with its location."""
    with pytest.raises(CompileError) as raised:
        run("test-misbehave{how=refuse}")
    assert str(raised.value) == "model.py:3:1: error: This cannot be compiled."


def test_crash_keeps_its_type_and_names_the_pass() -> None:
    """An error of the compiler itself stays that error, with a note on the pass."""
    with pytest.raises(KeyError) as raised:
        run("test-misbehave{how=crash}")
    assert raised.value.__notes__ == ["while running the pass 'test-misbehave{how=crash}'"]


def test_invalid_ir_is_reported_with_its_place() -> None:
    """A finding of the upstream verifier after a pass is a CompileError with file, line and column."""
    with pytest.raises(CompileError) as raised:
        run("test-misbehave{how=break-ir}")
    assert raised.value.location == "-:1:1"
    assert [d.severity for d in diagnostics_of(raised.value)] == ["error"]


def test_unknown_pass_stops_before_anything_runs() -> None:
    """All names and options are checked first, so that a typo at the end costs nothing."""
    remarks = Remarks()
    with pytest.raises(CompileError, match="did you mean 'test-misbehave'"):
        run("test-misbehave,test-misbehav", remarks=remarks)
    assert not remarks


def test_times_and_remarks_are_per_pass() -> None:
    """The caller's collectors get one time for each pass and the remarks in order."""
    timing, remarks = Timing(), Remarks()
    run("cse,test-misbehave", timing=timing, remarks=remarks)
    assert [name for name, _ in timing] == ["cse", "test-misbehave"]
    assert "Total" in timing.report()
    assert [remark.pass_name for remark in remarks] == ["test-misbehave"]


def test_named_pipeline_takes_its_cores_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """SENCORES is the default of sencores, and reaches the pass that divides the work."""
    monkeypatch.setenv("SENCORES", "4")
    assert SpyrePipeline().target_from(default_target()).cores == 4
    assert SpyrePipeline.parse("sencores=2 verify-each") == SpyrePipeline(sencores=2, verify_each=True)


def test_the_default_of_the_rfc_is_an_option_of_choose_layouts() -> None:
    """The option is passed on only on request."""
    levels = [dict(SpyrePipeline.parse(text).stages()) for text in ("", "stick-outermost")]
    passes = [str(level["laid-out"].steps[0]) for level in levels]
    assert passes == ["choose-layouts", "choose-layouts{stick-outermost=true}"]
    assert "choose-layouts{stick-outermost=true}" in str(SpyrePipeline(stick_outermost=True).pipeline())


def test_what_the_host_does_to_padding_is_an_option_of_resolve_padding() -> None:
    """The option is passed on only on request."""
    levels = [dict(SpyrePipeline.parse(text).stages()) for text in ("", "host-padding=zero")]
    passes = [str(level["laid-out"].steps[1]) for level in levels]
    assert passes == ["resolve-padding", "resolve-padding{host-padding=zero}"]


def test_joint_planning_keeps_the_divisions_of_a_named_algorithm() -> None:
    """A joint division that is named as well may change them."""

    def joint(text: str) -> list[str]:
        steps = (str(step) for _, passes in SpyrePipeline.parse(text).stages() for step in passes.steps)
        return [step for step in steps if step.startswith("joint-planning")]

    assert joint("") == joint("division=priority") == ["joint-planning"]
    assert joint("division=mine") == []
    assert joint("division=mine joint-division=lagrangian") == ["joint-planning"]
    assert joint("division=mine joint-division=other") == ["joint-planning{joint-division=other}"]


def test_a_preset_gives_the_defaults_of_the_other_options() -> None:
    """A given option has precedence, at its default as well; the text of the options reads back."""
    seed = SpyrePipeline.parse("preset=seed")
    assert (seed.layout_solver, seed.matmul, seed.reorder, seed.moves) == (
        "greedy",
        "specified",
        False,
        False,
    )
    steps = [step.name for _, passes in seed.stages() for step in passes.steps]
    assert not {"joint-planning", "reorder-operations", "evict-and-reload", "double-buffer"} & set(steps)
    assert SpyrePipeline.parse(seed.given()) == SpyrePipeline.of(preset="seed") == seed
    assert SpyrePipeline.of(preset="seed", matmul="cost").matmul == "cost"
    assert SpyrePipeline.parse("preset=seed moves=true").moves
    with pytest.raises(CompileError, match="preset"):
        SpyrePipeline.parse("preset=later")


def test_verify_each_only_adds_checks() -> None:
    """With verify-each every level ends with its check, and the passes do not change."""
    plain, checked = SpyrePipeline().stages(), SpyrePipeline(verify_each=True).stages()
    for (level, passes), (_, more) in zip(plain, checked, strict=True):
        assert more.steps[-1].name.startswith("verify-"), level
        assert [step for step in more.steps if not step.name.startswith("verify-")] == [
            step for step in passes.steps if not step.name.startswith("verify-")
        ]
