# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans as frozen values, and the text of a plan file: how it is written, and how it is read."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from spyre_mlir.bundle.json_fields import Field, parse_json, shorten
from spyre_mlir.records import dataclass
from spyre_mlir.tiling import TiledLoop

VERSION = 1

#: Maximum size of a plan file in bytes.
MAX_BYTES = 1 << 26

#: Width in columns up to which a value stays on one line.
_WIDTH = 100

#: The fields of the objects of a plan file.
_PLAN = ("version", "arguments", "operations")
_ARGUMENT = ("name", "kind", "source", "shape", "dtype", "layout")
_OPERATION = (
    "name", "opcode", "location", "source", "slices", "core_order", "cores", "tiling", "result",
)  # fmt: skip
_LOOP = ("loop", "dim", "tiles", "tile", "unrolled")
_RESULT = ("shape", "dtype", "layout", "placement", "spilled")


@dataclass(frozen=True)
class PlannedPlacement:
    """Memory of a result and its address there.

    ``memory`` is "lx" (``address`` in bytes, the same in every core's LX), "pool" (byte offset in the pool of device
    memory), "argument" (name of the kernel argument) or "hbm": device memory, at an address of the compiler's choice.
    """

    memory: str
    address: int | str | None = None

    @property
    def plain(self) -> Any:
        """The placement as a JSON value."""
        return self.memory if self.address is None else {self.memory: self.address}

    def __str__(self) -> str:
        return json.dumps(self.plain)


@dataclass(frozen=True)
class PlannedArgument:
    """An argument of the program.

    ``source`` names the argument whose array this one has in another layout. ``layout`` is the JSON value of the file;
    ``path`` is the entry's path in the file, for errors.
    """

    name: str
    kind: str | None = None
    source: str | None = None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    layout: Any = None
    path: str = ""


@dataclass(frozen=True)
class PlannedOperation:
    """A device operation and its result; None leaves a decision to the compiler.

    ``slices`` is the number of slices per iteration dim. ``core_order`` lists the dims with several slices; the dim
    along which neighbouring cores differ is first. ``tiling`` lists the loops around an operation of level *device
    ops*, outermost first. ``source`` names the tensor that an inserted operation copies. ``layout`` is the JSON value
    of the file; ``path`` is the entry's path in the file, for errors. ``opcode``, ``location``, ``source`` and
    ``spilled`` are for the reader alone.
    """

    name: str
    opcode: str | None = None
    location: str | None = None
    source: str | None = None
    slices: tuple[int, ...] | None = None
    core_order: tuple[int, ...] | None = None
    cores: int | None = None
    tiling: tuple[TiledLoop, ...] | None = None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    layout: Any = None
    placement: PlannedPlacement | None = None
    spilled: tuple[str, ...] = ()
    path: str = ""


