# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Moved modules that the manual once named: importing an old path raises an error that names the new path."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "spyre_mlir.cost.model": "spyre_mlir.cost.cost_model",
    "spyre_mlir.cost.ring": "spyre_mlir.cost.ring_traffic",
    "spyre_mlir.driver.eager": "spyre_mlir.frontend.eager",
    "spyre_mlir.driver.torch_programs": "spyre_mlir.frontend.torch_programs",
    "spyre_mlir.eager": "spyre_mlir.frontend.eager",
    "spyre_mlir.export": "spyre_mlir.lowering.export",
    "spyre_mlir.layout.transfer": "spyre_mlir.layout.host_transfer",
    "spyre_mlir.program": "spyre_mlir.driver.program",
    "spyre_mlir.scratchpad.memory_plan": "spyre_mlir.scratchpad.solver",
    "spyre_mlir.scratchpad.moving_solver": "spyre_mlir.scratchpad.spill_and_reload",
}


class MovedModuleFinder:
    """Last import finder: a module that no other finder has found may have moved.

    It does not use the abstract base class of finders, whose module imports half of the standard library.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise ``ModuleNotFoundError`` with the new path of a moved module; return None for any other module."""
        if fullname in MOVED:
            raise ModuleNotFoundError(f"The module '{fullname}' is '{MOVED[fullname]}' now.", name=fullname)
        return None


def install() -> None:
    """Append the finder after all other finders, once."""
    if not any(isinstance(finder, MovedModuleFinder) for finder in sys.meta_path):
        sys.meta_path.append(MovedModuleFinder())
