# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Level, parts and names of an MLIR text, without parsing; definitions and uses of names are resolved by scopes.

Without parsing, the index also works while the text is being typed. Positions are (line, column), both from 0, with
columns in characters. The parts of a text between lines of ``// -----`` are independent programs, as with
``--split-input-file``.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import field

from spyre_mlir.records import dataclass

SEPARATOR = "// -----\n"

_SEPARATOR = re.compile(r"^// -----[ \t]*(?:\n|\Z)", re.MULTILINE)

LEVELS = ("device-ops", "tiled", "laid-out", "divided", "placed", "bundle")

#: A text that first occurs in the IR of each level, the lowest level first.
_MARKS = (
    ("bundle", "sdscbundle."),
    ("placed", "sdsc.placement"),
    ("divided", "sdsc.division"),
    ("laid-out", "#stick.layout"),
    ("device-ops", "#sdsc.op<"),
)

_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*')


@dataclass(frozen=True)
class TextError:
    """One message, with the fields of ``spyre_mlir.diagnostics.Diagnostic``, which needs the MLIR bindings."""

    severity: str
    location: str
    message: str
    notes: tuple[TextError, ...] = field(default=())


def part_starts(text: str) -> list[int]:
    """Return the offsets at which the second and later parts begin."""
    return [match.end() for match in _SEPARATOR.finditer(text)] if "// -----" in text else []


def parts(text: str) -> list[tuple[int, str]]:
    """Return the parts, each with the number of its first line, counted from 0."""
    bounds = [0, *part_starts(text), len(text)]
    found = []
    for begin, end in itertools.pairwise(bounds):
        found.append((text.count("\n", 0, begin), _SEPARATOR.sub("", text[begin:end])))
    return found


def level_of(text: str) -> str:
    """Return the level of a text from its content, ignoring comments; ``linalg`` before the first level."""
    if not any(mark in text for _, mark in _MARKS):
        return "linalg"
    code = _COMMENT.sub(lambda match: match[1] or "", text)
    return next((level for level, mark in _MARKS if mark in code), "linalg")


Position = tuple[int, int]

_SUFFIX = r"(?:\d+|[A-Za-z$._-][A-Za-z0-9$._-]*)"
_NAME = rf"[%^#!]{_SUFFIX}"
_SYMBOL_NAME = r'@(?:[A-Za-z_][A-Za-z0-9_$.]*|"(?:[^"\\\n]|\\.){0,400}")'
#: A valid new name for a rename.
NAME = rf"{_NAME}|{_SYMBOL_NAME}"

_TOKEN = re.compile(
    rf"(?P<open>\{{-\#|\{{)|(?P<close>\#-\}}|\}})|(?P<round>\()|(?P<end>\))"
    rf'|(?P<name>{NAME})(?:\#\d+)?|(?P<skipped>"(?:[^"\\\n]|\\.)*"?|//[^\n]*)'
)
#: The number of characters before a name that are used to classify it: lines of a bundle have up to a million.
_BEFORE = 400

#: The text after the first result of an operation, or after an argument.
_LIST = re.compile(rf"(?::\d+)?\s*(?:,\s*%{_SUFFIX}(?::\d+)?\s*)*")
_ASSIGNED = re.compile(r"\s*=(?!=)")
_ARGUMENT = re.compile(r"\s*:(?!:)")
_OPERATION = re.compile(r'\s*"?([A-Za-z_]\w*\.[\w.]+)')
#: The text before a loop counter, before the name of a symbol, and before an attribute dictionary.
_LOOP = re.compile(r"(?<![!#\w$.])[A-Za-z_]\w*\.[\w.]+\s+(?:unsigned\s+)?$")
_SYMBOL = re.compile(
    r'\b(?:func\.func|module|(?:ml_program|memref)\.global)(?:\s+(?:private|public|nested|constant|mutable|"\w+"))*\s+$'
)
_ATTRIBUTES = re.compile(r"\battr(?:ibute)?s\s*=?\s*$")
#: Region arguments in parentheses: with types for a reduction, without types for parallel loops.
_REGION_ARGUMENTS = re.compile(rf"(?<![\w>])\(\s*%{_SUFFIX}\s*:(?!:)[^(){{}}]*\)\s*\{{")
_LOOP_ARGUMENTS = re.compile(rf"(?<!\w)\(\s*%{_SUFFIX}\s*(?:,\s*%{_SUFFIX}\s*)*\)\s*(?:in|=)\s*\(")


