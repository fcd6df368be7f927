# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Splits operations so that each core can address its part of every operand."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import ClassVar

from spyre_mlir.analysis.aliasing import AliasAnalysis, all_ops, functions, is_compute
from spyre_mlir.analysis.plan_pins import pins_of
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.structured import shape_of
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.division import SpanError, required_splits
from spyre_mlir.division.slices import divisors, splits_text
from spyre_mlir.layout import BufferView, ViewError
from spyre_mlir.layout.padding import UNDEFINED
from spyre_mlir.layout.space import refined
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.divider import Divider, blocked_dims
from spyre_mlir.rewriting.tensor_builders import extracted, inserted
from spyre_mlir.target.ops import DEVICE_OPS


@dataclass(frozen=True)
class SpanReduction(Pass):
    """Split each op into the fewest slices with which no core spans more than 256 MiB - 4 KiB of any operand.

    This is the first of the two passes of work division, and the mandatory one: ``must_split_vars`` of
    "Work Division Planning". Most ops do not need a split and are not changed.
    ``limit_bytes`` replaces the limit of the device description, for experiments.

    Before: level *laid out*. After: ops that need splits have an ``sdsc.division`` with these slices, which
    ``work-distribution`` uses as a lower bound. A layout conversion that no legal split brings within
    the limit is done part by part. For any other operation it is an error if no split, or only a split of two
    reduction dims, brings an operand within the limit.

        %c = linalg.generic .. sdsc.op = #sdsc.op<"batchmatmul", {}>
    ->  %c = linalg.generic .. sdsc.division = #sdsc.division<[1, 1, 2], affine_map<(d0) -> (0, 0, d0 mod 2)>>
    """

    name: ClassVar[str] = "span-reduction"
    limit_bytes: int | None = None

    def run(self, module: ir.Operation) -> None:
        cores, divider = target_of(module).cores, Divider()
        for func in functions(module):
            # A conversion is split into several if no division brings its tensors within the span limit.
            for op in (op for op in all_ops(func) if op.name in CONVERSIONS):
                memory = AliasAnalysis(func)
                parts = parts_in_reach(memory, op, cores, self.limit_bytes)
                if parts is not None:
                    text = f"{parts.count} parts of dim {parts.dim} are converted; no division fits the span limit"
                    self.remark(op, "span", text)
                    convert_by_parts(memory, op, parts)
            memory = AliasAnalysis(func)
            for op in filter(is_compute, all_ops(func)):
                opcode, space, values = memory.space(op)
                try:
                    exempt = DEVICE_OPS[opcode].indirect
                    splits = required_splits(
                        space, cores, self.limit_bytes, blocked=blocked_dims(op), exempt=exempt
                    )
                except SpanError as error:
                    shape = list(shape_of(values[error.operand]))
                    text = f"'{opcode}' cannot address operand {error.operand}, of shape {shape}. {error}"
                    raise error_at(op, text) from error
                if any(split > 1 for split in splits):
                    divider.divide(op, opcode, space, splits)
                    text = f"to fit the span limit, '{opcode}' needs {splits_text(splits, space.units)}"
                    self.remark(op, "span", text)


# Conversion of a tensor part by part, if each core's slice of the whole would exceed the span limit.

#: Operations that change the layout of a tensor: its stick dims, or only the order of its dims.
CONVERSIONS = ("stick.restickify", "sdsc.clone")

#: Maximum number of parts of one tensor: each part is a separate operation.
_MOST_PARTS = 64


@dataclass(frozen=True)
class Parts:
    """Equal parts of a tensor along one dim."""

    dim: int
    count: int

    def boxes(self, shape: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
        """Yield the offsets and sizes of each part of a tensor of ``shape``."""
        sizes = [size // self.count if dim == self.dim else size for dim, size in enumerate(shape)]
        for number in range(self.count):
            yield [number * size if dim == self.dim else 0 for dim, size in enumerate(sizes)], sizes


def parts_in_reach(
    memory: AliasAnalysis, op: ir.Operation, cores: int, limit_bytes: int | None
) -> Parts | None:
    """Return the fewest parts of a conversion that can be divided; None if the whole can be or must not be cut."""
    (source,), (result,) = op.operands, op.results
    if pins_of(op).slices is not None:
        return None
    # A result in a region of another buffer, or with known padding, cannot be assembled from parts.
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
    """Replace a conversion by conversions of its parts, which are inserted into the result."""
    (source,), (result,) = op.operands, op.results
    name = sdsc.name_of(op)

    def part_type(value: ir.Value, offsets: list[int], sizes: list[int]) -> ir.RankedTensorType:
        type_ = ir.RankedTensorType.get(sizes, ir.RankedTensorType(value.type).element_type)
        view = memory.place(value).view.slice(offsets, sizes, [1] * len(sizes))
        return stick.with_layout(type_, view.layout)

    with ir.InsertionPoint(op), op.location:
        whole = ir.Operation.create("tensor.empty", results=[result.type]).result
        for number, (offsets, sizes) in enumerate(parts.boxes(shape_of(result))):
            part = extracted(source, offsets, sizes, [1] * len(sizes))
            part.set_type(part_type(source, offsets, sizes))
            copy = op.clone().operation
            if name is not None:
                # A plan can refer to the conversion of a part by its name.
                copy.attributes[sdsc.NAME] = ir.StringAttr.get(f"{name}/part.{number}", op.context)
            copy.operands[0] = part
            copy.results[0].set_type(part_type(result, offsets, sizes))
            whole = inserted(copy.result, whole, offsets)
    result.replace_all_uses_with(whole)
    op.erase()


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
