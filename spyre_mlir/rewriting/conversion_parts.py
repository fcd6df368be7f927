# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conversions of a tensor part by part, where each core's slice of the whole would exceed the span limit."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from spyre_mlir.analysis.aliasing import AliasAnalysis
from spyre_mlir.analysis.plan_pins import pins_of
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.structured import shape_of
from spyre_mlir.division import SpanError, required_splits
from spyre_mlir.division.slices import divisors
from spyre_mlir.layout import BufferView, ViewError
from spyre_mlir.layout.padding import UNDEFINED
from spyre_mlir.layout.space import refined
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.tensor_builders import extracted, inserted

#: Operations that change the layout of a tensor, its stick dims or just the order of its dims.
CONVERSIONS = ("stick.restickify", "sdsc.clone")

#: Parts of one tensor at most: each is an operation of its own.
_MOST_PARTS = 64


@dataclass(frozen=True)
class Parts:
    """Equal parts of a tensor along one dim."""

    dim: int
    count: int

    def boxes(self, shape: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
        """Offsets and sizes of each part of a tensor of ``shape``."""
        sizes = [size // self.count if dim == self.dim else size for dim, size in enumerate(shape)]
        for number in range(self.count):
            yield [number * size if dim == self.dim else 0 for dim, size in enumerate(sizes)], sizes


def parts_in_reach(
    memory: AliasAnalysis, op: ir.Operation, cores: int, limit_bytes: int | None
) -> Parts | None:
    """The fewest parts of a conversion that can be divided; None if the whole can be, or has to stay so."""
    (source,), (result,) = op.operands, op.results
    if op.name not in CONVERSIONS or pins_of(op).slices is not None:
        return None
    # A result in a region of another buffer, or with numbers in its padding, cannot be inserted part by part.
    is_part = any(use.owner.operation.name == "tensor.insert_slice" for use in result.uses)
    if is_part or any(state is not UNDEFINED for state in stick.padding_of(op.attributes).values()):
        return None
    views = (memory.place(source).view, memory.place(result).view)
    shape = tuple(shape_of(result))
    if _in_reach(views, shape, Parts(0, 1), cores, limit_bytes):
        return None
    candidates = (
        Parts(dim, n) for dim, size in enumerate(shape) for n in divisors(size, _MOST_PARTS) if n > 1
    )
    for parts in sorted(candidates, key=lambda parts: (parts.count, parts.dim)):
        if _in_reach(views, shape, parts, cores, limit_bytes):
            return parts
    return None


def convert_by_parts(memory: AliasAnalysis, op: ir.Operation, parts: Parts) -> None:
    """Replace a conversion by conversions of parts, which are inserted into the result."""
    (source,), (result,) = op.operands, op.results
    before, after = memory.place(source).view, memory.place(result).view
    with ir.InsertionPoint(op), op.location:
        whole = ir.Operation.create("tensor.empty", results=[result.type]).result
        for number, (offsets, sizes) in enumerate(parts.boxes(shape_of(result))):
            part = extracted(source, offsets, sizes, [1] * len(sizes))
            part.set_type(_part_type(source, before, offsets, sizes))
            copy = op.clone().operation
            _name(copy, number)
            copy.operands[0] = part
            copy.results[0].set_type(_part_type(result, after, offsets, sizes))
            whole = inserted(copy.result, whole, offsets)
    result.replace_all_uses_with(whole)
    op.erase()


def _name(op: ir.Operation, number: int) -> None:
    """Name the conversion of a part, so that a plan can refer to it."""
    name = sdsc.name_of(op)
    if name is not None:
        op.attributes[sdsc.NAME] = ir.StringAttr.get(f"{name}/part.{number}", op.context)


def _part_type(
    value: ir.Value, view: BufferView, offsets: Sequence[int], sizes: Sequence[int]
) -> ir.RankedTensorType:
    part_type = ir.RankedTensorType.get(list(sizes), ir.RankedTensorType(value.type).element_type)
    return stick.with_layout(part_type, view.slice(offsets, sizes, [1] * len(sizes)).layout)


@functools.lru_cache(maxsize=1 << 8)
def _in_reach(
    views: tuple[BufferView, ...], shape: tuple[int, ...], parts: Parts, cores: int, limit_bytes: int | None
) -> bool:
    """Return whether each part is a view of both tensors and can be divided within the span limit."""
    steps = [1] * len(shape)
    try:
        for offsets, sizes in parts.boxes(shape):
            cut = [view.slice(offsets, sizes, steps) for view in views]
            space = refined(cut)
            required_splits(space, cores, limit_bytes)
            for view in cut:  # the layout of a part is part of its type
                BufferView.of(view.layout)
    except (ViewError, SpanError, ValueError):
        return False
    return True
