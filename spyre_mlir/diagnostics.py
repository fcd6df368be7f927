# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Diagnostics of the bindings as frozen values: location, severity, message and notes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import field

from spyre_mlir.errors import CompileError, located
from spyre_mlir.mlir import called_name, ir, location_of, source_note
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import WARNING, Remark


@dataclass(frozen=True)
class Diagnostic:
    """One message; ``location`` is ``file:line:col`` or empty, ``severity`` is upstream's word in lower case."""

    severity: str
    location: str
    message: str
    notes: tuple[Diagnostic, ...] = field(default=())

    def __str__(self) -> str:
        return "\n".join([located(self.location, self.severity, self.message), *map(str, self.notes)])


def error_at(op: ir.Operation | ir.OpView, message: str) -> CompileError:
    """Create the error about an operation, with its source line and the PyTorch operation that the model called."""
    called = called_name(source_note(op.location, "aten"))
    return CompileError(message, location_of(op.location), called, source_note(op.location, "module"))


@contextlib.contextmanager
def collecting(context: ir.Context, collected: list[Diagnostic]) -> Iterator[None]:
    """Collect the warnings and remarks of an MLIR context within a block; the bindings raise errors as exceptions."""

    def handle(diagnostic: ir.Diagnostic) -> bool:
        collected.append(_value(diagnostic))
        return True  # handled: upstream does not print it

    handler = context.attach_diagnostic_handler(handle)
    try:
        yield
    finally:
        handler.detach()


def diagnostics_of(error: CompileError) -> list[Diagnostic]:
    """Return the diagnostics of the bindings that caused an error, else one diagnostic with the error's message."""
    causes = getattr(error.__cause__, "error_diagnostics", None)
    if causes:
        return [_value(diagnostic) for diagnostic in causes]
    return [Diagnostic("error", error.location, error.message)]


def of_remark(remark: Remark) -> Diagnostic:
    """Convert a remark of one of our passes to a diagnostic: a remark or a warning."""
    if remark.kind == WARNING:
        return Diagnostic("warning", remark.op_location, remark.with_module)
    return Diagnostic("remark", remark.op_location, str(remark))


def compile_error(error: ir.MLIRError, otherwise: str) -> CompileError:
    """Convert the first diagnostic of ``error``; ``otherwise`` is the message if ``error`` has no diagnostic."""
    if not error.error_diagnostics:
        return CompileError(otherwise)
    first, location = _value(error.error_diagnostics[0]), _location(error.error_diagnostics[0])
    called, module = called_name(source_note(location, "aten")), source_note(location, "module")
    return CompileError(first.message, first.location, called, module)


def _location(diagnostic: ir.Diagnostic | ir.DiagnosticInfo) -> ir.Location:
    """Return the location of a diagnostic as its derived class; the bindings return the base class."""
    return ir.Location.from_attr(diagnostic.location.attr, diagnostic.location.context)


def _value(diagnostic: ir.Diagnostic | ir.DiagnosticInfo) -> Diagnostic:
    severity = str(diagnostic.severity).rsplit(".", 1)[-1].lower()
    notes = tuple(_value(note) for note in diagnostic.notes)
    location = location_of(_location(diagnostic))
    return Diagnostic(severity, location, str(diagnostic.message).rstrip(), notes)
