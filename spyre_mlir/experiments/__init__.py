# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Experiments: sweeps, with results as rows in one file (docs/experiments.md), and tuned plans (docs/tuning.md)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spyre_mlir.experiments.results import Results
    from spyre_mlir.experiments.sweeping import sweep
    from spyre_mlir.experiments.tuning import Tuned, TuningSpace, tune

#: Public names by the module that defines them, imported on first use.
_MODULES = {
    "Results": "spyre_mlir.experiments.results",
    "Tuned": "spyre_mlir.experiments.tuning",
    "TuningSpace": "spyre_mlir.experiments.tuning",
    "sweep": "spyre_mlir.experiments.sweeping",
    "tune": "spyre_mlir.experiments.tuning",
}

__all__ = ["Results", "Tuned", "TuningSpace", "sweep", "tune"]


if not TYPE_CHECKING:
    # Hidden from type checkers, which would accept every name of the package.
    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'spyre_mlir.experiments' has no attribute '{name}'")
        return getattr(importlib.import_module(_MODULES[name]), name)
