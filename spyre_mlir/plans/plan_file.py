# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans as frozen values, and the text of a plan file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from spyre_mlir.records import dataclass
from spyre_mlir.tiling import TiledLoop

VERSION = 1

#: Maximum size of a plan file in bytes.
MAX_BYTES = 1 << 26

#: Width in columns up to which a value stays on one line.
_WIDTH = 100


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
        return {
            "version": VERSION,
            "arguments": [_argument(argument) for argument in self.arguments],
            "operations": [_operation(operation) for operation in self.operations],
        }

    def text(self) -> str:
        """Return the text of the file; the same plan gives the same text."""
        return json_text(self.plain()) + "\n"


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


def _argument(argument: PlannedArgument) -> dict[str, Any]:
    fields = ("name", "kind", "source", "shape", "dtype", "layout")
    return _without_none({name: getattr(argument, name) for name in fields})


def _operation(operation: PlannedOperation) -> dict[str, Any]:
    placement = operation.placement
    result = {
        "shape": operation.shape,
        "dtype": operation.dtype,
        "layout": operation.layout,
        "placement": None if placement is None else placement.plain,
        "spilled": operation.spilled or None,
    }
    fields = ("name", "opcode", "location", "source", "slices", "core_order", "cores")
    return _without_none(
        {
            **{name: getattr(operation, name) for name in fields},
            "tiling": None if operation.tiling is None else [loop.plain() for loop in operation.tiling],
            "result": _without_none(result),
        }
    )


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    """Drop the fields that are None, and convert tuples to lists for JSON."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in fields.items()
        if value is not None
    }
