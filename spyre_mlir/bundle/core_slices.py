# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Addresses and strides of operands: the geometry of the docstring of ``model.py`` as arithmetic, in sticks and bytes.

All counts are in sticks, the smallest unit that is ever moved: a position along a dim is one element,
except along a stick dim, where it is one stick.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from spyre_mlir.bundle.model import Design, Operand
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class StickRegion:
    """Sticks of a strided rectangle: ``counts[k]`` positions, ``strides[k]`` sticks apart."""

    counts: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def span_sticks(self) -> int:
        """Sticks from the first to the last one, both included."""
        return 1 + sum((count - 1) * stride for count, stride in zip(self.counts, self.strides, strict=True))


def slice_sizes(design: Design, core: int) -> dict[str, int]:
    """Return the elements of each dim that the core computes; the last slice may be shorter than the others."""
    return _slice_sizes(design, design.core_slices[core], design.shares)


def _slice_sizes(design: Design, slices: Mapping[str, int], shares: Mapping[str, int]) -> dict[str, int]:
    return {dim: min(shares[dim], size - slices[dim] * shares[dim]) for dim, size in design.sizes.items()}


def operand_splits(design: Design, operand: Operand) -> dict[str, int]:
    """Return the slices of each dim of an operand over the cores: from the design, or from ``held`` if present."""
    if operand.held is None:
        return design.slices
    return {**dict.fromkeys(design.sizes, 1), **operand.held.slices}


def operand_shares(design: Design, operand: Operand) -> dict[str, int]:
    """Return the elements of the largest slice of each dim of an operand; whole sticks along its stick dim."""
    if operand.held is None:
        return design.shares
    return {
        dim: _share(operand, dim, design.sizes[dim], slices)
        for dim, slices in operand_splits(design, operand).items()
    }


def _share(operand: Operand, dim: str, size: int, slices: int) -> int:
    unit = operand.per_stick(dim) if operand.scale.get(dim) == 1 else 1
    # Slices end at stick boundaries, so the last slice takes the remainder.
    return -(-size // (unit * slices)) * unit


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
    return tuple(prod(counts[:k]) for k in range(len(counts)))


def _valid_sizes(design: Design, slices: Mapping[str, int], shares: Mapping[str, int]) -> dict[str, int]:
    """Return the elements of each dim of a slice that are not padding; 0 for a slice of padding only."""
    padded = _slice_sizes(design, slices, shares)
    ends = {dim: size - design.padding.get(dim, 0) for dim, size in design.sizes.items()}
    return {dim: max(0, min(size, ends[dim] - slices[dim] * shares[dim])) for dim, size in padded.items()}


def core_region(design: Design, operand: Operand, core: int, valid: bool = False) -> StickRegion:
    """Return the sticks that a core reads, writes or holds, relative to its start address; with ``valid`` only the
    sticks that hold more than padding. The core must be one of ``holders``."""
    slices, shares = operand_slices(design, operand, core), operand_shares(design, operand)
    assert slices is not None
    sizes = (_valid_sizes if valid else _slice_sizes)(design, slices, shares)
    for dim in operand.windows:
        sizes[dim] = accessed_positions(operand, dim, slices[dim] * shares[dim], sizes[dim])[1]
    counts = tuple(positions(operand, dim, sizes[dim]) for dim in operand.dim_order)
    return StickRegion(counts, memory_strides(design, operand))


def core_offset_bytes(design: Design, operand: Operand, core: int) -> int:
    """Return the bytes from the start of an HBM tensor to the start of the core's slice."""
    offset = 0
    for dim, stride in zip(operand.dim_order, memory_strides(design, operand), strict=True):
        if operand.scale[dim] == 1:
            first = design.core_slices[core][dim] * design.shares[dim]
            offset += positions(operand, dim, accessed_positions(operand, dim, first, 1)[0]) * stride
    return offset * design.target.stick_bytes


def lx_bytes(design: Design, operand: Operand) -> int:
    """Return the bytes that an operand occupies in the LX of each core."""
    return prod(memory_counts(design, operand)) * design.target.stick_bytes
