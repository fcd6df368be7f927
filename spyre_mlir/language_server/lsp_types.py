# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Types of the Language Server Protocol, version 3.17, that occur in the server's answers.

A field ``start_line`` is ``startLine`` in a message. A field whose value is None is omitted.
"""

from __future__ import annotations

import dataclasses
import re
from enum import IntEnum
from typing import Any

from spyre_mlir.records import dataclass


class Severity(IntEnum):
    """The severity of a diagnostic."""

    ERROR, WARNING, INFORMATION, HINT = 1, 2, 3, 4


class SymbolKind(IntEnum):
    """The kind of a symbol in an outline."""

    MODULE, FUNCTION, VARIABLE = 2, 12, 13


class AccessKind(IntEnum):
    """The kind of access by a highlighted name."""

    READ, WRITE = 2, 3


#: The completion item kind of all completions.
VARIABLE = 6


@dataclass(frozen=True)
class TextPosition:
    """A line and a character, both from 0; characters are counted in the units of the editor."""

    line: int
    character: int


@dataclass(frozen=True)
class TextRange:
    """A range from ``start`` up to, but not including, ``end``."""

    start: TextPosition
    end: TextPosition


@dataclass(frozen=True)
class TextLocation:
    """A range in a document."""

    uri: str
    range: TextRange


@dataclass(frozen=True)
class RelatedInformation:
    """A note of a diagnostic, with its own location."""

    location: TextLocation
    message: str


@dataclass(frozen=True)
class EditorDiagnostic:
    """A diagnostic about a range of a document."""

    range: TextRange
    message: str
    severity: Severity = Severity.ERROR
    source: str = "spyre-mlir"
    related_information: list[RelatedInformation] | None = None


@dataclass(frozen=True)
class Highlight:
    """A highlighted name that refers to the same definition as the name at the cursor."""

    range: TextRange
    kind: AccessKind


@dataclass(frozen=True)
class TextEdit:
    """The replacement of a range by a new text."""

    range: TextRange
    new_text: str


@dataclass(frozen=True)
class WorkspaceEdit:
    """The edits, by document."""

    changes: dict[str, list[TextEdit]]


@dataclass(frozen=True)
class FoldingRange:
    """Lines that an editor may hide, except the first line."""

    start_line: int
    end_line: int


@dataclass(frozen=True)
class Completion:
    """A completion proposal."""

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
    """A symbol of an outline, with its nested symbols."""

    name: str
    kind: SymbolKind
    range: TextRange
    selection_range: TextRange
    detail: str | None = None
    children: list[DocumentSymbol] | None = None


@dataclass(frozen=True)
class SymbolInformation:
    """A symbol of a flat outline."""

    name: str
    kind: SymbolKind
    location: TextLocation
    container_name: str | None = None


@dataclass(frozen=True)
class MarkupContent:
    """A text in the format ``plaintext`` or ``markdown``."""

    kind: str
    value: str


@dataclass(frozen=True)
class HoverText:
    """The hover text for a range."""

    contents: MarkupContent
    range: TextRange


def as_json(value: Any) -> Any:
    """Convert a value of these types to a JSON value."""
    if dataclasses.is_dataclass(value):
        items = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {_camel_case(name): as_json(item) for name, item in items if item is not None}
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list | tuple) else value


def _camel_case(name: str) -> str:
    return re.sub("_([a-z])", lambda match: match[1].upper(), name)
