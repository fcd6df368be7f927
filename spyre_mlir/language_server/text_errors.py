# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors of a text as plain values, which the server can read without the MLIR bindings."""

from __future__ import annotations

from dataclasses import field

from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class TextError:
    """One message, with the fields of ``spyre_mlir.diagnostics.Diagnostic``."""

    severity: str
    location: str
    message: str
    notes: tuple[TextError, ...] = field(default=())
