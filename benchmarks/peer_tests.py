# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Public tests of torch-spyre on the simulated device: fetched by whoever runs them, never a part of this project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

from benchmarks.measure import ROOT
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.errors import CompileError

#: Outcomes of a test, by the element that a report has for it.
_OUTCOMES = {"failure": "failed", "error": "failed", "skipped": "skipped"}
#: A test that is stated to fail on a card, and passes here, is "unexpected".
COLUMNS = ("passed", "unexpected", "failed", "skipped")


@benchmark()
def peer_tests(path: str = "", only: str = "") -> Metrics:
    """Tests of torch-spyre that pass with ``python -m spyre_mlir.torch_spyre -m pytest``, and why the others fail.

    The column "unexpected" counts tests that state that a card fails (strict ``xfail``), and that pass here.

    ``path`` is a file of tests or their folder, outside this checkout; ``only`` is an expression of pytest's ``-k``.
    """
    if not path or not Path(path).exists():
        raise CompileError("The tests are not there; fetch them, and give their file or folder as --path.")
    whole = Path(path)
    files = [whole] if whole.is_file() else sorted(whole.rglob("test_*.py"))
    metrics: dict[str, float] = {}
    notes: list[str] = []
    for file in files:
        outcomes, reasons = _run(file, only)
        name = file.stem
        metrics |= {f"{name}.{column}": outcomes[column] for column in COLUMNS}
        notes += [f"{name}: {count} x {reason}" for reason, count in reasons.most_common()]
    return Noted(metrics, notes, COLUMNS)


def _run(file: Path, only: str) -> tuple[Counter[str], Counter[str]]:
    """Return how many tests of a file have each outcome, and the first lines of the failures."""
    with tempfile.TemporaryDirectory(prefix="peer-tests-") as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable, "-W", "ignore", "-m", "spyre_mlir.torch_spyre", "-m", "pytest", "-q", "-c", os.devnull,
            "-p", "no:cacheprovider", f"--confcutdir={file.parent}", f"--junitxml={report}", str(file),
        ]  # fmt: skip
        environment = os.environ | {"PYTHONPATH": f"{ROOT}:{file.parent}"}
        done = subprocess.run(
            command + (["-k", only] if only else []), cwd=file.parent, env=environment, capture_output=True
        )
        if not report.exists():
            return Counter(failed=1), Counter([done.stderr.decode(errors="replace").strip().splitlines()[-1]])
        cases = list(ElementTree.parse(report).iter("testcase"))
    outcomes, reasons = Counter[str](), Counter[str]()
    for case in cases:
        found = [element for element in case if element.tag in _OUTCOMES]
        if any((element.get("message") or "").startswith("[XPASS(strict)]") for element in found):
            outcomes["unexpected"] += 1
            continue
        outcomes[_OUTCOMES[found[0].tag] if found else "passed"] += 1
        for element in found:
            if _OUTCOMES[element.tag] == "failed":
                first = (element.get("message") or "").strip().splitlines() or ["no message"]
                reasons[_reason(first[0])] += 1
    return outcomes, reasons


def _reason(message: str) -> str:
    """Return why a test fails, from the first line of its message."""
    internal = re.search(
        r"No module named 'torch_spyre\.([\w.]+)'|'[\w.]*public[\w.]*' has no attribute '(\w+)'", message
    )
    if internal:
        return f"internals of torch-spyre: {internal[1] or internal[2]}"
    return re.sub(r"\s+", " ", message)[:160]
