# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Slices of dims with a run-time size: each is the same fraction of the dim, at addresses linear in the size."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from spyre_mlir.division import Division
from spyre_mlir.division.relayout import Distribution
from spyre_mlir.errors import CompileError
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.stick_layout import ELEMENT_BYTES
from spyre_mlir.records import dataclass

#: The bytes by which an address moves per unit of each run-time size, by the name of the size.
Slopes = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class SymbolicSlices:
    """The slices of an operation along symbolic dims; ``shares`` are the elements per slice at the largest sizes.

    A shuffle has the ``distributions`` of its operands in addition to its division.
    """

    opcode: str
    space: Space
    division: Division
    shares: Sequence[int]
    distributions: tuple[Distribution, ...] = ()

    def check(self, padding: Collection[int]) -> None:
        """Raise ``CompileError`` unless slices are equal and symbolic dims have no windows and no ``padding``."""
        space = self.space
        slid = {dim for operand in range(len(space.views)) for dim, _ in space.slid(operand)}
        for dim, size in space.symbolic:
            held = (held.splits[dim] for held in self.distributions if dim < len(held.splits))
            unequal = any(space.units[dim] % split for split in (self.division.splits[dim], *held))
            if dim in padding or dim in slid or unequal:
                raise CompileError(
                    f"'{self.opcode}' has padding, windows or unequal slices along d{dim}, which follows the run-time "
                    f"size '{size.name}'"
                )

    def slopes(self, in_lx: Collection[int]) -> list[list[Slopes]]:
        """Return the slopes of the start of each operand on each core; none for operands in LX."""
        return [
            [() if operand in in_lx else self._slopes(operand, slices) for slices in self.division.owners]
            for operand in range(len(self.space.views))
        ]

    def _slopes(self, operand: int, slices: tuple[int, ...]) -> Slopes:
        """Return the slopes of the start of a slice in device memory."""
        view, slopes = self.space.footprint(operand), dict[str, int]()
        for dim, size in self.space.symbolic:
            axes = [axis for axis in view.axes if axis.dim == dim]
            first = slices[dim] * self.shares[dim]
            if not first or not axes:
                continue
            # The offset at the largest size. At other sizes the offset is proportional to the size.
            at_largest = first // axes[0].divisor * axes[0].stride * ELEMENT_BYTES[view.dtype]
            slope, remainder = divmod(at_largest, size.max_value)
            if len(axes) > 1 or remainder:
                raise CompileError(
                    f"'{self.opcode}' cannot address slices of d{dim}, which follows the run-time size '{size.name}'"
                )
            slopes[size.name] = slopes.get(size.name, 0) + slope
        return tuple(sorted(slopes.items()))
