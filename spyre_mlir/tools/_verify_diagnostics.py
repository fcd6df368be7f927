# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``--verify-diagnostics``: comments in the source say which diagnostics must appear, and where.

// expected-error@+1 {{part of the message}}
// expected-warning@below 2 {{twice, on the next line that is not such a comment}}
// expected-remark-re@above {{a regular expression {{[0-9]+}} in it}}
// expected-note {{on this line}}
// expected-error@unknown {{without a place in the source}}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from spyre_mlir.diagnostics import Diagnostic
from spyre_mlir.records import dataclass

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