@dataclass(frozen=True)
class NameUse:
    """A name in the text."""

    name: str
    line: int
    column: int
    is_definition: bool

    @property
    def end(self) -> int:
        """The column after the name."""
        return self.column + len(self.name)


@dataclass
class Outline:
    """A symbol of the text: the values that its operations define, and its nested symbols."""

    name: NameUse
    end: Position
    values: list[NameUse] = field(default_factory=list)
    symbols: list[Outline] = field(default_factory=list)


@dataclass
class _Scope:
    """The names between two braces."""

    begin: Position = (0, 0)
    outline: Outline | None = None
    definitions: dict[str, NameUse] = field(default_factory=dict)
    unknown: list[NameUse] = field(default_factory=list)
    #: The open parentheses; for each, the kind of a name with a type in it.
    brackets: list[str] = field(default_factory=list)
    #: The arguments of the next region, and the symbol whose body the region is.
    arguments: list[NameUse] = field(default_factory=list)
    symbol: Outline | None = None


class TextIndex:
    """The names of one text."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.outline: list[Outline] = []
        #: The lines of the braces of each region or dictionary that spans several lines.
        self.folds: list[tuple[int, int]] = []
        self.uses: list[NameUse] = []
        self._by_line: dict[int, list[NameUse]] = {}
        self._definitions: dict[NameUse, NameUse] = {}
        self._references: dict[NameUse, list[NameUse]] = {}
        self._scopes = [_Scope()]
        #: The end of the last list of names at the start of a line, and the kind of its names.
        self._list = (0, "")
        self._scan(text)
        #: The definitions that are visible at the end of the text, by name.
        self.visible = {name: use for scope in self._scopes for name, use in scope.definitions.items()}
        self._close_all()

    def at(self, line: int, column: int) -> NameUse | None:
        """Return the name at a position."""
        return next((use for use in self._by_line.get(line, ()) if use.column <= column <= use.end), None)

    def definition(self, use: NameUse) -> NameUse | None:
        """Return the definition of a name, from its scope or an enclosing scope."""
        return self._definitions.get(use)

    def references(self, use: NameUse) -> list[NameUse]:
        """Return all names with the same definition, including the definition; empty without a definition."""
        definition = self.definition(use)
        if definition is None:
            return []
        return sorted(self._references[definition], key=lambda use: (use.line, use.column))

    @property
    def definitions(self) -> list[NameUse]:
        """All definitions, in text order."""
        return [use for use in self.uses if use.is_definition]

    def bindings(self) -> list[int | None]:
        """Return, for each name of the text, the index of the name that defines it."""
        numbers = {use: number for number, use in enumerate(self.uses)}
        found = map(self._definitions.get, self.uses)
        return [numbers[definition] if definition else None for definition in found]

    def operation(self, use: NameUse) -> str:
        """Return the name of the defining operation, or "argument"."""
        line = self.lines[use.line]
        results = _LIST.match(line, use.end)
        assigned = results and _ASSIGNED.match(line, results.end())
        operation = assigned and _OPERATION.match(line, assigned.end())
        return operation[1] if operation else "argument"

    def _scan(self, text: str) -> None:
        starts, line, line_start, start = part_starts(text), 0, 0, 0
        for match in _TOKEN.finditer(text):
            breaks = text.count("\n", start, match.start())
            line, start = line + breaks, match.start()
            if breaks:
                line_start = text.rfind("\n", 0, start) + 1
            while starts and start >= starts[0]:
                starts.pop(0)
                self._close_all()
            position, before = (line, start - line_start), text[max(line_start, start - _BEFORE) : start]
            if match["open"]:
                self._open(position, before)
            elif match["close"]:
                self._close(position)
            elif match["round"]:
                self._scopes[-1].brackets.append(self._bracket(text, start, before))
            elif match["end"]:
                if self._scopes[-1].brackets:
                    self._scopes[-1].brackets.pop()
            elif match["name"]:
                self._add(match["name"], position, before, text, match.end())

    def _open(self, position: Position, before: str) -> None:
        around = self._scopes[-1]
        self._scopes.append(_Scope(position))
        # This may be a dictionary before the region of an operation: in parentheses, or after ``attributes``.
        if around.brackets or _ATTRIBUTES.search(before):
            return
        for argument in around.arguments:
            self._define(argument)
        self._scopes[-1].outline = around.symbol
        if around.symbol:
            around.symbol.values += around.arguments
        around.arguments, around.symbol = [], None

    def _close(self, position: Position) -> None:
        if len(self._scopes) == 1:
            return
        scope = self._scopes.pop()
        if scope.outline:
            scope.outline.end = (position[0], position[1] + 1)
        if scope.begin[0] < position[0]:
            self.folds.append((scope.begin[0], position[0]))
        self._resolve(scope)

    def _close_all(self) -> None:
        """Close all scopes that are still open at the end of a part of the text."""
        while self._scopes:
            self._resolve(self._scopes.pop())
        self._scopes = [_Scope()]

    def _resolve(self, scope: _Scope) -> None:
        """Resolve names to definitions after them in the same scope; pass the rest to the enclosing scope."""
        for use in scope.unknown:
            if use.name in scope.definitions:
                self._refer(use, scope.definitions[use.name])
            elif self._scopes:
                self._scopes[-1].unknown.append(use)

    def _bracket(self, text: str, start: int, before: str) -> str:
        scope = self._scopes[-1]
        if re.fullmatch(rf"\s*\^{_SUFFIX}\s*", before):
            return "block"
        if not scope.brackets and scope.symbol:
            return "region"
        if _REGION_ARGUMENTS.match(text, start):
            return "region"
        return "loop" if _LOOP_ARGUMENTS.match(text, start) else ""

    def _add(self, name: str, position: Position, before: str, text: str, end: int) -> None:
        kind = self._kind(name, before, text, end)
        use = NameUse(name, *position, bool(kind))
        self.uses.append(use)
        self._by_line.setdefault(use.line, []).append(use)
        scope = self._scopes[-1]
        if kind == "region":
            scope.arguments.append(use)
        elif kind:
            self._define(use)
            if kind == "symbol":
                scope.symbol = Outline(use, (use.line, use.end))
                around = next((outer.outline for outer in reversed(self._scopes) if outer.outline), None)
                (around.symbols if around else self.outline).append(scope.symbol)
            elif name.startswith("%") and scope.outline:
                scope.outline.values.append(use)
        elif not before.endswith("::"):
            self._look_up(use)

    def _kind(self, name: str, before: str, text: str, end: int) -> str:
        """Return the kind of a definition: "value" or "symbol" in this scope, "region" in the next; "" for a use."""
        if name.startswith("@"):
            return "symbol" if _SYMBOL.search(before) else ""
        if name.startswith("^"):
            return "" if before.strip() else "value"
        if not name.startswith("%"):
            return "value" if not before and _ASSIGNED.match(text, end) else ""
        brackets = self._scopes[-1].brackets
        if brackets:
            if brackets[-1] == "loop" or _ASSIGNED.match(text, end):
                return "region"
            kind = {"region": "region", "block": "value"}.get(brackets[-1], "")
            return kind if _ARGUMENT.match(text, end) else ""
        if end <= self._list[0]:
            return self._list[1]
        if not before.strip():
            match = _LIST.match(text, end)
            behind = match.end() if match else end
            self._list = behind, "value" if _ASSIGNED.match(text, behind) else ""
            if self._list[1]:
                # Arguments and a symbol of an earlier operation do not belong to this operation.
                self._scopes[-1].arguments, self._scopes[-1].symbol = [], None
            return self._list[1]
        if _ASSIGNED.match(text, end):
            return "region" if _LOOP.search(before) else "value"
        return ""

    def _define(self, use: NameUse) -> None:
        self._scopes[-1].definitions[use.name] = use
        self._refer(use, use)

    def _look_up(self, use: NameUse) -> None:
        for scope in reversed(self._scopes):
            if use.name in scope.definitions:
                self._refer(use, scope.definitions[use.name])
                return
        self._scopes[-1].unknown.append(use)

    def _refer(self, use: NameUse, definition: NameUse) -> None:
        self._definitions[use] = definition
        self._references.setdefault(definition, []).append(use)
