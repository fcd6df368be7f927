# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Contents of scratchpads as tensors: the value of each LX buffer at a point of the program, and parts of it.

A value holds its whole buffer: the sticks of a core, one after the other, in any shape. If the sticks have one valid
element each, the value holds only these elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from spyre_mlir.errors import CompileError
from spyre_mlir.ktir.operand_tiles import OperandTile
from spyre_mlir.ktir.tensor_builder import TensorBuilder
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.tensor_builders import extracted, inserted


@dataclass(frozen=True)
class LxTensorAccess:
    """The access of an operation to an LX buffer: a tile from ``offset`` elements on, of sticks of ``per_stick``."""

    name: str
    tile: OperandTile
    element: str
    offset: int
    per_stick: int


@dataclass(frozen=True)
class _BufferSlice:
    """A part of a tensor of ``shape``: ``sizes`` positions from ``offsets`` on, by ``strides``."""

    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


class ScratchpadValues:
    """The tensors in buffers; ``elements`` is the number of elements of each, one per stick for sparse buffers."""

    def __init__(self, build: TensorBuilder, elements: dict[str, int], sparse: frozenset[str]) -> None:
        self.build, self.elements, self.sparse = build, elements, sparse
        self.values: dict[str, ir.Value] = {}

    def read(self, access: LxTensorAccess) -> ir.Value:
        """Return the part of a value that an operation reads."""
        value = self.values.get(access.name)
        if value is None:
            raise CompileError(f"'{access.name}' is read in LX before any operation writes it.")
        part = self._part(access)
        if part is None:
            return self.build.reshaped(value, access.tile.shape)
        whole = self.build.reshaped(value, part.shape)
        taken = extracted(whole, part.offsets, part.sizes, part.strides)
        return self.build.reshaped(taken, access.tile.shape)

    def write(self, access: LxTensorAccess, value: ir.Value) -> None:
        """Update a value with the part that an operation writes."""
        part = self._part(access)
        if part is not None:
            if any(stride > 1 for stride in part.strides):
                raise CompileError(
                    f"'{access.name}' is written in LX at positions that are not side by side."
                )
            whole = self.build.reshaped(self.initial(access.name, access.element), part.shape)
            value = inserted(self.build.reshaped(value, part.sizes), whole, part.offsets)
        self.values[access.name] = value

    def initial(self, name: str, element: str) -> ir.Value:
        """Return the value of a buffer; zeros if it does not have one yet."""
        if name in self.values:
            return self.values[name]
        return self.build.filled([self.elements[name]], element, 0)

    def is_slice(self, access: LxTensorAccess, writes: bool) -> bool:
        """Return whether the accessed elements are a slice of the tensor of the buffer."""
        try:
            part = self._part(access)
        except CompileError:
            return False
        return part is None or not writes or max(part.strides) == 1

    def is_whole(self, access: LxTensorAccess) -> bool:
        """Return whether an access covers all of the buffer, in memory order."""
        return self._part(access) is None

    def _part(self, access: LxTensorAccess) -> _BufferSlice | None:
        """Return the part of the buffer that an access covers; None for all of it."""
        steps = self._steps(access)
        total, offset = self.elements[access.name], access.offset // self._unit(access)
        dims: list[tuple[int, int, int, int]] = []
        rest = total
        for index, (stride, count) in enumerate(steps):
            # If the stride does not divide the rest, the unit is the extent of the inner axes, with strided positions.
            inner = steps[index + 1][0] * steps[index + 1][1] if index + 1 < len(steps) else 1
            part = stride if rest % stride == 0 else inner
            first, offset = divmod(offset, part)
            step = stride // part
            if rest % part or stride % part or first + (count - 1) * step >= rest // part:
                raise CompileError(
                    f"'{access.name}' is accessed in parts of LX that are no slices of a tensor."
                )
            dims.append((rest // part, first, count, step))
            rest = part
        if rest > 1:
            dims.append((rest, offset, 1, 1))
        shape, offsets, sizes, strides = zip(*dims, strict=True) if dims else ((1,), (0,), (1,), (1,))
        return None if math.prod(sizes) == total else _BufferSlice(shape, offsets, sizes, strides)

    def _steps(self, access: LxTensorAccess) -> Sequence[tuple[int, int]]:
        """Return the stride and the number of positions of the axes of an access, in elements of the value."""
        unit = self._unit(access)
        if unit > 1 and access.tile.axes[-1].stride < unit and access.tile.axes[-1].count > 1:
            raise CompileError(f"'{access.name}' is accessed as sticks of one element and of several.")
        return [(max(axis.stride // unit, 1), axis.count) for axis in access.tile.axes if axis.count > 1]

    def _unit(self, access: LxTensorAccess) -> int:
        return access.per_stick if access.name in self.sparse else 1
