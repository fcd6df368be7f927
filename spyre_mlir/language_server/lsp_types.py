# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The parts of answers in the Language Server Protocol, version 3.17, as far as the server gives them.

A field ``start_line`` is ``startLine`` in a message, where a field without a value is left out.
"""

from __future__ import annotations

import dataclasses
import re
from enum import IntEnum
from typing import Any

from spyre_mlir.records import dataclass


class Severity(IntEnum):
    """How urgent a diagnostic is."""

    ERROR, WARNING, INFORMATION, HINT = 1, 2, 3, 4


class SymbolKind(IntEnum):
    """What a symbol of an outline is."""

    MODULE, FUNCTION, VARIABLE = 2, 12, 13


class AccessKind(IntEnum):
    """What a highlighted name does with what it names."""

    READ, WRITE = 2, 3


#: The kind of a completion.
VARIABLE = 6


@dataclass(frozen=True)
class TextPosition:
    """A line and a character, from zero, in the units of the editor."""

    line: int
    character: int


@dataclass(frozen=True)
class TextRange:
    """A range up to its end, which is not included."""

    start: TextPosition
    end: TextPosition


@dataclass(frozen=True)
class TextLocation:
    """A range of a document."""

    uri: str
    range: TextRange


@dataclass(frozen=True)
class RelatedInformation:
    """A note of a diagnostic at a place of its own."""

    location: TextLocation
    message: str


@dataclass(frozen=True)
class EditorDiagnostic:
    """A message about a range of a document."""

    range: TextRange
    message: str
    severity: Severity = Severity.ERROR
    source: str = "spyre-mlir"
    related_information: list[RelatedInformation] | None = None


@dataclass(frozen=True)
class Highlight:
    """A name that refers to the same as another."""

    range: TextRange
    kind: AccessKind


@dataclass(frozen=True)
class TextEdit:
    """A new text in the place of a range."""

    range: TextRange
    new_text: str


@dataclass(frozen=True)
class WorkspaceEdit:
    """The edits of each document."""

    changes: dict[str, list[TextEdit]]


@dataclass(frozen=True)
class FoldingRange:
    """Lines that an editor may hide, the first one aside."""

    start_line: int
    end_line: int


@dataclass(frozen=True)
class Completion:
    """A text that may be typed next."""

    label: str
    detail: str
    text_edit: TextEdit
    filter_text: str
    kind: int = VARIABLE


@dataclass(frozen=True)
class EditorCommand:
    """A command that the editor sends back."""

    title: str
    command: str
    arguments: list[Any]


@dataclass(frozen=True)
class CodeLens:
    """A command that the editor shows above a line."""

    range: TextRange
    command: EditorCommand


@dataclass(frozen=True)
class DocumentSymbol:
    """A symbol of an outline, with the symbols in it."""

    name: str
    kind: SymbolKind
    range: TextRange
    selection_range: TextRange
    detail: str | None = None
    children: list[DocumentSymbol] | None = None


@dataclass(frozen=True)
class SymbolInformation:
    """A symbol of an outline without a tree."""

    name: str
    kind: SymbolKind
    location: TextLocation
    container_name: str | None = None


@dataclass(frozen=True)
class MarkupContent:
    """A text in ``plaintext`` or ``markdown``."""

    kind: str
    value: str


@dataclass(frozen=True)
class HoverText:
    """The text about a range."""

    contents: MarkupContent
    range: TextRange


def as_json(value: Any) -> Any:
    """Return a value as JSON has it."""
    if dataclasses.is_dataclass(value):
        items = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {_camel_case(name): as_json(item) for name, item in items if item is not None}
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list | tuple) else value


def _camel_case(name: str) -> str:
    return re.sub("_([a-z])", lambda match: match[1].upper(), name)
