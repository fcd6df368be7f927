# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""User-defined passes: names that are refused, the method that runs them, and their place in ``compile``."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import spyre_mlir
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import PASSES, EvaluatingPass, Pass
from spyre_mlir.pipelines import SpyrePipeline
from spyre_mlir.pipelines.pipeline_options import entries
from spyre_mlir.tools import spyre_compile, spyre_opt

LEVELS = ("device-ops", "tiled", "laid-out", "divided", "placed", "bundle")

PROGRAM = """
func.func @main(%x: tensor<64x128xf16>, %w: tensor<128x128xf16>) -> tensor<64x128xf16> {
  %e = tensor.empty() : tensor<64x128xf16>
  %zero = arith.constant 0.0 : f16
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  %m = linalg.matmul ins(%x, %w : tensor<64x128xf16>, tensor<128x128xf16>)
      outs(%f : tensor<64x128xf16>) -> tensor<64x128xf16>
  %y = linalg.exp ins(%m : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %y : tensor<64x128xf16>
}
"""

RUNS: list[tuple[str, tuple[int, ...], str]] = []


@dataclass(frozen=True)
class OwnLook(Pass):
    """Note the options, and the first attribute of the levels that the module has."""

    name: ClassVar[str] = "own-look"
    note: str = ""
    numbers: tuple[int, ...] = ()

    def run(self, module: ir.Operation) -> None:
        text = str(module)
        marks = {
            "bundle": "sdsc_execute",
            "placed": "sdsc.placement",
            "divided": "sdsc.division",
            "laid-out": "#stick",
        }
        level = next((level for level, mark in marks.items() if mark in text), "device-ops")
        RUNS.append((self.note, self.numbers, level))


@dataclass(frozen=True)
class OwnSpoil(Pass):
    """Remove the decision of a level, as a pass with a mistake would."""

    name: ClassVar[str] = "own-spoil"
    attribute: str = "sdsc.division"

    def run(self, module: ir.Operation) -> None:
        def visit(op: ir.Operation) -> ir.WalkResult:
            if self.attribute in op.attributes:
                del op.attributes[self.attribute]
            return ir.WalkResult.ADVANCE

        module.walk(visit)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The passes are known, whatever other tests of this process took away."""
    RUNS.clear()
    for cls in (OwnLook, OwnSpoil):
        monkeypatch.setitem(PASSES, cls.name, cls)


def class_of(name: str, base: type[Pass] = Pass, **methods: Any) -> Callable[[], type]:
    return lambda: type("Mine", (base,), {"name": name, "__module__": "mine", **methods})


def run(self: Any, module: ir.Operation) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("cse", "MLIR has a pass named 'cse'; give the class 'Mine' another name"),
        ("sparsifier", "MLIR has a pass named 'sparsifier'"),
        ("affine-loop-fusion", "MLIR has a pass"),
        ("fuse-device-ops", "The compiler has a pass named 'fuse-device-ops'"),
        ("two words", "'two words' cannot be the name of a pass"),
    ],
)
def test_names_of_others_are_refused(name: str, sentence: str) -> None:
    """At the class statement, before a pipeline could run another pass than the user means."""
    with pytest.raises(TypeError, match=sentence):
        class_of(name, run=run)()
    assert name not in PASSES or PASSES[name].__module__ != "mine"


@pytest.mark.parametrize(
    ("base", "methods", "sentence"),
    [
        (Pass, {}, r"The pass 'own-bad' has no method 'run\(self, module\)'"),
        (Pass, {"run": lambda self: None}, r"takes \(self\); it must take \(self, module\)"),
        (Pass, {"run": lambda self, module, context: None}, r"must take \(self, module\)"),
        (EvaluatingPass, {}, r"has no method 'decide\(self, module, evaluator\)'"),
        (EvaluatingPass, {"decide": run}, r"must take \(self, module, evaluator\)"),
    ],
)
def test_the_method_is_checked_at_the_class_statement(
    base: type[Pass], methods: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(TypeError, match=sentence):
        class_of("own-bad", base, **methods)()
    assert "own-bad" not in PASSES


def test_a_class_without_the_decorator_has_a_hint() -> None:
    """Fields of a class without the decorator are not options, which is a common mistake."""
    own = class_of("own-bare", run=run, limit=3, __annotations__={"limit": "int"})()
    with pytest.raises(
        CompileError, match=r"its class is not a dataclass: write '@dataclass\(frozen=True\)' above it"
    ):
        own.parse("limit=4")
    del PASSES["own-bare"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "def f(x)\n  pass\n",
            ['File "', "def f\\(x\\)", r"\^", "own.py:1:9: error: The file of --load fails: SyntaxError:"],
        ),
        (
            "x = {}\ny = x['a']\n",
            ["Traceback", 'own.py", line 2, in <module>', "own.py:2:5: error: .*KeyError: 'a'"],
        ),
        (
            "from json import loads\n\ndef f():\n    return loads('{')\n\nf()\n",
            ["Traceback", "line 6, in <module>", "line 4, in f", "own.py:4:12: error: .*JSONDecodeError"],
        ),
        (
            "from spyre_mlir.passes.base import Pass\nclass P(Pass):\n    name = 'cse'\n    run = print\n",
            [
                "Traceback",
                "line 2, in <module>",
                "class P",
                "own.py:2:1: error: .*MLIR has a pass named 'cse'",
            ],
        ),
    ],
)
def test_an_error_of_a_file_ends_in_the_file(
    text: str, lines: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The traceback has user frames, without frames of the compiler around them or of a library below."""
    (tmp_path / "own.py").write_text(text)
    assert spyre_opt.main(["--load", str(tmp_path / "own.py")]) == 1
    output = capsys.readouterr().err
    assert re.search(".*".join(lines), output, re.DOTALL), output
    assert "loading.py" not in output and "json/" not in output and "passes/base.py" not in output


