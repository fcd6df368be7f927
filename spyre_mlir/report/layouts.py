# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Data of a picture of a layout: its sticks, the origin of their elements, what each of them holds.

Numbers only; ``layout_picture`` draws them. A *stick id* counts the sticks of a tensor in the order of
device memory, from 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from spyre_mlir.layout import Digit, StickLayout
from spyre_mlir.layout.listing import padding_bytes, percent, stick_text
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class Side:
    """One side of the logical grid: ``dim`` in steps of as many positions as one stick has of it.

    ``size`` positions exist, ``capacity`` fit on the device. ``dim`` is None where the tensor has no
    dim for this side.
    """

    dim: int | None
    size: int
    capacity: int
    step: int

    @property
    def cells(self) -> int:
        """Grid cells along this side, padding included."""
        return -(-self.capacity // self.step)

    @property
    def valid_cells(self) -> int:
        """Grid cells that hold an element."""
        return -(-self.size // self.step)

    def filled(self, cell: int) -> float:
        """The share of a cell's positions that exist."""
        return min(max(self.size - cell * self.step, 0), self.step) / self.step

    def span(self, cell: int) -> tuple[int, int]:
        """First and last position that exist in a cell, or that the padding has there."""
        first, last = cell * self.step, (cell + 1) * self.step - 1
        return first, last if first >= self.size else min(last, self.size - 1)


@dataclass(frozen=True)
class TensorSlice:
    """The two-dimensional part of a tensor that is shown: all other dims are at index 0."""

    layout: StickLayout
    rows: Side
    columns: Side

    @property
    def fixed(self) -> list[int]:
        """The dims at index 0, but for those that have no other."""
        sides = (self.rows.dim, self.columns.dim)
        return [dim for dim, size in enumerate(self.layout.shape) if dim not in sides and size > 1]

    def has(self, stick: int) -> bool:
        """Return whether a stick is in this part: its first slot is at 0 in all fixed dims."""
        digits = zip(self.layout.digits, coordinate(self.layout, stick), strict=True)
        return not any(place for digit, place in digits if digit.dim in self.fixed)

    def stick(self, row: int, column: int) -> int:
        """The id of the stick that holds the first element of a cell."""
        return stick_of(self.layout, self.index(row, column))

    def index(self, row: int, column: int) -> list[int]:
        """The logical index of a cell's first element."""
        index = [0] * len(self.layout.shape)
        for side, cell in ((self.rows, row), (self.columns, column)):
            if side.dim is not None:
                index[side.dim] = cell * side.step
        return index


def cut(layout: StickLayout, dims: Sequence[int] | None = None) -> TensorSlice:
    """The part to show: ``dims`` (rows, columns), by default those whose sticks are neighbours in memory.

    These are the stick dim and the dim that goes innermost before the stick, in logical order; of a tensor
    of rank 2 always both. ``ValueError`` for dims that are not two different ones of the tensor.
    """
    rank = len(layout.shape)
    if dims is None:
        dims = _telling_dims(layout)
    elif len(dims) != 2 or len(set(dims)) != 2 or not all(0 <= dim < rank for dim in dims):
        raise ValueError(f"The dims to show must be two different ones of the {rank} dims of the tensor.")
    sides = [_side(layout, dim) for dim in dims]
    return TensorSlice(layout, *[Side(None, 1, 1, 1)] * (2 - len(sides)), *sides)


def _telling_dims(layout: StickLayout) -> list[int]:
    rank = len(layout.shape)
    sized = [digit.dim for digit in reversed(layout.digits) if digit.dim is not None]
    order = sorted(dict.fromkeys([*sized, *range(rank)]), key=lambda dim: layout.shape[dim] == 1)
    # In logical order, as users write an index, not as memory goes.
    return sorted(order[:2])


def _side(layout: StickLayout, dim: int) -> Side:
    step = math.prod(digit.size(layout.shape) for digit in layout.stick_digits if digit.dim == dim)
    return Side(dim, layout.shape[dim], layout.extent(dim), step)


def stick_of(layout: StickLayout, index: Sequence[int]) -> int:
    """The id of the stick in which a logical index, or a position of the padding, lies."""
    digits = zip(layout.digits, layout.device_strides, strict=True)
    offset = sum(stride * digit.of(index[digit.dim]) for digit, stride in digits if digit.dim is not None)
    return offset // layout.elements_per_stick


def coordinate(layout: StickLayout, stick: int, slot: int = 0) -> tuple[int, ...]:
    """The device coordinate of a lane of a stick."""
    rest, digits = stick * layout.elements_per_stick + slot, []
    for stride in layout.device_strides:
        digits.append(rest // stride)
        rest %= stride
    return tuple(digits)


def elements_of_stick(layout: StickLayout, stick: int) -> list[tuple[int, ...] | None]:
    """The logical index of the element in each lane of a stick; None where there is none."""
    lanes = range(layout.elements_per_stick)
    return [layout.to_host(coordinate(layout, stick, slot)) for slot in lanes]


def sticks(layout: StickLayout) -> int:
    """Return the number of sticks of a tensor."""
    return math.prod(layout.device_size) // layout.elements_per_stick


def device_grid(layout: StickLayout) -> tuple[int, int]:
    """Rows and columns of the device array of sticks, all dims but the innermost one made into rows."""
    columns = math.prod(digit.size(layout.shape) for digit in layout.outer_digits[-1:])
    return sticks(layout) // columns, columns


def shown(count: int, limit: int, keep: Iterable[int] = ()) -> list[int | None]:
    """The positions to draw of ``count``: all up to ``limit``, else the first and last ones; None is a gap.

    ``keep`` are positions to draw in any case, before others.
    """
    if count <= limit:
        return list(range(count))
    ends = {position for position in keep if 0 <= position < count}
    for position in _from_both_ends(count):
        if len(ends) >= limit:
            break
        ends.add(position)
    positions: list[int | None] = []
    for position in sorted(ends):
        if position and position - 1 not in ends:
            # A gap of one position would take as much room as the position.
            positions.append(position - 1 if position - 2 in ends else None)
        positions.append(position)
    return positions


def _from_both_ends(count: int) -> Iterator[int]:
    """0, the last, 1, 2, the second to last, 3, 4, ..: two from the front for each from the back."""
    for step in range(count):
        yield from (2 * step - 1,) if step else ()
        yield from (2 * step, count - 1 - step)


def type_text(layout: StickLayout) -> str:
    """The tensor type without its layout: ``tensor<512x240xf16>``."""
    return f"tensor<{'x'.join([*map(str, layout.shape), layout.dtype])}>"


def map_text(layout: StickLayout) -> str:
    """``(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)``, as the attribute is written in IR."""
    dims = ", ".join(f"d{dim}" for dim in range(len(layout.shape)))
    return f"({dims}) -> ({', '.join(map(digit_text, layout.digits))})"


def digit_text(digit: Digit) -> str:
    """``d1 floordiv 64``: one device dim as an expression of the logical index."""
    if digit.dim is None:
        return "0"
    text = f"d{digit.dim}"
    if digit.divisor != 1:
        text += f" floordiv {digit.divisor}"
    if digit.modulus is None:
        return text
    return f"({text}) mod {digit.modulus}" if digit.divisor != 1 else f"{text} mod {digit.modulus}"


def facts(layout: StickLayout) -> list[tuple[str, str]]:
    """Name and value of what follows from a layout, for a legend."""
    padding, bytes_per_stick = padding_bytes(layout), layout.bytes // sticks(layout)
    return [
        ("tensor", type_text(layout)),
        ("stick", stick_text(layout)),
        ("map", map_text(layout)),
        ("device size", f"({', '.join(map(str, layout.device_size))})"),
        ("device strides", f"({', '.join(map(str, layout.device_strides))}) elements"),
        ("host strides", _host_strides(layout)),
        ("sticks", f"{sticks(layout):,} x {bytes_per_stick} bytes = {layout.bytes:,} bytes"),
        ("padding", f"{padding:,} bytes ({percent(padding, layout.bytes)})"),
    ]


def _host_strides(layout: StickLayout) -> str:
    none = ", -1: no host dim" if -1 in layout.stride_map else ""
    return f"({', '.join(map(str, layout.stride_map))}) elements{none}"
