# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stick layouts: the map from logical indices to device coordinates.

On the device a tensor is a row-major array whose innermost dim is one stick (128 bytes). Each device
dim is one *digit* of a logical index: ``(index[dim] floordiv divisor) mod modulus``. The last digit is
the position of the stick dim in the stick. If the last digit does not have a dim (``dim is None``), the layout is
*stick-sparse*: only the first element of each stick is valid.

    [512, 256] fp16, stick 1:  (d1 floordiv 64, d0, d1 mod 64)   device size (4, 512, 64)

Sticks of elements of 1 byte and of 4 bits may hold several dims. Then the trailing digits whose moduli
multiply to the elements of a stick are the position in the stick, for example an int8 stick of 64 x 2:

    [512, 256] int8:  (d1 floordiv 64, d0 floordiv 2, d1 mod 64, d0 mod 2)   device size (4, 256, 64, 2)

The sizes of device dims are the sizes of the tensor divided and rounded up, which adds padding. A modulus larger
than the shape needs pads a dim further (``d0 mod 128`` for a dim of 71).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import field, replace
from typing import TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass, hash_once
from spyre_mlir.target.element_types import ELEMENT_TYPES
from spyre_mlir.target.target import Target

_Index = TypeVar("_Index", int, NDArray[np.int64])


