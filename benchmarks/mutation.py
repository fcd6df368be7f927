# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Planted faults, and the tests that find them: the coverage of the samples of ``make check``.

``python -m benchmarks mutation`` plants one fault at a time in a copy of the checkout and runs the tests that
``make check`` runs, the nearest to the file first, until one fails. Tests that do not reach the file through imports
run as the programs of ``make check-changed`` do, end to end. ``--sample no`` runs all cases, as ``make check-all``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import ROOT
from benchmarks.programs import changed, import_graph
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.errors import CompileError

#: The number of test files that one process of pytest runs.
_FILES = 4

#: Files that the copy leaves out; the bytecode of unchanged sources is valid.
_IGNORED = shutil.ignore_patterns(
    ".git", ".venv", "dist", "out", "build", "Output", ".pytest_cache", ".ruff_cache"
)


@dataclass(frozen=True)
class Fault:
    """A text that occurs once in a file, and the wrong text that replaces it."""

    name: str
    path: str
    right: str
    wrong: str

    def mutated(self, text: str) -> str:
        """Return the text of the file with the fault; ``CompileError`` unless the right text occurs once."""
        if text.count(self.right) != 1:
            raise CompileError(
                f"The text of the fault '{self.name}' is {text.count(self.right)} times in {self.path}."
            )
        return text.replace(self.right, self.wrong)


FAULTS = (
    Fault("hoisting never pays", "passes/hoist_loads.py",
          "new.nanoseconds >= old.nanoseconds)", "new.nanoseconds <= old.nanoseconds)"),
    Fault("orders that move more bytes", "passes/reorder_operations.py",
          "if after.bytes >= before.bytes or", "if after.bytes < before.bytes or"),
    Fault("a clone after its first reader", "passes/clone_inputs.py",
          "first = min(readers, key", "first = max(readers, key"),
    Fault("loops unrolled at a loss", "passes/unroll_tiles.py",
          "after.nanoseconds < before.nanoseconds:", "after.nanoseconds > before.nanoseconds:"),
    Fault("negative dims off by one", "frontend/normal_forms.py",
          "return dims + rank if dims < 0", "return dims + rank - 1 if dims < 0"),
    Fault("reach of a window", "frontend/convolutions.py",
          "reach = [step * (size - 1)", "reach = [step * size"),
    Fault("rows scattered in part", "frontend/normal_forms.py",
          "return source if is_whole and is_single", "return source if is_single"),
    Fault("last offset of a sequence", "layout/view_transforms.py",
          "return self.first + self.step * (self.count - 1)", "return self.first + self.step * self.count"),
    Fault("sticks in part left out", "layout/view.py",
          "exact = -(-self.shape[axis.dim] // axis.divisor) == axis.size",
          "exact = self.shape[axis.dim] // axis.divisor == axis.size"),
    Fault("places of padding", "layout/padding.py",
          "steps = (position // axis.divisor * axis.stride", "steps = (position * axis.stride"),
    Fault("filled slices rounded down", "division/slices.py", "return -(-units // share)", "return units // share"),
    Fault("sums shared by all dims alone", "division/cores.py",
          "return any(self.splits[dim] > 1 for dim in self.reduced)",
          "return all(self.splits[dim] > 1 for dim in self.reduced)"),
    Fault("traffic beyond the last row", "cost/of_space.py",
          "max(0, min(share, extent - first))", "max(0, share)"),
    Fault("buffers that loops read later", "scratchpad/liveness.py",
          " or buffer in steps[inside[0]].reads):", "):"),
    Fault("a hop too many of partial sums", "cost/cost_model.py",
          "return (work.parts - 1) * work.outputs_per_core", "return work.parts * work.outputs_per_core"),
    Fault("results stored for nothing", "timeline/events.py",
          "stored = max(self.cores, self.store)", "stored = self.cores"),
    Fault("overlap of buffers", "bundle/model.py",
          "self.base == other.base and not is_apart", "self.base == other.base and self.offset == other.offset"),
    Fault("buffers beyond the memory", "bundle/rules_memory.py",
          "buffer.offset + buffer.bytes > capacity", "buffer.offset > capacity"),
    Fault("empty slices", "bundle/rules_design.py",
          "if not (slices - 1) * share < size <= slices * share:", "if not size <= slices * share:"),
    Fault("relayouts onto themselves", "bundle/rules_design.py",
          "if source[0] < result[1] and result[0] < source[1]:", "if source[0] == result[0]:"),
    Fault("reads beyond an allocation", "simulator/memory.py",
          "if offset < 0 or offset + size > capacity:", "if offset < 0 or offset > capacity:"),
    Fault("sticks written in part", "simulator/memory.py",
          "((tags & _TAG) == tag) & ((tags >> _COUNT_SHIFT) >= wanted_bytes)", "(tags & _TAG) == tag"),
)  # fmt: skip


