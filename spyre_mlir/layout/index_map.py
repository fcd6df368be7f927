# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Index maps: map logical indices to device coordinates and back, digit by digit, for one index or an array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.records import dataclass

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


class IndexMap:
    """Map of the indices of ``shape`` to device coordinates: one of the ``digits`` for each device dim."""

    shape: tuple[int, ...]
    digits: tuple[Digit, ...]

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
        if isinstance(index, np.ndarray):
            if index.size:
                self._check_inside([(int(indices.min()), int(indices.max())) for indices in index])
            none = np.zeros(index.shape[1:], np.int64)
            index = index.astype(np.int64)
            return np.stack([none if d.dim is None else d.of(index[d.dim]) for d in self.digits])
        self._check_inside([(position, position) for position in index])
        return tuple(0 if digit.dim is None else digit.of(index[digit.dim]) for digit in self.digits)

    def _check_inside(self, reach: Sequence[tuple[int, int]]) -> None:
        for dim, ((first, last), size) in enumerate(zip(reach, self.shape, strict=True)):
            if first < 0 or last >= size:
                index = first if first < 0 else last
                raise IndexError(f"Index {index} of dim {dim} lies outside its {size} elements.")

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
        if isinstance(coordinate, np.ndarray):
            return self._to_host_arrays(coordinate.astype(np.int64))
        index = tuple(self.position(dim, coordinate) for dim in range(len(self.shape)))
        if any(not 0 <= position < size for position, size in zip(index, self.shape, strict=True)):
            return None
        # Several digits may count the same positions. Where the digits disagree there is no element; only the
        # conversion back to a coordinate shows this.
        return index if self.to_device(index) == tuple(coordinate) else None

    def _to_host_arrays(self, coordinate: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        index = np.zeros((len(self.shape), *coordinate.shape[1:]), np.int64)
        is_element = np.ones(coordinate.shape[1:], bool)
        for dim, size in enumerate(self.shape):
            index[dim] = self.position(dim, list(coordinate))
            is_element &= (index[dim] >= 0) & (index[dim] < size)
        # ``to_device`` rejects an index outside the shape, so the indices of padding are set to 0 first.
        index *= is_element
        if is_element.any():
            is_element &= (self.to_device(index) == coordinate).all(0)
        return index * is_element, is_element

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


def _check_rank(what: str, entries: int, rank: int) -> None:
    if entries != rank:
        raise ValueError(f"{what} of this layout has {rank} entries, not {entries}.")
