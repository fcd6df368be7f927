# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables of a device file as values of the types that fields have; an error names the file and the field."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from spyre_mlir.errors import CompileError

#: A device as tables of a device file: of a section its keys and their values.
Sections = Mapping[str, Any]

#: Bounds of every number but 0: counts of bytes have the largest; rates and their inverses stay in the range of floats.
_MIN_NUMBER, _MAX_NUMBER = 1e-9, 1 << 48


def group_of(kind: type, table: Sections, section: str, source: str) -> Any:
    """Return the dataclass ``kind`` with the values of a section."""
    hints = typing.get_type_hints(kind)
    parts = {
        part.name: value_of(hints[part.name], table, part.name, f"{section}.{part.name}", source)
        for part in parts_of(kind)
    }
    return kind(**parts)


def parts_of(kind: Any) -> tuple[dataclasses.Field[Any], ...]:
    """Return the fields of a dataclass."""
    return dataclasses.fields(kind)


def table_of(sections: Sections, section: str, source: str) -> Sections:
    """Return a section; ``CompileError`` if there is none."""
    table = sections.get(section)
    if not isinstance(table, Mapping):
        raise CompileError(f"The device has no section [{section}].", source)
    return table


def refuse_unknown(table: Sections, known: list[str], prefix: str, source: str) -> None:
    """Raise ``CompileError`` for a key that is not ``known``."""
    unknown = next((key for key in table if key not in known), None)
    if unknown is not None:
        names = ", ".join(known)
        raise CompileError(f"The device has an unknown field {prefix}{unknown}; known are {names}.", source)


def value_of(kind: Any, table: Sections, key: str, path: str, source: str) -> Any:
    """Return a value of a table as the type of its field; ``CompileError`` if it is missing or of another type."""
    if key not in table:
        raise CompileError(f"The device lacks the field {path}.", source)
    value = _converted(kind, table[key])
    if value is None:
        raise CompileError(
            f"The field {path} of the device must be {_noun(kind)}, not {table[key]!r:.80}.", source
        )
    return value


def _converted(kind: Any, value: Any) -> Any:
    """Return a value of TOML as ``kind``: bool, int, float, str, a tuple or the pairs of a table; None if it is not."""
    if kind is bool:
        return value if isinstance(value, bool) else None
    if kind is str:
        return value if isinstance(value, str) and value else None
    if isinstance(value, bool):
        return None
    if kind is int:
        return value if isinstance(value, int) and abs(value) <= _MAX_NUMBER else None
    if kind is float:
        # NaN is in no range, and an integer may be too large for a float.
        is_number = isinstance(value, int | float) and (
            value == 0 or _MIN_NUMBER <= abs(value) <= _MAX_NUMBER
        )
        return value if is_number else None
    entries = typing.get_args(kind)
    if isinstance(value, Mapping):
        rates = tuple((name, _converted(float, rate)) for name, rate in value.items())
        return (
            None if not isinstance(entries[0], types.GenericAlias) or None in dict(rates).values() else rates
        )
    if not isinstance(value, list | tuple) or (entries[-1] is not ... and len(value) != len(entries)):
        return None
    members = tuple(_converted(entries[0], entry) for entry in value)
    return None if None in members or not members else members


def _noun(kind: Any) -> str:
    number = f"a number, 0 or of {_MIN_NUMBER:g} to {_MAX_NUMBER:.3g},"
    nouns = {
        bool: "true or false",
        int: f"an integer of at most {_MAX_NUMBER},",
        float: number,
        str: "a text",
    }
    if kind in nouns:
        return nouns[kind]
    entries = typing.get_args(kind)
    if isinstance(entries[0], types.GenericAlias):
        return "a table of numbers"
    count = "" if entries[-1] is ... else f"{len(entries)} "
    return f"a list of {count}{'integers' if entries[0] is int else 'numbers'}"


def to_toml(value: Any) -> Any:
    """Return the value of a field as TOML has it."""
    return list(value) if isinstance(value, tuple) else value


def merged(base: Sections, changes: Sections) -> dict[str, Any]:
    """Return the tables of ``base`` with the keys of ``changes``."""
    tables = dict(base)
    for section, table in changes.items():
        below = base.get(section)
        tables[section] = (
            {**below, **table} if isinstance(below, Mapping) and isinstance(table, Mapping) else table
        )
    return tables
