# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values of the Language Server Protocol, version 3.17: kinds by number, and places in a text.

Other values of the protocol are dictionaries with its names. A field whose value is None is omitted in a message.
"""

from __future__ import annotations

import dataclasses
from enum import IntEnum
from typing import Any

from spyre_mlir.records import dataclass

Json = dict[str, Any]


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


def as_json(value: Any) -> Any:
    """Convert an answer to a JSON value."""
    if dataclasses.is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items() if item is not None}
    return [as_json(item) for item in value] if isinstance(value, list | tuple) else value
