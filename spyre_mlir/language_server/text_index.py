# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names in a text of MLIR: where each is defined, and where it is used, by its scopes and without a parse.

So it answers while the text is being typed, too. Positions are (line, column), both from zero, columns in characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Position = tuple[int, int]

_TOKEN = re.compile(
    r'(?P<skipped>"(?:[^"\\\n]|\\.)*"|//[^\n]*)|(?P<open>\{)|(?P<close>\})'
    r"|(?P<name>(?:%|@|\^|#|!)[A-Za-z0-9_$][\w$.-]*)(?P<part>\#\d+)?"
)
#: What stands behind a name where it is defined: a value with more of its operation, an argument, a symbol, an alias.
_RESULTS = re.compile(r"(?::\d+)?\s*(?:,\s*%[\w$.-]+(?::\d+)?\s*)*=(?!=)")
_ARGUMENT = re.compile(r"\s*:(?!:)")
_FUNCTION = re.compile(r"\b(?:func\.func|module|(?:ml_program|memref)\.global)\s+(?:private\s+|public\s+)?$")


@dataclass(frozen=True)
class NameUse:
    """A name in the text; ``scope`` is the path of the braces around it, by their numbers."""

    name: str
    line: int
    column: int
    scope: tuple[int, ...]
    is_definition: bool

    @property
    def end(self) -> int:
        """The column behind the name."""
        return self.column + len(self.name)


@dataclass(frozen=True)
class Outline:
    """A function with the values that its operations define, each with the name of its operation."""

    name: NameUse
    last_line: int
    values: tuple[tuple[NameUse, str], ...]


class TextIndex:
    """The names of one text."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.uses: list[NameUse] = []
        self._ends: dict[int, int] = {}
        self._scan(text)

    def _scan(self, text: str) -> None:
        scope, count, line, start = [], 0, 0, 0
        is_header = False
        for match in _TOKEN.finditer(text):
            breaks = text.count("\n", start, match.start())
            line, start = line + breaks, match.start()
            if match["open"]:
                # The arguments of a function are of the scope behind them.
                scope.append(count := count + 1)
                is_header = False
            elif match["close"] and scope:
                self._ends[scope.pop()] = line
            elif match["name"]:
                column = match.start() - (text.rfind("\n", 0, match.start()) + 1)
                before = text[match.start() - column : match.start()]
                is_header = is_header or bool(_FUNCTION.search(before))
                defines = _defines(match["name"], text, match.end(), before, is_header)
                inside = (*scope, count + 1) if is_header and match["name"].startswith("%") else tuple(scope)
                self.uses.append(NameUse(match["name"], line, column, inside, defines))

    def at(self, line: int, column: int) -> NameUse | None:
        """Return the name at a position."""
        return next((use for use in self.uses if use.line == line and use.column <= column <= use.end), None)

    def definition(self, use: NameUse) -> NameUse | None:
        """Return the definition that a name refers to: the last one in front of it in a scope around it."""
        candidates = [other for other in self.uses if other.is_definition and other.name == use.name]
        visible = [other for other in candidates if other.scope == use.scope[: len(other.scope)]]
        # Values are defined in front of their uses; symbols, aliases and blocks may be behind.
        before = [other for other in visible if (other.line, other.column) <= (use.line, use.column)]
        inner = before or ([] if use.name.startswith("%") else visible)
        return max(inner, key=lambda other: (len(other.scope), other.line, other.column), default=None)

    def outline(self) -> list[Outline]:
        """Return the functions with the values in them, in the order of the text."""
        functions = [use for use in self.uses if use.is_definition and use.name.startswith("@")]
        outlines = []
        for function in functions:
            begin = len(function.scope)
            values = [
                use for use in self.uses
                if use.is_definition and use.name.startswith("%") and use.line >= function.line
                and len(use.scope) == begin + 1 and use.scope[:begin] == function.scope
            ]  # fmt: skip
            body = values[0].scope[-1] if values else 0
            values = [use for use in values if use.scope[-1] == body]
            last = self._ends.get(body, function.line)
            outlines.append(Outline(function, last, tuple((use, self._operation(use)) for use in values)))
        return outlines

    def _operation(self, use: NameUse) -> str:
        match = re.search(r'=\s*"?([\w.]+)', self.lines[use.line][use.end :])
        return match[1] if match else "argument"


def _defines(name: str, text: str, end: int, before: str, is_header: bool) -> bool:
    if name.startswith("%"):
        starts_line = not before.strip() or bool(re.fullmatch(r"\s*(?:%[\w$.-]+(?::\d+)?\s*,\s*)+", before))
        if starts_line and _RESULTS.match(text, end):
            return True
        is_argument = is_header or before.lstrip().startswith("^")
        return is_argument and bool(_ARGUMENT.match(text, end))
    if name.startswith("@"):
        return bool(_FUNCTION.search(before))
    if name.startswith("^"):
        return not before.strip()
    return not before and bool(re.compile(r"\s*=").match(text, end))
