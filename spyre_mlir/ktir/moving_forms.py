# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that move elements between cores, or from rows of a table, in KTIR."""

from __future__ import annotations

import math
from collections.abc import Sequence

from spyre_mlir.dialects import ktdp
from spyre_mlir.errors import CompileError
from spyre_mlir.ktir.memory_views import SCRATCHPADS
from spyre_mlir.ktir.operand_tiles import TileAxis, refined
from spyre_mlir.ktir.operation_lowering import OperationLowering, Tensor
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.tensor_builders import inserted


def relayout(lowering: OperationLowering) -> None:
    """Build a relayout: every core puts what it has where the others see it, and takes what it wants."""
    state, build, memory = lowering.state, lowering.build, lowering.state.memory
    source = lowering.tiles[0]
    element = lowering.elements[0]
    strides = _dense_strides(source.shape)
    if lowering.is_tensor(0):
        value = lowering.loaded(0)
        base = build.number(memory.new_stage(element, math.prod(source.shape)))
        memory.store_to(
            memory.local_view(base, source.shape, strides, element), [build.number(0)] * len(strides), value
        )
    else:
        place = lowering.place(0)
        address = next(each for each in place.addresses if each is not None)
        size = lowering.design.target.stick_bytes // lowering.design.operands[0].elements_per_stick
        base = build.number(SCRATCHPADS[element] + address.offset // size)
        strides = [axis.stride for axis in source.axes]
    lowering.barrier()
    view = _distributed(lowering, base, strides)
    _take(lowering, view)
    # Later stores must not reach what others still read: in a loop those of the next iteration.
    if state.loops or not lowering.is_tensor(0):
        lowering.barrier()


def _dense_strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]


def _distributed(lowering: OperationLowering, base: ir.Value, strides: Sequence[int]) -> ir.Value:
    """Build one view of what all cores have, each part once."""
    build, memory, source = lowering.build, lowering.state.memory, lowering.tiles[0]
    element = lowering.elements[0]
    holders: dict[tuple[int, ...], int] = {}
    for core, firsts in source.firsts.items():
        holders.setdefault(firsts, core)
    parts = [
        memory.new_view(
            base, source.shape, strides, element, ktdp.LOCAL, core, memory.box(source.counts[core], firsts)
        )
        for firsts, core in holders.items()
    ]
    type_ = ir.MemRefType.get([axis.total for axis in source.axes], ir.Type.parse(element))
    return build.op("ktdp.construct_distributed_memory_view", type_, *parts)


def _take(lowering: OperationLowering, view: ir.Value) -> None:
    """Load what this core wants of a view of all, and store it as the result."""
    memory = lowering.state.memory
    value = memory.load(lowering.place(1), view)
    digits = refined(lowering.tiles[1].digits, lowering.weights)
    lowering.store(Tensor(lowering.build.reshaped(value, [digit.count for digit in digits] or [1]), digits))


def gather(lowering: OperationLowering) -> None:
    """Build an indirect access: rows of a table by their positions, which are data."""
    build, memory, state = lowering.build, lowering.state.memory, lowering.state
    index, table = lowering.tiles[0], lowering.tiles[1]
    (label,) = lowering.reduced
    if any(lowering.design.operands[k].memory == "lx" for k in (0, 1)):
        raise CompileError("The positions and the table of a lookup are in device memory.")
    rows = [axis for axis in table.axes if axis.label == label]
    if any(axis.weight > 1 for axis in rows) or len(rows) > 1:
        raise CompileError("A lookup reads rows of a table that are not in its sticks.")
    places = [lowering.place(k) for k in (0, 1)]
    views = [memory.part_view(place) for place in places]
    columns = [axis for axis in table.axes if axis.label != label]
    digits = tuple(axis.digit for axis in (*index.axes, *columns))
    names = [f"%d{dim}" for dim in range(len(digits))]
    position = f"ind(1, {', '.join(names[: len(index.axes)])})"
    others = dict(zip(map(id, columns), names[len(index.axes) :], strict=True))
    subscripts = ", ".join(
        position if axis.label == label else f"({others[id(axis)]})" for axis in table.axes
    )
    shape = tuple(digit.count for digit in digits)

    def part(counts: Sequence[int] | None) -> ir.Value:
        if counts is None:
            return build.filled(shape, lowering.elements[1], 0)
        tile = build.op(
            "ktdp.construct_indirect_access_tile",
            ktdp.tile_type(counts),
            *reversed(views),
            subscripts=ir.StringAttr.get(subscripts),
            variables=ir.StringAttr.get(", ".join(names)),
            variables_space_set=memory.box(counts),
            variables_space_order=ir.AffineMapAttr.get(ir.AffineMap.get_identity(len(counts))),
        )
        value = build.op("ktdp.load", build.type(counts, lowering.elements[1]), tile)
        if tuple(counts) == shape:
            return value
        return inserted(value, build.filled(shape, lowering.elements[1], 0), [0] * len(shape))

    counts = [_counts(lowering, core, columns) for core in range(state.cores.cores)]
    value = memory.branches(counts, part, build.type(shape, lowering.elements[1]))
    assert value is not None
    kept = refined(digits, lowering.weights)
    lowering.store(Tensor(build.reshaped(value, [digit.count for digit in kept] or [1]), kept))


def _counts(lowering: OperationLowering, core: int, columns: Sequence[TileAxis]) -> tuple[int, ...] | None:
    """Return the positions along the dims of the tile that a core reads; None for a core that reads none."""
    index, table = lowering.tiles[0], lowering.tiles[1]
    if core not in index.counts:
        return None
    of_axis = dict(zip(map(id, table.axes), table.counts[core], strict=True))
    return (*index.counts[core], *(of_axis[id(axis)] for axis in columns))
