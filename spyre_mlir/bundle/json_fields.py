# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""JSON files: a strict reader, whose errors name the file and the field, a reproducible writer, and values as JSON.

``to_plain`` and ``from_plain`` convert values of the bundle model by the fields of their dataclasses. There are two
forms. The attributes of a module omit all fields with default values; ``manifest.json`` omits only the fields that are
None or, where the model has ``OPTIONAL``, empty. A bundle has a hundred thousand values, so the converter of a type is
looked up once.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from spyre_mlir.bundle.model import Design, KernelArgument, Manifest
from spyre_mlir.errors import CompileError
from spyre_mlir.target.formats import MODES
from spyre_mlir.target.target import packaged_target
from spyre_mlir.version import VERSION as RELEASE


class Field:
    """A JSON value with its file and its path in the file, read as a value of one type."""

    __slots__ = ("filename", "path", "value")

    def __init__(self, value: Any, filename: str, path: str = "") -> None:
        self.value = value
        self.filename = filename
        self.path = path

    def fail(self, message: str) -> NoReturn:
        raise CompileError(f"The field {self.path or 'at the root'} {message}.", self.filename)

    def _typed(self, kind: type | tuple[type, ...], noun: str) -> Any:
        # bool is an int in Python, but true is not a number in JSON.
        if not isinstance(self.value, kind) or isinstance(self.value, bool):
            self.fail(f"must be {noun} but is {shorten(self.value)}")
        return self.value

    def __contains__(self, key: str) -> bool:
        return key in self._typed(dict, "an object")

    def __getitem__(self, key: str) -> Field:
        self.require(key)
        return Field(self.value[key], self.filename, f"{self.path}.{key}" if self.path else key)

    def optional(self, key: str, read: Callable[[Field], Any], default: Any = None) -> Any:
        """Return what ``read`` reads in a member; ``default`` if there is no such member."""
        return read(self[key]) if key in self else default

    def require(self, key: str) -> None:
        """Fail if an object has no such member."""
        if key not in self:
            self.fail(f"has no member {key!r}")

    def members(self) -> Iterator[tuple[str, Field]]:
        for key, value in self._typed(dict, "an object").items():
            yield key, Field(value, self.filename, f"{self.path}.{key}" if self.path else key)

    def only_member(self) -> tuple[str, Field]:
        members = list(self.members())
        if len(members) != 1:
            self.fail(f"must have exactly one member but has {len(members)}")
        return members[0]

    def items(self, count: int | None = None) -> list[Field]:
        """Return the items of a list, which must have ``count`` items if ``count`` is given."""
        values = self._typed(list, "a list")
        if count is not None and len(values) != count:
            self.fail(f"must have {count} items but has {len(values)}")
        return [Field(value, self.filename, f"{self.path}[{i}]") for i, value in enumerate(values)]

    def text(self) -> str:
        text = self._typed(str, "a string")
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            self.fail(f"must be text in Unicode without NUL but is {shorten(text)}")
        return text

    def integer(self) -> int:
        return self._bounded(self._typed(int, "an integer"))

    def number(self) -> float:
        number = self._typed((int, float), "a number")
        return float(self._bounded(number) if isinstance(number, int) else number)

    def _bounded(self, value: int) -> int:
        # Other readers of the format store numbers in 64 bits.
        if value.bit_length() > 63:
            self.fail(f"must be an integer of 64 bits but is {shorten(value)}")
        return value

    def integer_text(self) -> int:
        """Return an integer that the format writes as a string."""
        try:
            return self._bounded(int(self.text()))
        except ValueError:
            self.fail(f"must be an integer written as a string but is {shorten(self.value)}")

    def boolean(self) -> bool:
        if not isinstance(self.value, bool):
            self.fail(f"must be true or false but is {shorten(self.value)}")
        return self.value

    def integers(self) -> tuple[int, ...]:
        values = self._typed(list, "a list")
        # Most lists are long and valid: a field per item is only made to name an invalid item.
        return tuple(values) if _are_integers(values) else tuple(item.integer() for item in self.items())

    def texts(self) -> tuple[str, ...]:
        return tuple(item.text() for item in self.items())

    def integers_by_key(self) -> dict[str, int]:
        values = self._typed(dict, "an object")
        if _are_integers(values.values()):
            return dict(values)
        return {key: member.integer() for key, member in self.members()}


def _are_integers(values: Iterable[Any]) -> bool:
    return all(type(value) is int and value.bit_length() < 64 for value in values)


def shorten(value: Any) -> str:
    """Return a JSON value as text for a message."""
    try:
        text = json.dumps(value)
    except RecursionError:
        text = f"a {type(value).__name__} that nests too deeply"
    return text if len(text) <= 60 else text[:57] + "..."


def only_item(field: Field) -> Field:
    """Return the only item of a list of one item."""
    items = field.items()
    if len(items) != 1:
        field.fail(f"must have exactly one item but has {len(items)}")
    return items[0]


