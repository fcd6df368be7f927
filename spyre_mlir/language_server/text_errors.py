# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors of a text as the server reads them, without the bindings that made them."""

from __future__ import annotations

from dataclasses import field

from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class TextError:
    """One message, as ``spyre_mlir.diagnostics.Diagnostic``."""

    severity: str
    location: str
    message: str
    notes: tuple[TextError, ...] = field(default=())
