# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bundle values as plain dicts, lists, strings and numbers, and back, by the fields of their dataclasses.

There are two forms. The attributes of a module omit all fields with default values; ``manifest.json`` omits only the
fields that are None or, where the model has ``OPTIONAL``, empty. A bundle has a hundred thousand values, so the
converter of a type is looked up once.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable
from typing import Any

from spyre_mlir.bundle.json_fields import Field


def to_plain(value: Any, *, for_json: bool = False) -> Any:
    """Convert a model value to the form of attributes, or of a manifest ``for_json``."""
    return _writer(type(value), for_json)(value)


def from_plain(kind: Any, field: Field, *, from_json: bool = False) -> Any:
    """Convert a field to the model value of type ``kind``; ``CompileError`` with its path for an invalid field."""
    return _reader(kind, from_json)(field)


@functools.cache
def _writer(kind: type, for_json: bool) -> Callable[[Any], Any]:
    if dataclasses.is_dataclass(kind):
        fields = [(field.name, _is_absent(field, for_json)) for field in _written(kind)]
        return lambda value: {
            name: to_plain(member, for_json=for_json)
            for name, is_absent in fields
            if not is_absent(member := getattr(value, name))
        }
    if issubclass(kind, dict):
        return lambda value: {key: to_plain(member, for_json=for_json) for key, member in value.items()}
    if issubclass(kind, tuple | list):
        return lambda value: [to_plain(item, for_json=for_json) for item in value]
    if kind is float and for_json:
        # JSON cannot represent them as numbers.
        return lambda value: value if math.isfinite(value) else str(value)
    return lambda value: value


def _is_absent(field: dataclasses.Field, for_json: bool) -> Callable[[Any], bool]:
    if not for_json:
        default = _default(field)
        return lambda value: value == default
    return (lambda value: not value) if "optional" in field.metadata else (lambda value: value is None)


@functools.cache
def _reader(kind: Any, from_json: bool) -> Callable[[Field], Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in _READERS:
        return _READERS[kind]
    if origin in (typing.Union, types.UnionType):
        read = _reader(next(argument for argument in arguments if argument is not type(None)), from_json)
        # A manifest omits fields that are None, so null is not part of it.
        return read if from_json else lambda field: None if field.value is None else read(field)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        read_item = _reader(arguments[0], from_json)
        return lambda field: tuple(map(read_item, field.items()))
    if origin is tuple:
        readers = [_reader(argument, from_json) for argument in arguments]
        return lambda field: tuple(
            read(item) for read, item in zip(readers, field.items(len(readers)), strict=True)
        )
    if origin is dict:
        read_member = _reader(arguments[1], from_json)
        return lambda field: {key: read_member(member) for key, member in field.members()}
    return _record_reader(kind, from_json)


def _record_reader(kind: Any, from_json: bool) -> Callable[[Field], Any]:
    """Return a reader of a dataclass; the members of the object must be fields of the class in this form."""
    hints = typing.get_type_hints(kind)
    readers = {field.name: _reader(hints[field.name], from_json) for field in _written(kind)}
    # The attributes of a module need the fields without a default, a manifest also those whose default is not empty.
    needed = [
        field.name
        for field in _written(kind)
        if (default := _default(field)) is dataclasses.MISSING
        or (from_json and default is not None and "optional" not in field.metadata)
    ]

    def read(field: Field) -> Any:
        for name in needed:
            field.require(name)
        for key, member in field.members():
            if key not in readers:
                member.fail("is not part of the format")
        return kind(**{key: readers[key](member) for key, member in field.members()})

    return read


#: Readers of single values, and of lists and objects of numbers and texts, which are read at once.
_READERS: dict[Any, Callable[[Field], Any]] = {
    int: Field.integer,
    str: Field.text,
    bool: Field.boolean,
    float: lambda field: float(field.value) if field.value in ("inf", "-inf", "nan") else field.number(),
    tuple[int, ...]: Field.integers,
    tuple[str, ...]: Field.texts,
    dict[str, int]: Field.integers_by_key,
}


def _written(kind: Any) -> list[dataclasses.Field]:
    return [field for field in dataclasses.fields(kind) if field.metadata.get("plain", True)]


def _default(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default
