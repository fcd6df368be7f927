# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Options of passes and pipelines: dataclass fields in Python, ``{x=1 some-list=a,b}`` in text.

A field ``backend_fraction: float = 0.2`` is the option ``backend-fraction=0.2``. Types: ``bool``, ``int``,
``float``, ``str``, ``Literal[..]``, ``tuple[X, ...]`` (``a,b``) and ``X | None`` (``none``). A ``bool`` needs no
value; a value with blanks or braces is quoted, a tuple of such values is in braces (``{a{x=1 y=2},b}``).
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import types
import typing
from typing import Any

from spyre_mlir.errors import CompileError, listed, with_suggestion

_QUOTED = r'"[^"]*"|\'[^\']*\''
#: Text in braces, with two levels of braces inside.
_BRACED = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_OPTION = re.compile(rf"\s*([A-Za-z_][\w-]*)(?:=({_QUOTED}|{_BRACED}|[^\s\"'{{}}]*))?(?=\s|$)")
#: An element of a tuple; commas inside quotes, braces and parentheses do not end it.
_ELEMENT = re.compile(rf"(?:{_QUOTED}|{_BRACED}|\([^()]*\)|[^,])+")

#: Keys of the metadata of a field.
_DOCUMENTATION, _DEFAULT = "documentation", "default"


