# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""User-defined algorithms, from a file outside of the package: the pipeline uses them, and reports their errors."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spyre_mlir.algorithms import REGISTRIES
from spyre_mlir.errors import CompileError
from spyre_mlir.pipelines import SpyrePipeline
from spyre_mlir.scratchpad import PlanError
from spyre_mlir.scratchpad.solvers import SOLVERS, MemoryPlanSolver, solver
from spyre_mlir.tools import spyre_compile

MATMUL = """
func.func @main(%x: tensor<64x256xf16>, %w: tensor<256x512xf16>) -> tensor<512x64xf16> {
  %e = tensor.empty() : tensor<64x512xf16>
  %zero = arith.constant 0.0 : f16
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<64x512xf16>) -> tensor<64x512xf16>
  %m = linalg.matmul ins(%x, %w : tensor<64x256xf16>, tensor<256x512xf16>)
      outs(%f : tensor<64x512xf16>) -> tensor<64x512xf16>
  %t = tensor.empty() : tensor<512x64xf16>
  %r = linalg.transpose ins(%m : tensor<64x512xf16>) outs(%t : tensor<512x64xf16>) permutation = [1, 0]
  %y = linalg.exp ins(%r : tensor<512x64xf16>) outs(%t : tensor<512x64xf16>) -> tensor<512x64xf16>
  return %y : tensor<512x64xf16>
}
"""

#: A chain whose intermediates do not fit LX, so that tiles are looked for.
CHAIN = """
func.func @main(%x: tensor<4096x1024xf16>) -> tensor<4096x1024xf16> {
  %e = tensor.empty() : tensor<4096x1024xf16>
  %a = linalg.exp ins(%x : tensor<4096x1024xf16>) outs(%e : tensor<4096x1024xf16>) -> tensor<4096x1024xf16>
  %b = linalg.tanh ins(%a : tensor<4096x1024xf16>) outs(%e : tensor<4096x1024xf16>) -> tensor<4096x1024xf16>
  %c = linalg.mul ins(%a, %b : tensor<4096x1024xf16>, tensor<4096x1024xf16>)
      outs(%e : tensor<4096x1024xf16>) -> tensor<4096x1024xf16>
  %d = linalg.add ins(%c, %b : tensor<4096x1024xf16>, tensor<4096x1024xf16>)
      outs(%e : tensor<4096x1024xf16>) -> tensor<4096x1024xf16>
  return %d : tensor<4096x1024xf16>
}
"""

DIVISION = """
import math
from spyre_mlir.algorithms import register
from spyre_mlir.division_search.work_division import WorkDivision

@register
class LastDimFirst(WorkDivision):
    name = "test-division"

    def divide(self, problem):
        splits = list(problem.committed)
        for dim in reversed(range(len(splits))):
            if dim in problem.reduced or dim in problem.blocked:
                continue
            for count in range(problem.cores, splits[dim], -1):
                changed = [*splits[:dim], count, *splits[dim + 1:]]
                if math.prod(changed) <= problem.cores and problem.is_legal(changed):
                    splits = changed
                    break
        return splits
"""

COST_MODEL = """
from spyre_mlir.algorithms import register
from spyre_mlir.cost.replaced_model import CostModel

@register
class FewCores(CostModel):
    name = "test-cost"

    def compute_ns(self, work):
        return 500.0 * work.cores + work.sticks_per_core

    def memory_ns(self, work):
        return sum(operand.bytes for operand in work.operands if not operand.in_lx) / 1000
"""

LAYOUTS = """
from spyre_mlir.algorithms import register
from spyre_mlir.layout_search.layout_choice import LayoutChoice

@register
class Dearest(LayoutChoice):
    name = "test-layouts"

    def choose(self, problem):
        best = list(problem.sum().minimize().states)
        for tensor, count in enumerate(problem.counts):
            states = [[*best[:tensor], state, *best[tensor + 1:]] for state in range(count)]
            costs = [problem.cost(option) for option in states]
            finite = [cost for cost in costs if cost < float("inf")]
            best = states[costs.index(max(finite))]
        return best
"""

JOINT = """
from spyre_mlir.algorithms import register
from spyre_mlir.division_search.joint_choice import JointDivider

@register
class AsTheyCame(JointDivider):
    name = "test-joint"

    def choose(self, problem):
        return [0] * len(problem.counts)
"""

TILING = """
from spyre_mlir.algorithms import register
from spyre_mlir.tiling.tiling_choice import TilingChoice

@register
class MostTiles(TilingChoice):
    name = "test-tiling"

    def choose(self, problem):
        possible = [i for i in range(len(problem.candidates)) if problem.evaluate(i) is not None]
        return max(possible, key=lambda i: problem.candidates[i].tiles, default=None)
"""

