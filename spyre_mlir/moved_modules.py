# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules that the manual once named and that have another path now: importing one is an error that names it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "spyre_mlir.cost.model": "spyre_mlir.cost.cost_model",
    "spyre_mlir.cost.ring": "spyre_mlir.cost.ring_traffic",
    "spyre_mlir.eager": "spyre_mlir.driver.eager",
    "spyre_mlir.export": "spyre_mlir.lowering.export",
    "spyre_mlir.layout.transfer": "spyre_mlir.layout.host_transfer",
    "spyre_mlir.program": "spyre_mlir.driver.program",
    "spyre_mlir.scratchpad.moving_solver": "spyre_mlir.scratchpad.spill_and_reload",
}


class MovedModuleFinder:
    """The last finder of imports: a module that no other one has found may have moved.

    It does without the base class of finders, whose module imports half of the standard library.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise ``ModuleNotFoundError`` with the new path of a moved module; None for any other."""
        if fullname in MOVED:
            raise ModuleNotFoundError(f"The module '{fullname}' is '{MOVED[fullname]}' now.", name=fullname)
        return None


def install() -> None:
    """Add the finder behind all others, once."""
    if not any(isinstance(finder, MovedModuleFinder) for finder in sys.meta_path):
        sys.meta_path.append(MovedModuleFinder())
