"""Where a JSON value does not fit a JSON schema: the keywords that the schemas of a design use, no more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from spyre_mlir.bundle.json_fields import shorten

Schema = dict[str, Any]

#: The path of a field and a sentence about it.
Violation = tuple[str, str]

_TYPES = {"object": dict, "array": list, "string": str, "integer": int, "null": type(None)}


def violations(value: Any, schema: Schema, root: Schema, path: str = "") -> Iterator[Violation]:
    """The fields of a value that a schema does not allow; ``root`` has the definitions that it refers to."""
    while "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        faults = [list(violations(value, form, root, path)) for form in schema["anyOf"]]
        if all(faults):
            # The form that fits at the top says what is wrong inside.
            inside = [fault for fault in faults if fault[0][0] != path]
            yield from (
                inside[0] if inside else [(path, f"is {shorten(value)}, none of the forms that are allowed")]
            )
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is_of_type(value, kind) for kind in kinds):
        yield path, f"is {shorten(value)}, not of type {' or '.join(kinds)}"
        return
    # In Python true equals 1; in a schema it does not.
    if "enum" in schema and not any(
        value == allowed and type(value) is type(allowed) for allowed in schema["enum"]
    ):
        yield path, f"is {shorten(value)}, not one of {', '.join(map(shorten, schema['enum']))}"
    if isinstance(value, dict):
        yield from _members(value, schema, root, path)
    elif isinstance(value, list):
        yield from _items(value, schema, root, path)
    elif isinstance(value, int | float):
        least, above = schema.get("minimum", value), schema.get("exclusiveMinimum")
        if value < least or (above is not None and value <= above):
            yield path, f"is {shorten(value)}, less than the schema allows"


def _is_of_type(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, int | float if kind == "number" else _TYPES.get(kind, ()))


def _members(value: dict, schema: Schema, root: Schema, path: str) -> Iterator[Violation]:
    for key in schema.get("required", []):
        if key not in value:
            yield path, f"has no member '{key}'"
    count = len(value)
    if not schema.get("minProperties", 0) <= count <= schema.get("maxProperties", count):
        yield path, f"has {count} members, more or fewer than the schema allows"
    named, by_pattern = schema.get("properties", {}), schema.get("patternProperties", {})
    for key, member in value.items():
        place = f"{path}.{key}" if path else key
        rules = [named[key]] if key in named else []
        rules += [rule for pattern, rule in by_pattern.items() if re.search(pattern, key)]
        others = schema.get("additionalProperties", True)
        if not rules and others is False:
            yield place, "is not part of the format"
        for rule in rules or ([others] if isinstance(others, dict) else []):
            yield from violations(member, rule, root, place)


def _items(value: list, schema: Schema, root: Schema, path: str) -> Iterator[Violation]:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield path, f"has {len(value)} items, more or fewer than the schema allows"
    for number, item in enumerate(value):
        yield from violations(item, schema.get("items", {}), root, f"{path}[{number}]")
