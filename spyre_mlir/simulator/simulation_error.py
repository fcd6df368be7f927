# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The error of the simulator: one violation, with its operation, tensor, core and address."""

from __future__ import annotations

from spyre_mlir.bundle.model import Design
from spyre_mlir.errors import CompileError


class SimulationError(CompileError):
    """A bundle that cannot be run, or that would read or write data that it must not.

    Attributes:
        kind: A fixed word per kind of violation (tests and reports use it).
        tensor: The tensor, if it is known.
        core: The core, if it is known.
        address: The address in bytes, if it is known.
        filename: The design's file, if it is known.
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
        """Create an error of a ``kind`` with a ``text``, about ``design``, ``tensor``, ``core`` and ``address``."""
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
    """64-bit integers that do not fit the 32 bits of the device: in an argument, or as the result of a cast."""