#: A program, an algorithm, its option, and the other options.
KINDS = {
    "division": (MATMUL, DIVISION, "division=test-division", ""),
    "cost model": (MATMUL, COST_MODEL, "cost-model=test-cost", ""),
    "layout choice": (MATMUL, LAYOUTS, "layout-choice=test-layouts", ""),
    "joint division": (MATMUL, JOINT, "joint-division=test-joint", ""),
    "tiling": (CHAIN, TILING, "tiling=test-tiling", "lx-frac-avail=0.8"),
}


@pytest.fixture(autouse=True)
def own_registries() -> Iterator[None]:
    """Remove the algorithms that a test registers."""
    yield
    for registry in REGISTRIES.values():
        for name in [name for name, cls in registry.classes.items() if cls.is_foreign()]:
            del registry.classes[name]


def run(folder: Path, program: str, algorithm: str, options: str, *flags: str) -> int:
    (folder / "p.mlir").write_text(program)
    (folder / "own.py").write_text(algorithm)
    command = [
        str(folder / "p.mlir"),
        "-o",
        str(folder / "p.bundle"),
        "--load",
        str(folder / "own.py"),
        "--no-cache",
    ]
    return spyre_compile.main([*command, "--pipeline", options, *flags])


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "p.bundle").rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_an_algorithm_from_outside_decides(kind: str, tmp_path: Path) -> None:
    """Another plan, twice the same, whose numbers are right on the simulator of bytes."""
    program, algorithm, option, others = KINDS[kind]
    assert len(algorithm.strip().splitlines()) <= 40
    plans = []
    for options, flags in ((others, ()), (f"{others} {option}", ("--check",)), (f"{others} {option}", ())):
        assert run(tmp_path, program, algorithm, f"{options} verify-each", *flags) == 0
        plans.append(files(tmp_path))
    assert plans[0] != plans[1] and plans[1] == plans[2]


def test_the_cost_model_is_that_of_the_timeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A saved bundle names its model, by which it is timed; one that is not there is an error."""
    from spyre_mlir.tools import spyre_report

    assert (
        run(tmp_path, MATMUL, COST_MODEL, "cost-model=test-cost", "--metrics", str(tmp_path / "m.json")) == 0
    )
    slow = json.loads((tmp_path / "m.json").read_text())["predicted_us"]
    # Compute takes 500 ns for each core of each operation, whatever it does.
    assert slow > 1
    assert '"test-cost"' in (tmp_path / "p.bundle" / "manifest.json").read_text()
    del REGISTRIES["cost_model"].classes["test-cost"]
    capsys.readouterr()
    assert spyre_report.main([str(tmp_path / "p.bundle")]) == 1
    assert "There is no cost model 'test-cost'; the cost models are analytic." in capsys.readouterr().err


RAISES = "raise KeyError('lost')"


@pytest.mark.parametrize(
    ("kind", "change", "line", "sentence"),
    [
        ("division", ("splits = list(problem.committed)", RAISES), 11, r"The division 'test-division' fails for 'b"),
        ("division", ("return splits", "return splits[1:]"), 6, "the operation has 3 dims"),
        ("division", ("return splits", "return [64, 1, 1]"), 6, "it needs 64 cores|64 units"),
        ("division", ("return splits", "return 'abc'"), 6, "must be a sequence of integers, not 'abc'"),
        ("division", ("return splits", "return [1.5, 1, 1]"), 6, "must be a sequence of integers"),
        ("cost model", ("return 500.0", RAISES + " #"), 10, "The cost model 'test-cost' fails for .*KeyError: 'lost'"),
        ("cost model", ("return 500.0 *", "return -1.0 *"), 5, "compute_ns is -.*; it must be a finite number"),
        ("cost model", ("/ 1000", "* float('nan')"), 5, "memory_ns is nan|stream_ns is nan"),
        ("layout choice", ("return best", "return best[1:]"), 5, "entries for"),
        ("layout choice", ("return best", "return None"), 5, "it is None, but the best states cost"),
        ("layout choice", ("return best", "return [99] * len(best)"), 5, "entry 0 is 99; it must be an integer from 0"),
        ("layout choice", ("return best", "problem.tables[min(problem.tables)][:] = 0"), 16, "read-only"),
        ("joint division", ("return [0]", "return [-1]"), 5, "entry 0 is -1"),
        ("joint division", ("return [0]", RAISES + " #"), 10, "The joint division 'test-joint' fails"),
        ("tiling", ("return max", "return len(possible) + 99 #"), 5, "is neither None nor an integer from 0 to"),
        ("tiling", ("return max", RAISES + " #"), 11, "The tiling 'test-tiling' fails"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_error_at_its_place(
    kind: str,
    change: tuple[str, str],
    line: int,
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The error has file and line of the algorithm and no traceback, and the host does not run the program instead."""
    program, algorithm, option, others = KINDS[kind]
    assert change[0] in algorithm
    assert run(tmp_path, program, algorithm.replace(*change), f"{others} {option}") == 1
    output = capsys.readouterr().err.strip()
    assert re.match(rf"\S*own\.py:{line}:\d+: error: .*({sentence})", output), output
    assert len(output.splitlines()) == 1