def test_a_method_may_come_from_a_base() -> None:
    """An abstract base has no name, and an evaluating pass needs no ``run``."""
    base = type("Base", (Pass,), {"run": run})
    assert type("Mine", (base,), {"name": "own-inherited"}).name == "own-inherited"
    decide = {"decide": lambda self, module, evaluator: None}
    assert class_of("own-deciding", EvaluatingPass, **decide)().name == "own-deciding"
    for name in ("own-inherited", "own-deciding"):
        del PASSES[name]


@pytest.mark.parametrize("level", LEVELS)
def test_passes_run_behind_their_level(level: str) -> None:
    """Instances keep their options, texts are parsed as pipelines; a pass that only reads changes nothing."""
    passes = {level: [OwnLook("a b", (1, 2)), "own-look{note=c}, func.func(cse)"]}
    program = spyre_mlir.compile(PROGRAM, passes=passes)
    assert [entry[:2] for entry in RUNS[:2]] == [("a b", (1, 2)), ("c", ())]
    assert RUNS[-1][2] == {"tiled": "device-ops"}.get(level, level)
    if level == "bundle":
        return
    assert program.bundle == spyre_mlir.compile(PROGRAM).bundle


def test_the_text_of_the_option_is_read_back() -> None:
    """The text may contain blanks, commas and braces, as for all options of the pipeline."""
    option = entries({"laid-out": [OwnLook("a b", (1, 2)), OwnLook()], "placed": "func.func(cse{x=1,y})"})
    assert option == (
        'laid-out=own-look{note="a b" numbers=1,2}', "laid-out=own-look", "placed=func.func(cse{x=1,y})"
    )  # fmt: skip
    pipeline = SpyrePipeline(passes=option, insert=("own-look{numbers=1,2}@cse",), lx_ops=("add", "exp"))
    assert SpyrePipeline.parse(pipeline.given()) == pipeline


@pytest.mark.parametrize(
    ("passes", "sentence"),
    [
        ({"laidout": [OwnLook()]}, "There is no level 'laidout'; the levels are device-ops, tiled, laid-out"),
        (
            {"laid-out": [OwnLook]},
            "A pass is an instance of a class of passes, or a text, not the class OwnLook",
        ),
        ({"laid-out": 3}, "not an int"),
        ({"laid-out": "own-lok"}, "There is no pass named 'own-lok'; did you mean 'own-look'?"),
        ({"laid-out": "own-look{speed=1}"}, "The pass 'own-look' has no option 'speed'"),
        (
            {"laid-out": [OwnLook('"{')]},
            "options that cannot be written as text|must have the form|has no '}'",
        ),
        ("laid-out=own-look", "takes passes by level"),
        (["own-look"], "it takes LEVEL=PASS, with a level of device-ops"),
    ],
)
def test_wrong_passes_are_sentences(passes: Any, sentence: str) -> None:
    with pytest.raises(CompileError, match=sentence):
        spyre_mlir.compile(PROGRAM, passes=passes)