@benchmark(missed=0)
def mutation(faults: str = "", files: int = 0, sample: str = "yes") -> Metrics:
    """Planted faults that the tests of ``make check`` find, each with the test that found it.

    ``faults`` are names, separated by commas; ``files`` limits the number of pytest files for a fault.
    """
    names = [name for name in faults.split(",") if name]
    chosen = [fault for fault in FAULTS if not names or fault.name in names]
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(ROOT, copy, symlinks=True, ignore=_IGNORED)
        found = {fault: _planted(fault, copy, files, sample == "yes") for fault in chosen}
    notes = [f"{fault.name} ({fault.path}): {test or 'NOT FOUND'}" for fault, test in found.items()]
    missed = sum(not test for test in found.values())
    return Noted({"faults": len(found), "found": len(found) - missed, "missed": missed}, notes)


def _planted(fault: Fault, copy: Path, files: int, sample: bool) -> str:
    """Return the test that finds a fault, empty if none does, and restore the file of the copy."""
    path = Path("spyre_mlir") / fault.path
    (copy / path).write_text(fault.mutated((ROOT / path).read_text(encoding="utf-8")), encoding="utf-8")
    try:
        tests = (_first_failure(command, copy) for command in _commands(path.as_posix(), files, sample))
        return next(filter(None, tests), "")
    finally:
        shutil.copy2(ROOT / path, copy / path)


def _commands(path: str, files: int, sample: bool) -> Iterator[list[str]]:
    """Yield the commands that run the tests of a file, the nearest first."""
    marks = ["-m", "not exhaustive and not documents"] if sample else []
    pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *marks]
    python = sorted(import_graph().python_tests([path]), key=lambda test: _distance(test, path))
    chunks = [python[first : first + _FILES] for first in range(0, files or len(python), _FILES)]
    yield from ([*pytest, *chunk] for chunk in chunks[:1] if chunk)
    if lit := import_graph().lit_tests([path]):
        yield [sys.executable, "-c", "from lit.main import main; main()", "-q", "--max-failures=1", *lit]
    yield [*pytest, *changed().END_TO_END]
    yield from ([*pytest, *chunk] for chunk in chunks[1:] if chunk)


def _distance(test: str, path: str) -> tuple[int, int]:
    """Return the sort key of a test file: first names with words of the path, then files that reach few files."""
    graph, name = import_graph(), Path(test).stem
    return -len(graph.nouns(path) & graph.nouns(name)), len(graph.reached(name))


def _first_failure(command: list[str], copy: Path) -> str:
    """Run tests; return the name of the first failure, empty if none fails."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(copy)
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    named = re.search(r"^(?:FAILED|ERROR|FAIL: spyre-mlir ::) *(\S+)", done.stdout, re.MULTILINE)
    # Status 5 of pytest: no tests were collected.
    if named is None and done.returncode not in (0, 5):
        return f"{Path(command[0]).name} ends with the status {done.returncode}"
    return named[1] if named else ""
