"""Experiments: sweeps over programs, options and devices, whose results are rows in one file (docs/experiments.md)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spyre_mlir.experiments.results import Results
    from spyre_mlir.experiments.sweeping import sweep

#: Public names by the module that defines them, imported on first use.
_MODULES = {
    "Results": "spyre_mlir.experiments.results",
    "sweep": "spyre_mlir.experiments.sweeping",
}

__all__ = ["Results", "sweep"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'spyre_mlir.experiments' has no attribute '{name}'")
    return getattr(importlib.import_module(_MODULES[name]), name)