@dataclass(frozen=True)
class PlanFile:
    """Decisions about a program. ``filename`` is the file that the plan was read from, the location of its errors."""

    arguments: tuple[PlannedArgument, ...] = ()
    operations: tuple[PlannedOperation, ...] = ()
    filename: str = ""

    def plain(self) -> dict[str, Any]:
        """Return the plan as a JSON value, without decisions that are None."""
        operations = []
        for operation in self.operations:
            placement, tiling = operation.placement, operation.tiling
            result = {
                **{name: getattr(operation, name) for name in _RESULT},
                "placement": None if placement is None else placement.plain,
                "spilled": operation.spilled or None,
            }
            fields = {name: getattr(operation, name) for name in _OPERATION if name != "result"}
            fields["tiling"] = None if tiling is None else [loop.plain() for loop in tiling]
            operations.append(_without_none({**fields, "result": _without_none(result)}))
        arguments = [{name: getattr(argument, name) for name in _ARGUMENT} for argument in self.arguments]
        return {
            "version": VERSION,
            "arguments": list(map(_without_none, arguments)),
            "operations": operations,
        }

    def text(self) -> str:
        """Return the text of the file; the same plan gives the same text."""
        return json_text(self.plain()) + "\n"


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    """Drop the fields that are None, and convert tuples to lists for JSON."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in fields.items()
        if value is not None
    }


def json_text(value: Any, indent: str = "") -> str:
    """Format JSON with small values on one line, as people would write it."""
    flat = json.dumps(value, ensure_ascii=False)
    # The key before a value is not counted, so a line may exceed the width by the length of the key.
    if not isinstance(value, Mapping | list) or len(indent) + len(flat) <= _WIDTH:
        return flat
    inner = indent + "  "
    if isinstance(value, Mapping):
        lines = [f"{inner}{json.dumps(key)}: {json_text(member, inner)}" for key, member in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + json_text(item, inner) for item in value) + f"\n{indent}]"


# Reading a plan file: every error names the file and the field.


def read_plan(text: str, filename: str) -> PlanFile:
    """Parse the text of a plan file; raise ``CompileError`` if it is invalid. ``filename`` is for errors."""
    root = parse_json(text, filename, "plan")
    # Check the version first: a later version may have fields that are unknown here, which is not the user's error.
    if "version" not in root:
        root.fail("has no 'version': this is not a plan file")
    if root["version"].integer() != VERSION:
        root["version"].fail(f"is {root['version'].value}; this compiler reads version {VERSION}")
    _check_members(root, _PLAN)
    arguments, operations = (root.optional(name, Field.items, []) for name in ("arguments", "operations"))
    _check_names([*arguments])
    _check_names([*operations])
    planned = []
    for entry in arguments:
        _check_members(entry, _ARGUMENT)
        texts = {name: entry.optional(name, Field.text) for name in ("kind", "source", "dtype")}
        shape, layout = entry.optional("shape", Field.integers), entry.optional("layout", _layout)
        planned.append(
            PlannedArgument(entry["name"].text(), **texts, shape=shape, layout=layout, path=entry.path)
        )
    return PlanFile(tuple(planned), tuple(map(_operation, operations)), filename)


def _check_members(entry: Field, known: Collection[str]) -> None:
    for name, member in entry.members():
        if name not in known:
            member.fail(f"is unknown; known here are {', '.join(known)}")


def _check_names(entries: list[Field]) -> None:
    seen: dict[str, Field] = {}
    for entry in entries:
        name = entry["name"].text()
        if name in seen:
            entry["name"].fail(f"is '{name}', the same as {seen[name].path}.name")
        seen[name] = entry


def _operation(entry: Field) -> PlannedOperation:
    _check_members(entry, _OPERATION)
    result = entry["result"] if "result" in entry else Field({}, entry.filename, f"{entry.path}.result")
    _check_members(result, _RESULT)
    slices, core_order = (entry.optional(name, Field.integers) for name in ("slices", "core_order"))
    # The order lists the dims with several slices, so it has no meaning without slices.
    if core_order is not None and slices is None:
        entry["core_order"].fail("requires the field 'slices'")
    return PlannedOperation(
        name=entry["name"].text(),
        **{name: entry.optional(name, Field.text) for name in ("opcode", "location", "source")},
        slices=slices,
        core_order=core_order,
        cores=entry.optional("cores", Field.integer),
        tiling=entry.optional("tiling", lambda field: tuple(map(_loop, field.items()))),
        shape=result.optional("shape", Field.integers),
        dtype=result.optional("dtype", Field.text),
        layout=result.optional("layout", _layout),
        placement=result.optional("placement", _placement),
        spilled=result.optional("spilled", Field.texts, ()),
        path=entry.path,
    )


def _loop(entry: Field) -> TiledLoop:
    _check_members(entry, _LOOP)
    tile = entry.optional("tile", Field.integer)
    unrolled = entry.optional("unrolled", Field.boolean, False)
    loop = TiledLoop(entry["loop"].text(), entry["dim"].integer(), entry["tiles"].integer(), tile, unrolled)
    if loop.dim < 0:
        entry["dim"].fail(f"must not be negative but is {loop.dim}")
    if loop.tiles < 1:
        entry["tiles"].fail(f"must be 1 or more but is {loop.tiles}")
    if tile is not None and tile < 1:
        entry["tile"].fail(f"must be 1 or more but is {tile}")
    return loop


def _layout(layout: Field) -> Any:
    if isinstance(layout.value, str):
        return layout.text()
    if not isinstance(layout.value, dict):
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
    if address.integer() < 0:
        address.fail(f"must not be negative but is {address.value}")
    return PlannedPlacement(memory, address.integer())
