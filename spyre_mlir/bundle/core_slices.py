# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Addresses and strides of operands: the geometry of the docstring of ``model.py`` as arithmetic, in sticks and bytes.

All counts are in sticks, the smallest unit that is ever moved: a position along a dim is one element,
except along a stick dim, where it is one stick.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.model import Design, Operand
from spyre_mlir.records import dataclass

K = TypeVar("K")
V = TypeVar("V")


class IdentityTable(Generic[K, V]):
    """A dictionary for each of some objects, by identity: equal objects have separate dictionaries.

    Values must not refer to the object, because the object would then never be freed.
    """

    def __init__(self) -> None:
        self._entries: dict[int, dict[K, V]] = {}

    def entries_of(self, owner: object) -> dict[K, V]:
        """Return the dictionary of an object, which is initially empty."""
        key = id(owner)
        if key not in self._entries:
            weakref.finalize(owner, self._entries.pop, key, None).atexit = False
        return self._entries.setdefault(key, {})


@dataclass(frozen=True)
class OperandAxis:
    """A dim along which an operand varies, in memory: positions of ``weight`` elements, ``stride`` elements apart.

    Of its ``total`` positions, a core with a full share accesses ``count`` positions, and has ``capacity`` positions in
    its LX, which differ by a gap. ``slices`` is the number of slices of the dim over the cores.
    """

    dim: str
    weight: int
    count: int
    total: int
    stride: int
    slices: int = 1
    capacity: int = 1


@dataclass(frozen=True)
class StickRegion:
    """Sticks of a strided rectangle: ``counts[k]`` positions, ``strides[k]`` sticks apart."""

    counts: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def span_sticks(self) -> int:
        """Sticks from the first to the last one, both included."""
        return 1 + sum((count - 1) * stride for count, stride in zip(self.counts, self.strides, strict=True))

    def view(self, array: NDArray[Any], start: int) -> NDArray[Any]:
        """Return the region as a view of an array whose last axis has one entry per stick, from ``start`` on."""
        unit = array.itemsize
        # The stride of a single position may exceed all memory, but it is never used.
        steps = zip(self.counts, self.strides, strict=True)
        strides = (*array.strides[:-1], *(stride * unit if count > 1 else 0 for count, stride in steps))
        return np.ndarray((*array.shape[:-1], *self.counts), array.dtype, array, start * unit, strides)

    def sticks(self, start: int) -> NDArray[np.int64]:
        """Return the index of each stick of the region, from ``start`` on."""
        sticks = np.full(1, start, np.int64)
        for count, stride in zip(self.counts, self.strides, strict=True):
            sticks = np.add.outer(sticks, np.arange(count, dtype=np.int64) * stride).ravel()
        return sticks


def slice_sizes(design: Design, core: int) -> dict[str, int]:
    """Return the elements of each dim that the core computes; the last slice may be shorter than the others."""
    return _slice_sizes(design, design.core_slices[core], design.shares)


def _slice_sizes(
    design: Design, slices: Mapping[str, int], shares: Mapping[str, int], valid: bool = False
) -> dict[str, int]:
    """Return the elements of each dim of a slice; with ``valid`` without padding, 0 for a slice of padding only."""
    if not valid:
        return {dim: min(shares[dim], size - slices[dim] * shares[dim]) for dim, size in design.sizes.items()}
    ends = {dim: size - design.padding.get(dim, 0) for dim, size in design.sizes.items()}
    return {dim: max(0, min(shares[dim], end - slices[dim] * shares[dim])) for dim, end in ends.items()}


def operand_splits(design: Design, operand: Operand) -> dict[str, int]:
    """Return the slices of each dim of an operand over the cores: from the design, or from ``held`` if present."""
    if operand.held is None:
        return design.slices
    return {**dict.fromkeys(design.sizes, 1), **operand.held.slices}


