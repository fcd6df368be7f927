# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Groups: operations of a function with some tiling, as separate programs that can be evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from spyre_mlir.analysis.aliasing import attributes_of
from spyre_mlir.analysis.tile_nests import RESCALED, RUNNING
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.hint_attributes import TILING, tiling_attr
from spyre_mlir.dialects.structured import element_of
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

    def prepare(op: ir.Operation, copy: ir.Operation) -> None:
        """Set the loops of a copy; names, which differ between groups that cost the same, become numbers or go."""
        for name in (sdsc.NAME, sdsc.HISTORY, TILING):
            if name in copy.attributes:
                del copy.attributes[name]
        for name in (RUNNING, RESCALED):
            if name in copy.attributes:
                label = ir.StringAttr(copy.attributes[name]).value
                copy.attributes[name] = ir.StringAttr.get(_number(label, names))
        loops = [replace(loop, loop=_number(loop.loop, names)) for loop in tiling.get(op.results[0], ())]
        if loops:
            copy.attributes[TILING] = tiling_attr(loops)

    with ops[0].context, ir.Location.unknown():
        outlined = Outlined(ops, copied=lambda op: sdsc.OP not in op.attributes)
        module = empty_module(ops[0])
        with ir.InsertionPoint(module.body):
            outlined.build(
                "group",
                [_host(f"arg{number}", value) for number, value in enumerate(outlined.arguments)],
                [_host(f"result{number}", value, "result") for number, value in enumerate(outlined.results)],
                prepare=prepare,
            )
    return module


def _number(name: str, names: dict[str, int]) -> str:
    return str(names.setdefault(name, len(names)))


def _host(label: str, value: ir.Value, kind: str = "") -> ir.DictAttr:
    """Build the host attribute of an argument: of the program's argument, or of an intermediate of the program."""
    owner = value.owner.owner if isinstance(value.owner, ir.Block) else None
    is_argument = owner is not None and owner.operation.name == "func.func"
    attributes = attributes_of(value) if is_argument else {}
    host = attributes.get(sdsc.HOST)
    kind = kind or ("intermediate" if host is None else ir.StringAttr(host.kind).value)
    entries = {sdsc.HOST: sdsc.host_attr(label, kind, element_of(value))}
    # The numbers of a mask determine the tiles that cost nothing.
    if sdsc.RUNS in attributes:
        entries |= {name: attributes[name] for name in (sdsc.RUNS, sdsc.HOST_VIEW) if name in attributes}
    return ir.DictAttr.get(entries)
