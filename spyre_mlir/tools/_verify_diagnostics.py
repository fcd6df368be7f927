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

# A message goes on over the braces of regular expressions in it, and ends where blank, comment or line
# end follow the closing braces.
_EXPECTED = re.compile(
    r"expected-(error|warning|remark|note)(-re)?\s*(?:@([+-]\d+|above|below|unknown))?\s*(\d+)?\s*"
    r"\{\{((?:\{\{.*?\}\}|.)*?)\}\}(?=\s|$|//)"
)


@dataclass(frozen=True)
class Expected:
    """One expectation: ``line`` is that of the diagnostic, None for a diagnostic without a location."""

    severity: str
    line: int | None
    pattern: str
    text: str
    comment_line: int

    def accepts(self, diagnostic: Diagnostic) -> bool:
        """Return whether severity, line and message of a diagnostic are the expected ones."""
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
    """Report expected diagnostics that were not produced, and errors and warnings that were not expected.

    ``remarks``, the decisions of our passes, and notes may be expected but need not be; with ``only_expected`` nothing
    needs to be.
    """
    missing = expectations(text)
    for diagnostic in [*_flat(diagnostics), *remarks]:
        match = next((expected for expected in missing if expected.accepts(diagnostic)), None)
        if match:
            # Each expectation is used up by one diagnostic, so two equal ones have to be expected twice.
            missing.remove(match)
        elif diagnostic.severity in ("error", "warning") and not only_expected:
            unexpected = f"unexpected {diagnostic.severity}: {diagnostic.message}"
            yield Diagnostic("error", diagnostic.location, unexpected)
    for expected in missing:
        message = f'expected {expected.severity} "{expected.text}" was not produced'
        yield Diagnostic("error", f"{source}:{expected.comment_line}:1", message)


def line_of(diagnostic: Diagnostic) -> int | None:
    """Return the line of a diagnostic; None for one without a location."""
    # From the right, as the name of a file may have colons.
    parts = diagnostic.location.rsplit(":", 2)
    return int(parts[1]) if len(parts) == 3 else None


def _line_designated(number: int, designator: str, code_lines: list[int]) -> int | None:
    """Resolve the designator of a comment on line ``number``."""
    if designator == "unknown":
        return None
    # As in mlir-opt, above and below skip lines that are expectations themselves.
    if designator == "above":
        return max((line for line in code_lines if line < number), default=number)
    if designator == "below":
        return min((line for line in code_lines if line > number), default=number)
    return number + int(designator or 0)


def _pattern(message: str) -> str:
    """Return the regular expression for ``a {{[0-9]+}} b``: literal text with expressions in braces."""
    parts = re.split(r"\{\{(.*?)\}\}", message)
    return "".join(f"(?:{part})" if index % 2 else re.escape(part) for index, part in enumerate(parts))


def _flat(diagnostics: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    for diagnostic in diagnostics:
        yield diagnostic
        yield from diagnostic.notes