def test_an_unknown_name_is_an_error_with_the_list() -> None:
    with pytest.raises(
        CompileError,
        match=r"There is no tiling 'least'; the tilings are least-time .did you mean 'least-time'",
    ):
        SpyrePipeline(tiling="least").pipeline()


def test_the_sentence_about_an_unknown_name_has_one_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered algorithms of a user neither cut the suggestion off nor make the sentence longer."""
    many = SOLVERS | {f"own-solver-{number}": SOLVERS["greedy"] for number in range(40)}
    monkeypatch.setattr(MemoryPlanSolver.registry, "classes", many)
    with pytest.raises(
        PlanError, match=r"the solvers are bestfit, .* and \d+ more .did you mean 'bestfit'..\.$"
    ):
        MemoryPlanSolver.registry.find("bestest")


@pytest.mark.parametrize("name", [None, 3, ["greedy"], int])
def test_a_name_that_is_no_text_is_an_error(name: Any) -> None:
    with pytest.raises(PlanError, match="is a text, not"):
        solver(name)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "class A(WorkDivision):\n    name = 'priority'\n    divide = print",
            "Two divisions are named 'priority'",
        ),
        ("class A(WorkDivision):\n    name = 'mine'", "The division 'A' lacks: divide"),
        ("class A(WorkDivision):\n    divide = print", "The division 'A' lacks: name"),
        ("class A:\n    pass", "'A' is not an algorithm: it must derive from an algorithm base class"),
    ],
)
def test_what_cannot_be_registered_is_refused(
    text: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imports = "\n".join(DIVISION.splitlines()[:4])
    assert run(tmp_path, MATMUL, f"{imports}\n@register\n{text}\n", "") == 1
    output = capsys.readouterr().err
    assert sentence in output and "own.py:5:" in output


def test_entry_points_are_found_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package has them in its metadata; its module is imported when the name is asked for."""
    (tmp_path / "spyre_test_division.py").write_text(DIVISION.replace("@register\n", ""))
    metadata = tmp_path / "spyre_test_division-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: spyre-test-division\nVersion: 1.0\n")
    entries = (
        "[spyre_mlir.divisions]",
        "test-division = spyre_test_division:LastDimFirst",
        "other = spyre_test_division:math",
    )
    (metadata / "entry_points.txt").write_text("\n".join(entries))
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = REGISTRIES["division"]
    assert "test-division" in registry.names() and "spyre_test_division" not in sys.modules
    assert registry.find("test-division").__name__ == "LastDimFirst"
    with pytest.raises(
        CompileError, match="'spyre_test_division:math' is not a division with the name 'other'"
    ):
        registry.find("other")
    del sys.modules["spyre_test_division"]


def test_a_class_that_was_defined_again_decides(tmp_path: Path) -> None:
    """Caches know algorithms by their names, so a class that is defined again, as in a notebook, replaces the first."""
    plans = []
    for factor in ("500.0", "0.0"):
        assert run(tmp_path, MATMUL, COST_MODEL.replace("500.0", factor), "cost-model=test-cost") == 0
        plans.append(files(tmp_path))
    assert plans[0] != plans[1]


def test_the_code_of_an_algorithm_is_part_of_the_key(
    cache_log: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key includes the code of the modules that it imports; an algorithm without a file has no key."""
    import spyre_mlir

    (tmp_path / "spyre_test_helper.py").write_text("FACTOR = 500.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    text = COST_MODEL.replace(
        "        return 500.0 *", "        import spyre_test_helper\n        return 500.0 *"
    )

    def served(model: str) -> bool:
        from spyre_mlir.loading import load

        (tmp_path / "own.py").write_text(model)
        load(str(tmp_path / "own.py"))
        cache_log.clear()
        spyre_mlir.compile(MATMUL, cost_model="test-cost")
        return any("no pass runs" in record.getMessage() for record in cache_log.records)

    assert [served(text), served(text), served(text.replace("500.0", "400.0"))] == [False, True, False]
    (tmp_path / "spyre_test_helper.py").write_text("FACTOR = 400.0\n")
    assert [served(text), served(text)] == [False, True]
    cls = REGISTRIES["cost_model"].classes["test-cost"]
    monkeypatch.setattr(cls, "__module__", "nowhere")
    cache_log.clear()
    spyre_mlir.compile(MATMUL, cost_model="test-cost")
    assert "may run the cost model 'test-cost', whose code is not in a file" in cache_log.text
