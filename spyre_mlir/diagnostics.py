# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Diagnostics of the bindings as frozen values: location, severity, message and notes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
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


# ``--verify-diagnostics``: comments in the source say which diagnostics must appear, and where.
#
# // expected-error@+1 {{part of the message}}
# // expected-warning@below 2 {{twice, on the next line that is not such a comment}}
# // expected-remark-re@above {{a regular expression {{[0-9]+}} in it}}
# // expected-note {{on this line}}
# // expected-error@unknown {{without a place in the source}}

# A message may contain regular expressions in braces; it ends at closing braces before a blank, a comment
# or the end of the line.
_EXPECTED = re.compile(
    r"expected-(error|warning|remark|note)(-re)?\s*(?:@([+-]\d+|above|below|unknown))?\s*(\d+)?\s*"
    r"\{\{((?:\{\{.*?\}\}|.)*?)\}\}(?=\s|$|//)"
)


@dataclass(frozen=True)
class Expected:
    """One expectation: ``line`` is the line of the diagnostic, None for a diagnostic without a location."""

    severity: str
    line: int | None
    pattern: str
    text: str
    comment_line: int

    def accepts(self, diagnostic: Diagnostic) -> bool:
        """Return whether severity, line and message of a diagnostic match the expectation."""
        same_line = (diagnostic.severity, line_of(diagnostic)) == (self.severity, self.line)
        return same_line and re.search(self.pattern, diagnostic.message, re.DOTALL) is not None


def expectations(text: str) -> list[Expected]:
    """Parse the expectation comments of a source, in order."""
    lines = text.split("\n")
    code_lines = [number for number, line in enumerate(lines, 1) if not _EXPECTED.search(line)]
    parsed = []
    for number, line in enumerate(lines, 1):
        for severity, is_regex, designator, count, message in _EXPECTED.findall(line):
            pattern = _pattern(message) if is_regex else re.escape(message)
            line_expected = _line_designated(number, designator, code_lines)
            expected = Expected(severity, line_expected, pattern, message, number)
            parsed += [expected] * int(count or 1)
    return parsed


def mismatches(
    text: str,
    diagnostics: Iterable[Diagnostic],
    remarks: Iterable[Diagnostic],
    source: str,
    only_expected: bool = False,
) -> Iterator[Diagnostic]:
    """Yield errors for expected diagnostics that were not produced, and for unexpected errors and warnings.

    Notes, and the ``remarks`` of our passes, need not be expected; with ``only_expected``, no diagnostic needs to be.
    """
    missing = expectations(text)
    for diagnostic in [*_flat(diagnostics), *remarks]:
        match = next((expected for expected in missing if expected.accepts(diagnostic)), None)
        if match:
            # Each diagnostic consumes one expectation, so two equal diagnostics must be expected twice.
            missing.remove(match)
        elif diagnostic.severity in ("error", "warning") and not only_expected:
            unexpected = f"unexpected {diagnostic.severity}: {diagnostic.message}"
            yield Diagnostic("error", diagnostic.location, unexpected)
    for expected in missing:
        message = f'expected {expected.severity} "{expected.text}" was not produced'
        yield Diagnostic("error", f"{source}:{expected.comment_line}:1", message)


def line_of(diagnostic: Diagnostic) -> int | None:
    """Return the line of a diagnostic; None if it has no location."""
    # Split from the right, because a file name may contain colons.
    parts = diagnostic.location.rsplit(":", 2)
    return int(parts[1]) if len(parts) == 3 else None


def _line_designated(number: int, designator: str, code_lines: list[int]) -> int | None:
    """Resolve the designator of a comment on line ``number``."""
    if designator == "unknown":
        return None
    # As in mlir-opt, above and below skip lines that contain expectations.
    if designator == "above":
        return max((line for line in code_lines if line < number), default=number)
    if designator == "below":
        return min((line for line in code_lines if line > number), default=number)
    return number + int(designator or 0)


def _pattern(message: str) -> str:
    """Return the regular expression for a message such as ``a {{[0-9]+}} b``: text with expressions in braces."""
    parts = re.split(r"\{\{(.*?)\}\}", message)
    return "".join(f"(?:{part})" if index % 2 else re.escape(part) for index, part in enumerate(parts))


def _flat(diagnostics: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    for diagnostic in diagnostics:
        yield diagnostic
        yield from diagnostic.notes
