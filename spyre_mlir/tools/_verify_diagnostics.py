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
from dataclasses import dataclass

from spyre_mlir.diagnostics import Diagnostic

_EXPECTED = re.compile(
    r"expected-(error|warning|remark|note)(-re)?\s*(?:@([+-]\d+|above|below|unknown))?\s*(\d+)?\s*"
    r"\{\{((?:\{\{.*?\}\}|.)*?)\}\}(?=\s|$|//)"
)


@dataclass(frozen=True)
class Expected:
    """One comment: ``line`` is where the diagnostic must be, None for one without a place."""

    severity: str
    line: int | None
    pattern: str
    text: str
    comment_line: int

    def accepts(self, diagnostic: Diagnostic) -> bool:
        same_place = (diagnostic.severity, line_of(diagnostic)) == (self.severity, self.line)
        return same_place and re.search(self.pattern, diagnostic.message, re.DOTALL) is not None


def expectations(text: str) -> list[Expected]:
    """The comments of a source, in order."""
    lines = text.split("\n")
    plain = [number for number, line in enumerate(lines, 1) if not _EXPECTED.search(line)]
    found = []
    for number, line in enumerate(lines, 1):
        for severity, is_regex, place, count, message in _EXPECTED.findall(line):
            pattern = _pattern(message) if is_regex else re.escape(message)
            expected = Expected(severity, _target(number, place, plain), pattern, message, number)
            found += [expected] * int(count or 1)
    return found


def mismatches(
    text: str, diagnostics: Iterable[Diagnostic], remarks: Iterable[Diagnostic], source: str
) -> Iterator[Diagnostic]:
    """What is expected and missing, and what came and is not expected.

    ``remarks`` are decisions of our passes: they may be expected and need not be. So do notes.
    """
    missing = expectations(text)
    for diagnostic in [*_flat(diagnostics), *remarks]:
        match = next((expected for expected in missing if expected.accepts(diagnostic)), None)
        if match:
            missing.remove(match)
        elif diagnostic.severity in ("error", "warning"):
            unexpected = f"unexpected {diagnostic.severity}: {diagnostic.message}"
            yield Diagnostic("error", diagnostic.location, unexpected)
    for expected in missing:
        message = f'expected {expected.severity} "{expected.text}" was not produced'
        yield Diagnostic("error", f"{source}:{expected.comment_line}:1", message)


def line_of(diagnostic: Diagnostic) -> int | None:
    parts = diagnostic.location.rsplit(":", 2)
    return int(parts[1]) if len(parts) == 3 else None


def _target(number: int, place: str, plain: list[int]) -> int | None:
    if place == "unknown":
        return None
    if place == "above":
        return max((line for line in plain if line < number), default=number)
    if place == "below":
        return min((line for line in plain if line > number), default=number)
    return number + int(place or 0)


def _pattern(message: str) -> str:
    """``a {{[0-9]+}} b``: a regular expression in braces, the rest as it stands."""
    parts = re.split(r"\{\{(.*?)\}\}", message)
    return "".join(f"(?:{part})" if index % 2 else re.escape(part) for index, part in enumerate(parts))


def _flat(diagnostics: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    for diagnostic in diagnostics:
        yield diagnostic
        yield from diagnostic.notes