def test_a_class_that_was_defined_again_is_no_silent_change() -> None:
    """After a redefinition, as in a notebook, an instance of the old class would run the new code."""
    old = class_of("own-again", run=run)()
    new = class_of("own-again", run=run)()
    with pytest.raises(CompileError, match="was defined again"):
        entries({"placed": [old()]})
    assert entries({"placed": [new()]}) == ("placed=own-again",)
    del PASSES["own-again"]


@pytest.mark.parametrize("level", ["divided", "placed"])
def test_verifiers_see_what_a_pass_leaves(level: str) -> None:
    """The level's own, without ``verify_each``."""
    with pytest.raises(CompileError):
        spyre_mlir.compile(PROGRAM, passes={level: [OwnSpoil()]}, fallback=False)


def test_a_level_above_the_program_is_refused() -> None:
    """Else the passes would not run, and nobody would know."""
    with pytest.raises(
        CompileError, match=r"'laid-out' would not run: the program enters at the level 'divided'"
    ):
        SpyrePipeline(from_level="divided", passes=("laid-out=own-look",)).pipeline()


def test_programs_with_functions_of_the_host_and_loops() -> None:
    """User-defined passes run on each bundle."""
    program = spyre_mlir.compile(
        lambda x: torch.sin(torch.exp(x)) @ x.t(),
        (torch.ones(64, 64).half(),),
        passes={"placed": [OwnLook()]},
    )
    assert len(program.bundles) == 2 and len([entry for entry in RUNS if entry[2] == "placed"]) >= 2


def test_only_passes_that_run_keep_a_program_out_of_the_cache(
    cache_log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass that a notebook defines, and does not use, is nothing to a program; one that runs is not in the key."""
    monkeypatch.setitem(PASSES, OwnLook.name, OwnLook)

    def lines(**options: Any) -> str:
        cache_log.clear()
        spyre_mlir.compile(PROGRAM, **options)
        return " ".join(record.getMessage() for record in cache_log.records if record.levelno >= logging.INFO)

    assert "is now entry" in lines()
    assert "no pass runs" in lines()
    for options in ({"passes": {"placed": [OwnLook()]}}, {"insert": ("own-look@coarse-tiling",)}):
        for _ in range(2):
            RUNS.clear()
            assert "runs the user-defined pass 'own-look'" in lines(**options)
            assert RUNS


def test_tools_take_passes_by_level(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "p.mlir").write_text(PROGRAM)
    command = [str(tmp_path / "p.mlir"), "-o", str(tmp_path / "p.bundle"), "--sencores", "4"]
    assert (
        spyre_compile.main(
            [*command, "--passes", "placed=own-look{note=x},own-look", "--passes", "tiled=cse"]
        )
        == 0
    )
    assert [entry[0] for entry in RUNS if entry[2] == "placed"][-2:] == ["x", ""]
    assert spyre_compile.main([*command, "--passes", "palced=cse"]) == 1
    assert "There is no level 'palced'; the levels are device-ops, tiled" in capsys.readouterr().err
    option = "--spyre-pipeline=passes={tiled=own-look{note=y numbers=1,2},placed=cse}"
    assert spyre_opt.main([str(tmp_path / "p.mlir"), option, "-o", str(tmp_path / "out.mlir")]) == 0
    assert RUNS[-1][:2] == ("y", (1, 2))


def test_the_pipeline_is_listed(capsys: pytest.CaptureFixture) -> None:
    """The passes in the order in which they run, each after its level."""
    assert spyre_opt.main(["--list-passes=spyre-pipeline"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    steps = [step for step in SpyrePipeline().pipeline().steps if step.stage in LEVELS]
    assert [(line[0], line[1]) for line in lines] == [(step.stage, str(step)) for step in steps]
    assert all(len(line) > 2 for line in lines)


def test_a_result_of_a_changed_program_is_its_own() -> None:
    """The passes are part of the program that runs."""
    x, w = np.full((64, 128), 0.01, np.float16), np.eye(128, dtype=np.float16)
    program = spyre_mlir.compile(PROGRAM, passes={"laid-out": "canonicalize"})
    np.testing.assert_allclose(program(x, w), np.exp(x.astype(np.float32)), rtol=2e-3)
