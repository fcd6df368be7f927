# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Addresses and strides of operands: the geometry of the docstring of ``model.py`` as arithmetic, in sticks and bytes.

All counts are in sticks, the smallest unit that is ever moved: a position along a dim is one element,
except along a stick dim, where it is one stick.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from spyre_mlir.bundle.model import Design, Operand
from spyre_mlir.division.cores import Division
from spyre_mlir.division.ownership import CoreRegion
from spyre_mlir.layout.rules import Iteration
from spyre_mlir.layout.space import SlidingWindow, Space
from spyre_mlir.layout.view import Axis, BufferView
from spyre_mlir.target.element_types import DATA_FORMATS

#: Element types by device format.
DTYPES = {data_format: dtype for dtype, data_format in DATA_FORMATS.items()}


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


def operand_axes(design: Design, operand: Operand) -> tuple[Axis[str], ...]:
    """Return the axes of an operand, innermost first; a dim in the stick is counted in sticks."""
    axes = []
    for dim, stride in zip(operand.dim_order, memory_strides(design, operand), strict=True):
        if operand.scale[dim] == 1:
            window, weight = operand.windows.get(dim), operand.per_stick(dim)
            total = -(-(design.sizes[dim] if window is None else window.size) // weight)
            axes.append(Axis(dim, weight, total, stride * operand.elements_per_stick))
    return tuple(axes)


def iteration_of(design: Design) -> Iteration:
    """Return the iteration of a design for the stick rules; its element types are the formats of the operands."""
    dims = {label: dim for dim, label in enumerate(design.sizes)}
    present = tuple(frozenset(dims[label] for label in operand.varying) for operand in design.operands)
    windows = design.operands[0].windows
    return Iteration(
        design.target,
        tuple(size - design.padding.get(label, 0) for label, size in design.sizes.items()),
        present,
        frozenset(dims[label] for label in reduced_dims(design)),
        tuple(operand.data_format for operand in design.operands),
        frozenset(
            dims[label] for label in (*windows, *(window.kernel for window in windows.values())) if label
        ),
        tuple(design.sizes),
    )


def space_of(design: Design) -> Space:
    """Return the iteration space of a design, whose dims are in the order of ``sizes``.

    The view of an operand in LX has the strides of LX. Padding beyond whole sticks counts as data.
    """
    iteration, dims = iteration_of(design), {label: dim for dim, label in enumerate(design.sizes)}
    sizes, views, windows = list(design.sizes.values()), list[BufferView](), list[SlidingWindow]()
    for operand in design.operands:
        axes = list[Axis[int]]()
        for axis in operand_axes(design, operand):
            dim, window = dims[axis.dim], operand.windows.get(axis.dim)
            if window is None or not window.kernel:
                axes += [Axis(dim, axis.divisor, axis.size, axis.stride)] if axis.size > 1 else []
                continue
            kernel = dims[window.kernel]
            axes.append(Axis(dim, 1, sizes[dim], axis.stride * window.stride))
            axes.append(Axis(kernel, 1, window.extent, axis.stride * window.dilation))
            facts = {
                name: getattr(window, name) for name in ("extent", "stride", "dilation", "before", "size")
            }
            windows.append(SlidingWindow(**facts, output=dim, kernel=kernel))
        stick_axes, stride = list[Axis[int]](), 1
        for label, count in (*operand.other_elements.items(), (operand.stick_dim, operand.stick_elements)):
            stick_axes.insert(0, Axis(dims[label], 1, count, stride))
            stride *= count
        is_sparse = operand.scale[operand.stick_dim] != 1
        views.append(
            BufferView(
                tuple(sizes),
                DTYPES.get(operand.data_format, operand.data_format),
                tuple(sorted(axes, key=lambda axis: (-axis.stride, axis.dim))),
                None if is_sparse else stick_axes[-1].dim,
                operand.elements_per_stick,
                stick_axes=tuple(stick_axes) if len(stick_axes) > 1 else (),
                target=design.target,
            )
        )
    for label, padding in design.padding.items():
        sticks = [operand.per_stick(label) for operand in design.operands if operand.scale.get(label) == 1]
        padded, longest = sizes[dims[label]], max(sticks, default=1)
        # An operation may fill the last stick of a narrower type (``Space.granules``).
        granules = [longest << k for k in range((design.target.stick_bytes // longest).bit_length())]
        fills = (each for each in granules if -(-(padded - padding) // each) * each == padded)
        granule = next(fills, longest) if longest > 1 else 1
        sizes[dims[label]] -= min(padding, granule - 1, padded - 1)
    halos = ((dims[label], window) for label, window in design.operands[-1].windows.items())
    return Space(
        tuple(sizes),
        tuple(views),
        iteration.present,
        iteration.reduced,
        tuple(windows),
        tuple(halo for halo in halos if not halo[1].kernel),
    )


def division_of(design: Design, space: Space) -> Division:
    """Return the division of a design, whose iteration space is ``space``; its slices may be larger than necessary."""

    def numbers(of_label: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(of_label[label] for label in design.sizes)

    owners = tuple(map(numbers, design.core_slices))
    division = Division(numbers(design.slices), owners, reduced=space.reduced)
    shares = numbers(design.shares)
    is_least = shares == division.slice_elements(space.units, space.granules)
    return division if is_least else replace(division, slice_sizes=shares)


def first_positions(design: Design, operand: Operand, slices: Mapping[str, int]) -> dict[str, int]:
    """Return the first position of a slice along each axis; windows may begin before their slice."""
    shares = operand_shares(design, operand)
    return {
        dim: positions(operand, dim, accessed_positions(operand, dim, slices[dim] * shares[dim], 1)[0])
        for dim, scale in operand.scale.items()
        if scale == 1
    }


def core_region(design: Design, operand: Operand, core: int, valid: bool = False) -> CoreRegion:
    """Return the sticks that a core reads, writes or holds, relative to its start address; with ``valid`` only the
    sticks that hold more than padding. The core must be one of ``holders``."""
    return core_regions(design, operand, valid, (core,))[core]


def core_regions(
    design: Design, operand: Operand, valid: bool = False, cores: Iterable[int] | None = None
) -> dict[int, CoreRegion]:
    """Return ``core_region`` of some cores, by default of all ``holders``."""
    shares, strides = operand_shares(design, operand), memory_strides(design, operand)
    regions = {}
    for core in holders(design, operand) if cores is None else cores:
        slices = operand_slices(design, operand, core)
        assert slices is not None
        sizes = _slice_sizes(design, slices, shares, valid)
        for dim in operand.windows:
            sizes[dim] = accessed_positions(operand, dim, slices[dim] * shares[dim], sizes[dim])[1]
        counts = (positions(operand, dim, sizes[dim]) for dim in operand.dim_order)
        regions[core] = CoreRegion(0, tuple(zip(strides, counts, strict=True)))
    return regions


def core_offset_bytes(design: Design, operand: Operand, core: int) -> int:
    """Return the bytes from the start of an HBM tensor to the start of the core's slice."""
    firsts = first_positions(design, operand, design.core_slices[core])
    strides = zip(operand.dim_order, memory_strides(design, operand), strict=True)
    return sum(firsts.get(dim, 0) * stride for dim, stride in strides) * design.target.stick_bytes


def lx_bytes(design: Design, operand: Operand) -> int:
    """Return the bytes that an operand occupies in the LX of each core."""
    return math.prod(memory_counts(design, operand)) * design.target.stick_bytes