@dataclass(frozen=True)
class Digit:
    """One device dim: ``(index[dim] floordiv divisor) mod modulus``; constant 0 where ``dim is None``."""

    dim: int | None
    divisor: int = 1
    modulus: int | None = None

    def size(self, shape: Sequence[int]) -> int:
        """Return the number of values of the digit for a tensor of ``shape``."""
        if self.dim is None:
            return 1
        return self.modulus or -(-shape[self.dim] // self.divisor)

    def of(self, position: _Index) -> _Index:
        """Return the value of this digit at a position of its dim."""
        quotient = position // self.divisor
        return quotient if self.modulus is None else quotient % self.modulus


def _check_rank(what: str, entries: int, rank: int) -> None:
    if entries != rank:
        raise ValueError(f"{what} of this layout has {rank} entries, not {entries}.")


#: Bits of an element on the device, by MLIR element type.
ELEMENT_BITS = {name: element.layout_bits for name, element in ELEMENT_TYPES.items() if element.layout_bits}

#: Bytes of an element, for the types whose elements are whole bytes.
ELEMENT_BYTES = {dtype: bits // 8 for dtype, bits in ELEMENT_BITS.items() if bits % 8 == 0}

#: The (dim, elements) pairs of a stick, outermost first.
Sticks = Sequence[tuple[int, int]]


def elements_per_stick(target: Target, dtype: str) -> int:
    """Return the elements of an MLIR element type in one stick; ``CompileError`` for an unsupported type."""
    if dtype not in ELEMENT_BITS:
        raise CompileError(f"element type {dtype} is not supported by the device")
    return target.stick_bytes * 8 // ELEMENT_BITS[dtype]


def filling_counts(counts: Sequence[int | None], elements: int) -> list[int]:
    """Return the counts of a stick's digits; None is replaced by the count that fills a stick of ``elements``."""
    known = math.prod(count for count in counts if count is not None)
    return [elements // known if count is None else count for count in counts]


def is_convertible(dtype: str) -> bool:
    """Return whether an operation can copy elements of a type: only the host lays out elements of 1 byte or less."""
    return ELEMENT_BITS[dtype] > 8


def is_restickified(dtype: str) -> bool:
    """Return whether the device can move elements of a type to another stick: only numbers of 16 bits."""
    return ELEMENT_BITS[dtype] == 16


def bytes_of(elements: int, dtype: str) -> int:
    """Return the device bytes of ``elements`` of a type, rounded up to whole bytes."""
    return -(-elements * ELEMENT_BITS[dtype] // 8)


@dataclass(frozen=True)
class StickLayout:
    """A tensor's device layout, device dims outermost first.

    Two layouts are equal if all their attributes are equal; ``same_memory`` returns whether they put each element at
    the same offset, dims of size 1 aside.

    Attributes:
        target: The device.
        shape: The elements of each logical dim.
        dtype: The MLIR element type, ``"f16"`` for instance.
        digits: The digit of each device dim; the last digits are the position in the stick of the ``target``.
    """

    target: Target = field(repr=False)
    shape: tuple[int, ...]
    dtype: str
    digits: tuple[Digit, ...]

    __hash__ = hash_once

    @classmethod
    def for_tensor(
        cls,
        target: Target,
        shape: Sequence[int],
        dtype: str,
        dim_order: Sequence[int] | None = None,
        stick_outermost: bool = False,
        sticks: Sticks | None = None,
    ) -> StickLayout:
        """Return the layout that a dim order names.

        The last entry of the order is the stick dim (-1: stick-sparse). The device dims are, outermost first: the
        entries after the first in the given order, the stick count, the first entry, the positions in the stick.

        Args:
            target: The device.
            shape: The elements of each logical dim.
            dtype: The MLIR element type.
            dim_order: Each dim once; by default the last dim is the stick.
            stick_outermost: Put the stick count first (the default of RFC 0047).
            sticks: The (dim, elements) pairs of a stick of several dims, outermost first; the product of the elements
                is the size of the stick. ``((1, 64), (0, 2))`` is the stick of the second operand of an int8 matmul;
                a dim may occur twice, as in ``((1, 8), (0, 2), (1, 16))`` of int4. The dim of the last pair must be
                the last entry of ``dim_order``; the other dims are divided by their elements per stick and keep their
                place in the order.

        Raises:
            ValueError: The order does not name each dim once, or ``sticks`` does not fill a stick.
        """
        shape = tuple(shape)
        if sticks is None:
            # A scalar has no dim for the stick, so it is sparse.
            order = _order(dim_order, len(shape)) or [-1]
            within_stick = [Digit(None)]
            if order[-1] != -1:
                within_stick = [Digit(order[-1], 1, elements_per_stick(target, dtype))]
        else:
            _check_sticks(sticks, len(shape), dtype, elements_per_stick(target, dtype))
            within_stick = []
            for dim, elements in reversed(sticks):
                within_stick.insert(0, Digit(dim, _in_stick(dim, within_stick), elements))
            order = _order_of_sticks(dim_order, len(shape), sticks[-1][0])
        counts = (Digit(None) if dim == -1 else Digit(dim, _in_stick(dim, within_stick)) for dim in order)
        *others, stick = counts
        middle = [stick, *others[1:]] if stick_outermost else [*others[1:], stick]
        return cls(target, shape, dtype, (*middle, *others[:1], *within_stick))

    @classmethod
    def tiled(
        cls,
        target: Target,
        shape: Sequence[int],
        dtype: str,
        stick_dims: Sequence[int],
        dim_order: Sequence[int] | None = None,
        stick_outermost: bool = False,
    ) -> StickLayout:
        """Return the layout of N + k device dims of RFC 0047: k stick dims, each in pieces of one stick.

        The counts of the pieces and the other dims have the order of ``for_tensor``, followed by the positions in the
        pieces; the positions of the last stick dim are innermost and fill the sticks.

            [3, 128, 256] fp16, sticks 1 and 2:
            (d1 floordiv 64, d2 floordiv 64, d0, d1 mod 64, d2 mod 64)   device size (2, 4, 3, 64, 64)

        Args:
            target: The device.
            shape: The elements of each logical dim.
            dtype: The MLIR element type.
            stick_dims: The stick dims, the innermost last.
            dim_order: Each dim once; the last dim of ``stick_dims`` is the last.
            stick_outermost: Put the count of sticks first.
        """
        per_stick = elements_per_stick(target, dtype)
        order = _order_of_sticks(dim_order, len(shape), stick_dims[-1])
        *others, stick = [Digit(dim, per_stick if dim in stick_dims else 1) for dim in order]
        middle = [stick, *others[1:]] if stick_outermost else [*others[1:], stick]
        within_stick = [Digit(dim, 1, per_stick) for dim in stick_dims]
        return cls(target, tuple(shape), dtype, (*middle, *others[:1], *within_stick))

    @property
    def tiled_dims(self) -> tuple[int, ...]:
        """The stick dims as RFC 0047 counts them, innermost last.

        These are the dims whose positions in a stick are the innermost device dims. Most layouts have one;
        ``tiled`` layouts and sticks of several dims have more.
        """
        if len(self.stick_digits) > 1:
            return self.stick_dims
        dims: list[int] = []
        for digit in reversed(self.digits):
            is_whole = digit == Digit(digit.dim, 1, self.elements_per_stick)
            if digit.dim is None or digit.dim in dims or not is_whole:
                break
            dims.insert(0, digit.dim)
        return tuple(dims)

    @property
    def elements_per_stick(self) -> int:
        """The number of elements in one stick."""
        return elements_per_stick(self.target, self.dtype)

    @functools.cached_property
    def stick_digits(self) -> tuple[Digit, ...]:
        """The digits inside the stick, outermost first; empty if sparse.

        These are the trailing digits whose moduli multiply to the elements of a stick, else the last digit alone.
        """
        if self.digits[-1].dim is None:
            return ()
        elements = 1
        for first in reversed(range(len(self.digits))):
            modulus = self.digits[first].modulus
            if modulus is None or elements >= self.elements_per_stick:
                break
            elements *= modulus
            if elements == self.elements_per_stick:
                return self.digits[first:]
        return self.digits[-1:]

    @property
    def outer_digits(self) -> tuple[Digit, ...]:
        """The digits that number the sticks, outermost first."""
        return self.digits[: -max(1, len(self.stick_digits))]

    @property
    def stick_dims(self) -> tuple[int, ...]:
        """The logical dims whose elements lie in the stick, ascending; empty if sparse."""
        return tuple(sorted({digit.dim for digit in self.stick_digits if digit.dim is not None}))

    @property
    def stick_dim(self) -> int | None:
        """The logical dim whose elements are contiguous in the stick; None if sparse."""
        return self.digits[-1].dim

    @functools.cached_property
    def device_size(self) -> tuple[int, ...]:
        """Sizes of the device array, outermost first; the last sizes, one per digit in the stick, are a whole stick."""
        sizes = [digit.size(self.shape) for digit in self.digits]
        return tuple(sizes) if len(self.stick_digits) > 1 else (*sizes[:-1], self.elements_per_stick)

    @functools.cached_property
    def device_strides(self) -> tuple[int, ...]:
        """Row-major strides of the device array, in elements."""
        strides = [1]
        for size in reversed(self.device_size[1:]):
            strides.append(strides[-1] * size)
        return tuple(reversed(strides))

    @property
    def bytes(self) -> int:
        """Device bytes, padding included."""
        return bytes_of(math.prod(self.device_size), self.dtype)

    @property
    def padding(self) -> tuple[int, ...]:
        """The number of positions beyond the shape, for each logical dim."""
        return tuple(self.extent(dim) - size for dim, size in enumerate(self.shape))

    def padded(self, dim: int, multiple: int) -> StickLayout:
        """Return the layout with a ``dim`` padded to a ``multiple``.

        Raises:
            ValueError: The digits of the dim cannot count such a multiple.
        """
        digits = (digit for digit in self.outer_digits if digit.dim == dim)
        outermost = max(digits, key=lambda digit: digit.divisor, default=None)
        if outermost is None or self.extent(dim) % multiple == 0:
            return self
        if multiple % outermost.divisor:
            raise ValueError(
                f"dim {dim} has digits of {outermost.divisor}, they cannot fill multiples of {multiple}"
            )
        size = -(-self.extent(dim) // multiple) * multiple // outermost.divisor
        changed = replace(outermost, modulus=size)
        return replace(self, digits=tuple(changed if digit == outermost else digit for digit in self.digits))

    @property
    def stride_map(self) -> tuple[int, ...]:
        """Host elements that one step in each device dim advances; -1 if no host dim of size > 1 maps to it."""
        host = [math.prod(self.shape[k + 1 :]) for k in range(len(self.shape))]
        return tuple(
            -1 if digit.dim is None or self.shape[digit.dim] == 1 else digit.divisor * host[digit.dim]
            for digit in self.digits
        )

    def extent(self, dim: int) -> int:
        """Return the positions of a ``dim`` in the device array, with padding; its size if the dim is repeated."""
        return max(
            (digit.divisor * digit.size(self.shape) for digit in self.digits if digit.dim == dim),
            default=self.shape[dim],
        )

    @overload
    def to_device(self, index: Sequence[int]) -> tuple[int, ...]: ...
    @overload
    def to_device(self, index: NDArray[np.integer]) -> NDArray[np.int64]: ...

    def to_device(self, index: Sequence[int] | NDArray[np.integer]) -> tuple[int, ...] | NDArray[np.int64]:
        """Return the device coordinate of a logical index.

        Args:
            index: A position per dim, or an array [rank, ...], for which an array [device rank, ...] is returned.

        Raises:
            IndexError: The index is outside the shape.
            ValueError: The index has another rank.
        """
        _check_rank("An index", len(index), len(self.shape))
        positions = np.asarray(index, np.int64)
        for dim, size in enumerate(self.shape if positions.size else ()):
            first, last = int(positions[dim].min()), int(positions[dim].max())
            if first < 0 or last >= size:
                outside = first if first < 0 else last
                raise IndexError(f"Index {outside} of dim {dim} lies outside its {size} elements.")
        none = np.zeros(positions.shape[1:], np.int64)
        coordinate = np.stack(
            [none if digit.dim is None else digit.of(positions[digit.dim]) for digit in self.digits]
        )
        return coordinate if isinstance(index, np.ndarray) else tuple(coordinate.tolist())

    @overload
    def to_host(self, coordinate: Sequence[int]) -> tuple[int, ...] | None: ...
    @overload
    def to_host(self, coordinate: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]: ...

    def to_host(
        self, coordinate: Sequence[int] | NDArray[np.integer]
    ) -> tuple[int, ...] | tuple[NDArray[np.int64], NDArray[np.bool_]] | None:
        """Return the logical index at a device coordinate; None in padding, in empty slots and beyond the array.

        The index of a dim that the map repeats is 0.

        Args:
            coordinate: A position per device dim; or an array [device rank, ...].

        Returns:
            The index. For an array: the indices [rank, ...] and the mask [...] of the coordinates that hold an
            element; at the other coordinates the index is 0.

        Raises:
            ValueError: The coordinate has another rank.
        """
        _check_rank("A device coordinate", len(coordinate), len(self.digits))
        positions = np.asarray(coordinate, np.int64)
        index = np.zeros((len(self.shape), *positions.shape[1:]), np.int64)
        is_element = np.ones(positions.shape[1:], bool)
        for dim, size in enumerate(self.shape):
            index[dim] = self.position(dim, list(positions))
            is_element &= (index[dim] >= 0) & (index[dim] < size)
        # ``to_device`` rejects an index outside the shape, so the indices of padding are set to 0 first.
        index *= is_element
        # Several digits may count the same positions. Positions at which the digits disagree do not hold an
        # element; only the conversion back to a coordinate shows this.
        is_element &= (self.to_device(index) == positions).all(0)
        if isinstance(coordinate, np.ndarray):
            return index * is_element, is_element
        return tuple(index.tolist()) if is_element else None

    def position(self, dim: int, coordinate: Sequence[_Index]) -> _Index | int:
        """Return the position of a ``dim`` at a device ``coordinate``; in padding the position is beyond the shape."""
        # Smallest divisor first. A digit may count positions that smaller digits have counted (``why_not_a_layout``).
        known, position = 1, 0
        digits = [(digit, k) for k, digit in enumerate(self.digits) if digit.dim == dim]
        for digit, k in sorted(digits, key=lambda item: item[0].divisor):
            reach = digit.divisor * digit.size(self.shape)
            if reach > known:
                position = coordinate[k] * digit.divisor + position % digit.divisor
                known = reach
        return position

    def reshaped_to(self, shape: Sequence[int]) -> StickLayout:
        """Return the same map for a tensor of another ``shape`` (a slice keeps the layout attribute)."""
        return replace(self, shape=tuple(shape))

    def same_memory(self, other: StickLayout) -> bool:
        """Return whether each element has the same offset in both layouts, dims and digits of size 1 aside.

        The shapes of this layout and of ``other`` must be equal except for dims of size 1. Padding after the last
        element is not compared: ``bytes`` may differ.
        """
        dims, other_dims = ([dim for dim, size in enumerate(one.shape) if size != 1] for one in (self, other))
        if self.dtype != other.dtype or len(dims) != len(other_dims):
            return False
        return all(
            np.array_equal(_offsets(self, dim), _offsets(other, other_dim))
            for dim, other_dim in zip(dims, other_dims, strict=True)
        )


def _offsets(layout: StickLayout, dim: int) -> NDArray[np.int64]:
    """Return the contribution of each position of one dim to the device offset, in elements."""
    # The offset is the sum over the dims, so an array of all elements of the tensor is not needed.
    position = np.arange(layout.shape[dim], dtype=np.int64)
    offsets = np.zeros_like(position)
    for digit, stride in zip(layout.digits, layout.device_strides, strict=True):
        if digit.dim == dim:
            offsets += digit.of(position) * stride
    return offsets


def _order(dim_order: Sequence[int] | None, rank: int) -> list[int]:
    """Return ``dim_order`` or the default order; ``ValueError`` unless it names each dim once."""
    if dim_order is None:
        return list(range(rank))
    order = list(dim_order)
    if -1 in order[:-1] or sorted(dim for dim in order if dim != -1) != list(range(rank)):
        problems = [f"dim {dim} does not exist" for dim in order if not -1 <= dim < rank]
        repeated = (dim for dim in range(rank) if order.count(dim) > 1)
        problems += [f"dim {dim} occurs {order.count(dim)} times" for dim in repeated]
        problems += [f"dim {dim} is missing" for dim in range(rank) if dim not in order]
        problems.append("-1, for a stick-sparse tensor, can only be the last entry")
        raise ValueError(f"dim_order {order} must name each of the {rank} dims once: {problems[0]}.")
    return order


def _order_of_sticks(dim_order: Sequence[int] | None, rank: int, innermost: int) -> list[int]:
    """Return the order of a layout with several dims in the stick; the innermost stick dim must be the last."""
    if dim_order is None:
        return [*(dim for dim in range(rank) if dim != innermost), innermost]
    order = _order(dim_order, rank)
    if order[-1] != innermost:
        raise ValueError(f"dim_order {order} must end in dim {innermost}, the innermost of the stick.")
    return order


def _check_sticks(sticks: Sticks, rank: int, dtype: str, per_stick: int) -> None:
    """Raise ``ValueError`` unless the (dim, elements) pairs fill a stick of ``per_stick`` elements."""
    for dim, elements in sticks:
        if not 0 <= dim < rank:
            raise ValueError(f"The stick names dim {dim}, but the tensor has rank {rank}.")
        if elements < 2:
            raise ValueError(f"A stick has at least 2 elements of each dim, not {elements} of dim {dim}.")
    total = math.prod(elements for _, elements in sticks)
    if total != per_stick:
        raise ValueError(f"A stick of {dtype} has {per_stick} elements, not {total}.")


def _in_stick(dim: int, digits: Sequence[Digit]) -> int:
    """Return the number of positions of a dim in a stick with these digits."""
    return math.prod(digit.modulus or 1 for digit in digits if digit.dim == dim)
