"""Bundle values as plain dicts, lists, strings and numbers, and back: the form they have as attributes.

A bundle has a hundred thousand of them, so what is to be done with a type is found once.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable
from typing import Any

from spyre_mlir.errors import CompileError


def to_plain(value: Any) -> Any:
    """A model value without its classes; empty and default fields are left out."""
    return _writer(type(value))(value)


def from_plain(kind: Any, value: Any) -> Any:
    """The model value of type ``kind`` that ``to_plain`` made ``value`` of; ``CompileError`` if there is none."""
    return _reader(kind)(value)


@functools.cache
def _writer(kind: type) -> Callable[[Any], Any]:
    if dataclasses.is_dataclass(kind):
        fields = [(field.name, _default(field)) for field in _written(kind)]
        return lambda value: {
            name: to_plain(member) for name, default in fields if (member := getattr(value, name)) != default
        }
    if issubclass(kind, dict):
        return lambda value: {key: to_plain(member) for key, member in value.items()}
    if issubclass(kind, tuple | list):
        return lambda value: [to_plain(item) for item in value]
    return lambda value: value


@functools.cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        read = _reader(next(argument for argument in arguments if argument is not type(None)))
        return lambda value: None if value is None else read(value)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        read_item = _reader(arguments[0])
        return lambda value: tuple(map(read_item, _of_kind(value, list)))
    if origin is tuple:
        readers = [_reader(argument) for argument in arguments]
        return lambda value: tuple(
            read(item) for read, item in zip(readers, _items(value, len(readers)), strict=True)
        )
    if origin is dict:
        member = _reader(arguments[1])
        return lambda value: {key: member(item) for key, item in _of_kind(value, dict).items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        readers = {field.name: _reader(hints[field.name]) for field in _written(kind)}
        needed = {field.name for field in dataclasses.fields(kind) if _default(field) is dataclasses.MISSING}

        def read_fields(value: Any) -> Any:
            missing, unknown = needed - _of_kind(value, dict).keys(), value.keys() - readers.keys()
            if missing or unknown:
                problem = f"needs '{min(missing)}'" if missing else f"has no '{min(unknown)}'"
                raise CompileError(f"a {kind.__name__} of a bundle {problem}")
            return kind(**{key: readers[key](member) for key, member in value.items()})

        return read_fields
    return _scalar(kind)


def _written(kind: Any) -> list[dataclasses.Field]:
    return [field for field in dataclasses.fields(kind) if field.metadata.get("plain", True)]


def _scalar(kind: Any) -> Callable[[Any], Any]:
    """Reads a number, a text or a truth value; whole numbers are numbers of any kind."""
    if kind is float:
        return lambda value: float(_of_kind(value, int | float))
    return (lambda value: _of_kind(value, kind)) if kind in (bool, int, str) else lambda value: value


def _of_kind(value: Any, kind: Any) -> Any:
    """The value itself, which has to be of a type."""
    # bool is an int in Python, but no number of a bundle is a truth value.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        expected = getattr(kind, "__name__", "number")
        raise CompileError(f"a bundle has {_short(value)} where its form wants a {expected}")
    return value


def _items(value: Any, count: int) -> list[Any]:
    if len(_of_kind(value, list)) != count:
        raise CompileError(f"a bundle has {_short(value)} where its form wants {count} values")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _default(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default