def require_same(field: Field, expected: Any, optional: Collection[str] = ()) -> None:
    """Fail at the first place where ``field`` is not exactly ``expected``; it may lack members that are optional."""
    if type(field.value) is not type(expected):
        field.fail(f"must be {shorten(expected)} but is {shorten(field.value)}")
    if isinstance(expected, dict):
        for key in expected:
            if key not in optional or key in field:
                require_same(field[key], expected[key], optional)
        for key, member in field.members():
            if key not in expected:
                member.fail("is not part of the format")
        return
    if isinstance(expected, list):
        items = field.items()
        if len(items) != len(expected):
            field.fail(f"must have {len(expected)} items but has {len(items)}")
        for item, value in zip(items, expected, strict=True):
            require_same(item, value, optional)
        return
    if field.value != expected:
        field.fail(f"must be {shorten(expected)} but is {shorten(field.value)}")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file; equal values give equal bytes."""
    # NaN is not valid JSON: strict readers would reject the file.
    path.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def load(path: Path) -> Field:
    """Return the JSON value in a file; ``CompileError`` with the name of an unreadable or damaged file."""
    # Imported on use: a compilation uses fields without files, and the reader imports the archive modules.
    from spyre_mlir.bundle.regular_files import read_text

    return parse_json(read_text(path), str(path))


def parse_json(text: str, path: str, noun: str = "file") -> Field:
    """Return the JSON value of a text; ``CompileError`` at its place in the file ``path``, which holds a ``noun``."""
    try:
        return Field(json.loads(text, object_pairs_hook=_members, parse_constant=_no_number), path)
    except json.JSONDecodeError as error:
        location = f"{path}:{error.lineno}:{error.colno}"
        raise CompileError(f"The {noun} is not valid JSON: {error.msg}.", location) from None
    except RecursionError:
        raise CompileError(f"The {noun} is nested too deeply.", path) from None
    except UnicodeEncodeError:
        raise CompileError(f"The {noun} has a name with an unpaired surrogate.", path) from None
    except ValueError as error:
        # Python limits the digits of an integer.
        reason = "an integer has more than 4300 digits" if "digits" in str(error) else error
        raise CompileError(f"The {noun} is not valid JSON: {reason}.", path) from None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an object; their names must be valid text and unique."""
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"duplicate key {max(names, key=names.count)!r}")
    # Fails for lone surrogates, which JSON can escape but a file cannot contain.
    "".join(members).encode("utf-8")
    return members


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not valid JSON")


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


# `manifest.json`: the host's side of a bundle, as the fields of ``Manifest`` by their names.
#
# A fill value that JSON cannot represent is written as the string "inf", "-inf" or "nan". Fields of the model with
# ``OPTIONAL`` are written only if they are not empty; an argument has a fill only if the host writes its padding. The
# target is written as the fields of the device file that differ from the packaged file, by section. The member
# ``padding`` has the padding of the dims of each design (``Design.padding``), by the file of the design.

VERSION = 1

#: The member of a manifest of a later format that names the oldest format whose readers read the folder correctly.
READABLE = "readable_as"


def manifest_to_json(manifest: Manifest) -> dict[str, Any]:
    """Return the JSON object of a manifest."""
    target = manifest.target.differences()
    # The version first, so that a reader of another version sees it before anything else.
    value = {"version": manifest.version, **to_plain(manifest, for_json=True)}
    made = {"made": dict(manifest.made)} if manifest.made else {}
    return {**value, **({"target": target} if target else {}), **made}


def argument_to_json(argument: KernelArgument) -> dict[str, Any]:
    """Return the JSON object of one argument."""
    return to_plain(argument, for_json=True)


def manifest_from_json(value: Any, filename: str) -> Manifest:
    """Return the manifest of a JSON object; ``CompileError`` with file and field for an invalid object."""
    root = Field(value, filename)
    others = {
        key: member for key, member in value.items() if key not in ("target", "padding", "made", READABLE)
    }
    made = require_format(root)
    if value["version"] != VERSION:
        # A later format that this reader may read has more members, which it may ignore.
        known = {field.name for field in _written(Manifest)}
        others = {key: member for key, member in others.items() if key in known} | {"version": VERSION}
    manifest = dataclasses.replace(from_plain(Manifest, Field(others, filename), from_json=True), made=made)
    if manifest.numerics not in (None, *MODES):
        root["numerics"].fail(f"must be one of {', '.join(MODES)}")
    if "target" not in root:
        return manifest
    sections = root["target"].members()
    values = {name: {key: member.value for key, member in section.members()} for name, section in sections}
    return dataclasses.replace(manifest, target=packaged_target().overlaid(values, filename))


def require_format(root: Field) -> dict[str, str]:
    """Return the writer of a folder; ``CompileError`` with both versions for a format that is not read."""
    made = {key: member.text() for key, member in root["made"].members()} if "made" in root else {}
    version = root["version"].integer()
    if version != VERSION and (READABLE not in root or root[READABLE].integer() > VERSION):
        writer = f" by spyre-mlir {made['version']}" if "version" in made else ""
        root["version"].fail(
            f"must be {VERSION}, the format of spyre-mlir {RELEASE}; the folder was written{writer} in format {version}"
        )
    return made


def padding_to_json(designs: Mapping[str, Design]) -> dict[str, Any]:
    """Return the manifest member with the padding of designs by their files; empty if nothing is padded."""
    padding = {filename: dict(design.padding) for filename, design in designs.items() if design.padding}
    return {"padding": padding} if padding else {}


def with_padding(designs: Mapping[str, Design], value: Any, filename: str) -> dict[str, Design]:
    """Return the designs of a bundle with the padding from the JSON object of its manifest.

    A manifest of an older version does not have this member; the reader took the padding from the designs instead.
    """
    root, padded = Field(value, filename), dict(designs)
    for name, dims in root["padding"].members() if "padding" in root else ():
        if name not in designs:
            dims.fail("is for a design that the bundle does not have")
        padding = dims.integers_by_key()
        if designs[name].padding not in ({}, padding):
            dims.fail("is not the padding that the design has in paddingSizes_")
        padded[name] = dataclasses.replace(designs[name], padding=padding)
    return padded
