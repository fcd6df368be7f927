# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The error of the simulator: one misuse, with its operation, tensor, core and address."""

from __future__ import annotations

from spyre_mlir.bundle.model import Design
from spyre_mlir.errors import CompileError


class SimulationError(CompileError):
    """A bundle that cannot be run, or that would read or write something it must not.

    Attributes:
        kind: A fixed word per misuse (the tests and the report go by it).
        tensor: The tensor, where it is known.
        core: The core, where it is known.
        address: The address in bytes, where it is known.
        filename: The design's file, where it is known.
    """

    def __init__(
        self,
        kind: str,
        text: str,
        *,
        design: Design | None = None,
        tensor: str | None = None,
        core: int | None = None,
        address: int | None = None,
    ) -> None:
        """Create an error of a ``kind`` with a ``text``, of ``design``, ``tensor``, ``core`` and ``address``."""
        self.kind: str = kind
        self.tensor: str | None = tensor
        self.core: int | None = core
        self.address: int | None = address
        self.filename: str | None = design.filename if design else None
        where = f"{design.filename} ({design.opcode})" if design else ""
        parts = [
            where,
            f"tensor '{tensor}'" if tensor is not None else "",
            f"core {core}" if core is not None else "",
            f"address {address:#x}" if address is not None else "",
        ]
        prefix = ", ".join(part for part in parts if part)
        super().__init__(f"{prefix}: {text}" if prefix else text, design.source if design else "")


class IntegerRangeError(SimulationError):
    """Integers of 64 bits that the 32 bits of the device cannot hold: an argument, or what a number became."""
