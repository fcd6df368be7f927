"""Buffers that insertions fill: which insertions belong together, and the layouts that they can have."""

from __future__ import annotations

from spyre_mlir.dialects.structured import defining_op, element_of, shape_of
from spyre_mlir.layout import BufferView, StickLayout
from spyre_mlir.mlir import ir
from spyre_mlir.passes._view_ops import dropped_dims, insert_region


class Insertions:
    """The layouts of the buffers that chains of ``tensor.insert_slice`` fill, and of their parts."""

    def __init__(self) -> None:
        self._layouts: dict[ir.Operation, StickLayout] = {}

    def of(self, value: ir.Value) -> ir.Operation | None:
        """The insertion that takes a value, as part or as the buffer that it fills."""
        users = [use.owner.operation for use in value.uses]
        return next((user for user in users if user.name == "tensor.insert_slice"), None)

    def wanted(self, value: ir.Value, insertion: ir.Operation) -> StickLayout:
        """The layout that a value has to have for its insertion."""
        return self.part(insertion) if insertion.operands[0] == value else self.whole(insertion)

    def whole(self, insertion: ir.Operation) -> StickLayout:
        """The layout of the buffer: the last dim that no insertion of the chain cuts is the stick."""
        if insertion not in self._layouts:
            chain = _chain(insertion)
            layout = _uncut(chain, insertion.results[0])
            self._layouts.update((each, layout) for each in chain)
        return self._layouts[insertion]

    def part(self, insertion: ir.Operation) -> StickLayout:
        """The layout of the part that an insertion writes."""
        offsets, sizes = insert_region(insertion)
        whole = BufferView.of(self.whole(insertion))
        part = whole.slice(offsets, sizes, [1] * len(sizes))
        return part.drop(dropped_dims(sizes, shape_of(insertion.operands[0]))).layout


def _uncut(chain: list[ir.Operation], whole: ir.Value) -> StickLayout:
    shape, element = shape_of(whole), element_of(whole)
    per_stick = StickLayout.for_tensor(shape, element).elements_per_stick
    for dim in reversed(range(len(shape))):
        if shape[dim] > 1 and all(_aligned(each, dim, shape[dim], per_stick) for each in chain):
            others = [other for other in range(len(shape)) if other != dim]
            return StickLayout.for_tensor(shape, element, [*others, dim])
    return StickLayout.for_tensor(shape, element, [*range(len(shape)), -1])


def _chain(op: ir.Operation) -> list[ir.Operation]:
    """All insertions into one buffer."""
    while (before := defining_op(op.operands[1])) is not None and before.name == "tensor.insert_slice":
        op = before
    chain = [op]
    while True:
        users = [use.owner.operation for use in chain[-1].results[0].uses]
        after = [
            u for u in users if u.name == "tensor.insert_slice" and u.operands[1] == chain[-1].results[0]
        ]
        if not after:
            return chain
        chain.append(after[0])


def _aligned(op: ir.Operation, dim: int, extent: int, per_stick: int) -> bool:
    offsets, sizes = insert_region(op)
    whole_sticks = sizes[dim] % per_stick == 0 or offsets[dim] + sizes[dim] == extent
    return offsets[dim] % per_stick == 0 and whole_sticks