class Options:
    """Base of frozen dataclasses whose fields are options."""

    @classmethod
    def title(cls) -> str:
        """The owner of the options, as error messages call it."""
        return cls.__name__

    @classmethod
    def parse(cls, text: str = "") -> typing.Self:
        """Create an instance from text.

        Args:
            text: Options, ``x=1 y``; options that are not named have their defaults.

        Raises:
            CompileError: An option is unknown, repeated, or has an invalid value.
        """
        values: dict[str, Any] = {}
        for key, value in _split(text, cls.title()):
            name = cls._name_of(key)
            if name in values:
                raise CompileError(f"The {cls.title()} is given option '{key}' twice.")
            values[name] = _convert(_types(cls)[name], value, f"option '{key}' of the {cls.title()}")
        return cls(**cls._completed(values))

    @classmethod
    def of(cls, **values: Any) -> typing.Self:
        """Create an instance from Python values.

        Args:
            values: The options by name; None selects the default.

        Raises:
            CompileError: An option is unknown or has an invalid value.
        """
        given = {
            (name := cls._name_of(key, "_")): _checked(_types(cls)[name], value, key, cls.title())
            for key, value in values.items()
            if value is not None
        }
        return cls(**cls._completed(given))

    @classmethod
    def _completed(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return the ``given`` values and the values that follow from them; by default there are none."""
        return given

    @classmethod
    def _name_of(cls, key: str, separator: str = "-") -> str:
        name = key.replace("-", "_")
        if not any(field.name == name for field in _fields(cls)):
            raise CompileError(cls.unknown_option(key, separator))
        return name

    @classmethod
    def unknown_option(cls, key: str, separator: str = "-") -> str:
        """Return the message for an unknown option; ``separator`` joins words, "_" in Python and "-" elsewhere."""
        names = [field.name.replace("_", separator) for field in _fields(cls)]
        sentence = f"The {cls.title()} has no option '{key}'; its options: {listed(names, key)}."
        return with_suggestion(sentence, key, names)

    def given(self) -> str:
        """Return the options that differ from their defaults, as text that ``parse`` reads back."""
        shown = [
            f"{_shown(f.name)}={show_value(getattr(self, f.name))}"
            for f in _fields(type(self))
            if getattr(self, f.name) != _default(f)
        ]
        return " ".join(shown)

    @classmethod
    def describe(cls) -> str:
        """Return every option with its default value, for listings."""
        return " ".join(f"{_shown(f.name)}={show_value(_default(f))}" for f in _fields(cls))


def option(default: Any, documentation: str) -> Any:
    """Create a dataclass field with documentation, which ``documentation_of`` returns."""
    return dataclasses.field(default=default, metadata={_DOCUMENTATION: documentation})


def from_environment(variable: str, default: Any, type_: Any = None, documentation: str = "") -> Any:
    """Create a dataclass field whose default is read from an environment variable at each construction.

    An empty variable is unset. ``type_`` is the type of the field; it is required if it is not the type of the default,
    as for ``Literal[..]``.
    """
    text = f"{documentation}; {variable} of the environment is its default" if documentation else ""

    def read() -> Any:
        text = os.environ.get(variable)
        if not text:
            return default
        return _convert(type_ or type(default), text, f"environment variable {variable}")

    return dataclasses.field(default_factory=read, metadata={_DOCUMENTATION: text, _DEFAULT: default})


def documentation_of(field: dataclasses.Field[Any]) -> str:
    """Return the documentation of an option, or an empty string."""
    return field.metadata.get(_DOCUMENTATION, "")


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return the default of an option, without a default from the environment."""
    return field.metadata.get(_DEFAULT, field.default)


def show_value(value: Any) -> str:
    """Return the text of an option's value, as ``Options.parse`` reads it."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        text = ",".join(part if isinstance(part, str) else show_value(part) for part in value)
        return text if text and not re.search(r"[\s{}\"']", text) else "{" + text + "}"
    text = str(value)
    return text if text and not re.search(r"[\s{}\"']", text) else f'"{text}"'


def _fields(cls: type) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()


@functools.cache
def _types(cls: type) -> dict[str, Any]:
    """Return the types of the fields, cached: annotations are text, whose evaluation takes as long as a small pass."""
    return typing.get_type_hints(cls)


def _shown(name: str) -> str:
    return name.replace("_", "-")


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _split(text: str, owner: str) -> list[tuple[str, str | None]]:
    """Split ``x=1 flag y="a b"`` into pairs; a name without ``=`` has the value None."""
    pairs, position = [], 0
    text = text.strip()
    while position < len(text):
        match = _OPTION.match(text, position)
        if match is None:
            rest = text[position:].strip()
            raise CompileError(f"The options of the {owner} must have the form 'name=value', not '{rest}'.")
        value = match[2]
        pairs.append((match[1], value[1:-1] if value and value[0] in "\"'{" else value))
        position = match.end()
    return pairs


_WORDS: dict[type, str] = {bool: "'true' or 'false'", int: "an integer", float: "a number", str: "a text"}
_PYTHON_WORDS = {**_WORDS, bool: "True or False"}


def _checked(type_: Any, value: Any, key: str, owner: str) -> Any:
    """Return the value of an option as its type; the value may be given as text."""
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if origin in (typing.Union, types.UnionType) and value != "none":
        return _checked(next(a for a in arguments if a is not type(None)), value, key, owner)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_checked(arguments[0], part, key, owner) for part in value)
    if type_ is str and not isinstance(value, str | os.PathLike):
        raise CompileError(f"The option '{key}' must be a text, not {value!r}.")
    if type(value) is type_:
        return value
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return _convert(type_, text, f"option '{key}' of the {owner}", _PYTHON_WORDS)


def _convert(type_: Any, text: str | None, subject: str, words: dict[type, str] = _WORDS) -> Any:
    """Convert the text of a value to a type; ``subject`` names the option in the ``CompileError``."""
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if text is None and type_ is bool:
        return True
    if text is None:
        raise CompileError(f"The {subject} needs a value, as in 'name=value'.")
    if origin in (typing.Union, types.UnionType):
        inner = next(a for a in arguments if a is not type(None))
        return None if text == "none" else _convert(inner, text, subject, words)
    if origin is tuple:
        parts = (match[0].strip() for match in _ELEMENT.finditer(text))
        return tuple(_convert(arguments[0], part, subject, words) for part in parts if part)
    if origin is typing.Literal:
        if text in arguments:
            return text
        sentence = f"The {subject} must be one of {', '.join(arguments)}, not '{text}'."
        raise CompileError(with_suggestion(sentence, text or "", arguments))
    try:
        return _BOOLS[text.lower()] if type_ is bool else type_(text)
    except (ValueError, KeyError):
        raise CompileError(f"The {subject} must be {words[type_]}, not '{text}'.") from None


_BOOLS = {"true": True, "1": True, "false": False, "0": False}
