# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operands of a design as tiles: the axes in memory of the accesses of each core, and digits that operands share.

An axis counts positions of a label of the design: sticks of ``divisor`` elements, rows (``divisor`` 1), or the elements
inside a stick. If operands advance by different weights along a label, like f16 and f32 in their sticks, the label is
split into digits that are common to all operands.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from spyre_mlir.bundle import core_slices
from spyre_mlir.bundle.model import Design, IdentityTable
from spyre_mlir.layout.view import Axis
from spyre_mlir.records import dataclass

#: Element types of KTIR by the device formats that KTIR supports.
ELEMENTS = {"SEN169_FP16": "f16", "IEEE_FP32": "f32", "IEEE_INT32": "i32"}
ELEMENT_BYTES = {"f16": 2, "f32": 4, "i32": 4}


@dataclass(frozen=True)
class TileDigit:
    """``count`` positions of a label, ``weight`` elements apart."""

    label: str
    weight: int
    count: int


@dataclass(frozen=True)
class OperandTile:
    """The tile of an operand on the cores: its axes by decreasing stride; the axes inside the stick come last.

    ``shape`` is the number of positions of a full share along each axis. ``counts`` and ``firsts`` are the number of
    positions and the first position along each axis, for cores with a part.
    """

    axes: tuple[Axis[str], ...]
    shape: tuple[int, ...]
    counts: dict[int, tuple[int, ...]]
    firsts: dict[int, tuple[int, ...]]

    @property
    def digits(self) -> tuple[TileDigit, ...]:
        """The axes of a full share as digits."""
        axes = zip(self.axes, self.shape, strict=True)
        return tuple(TileDigit(axis.dim, axis.divisor, count) for axis, count in axes)

    def outer_axis(self, label: str) -> int | None:
        """Return the index of the axis of a label with the largest weight; None if there is none."""
        axes = [number for number, axis in enumerate(self.axes) if axis.dim == label]
        return max(axes, key=lambda number: self.axes[number].divisor, default=None)

    def cuts(self, step: TileDigit) -> dict[int, int]:
        """Return the axes that a step cuts, each with its number of positions in the step."""
        number, elements = self.outer_axis(step.label), step.weight * step.count
        if number is None or self.axes[number].divisor * self.shape[number] <= elements:
            return {}
        return {number: elements // self.axes[number].divisor}

    def narrowed(self, positions: Mapping[int, int]) -> OperandTile:
        """Return the tile with the given number of positions along some axes on each core."""

        def narrow(counts: Sequence[int]) -> tuple[int, ...]:
            return tuple(positions.get(number, count) for number, count in enumerate(counts))

        counts = {core: narrow(of_core) for core, of_core in self.counts.items()}
        return replace(self, shape=narrow(self.shape), counts=counts)


#: Tiles of the operands of designs, which many operations share.
_TILES: IdentityTable[int, OperandTile] = IdentityTable()


def operand_tile(design: Design, k: int) -> OperandTile:
    """Return the tile of operand ``k`` of a design."""
    tiles = _TILES.entries_of(design)
    if k not in tiles:
        operand = design.operands[k]
        # Dims are listed by increasing stride; strides alone would not order dims with one position per core. A dim
        # of one position does not need an axis.
        axes = [axis for axis in core_slices.operand_axes(design, operand) if axis.size > 1][::-1]
        # The axes inside the stick; none if only one element of a stick is valid.
        inner, stride = [], 1
        for dim, count in (*operand.other_elements.items(), (operand.stick_dim, operand.stick_elements)):
            if operand.scale.get(dim, 1) == 1:
                inner.insert(0, Axis(dim, 1, count, stride))
            stride *= count
        if not axes + inner:
            # Every tensor has at least one dim.
            axes = [Axis("", 1, 1, 1)]
        counts, firsts, shape = {}, {}, [axis.size for axis in (*axes, *inner)]
        sizes = core_slices.accessed_sizes(operand, core_slices.operand_shares(design, operand))
        for number, axis in enumerate(axes):
            shape[number] = min(-(-sizes.get(axis.dim, 1) // axis.divisor), axis.size)
        for core, slices in core_slices.holders(design, operand).items():
            region = dict(
                zip(operand.dim_order, core_slices.core_region(design, operand, core).counts, strict=True)
            )
            begin = core_slices.first_positions(design, operand, slices)
            counts[core] = (*(region.get(axis.dim, 1) for axis in axes), *(axis.size for axis in inner))
            firsts[core] = (*(begin.get(axis.dim, 0) for axis in axes), *(0 for _ in inner))
        tiles[k] = OperandTile((*axes, *inner), tuple(shape), counts, firsts)
    return tiles[k]


def common_digits(tiles: Iterable[Sequence[TileDigit]]) -> dict[str, tuple[int, ...]]:
    """Return the weights of the digits of each label that are common to all tiles, in decreasing order."""
    weights: dict[str, set[int]] = {}
    for digits in tiles:
        for digit in digits:
            weights.setdefault(digit.label, {1}).add(digit.weight)
    return {label: tuple(sorted(found, reverse=True)) for label, found in weights.items()}


def refined(digits: Sequence[TileDigit], weights: dict[str, tuple[int, ...]]) -> tuple[TileDigit, ...]:
    """Return digits split at the smaller weights of their labels; digits of one position are left out."""
    parts: list[TileDigit] = []
    for digit in digits:
        end = digit.weight * digit.count
        cuts = [weight for weight in weights[digit.label] if digit.weight <= weight < end]
        for weight in cuts:
            parts.append(TileDigit(digit.label, weight, end // weight))
            end = weight
    return tuple(part for part in parts if part.count > 1)


def shape_of_digits(digits: Sequence[TileDigit]) -> tuple[int, ...]:
    """Return the shape of a tensor with these digits; it has at least one dim."""
    return tuple(digit.count for digit in digits) or (1,)


@functools.lru_cache(maxsize=1 << 12)
def regrouped(source: tuple[int, ...], target: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return the ends of the shortest runs of dims of both shapes with equal numbers of elements; no run is empty."""
    ends: list[tuple[int, int]] = []
    i = j = 0
    while i < len(source) and j < len(target):
        left, right, i, j = source[i], target[j], i + 1, j + 1
        while left != right:
            if left < right:
                left, i = left * source[i], i + 1
            else:
                right, j = right * target[j], j + 1
        ends.append((i, j))
    # Remaining dims of one side have size 1, and join the last run.
    ends[-1] = len(source), len(target)
    return tuple(ends)
