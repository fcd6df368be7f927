"""Bundle values as plain dicts, lists, strings and numbers, and back: the form they have as attributes."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from typing import Any


def to_plain(value: Any) -> Any:
    """A model value without its classes; empty and default fields are left out."""
    if dataclasses.is_dataclass(value):
        return {
            field.name: to_plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if getattr(value, field.name) != _default(field)
        }
    if isinstance(value, dict):
        return {key: to_plain(member) for key, member in value.items()}
    return [to_plain(item) for item in value] if isinstance(value, tuple | list) else value


def from_plain(kind: Any, value: Any) -> Any:
    """The model value of type ``kind`` that ``to_plain`` made ``value`` of."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        return from_plain(next(each for each in arguments if each is not type(None)), value)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(from_plain(arguments[0], item) for item in value)
        return tuple(from_plain(each, item) for each, item in zip(arguments, value, strict=True))
    if origin is dict:
        return {key: from_plain(arguments[1], member) for key, member in value.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{key: from_plain(hints[key], member) for key, member in value.items()})
    return kind(value)


def _default(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)
