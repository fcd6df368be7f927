# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Groups: operations of a function with some tiling, as separate programs that can be evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from spyre_mlir.analysis.tile_nests import RESCALED, RUNNING
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.hint_attributes import TILING, tiling_attr
from spyre_mlir.dialects.targets import empty_module
from spyre_mlir.layout import StickLayout
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.outlining import Outlined
from spyre_mlir.target.target import Target
from spyre_mlir.tiling.hint_tree import TiledLoop

#: The loops of each operation, keyed by its result; operations without an entry are not tiled.
Tiling = Mapping[ir.Value, Sequence[TiledLoop]]


def default_bytes(target: Target, shape: Sequence[int], dtype: str) -> int:
    """Return the bytes of a tensor in its default layout, as an estimate before layouts are chosen."""
    return StickLayout.for_tensor(target, tuple(shape), dtype).bytes


def group_module(ops: Sequence[ir.Operation], tiling: Tiling) -> ir.Module:
    """Build a module of one function with copies of operations of one block, in order, and the views that they read.

    Values from outside become arguments, values read outside become results. Equal groups give equal text.
    """
    names: dict[str, int] = {}
    with ops[0].context, ir.Location.unknown():
        outlined = Outlined(ops, copied=lambda op: sdsc.OP not in op.attributes)
        module = empty_module(ops[0])
        with ir.InsertionPoint(module.body):
            outlined.build(
                "group",
                [_host(f"arg{number}", value) for number, value in enumerate(outlined.arguments)],
                [_host(f"result{number}", value, "result") for number, value in enumerate(outlined.results)],
                prepare=lambda op, copy: _prepare(copy, tiling.get(op.results[0], ()), names),
            )
    return module


def _prepare(copy: ir.Operation, loops: Sequence[TiledLoop], names: dict[str, int]) -> None:
    """Set the loops of a copy, and replace names by numbers so that equal groups have equal text."""
    # Names and histories differ between groups that cost the same.
    for name in (sdsc.NAME, sdsc.HISTORY, TILING):
        if name in copy.attributes:
            del copy.attributes[name]
    for name in (RUNNING, RESCALED):
        if name in copy.attributes:
            label = ir.StringAttr(copy.attributes[name]).value
            copy.attributes[name] = ir.StringAttr.get(_number(label, names))
    if loops:
        copy.attributes[TILING] = tiling_attr(
            [replace(loop, loop=_number(loop.loop, names)) for loop in loops]
        )


def _number(name: str, names: dict[str, int]) -> str:
    return str(names.setdefault(name, len(names)))


def _host(label: str, value: ir.Value, kind: str = "") -> ir.DictAttr:
    """Build the host attribute of an argument: of the program's argument, or of an intermediate of the program."""
    element, attributes = str(ir.RankedTensorType(value.type).element_type), _attributes(value)
    kind = kind or ("intermediate" if sdsc.HOST not in attributes else _kind(attributes[sdsc.HOST]))
    entries = {sdsc.HOST: sdsc.host_attr(label, kind, element)}
    # The numbers of a mask determine the tiles that cost nothing.
    if sdsc.RUNS in attributes:
        entries |= {name: attributes[name] for name in (sdsc.RUNS, sdsc.HOST_VIEW) if name in attributes}
    return ir.DictAttr.get(entries)


def _kind(host: ir.Attribute) -> str:
    return ir.StringAttr(host.kind).value


def _attributes(value: ir.Value) -> dict[str, ir.Attribute]:
    """Return the attributes of an argument of a function; {} for another value."""
    if not isinstance(value.owner, ir.Block):
        return {}
    func = value.owner.owner.operation
    if func.name != "func.func" or "arg_attrs" not in func.attributes:
        return {}
    entries = ir.DictAttr(ir.ArrayAttr(func.attributes["arg_attrs"])[ir.BlockArgument(value).arg_number])
    return {entry.name: entry.attr for entry in entries}
