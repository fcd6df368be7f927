"""What a plan file holds, and its text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spyre_mlir.tiling import TiledLoop

VERSION = 1

#: Bytes of a plan file.
MOST_BYTES = 1 << 26

#: Columns up to which a value stands on one line.
_WIDTH = 100


@dataclass(frozen=True)
class Placement:
    """Where a result lives. ``memory`` is "lx" (``at`` is the byte address in every core's LX), "pool" (byte
    offset in the pool of device memory), "argument" (the name of the kernel argument) or "hbm": device memory,
    ``at`` the compiler's choice.
    """

    memory: str
    at: int | str | None = None

    @property
    def plain(self) -> Any:
        return self.memory if self.at is None else {self.memory: self.at}

    def __str__(self) -> str:
        return json.dumps(self.plain)


@dataclass(frozen=True)
class PlannedArgument:
    """An argument of the program.

    ``source`` names the argument that it is once more, in another layout. ``layout`` is the plain value of the file;
    ``path`` is where it stands there.
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
    """A device operation and its result; None is what the file leaves to the compiler.

    ``slices`` per iteration dim; ``core_order`` the dims in several slices, that of neighbouring cores first.
    ``tiling`` are the loops around an operation of level *device ops*, outermost first.
    ``source`` names what an operation that the compiler inserted copies. ``layout`` is the plain value of the
    file; ``path`` is where the entry stands there. ``opcode``, ``location``, ``source`` and ``spilled`` only tell.
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
    placement: Placement | None = None
    spilled: tuple[str, ...] = ()
    path: str = ""


@dataclass(frozen=True)
class Plan:
    """``filename`` is where the plan was read; errors about it have that as their location."""

    arguments: tuple[PlannedArgument, ...] = ()
    operations: tuple[PlannedOperation, ...] = ()
    filename: str = ""

    def plain(self) -> dict[str, Any]:
        """The plan as JSON knows it, without what is left to the compiler."""
        return {
            "version": VERSION,
            "arguments": [_argument(each) for each in self.arguments],
            "operations": [_operation(each) for each in self.operations],
        }

    def text(self) -> str:
        """The text of the file; the same plan gives the same text."""
        return json_text(self.plain()) + "\n"


def json_text(value: Any, indent: str = "") -> str:
    """JSON with small values on one line: as people would write it."""
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, Mapping | list) or len(indent) + len(flat) <= _WIDTH:
        return flat
    inner = indent + "  "
    if isinstance(value, Mapping):
        lines = [f"{inner}{json.dumps(key)}: {json_text(member, inner)}" for key, member in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + json_text(item, inner) for item in value) + f"\n{indent}]"


def _argument(argument: PlannedArgument) -> dict[str, Any]:
    fields = ("name", "kind", "source", "shape", "dtype", "layout")
    return _given({name: getattr(argument, name) for name in fields})


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
    return _given(
        {
            **{name: getattr(operation, name) for name in fields},
            "tiling": None if operation.tiling is None else [loop.plain() for loop in operation.tiling],
            "result": _given(result),
        }
    )


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in fields.items()
        if value is not None
    }
