# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parser of plan files; every error names the file and the field."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from spyre_mlir.bundle.json_fields import Field, shorten
from spyre_mlir.errors import CompileError
from spyre_mlir.plans.plan_file import VERSION, PlanFile, PlannedArgument, PlannedOperation, PlannedPlacement
from spyre_mlir.tiling import TiledLoop

_PLAN = ("version", "arguments", "operations")
_ARGUMENT = ("name", "kind", "source", "shape", "dtype", "layout")
_OPERATION = (
    "name", "opcode", "location", "source", "slices", "core_order", "cores", "tiling", "result",
)  # fmt: skip
_LOOP = ("loop", "dim", "tiles", "tile", "unrolled")
_RESULT = ("shape", "dtype", "layout", "placement", "spilled")


def read_plan(text: str, filename: str) -> PlanFile:
    """Parse the text of a plan file; raise ``CompileError`` if it is invalid. ``filename`` is for errors."""
    try:
        root = Field(json.loads(text, object_pairs_hook=_unique_keys), filename)
        # json accepts escapes of lone surrogates, which UTF-8 cannot encode: fail here, not when the plan is saved.
        json.dumps(root.value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        location = f"{filename}:{error.lineno}:{error.colno}"
        raise CompileError(f"The plan is not valid JSON: {error.msg}.", location) from None
    except RecursionError:
        raise CompileError("The plan is nested too deeply.", filename) from None
    except _DuplicateKeyError as error:
        raise CompileError(f"The plan has the field '{error}' twice in one object.", filename) from None
    except UnicodeEncodeError:
        raise CompileError("The plan has a text with half of a surrogate pair.", filename) from None
    # Most errors above are ValueErrors as well, so this clause comes last: it catches Python's limit on the
    # digits of an integer.
    except ValueError:
        raise CompileError("The plan has an integer of more than 4300 digits.", filename) from None
    # Check the version first: a later version may have fields that are unknown here, which is not the user's error.
    _check_version(root)
    _check_members(root, _PLAN)
    arguments = root["arguments"].items() if "arguments" in root else []
    operations = root["operations"].items() if "operations" in root else []
    _check_names([*arguments])
    _check_names([*operations])
    return PlanFile(tuple(map(_argument, arguments)), tuple(map(_operation, operations)), filename)


class _DuplicateKeyError(ValueError):
    """A duplicate key in an object, of which json would silently use the second value."""


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, value in pairs:
        if key in fields:
            raise _DuplicateKeyError(key)
        fields[key] = value
    return fields


def _check_version(root: Field) -> None:
    if "version" not in root:
        root.fail("has no 'version': this is no plan file")
    if root["version"].integer() != VERSION:
        root["version"].fail(f"is {root['version'].value}; this compiler reads version {VERSION}")


def _check_members(entry: Field, known: Collection[str]) -> None:
    for name, member in entry.members():
        if name not in known:
            member.fail(f"is unknown; known here are {', '.join(known)}")


def _check_names(entries: list[Field]) -> None:
    seen: dict[str, Field] = {}
    for entry in entries:
        name = entry["name"].text()
        if name in seen:
            entry["name"].fail(f"is '{name}', as that of {seen[name].path} is")
        seen[name] = entry


def _argument(entry: Field) -> PlannedArgument:
    _check_members(entry, _ARGUMENT)
    return PlannedArgument(
        name=entry["name"].text(),
        kind=_text(entry, "kind"),
        source=_text(entry, "source"),
        shape=_integers(entry, "shape"),
        dtype=_text(entry, "dtype"),
        layout=_layout(entry),
        path=entry.path,
    )


def _operation(entry: Field) -> PlannedOperation:
    _check_members(entry, _OPERATION)
    result = entry["result"] if "result" in entry else Field({}, entry.filename, f"{entry.path}.result")
    _check_members(result, _RESULT)
    slices, core_order = _integers(entry, "slices"), _integers(entry, "core_order")
    # The order lists the dims with several slices, so it has no meaning without slices.
    if core_order is not None and slices is None:
        entry["core_order"].fail("needs 'slices' beside it")
    return PlannedOperation(
        name=entry["name"].text(),
        opcode=_text(entry, "opcode"),
        location=_text(entry, "location"),
        source=_text(entry, "source"),
        slices=slices,
        core_order=core_order,
        cores=_integer(entry["cores"]) if "cores" in entry else None,
        tiling=tuple(map(_loop, entry["tiling"].items())) if "tiling" in entry else None,
        shape=_integers(result, "shape"),
        dtype=_text(result, "dtype"),
        layout=_layout(result),
        placement=_placement(result["placement"]) if "placement" in result else None,
        spilled=result["spilled"].texts() if "spilled" in result else (),
        path=entry.path,
    )


def _loop(entry: Field) -> TiledLoop:
    _check_members(entry, _LOOP)
    tile = _integer(entry["tile"]) if "tile" in entry else None
    unrolled = "unrolled" in entry and entry["unrolled"].boolean()
    loop = TiledLoop(entry["loop"].text(), _integer(entry["dim"]), _integer(entry["tiles"]), tile, unrolled)
    if loop.dim < 0:
        entry["dim"].fail(f"must not be negative but is {loop.dim}")
    if loop.tiles < 1:
        entry["tiles"].fail(f"must be 1 or more but is {loop.tiles}")
    if tile is not None and tile < 1:
        entry["tile"].fail(f"must be 1 or more but is {tile}")
    return loop


def _text(entry: Field, name: str) -> str | None:
    return entry[name].text() if name in entry else None


def _integers(entry: Field, name: str) -> tuple[int, ...] | None:
    return tuple(map(_integer, entry[name].items())) if name in entry else None


def _integer(field: Field) -> int:
    """Read an integer; it must fit the 64 bits of an attribute in the IR."""
    value = field.integer()
    if abs(value) >= 1 << 63:
        field.fail(f"is {shorten(value)}, which is too large")
    return value


def _layout(entry: Field) -> Any:
    if "layout" not in entry:
        return None
    layout = entry["layout"]
    if not isinstance(layout.value, str | dict):
        layout.fail(
            f'must be an object such as {{"dim_order": [0, 1]}} or a map, but is {shorten(layout.value)}'
        )
    return layout.value


def _placement(field: Field) -> PlannedPlacement:
    if field.value == "hbm":
        return PlannedPlacement("hbm")
    if not isinstance(field.value, dict):
        forms = '{"lx": ADDRESS}, {"pool": OFFSET}, {"argument": NAME} or "hbm"'
        field.fail(f"must be {forms}, but is {shorten(field.value)}")
    memory, address = field.only_member()
    if memory == "argument":
        return PlannedPlacement(memory, address.text())
    if memory not in ("lx", "pool"):
        address.fail("is unknown; a placement is in lx, pool or argument")
    if _integer(address) < 0:
        address.fail(f"must not be negative but is {address.value}")
    return PlannedPlacement(memory, address.integer())