def operand_shares(design: Design, operand: Operand) -> dict[str, int]:
    """Return the elements of the largest slice of each dim of an operand; whole sticks along its stick dim."""
    if operand.held is None:
        return design.shares
    shares = {}
    for dim, slices in operand_splits(design, operand).items():
        unit = operand.per_stick(dim) if operand.scale.get(dim) == 1 else 1
        # Slices end at stick boundaries, so the last slice takes the remainder.
        shares[dim] = -(-design.sizes[dim] // (unit * slices)) * unit
    return shares


def operand_slices(design: Design, operand: Operand, core: int) -> dict[str, int] | None:
    """Return the slice of each dim of an operand on a core; None if the core holds nothing of the operand."""
    if operand.held is None:
        return design.core_slices[core]
    slices = operand.held.core_slices[core]
    return None if slices is None else {**dict.fromkeys(design.sizes, 0), **slices}


def holders(design: Design, operand: Operand) -> dict[int, dict[str, int]]:
    """Return the cores that hold a part of an operand, each with its slice of each dim."""
    slices = ((core, operand_slices(design, operand, core)) for core in range(design.cores))
    return {core: core_slices for core, core_slices in slices if core_slices is not None}


def reduced_dims(design: Design) -> frozenset[str]:
    """Return the dims that an input has and the output does not."""
    *inputs, output = (set(operand.varying) for operand in design.operands)
    return frozenset().union(*inputs) - output


def finishing_cores(design: Design) -> frozenset[int]:
    """Return the cores with a finished result: the cores of the last slice of a split reduction, otherwise all."""
    reduced = reduced_dims(design)
    return frozenset(
        core
        for core, slices in enumerate(design.core_slices)
        if all(slices[dim] == design.slices[dim] - 1 for dim in reduced)
    )


def positions(operand: Operand, dim: str, size: int) -> int:
    """Return positions of ``size`` elements along a dim: 1 where the operand does not vary, else elements or sticks."""
    if operand.scale[dim] != 1:
        return 1
    return -(-size // operand.per_stick(dim))


def accessed_positions(operand: Operand, dim: str, first: int, count: int) -> tuple[int, int]:
    """Return the first position of a dim and the number accessed, for ``count`` positions from ``first`` on."""
    window = operand.windows.get(dim)
    return (first, count) if window is None else window.accessed(first, count)


def accessed_sizes(operand: Operand, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the most positions of each dim that slices of these sizes access; windows reach beyond their slice."""
    return dict(sizes) | {dim: window.most_accessed(sizes[dim]) for dim, window in operand.windows.items()}


def memory_counts(design: Design, operand: Operand) -> tuple[int, ...]:
    """Return the positions per dim of the memory that contains the operand: the whole tensor, or one share in LX."""
    # All cores have the layout of a full share in LX, including the last core, whose slice may be smaller.
    if operand.memory == "hbm":
        sizes = {**design.sizes, **{dim: window.size for dim, window in operand.windows.items()}}
    else:
        sizes = accessed_sizes(operand, operand_shares(design, operand))
    return tuple(positions(operand, dim, sizes[dim] + operand.gap.get(dim, 0)) for dim in operand.dim_order)


def memory_strides(design: Design, operand: Operand) -> tuple[int, ...]:
    """Return the sticks between neighbours along each dim of ``dim_order``."""
    counts = memory_counts(design, operand)
    return tuple(math.prod(counts[:k]) for k in range(len(counts)))


def operand_axes(design: Design, operand: Operand) -> tuple[OperandAxis, ...]:
    """Return the axes of an operand, innermost first; a dim in the stick is counted in sticks."""
    splits, shares = operand_splits(design, operand), operand_shares(design, operand)
    accessed, axes = accessed_sizes(operand, shares), []
    places = zip(memory_counts(design, operand), memory_strides(design, operand), strict=True)
    for dim, (capacity, stride) in zip(operand.dim_order, places, strict=True):
        if operand.scale[dim] == 1:
            window, weight = operand.windows.get(dim), operand.per_stick(dim)
            total = -(-(design.sizes[dim] if window is None else window.size) // weight)
            count = min(-(-accessed[dim] // weight), total)
            stride = stride * operand.elements_per_stick
            axes.append(OperandAxis(dim, weight, count, total, stride, splits[dim], capacity))
    return tuple(axes)


def first_positions(design: Design, operand: Operand, slices: Mapping[str, int]) -> dict[str, int]:
    """Return the first position of a slice along each axis; windows may begin before their slice."""
    shares = operand_shares(design, operand)
    return {
        dim: positions(operand, dim, accessed_positions(operand, dim, slices[dim] * shares[dim], 1)[0])
        for dim, scale in operand.scale.items()
        if scale == 1
    }


def core_region(design: Design, operand: Operand, core: int, valid: bool = False) -> StickRegion:
    """Return the sticks that a core reads, writes or holds, relative to its start address; with ``valid`` only the
    sticks that hold more than padding. The core must be one of ``holders``."""
    slices, shares = operand_slices(design, operand, core), operand_shares(design, operand)
    assert slices is not None
    sizes = _slice_sizes(design, slices, shares, valid)
    for dim in operand.windows:
        sizes[dim] = accessed_positions(operand, dim, slices[dim] * shares[dim], sizes[dim])[1]
    counts = tuple(positions(operand, dim, sizes[dim]) for dim in operand.dim_order)
    return StickRegion(counts, memory_strides(design, operand))


def core_offset_bytes(design: Design, operand: Operand, core: int) -> int:
    """Return the bytes from the start of an HBM tensor to the start of the core's slice."""
    firsts = first_positions(design, operand, design.core_slices[core])
    strides = zip(operand.dim_order, memory_strides(design, operand), strict=True)
    return sum(firsts.get(dim, 0) * stride for dim, stride in strides) * design.target.stick_bytes


def lx_bytes(design: Design, operand: Operand) -> int:
    """Return the bytes that an operand occupies in the LX of each core."""
    return math.prod(memory_counts(design, operand)) * design.target.stick_bytes
