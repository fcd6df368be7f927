"""Diagnostics of the bindings as plain values: where, how bad, what, and the notes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.remarks import WARNING, Remark


@dataclass(frozen=True)
class Diagnostic:
    """One message; ``location`` is ``file:line:col`` or empty; ``severity`` as upstream spells it."""

    severity: str
    location: str
    message: str
    notes: tuple[Diagnostic, ...] = field(default=())

    def __str__(self) -> str:
        head = f"{self.location}: " if self.location else ""
        return "\n".join([f"{head}{self.severity}: {self.message}", *map(str, self.notes)])


@contextlib.contextmanager
def collecting(context: ir.Context, collected: list[Diagnostic]) -> Iterator[None]:
    """Collect the warnings and remarks of a context; errors travel as exceptions."""

    def handle(diagnostic: ir.Diagnostic) -> bool:
        collected.append(_value(diagnostic))
        return True

    handler = context.attach_diagnostic_handler(handle)
    try:
        yield
    finally:
        handler.detach()


def diagnostics_of(error: CompileError) -> list[Diagnostic]:
    """All that is known about an error: every diagnostic of the bindings behind it, or its own sentence."""
    behind = getattr(error.__cause__, "error_diagnostics", None)
    if behind:
        return [_value(diagnostic) for diagnostic in behind]
    return [Diagnostic("error", error.location, error.message)]


def of_remark(remark: Remark) -> Diagnostic:
    """A decision of one of our passes as a remark, or a warning."""
    if remark.kind == WARNING:
        return Diagnostic("warning", remark.op_location, remark.reason)
    return Diagnostic("remark", remark.op_location, str(remark))


def compile_error(error: ir.MLIRError, otherwise: str) -> CompileError:
    """The first diagnostic of ``error`` as a CompileError; ``otherwise`` where it came without any."""
    if not error.error_diagnostics:
        return CompileError(otherwise)
    first = _value(error.error_diagnostics[0])
    return CompileError(first.message, first.location)


def _value(diagnostic: ir.Diagnostic | ir.DiagnosticInfo) -> Diagnostic:
    severity = str(diagnostic.severity).rsplit(".", 1)[-1].lower()
    notes = tuple(_value(note) for note in diagnostic.notes)
    # A diagnostic hands out its location as the base class; by way of its attribute it gets its own class.
    location = ir.Location.from_attr(diagnostic.location.attr, diagnostic.location.context)
    return Diagnostic(severity, location_of(location), str(diagnostic.message).rstrip(), notes)
