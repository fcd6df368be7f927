# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Time in which a tool answers."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.measure import ROOT, best, tool
from benchmarks.registry import Metrics, benchmark

SOFTMAX = ROOT / "spyre_mlir" / "zoo" / "linalg" / "softmax.mlir"

_RUN = """
import sys
from spyre_mlir.tools.spyre_opt import main
main([{path!r}, "--spyre-pipeline", "-o", "/dev/null"])
sys.exit("torch" in sys.modules)
"""


@benchmark(version_seconds=0.5, softmax_seconds=0.35, torch_imported=0)
def startup() -> Metrics:
    """spyre-opt --version, and the pipeline on softmax.mlir, the process included, best of 3."""
    return {
        "version_seconds": best(lambda: tool("spyre-opt", "--version").seconds),
        "softmax_seconds": best(lambda: tool("spyre-opt", SOFTMAX, "--spyre-pipeline").seconds),
        "torch_imported": _imports_torch(),
    }


def _imports_torch() -> int:
    return subprocess.run([sys.executable, "-c", _RUN.format(path=str(SOFTMAX))], cwd=ROOT).returncode
