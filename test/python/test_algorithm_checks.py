# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The base test suite of algorithms: algorithms of the compiler pass, and planted faults fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_algorithms import COST_MODEL, DIVISION, JOINT, LAYOUTS, TILING, own_registries

from spyre_mlir.algorithms import REGISTRIES
from spyre_mlir.experiments.check.__main__ import main
from spyre_mlir.experiments.check.algorithm_checks import checks_of

__all__ = ["own_registries"]

SOLVER = """
from dataclasses import dataclass
from spyre_mlir.algorithms import register
from spyre_mlir.scratchpad import MemoryPlanSolver
from spyre_mlir.scratchpad.fitting import fit, lowest
from spyre_mlir.scratchpad.solver import Placement

@register
@dataclass(frozen=True)
class InOrder(MemoryPlanSolver):
    name = "test-solver"

    def place(self, instance):
        return Placement(fit(instance, list(range(len(instance))), lowest))
"""


@pytest.mark.parametrize("option", REGISTRIES)
def test_the_compilers_own_pass(option: str) -> None:
    registry = REGISTRIES[option]
    for check in checks_of(registry.find(registry.default), seeds=10):
        check.run()


@pytest.mark.parametrize("text", [SOLVER, DIVISION, LAYOUTS, JOINT, TILING, COST_MODEL])
def test_those_of_users_pass(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text(text)
    assert main([str(tmp_path / "own.py"), "--seeds", "5"]) == 0
    output = capsys.readouterr().out
    assert output.count("\n  ok ") >= 5 and "FAIL" not in output


@pytest.mark.parametrize(
    ("text", "change", "sentence"),
    [
        (DIVISION, ("return splits", "import random; return random.choice([splits, list(problem.committed)])"),
         "It is not deterministic"),
        (DIVISION, ("return splits", "return [problem.cores + 1, *splits[1:]]"), "gives a wrong answer"),
        (DIVISION, ("return splits", "problem.__dict__['opcode'] = 'x'; return splits"), "It changes problem"),
        (DIVISION, ("    def divide", "    def __reduce__(self): raise TypeError('no')\n    def divide"),
         "It does not pickle: TypeError: no"),
        (SOLVER, ("fit(instance, list(range(len(instance))), lowest)", "dict.fromkeys(range(len(instance)), 0)"),
         "overlap"),
        (SOLVER, ("return Placement(", "instance.sizes[:] = 1; return Placement("), "is not aligned"),
        (LAYOUTS, ("return best", "return [0] * len(best)"), "whose cost is infinite"),
        (JOINT, ("[0] * len(problem.counts)", "None"), "it must be a sequence"),
        (COST_MODEL, ("/ 1000", "/ 1000 * (3 if len(work.operands) == 1 else 1)"), "its memory_ns only"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_seen(
    text: str, change: tuple[str, str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import re

    assert change[0] in text
    (tmp_path / "own.py").write_text(text.replace(*change))
    assert main([str(tmp_path / "own.py")]) == 1
    output = capsys.readouterr().out
    assert "FAIL" in output and re.search(sentence, output), output


def test_an_endless_algorithm_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spyre_mlir.experiments.check.algorithm_checks._MOST_SECONDS", 1)
    monkeypatch.setattr("spyre_mlir.experiments.check.algorithm_checks._MOST_PROGRAM_SECONDS", 1)
    endless = "import itertools; all(True for _ in itertools.count()); return splits"
    (tmp_path / "own.py").write_text(DIVISION.replace("return splits", endless))
    assert main([str(tmp_path / "own.py"), "--seeds", "1"]) == 1
    assert "It takes more than 1 s for problem 0." in capsys.readouterr().out


def test_a_file_without_algorithms_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text("x = 1\n")
    assert main([str(tmp_path / "own.py")]) == 1
    assert "registers no algorithm: put '@register' above its class" in capsys.readouterr().err
