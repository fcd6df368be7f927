# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The transfers of a relayout: which core sends which sticks to which, and where they lie in LX on both. No IR.

A *piece* is what a part of the source's distribution and one of the target's have in common. It goes to all cores that
want it, to each from the nearest core of the ring that holds it; of equally near ones from the lower core id. A core
that holds a piece takes it from itself.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.division.relayout import Distribution, Relayout
from spyre_mlir.division.slices import shares_of
from spyre_mlir.records import dataclass
from spyre_mlir.target.sliding import Sliding

Integers = NDArray[np.int64]

#: For each core the slice of each dim, None where it has no part.
Owners = Sequence["tuple[int, ...] | None"]


@dataclass(frozen=True)
class CoreTransfers:
    """Transfers of sticks between cores, one for each pair of cores, a core and itself included; all arrays alike.

    Transfer ``t`` takes ``counts[t]`` sticks along each dim from the core ``sources[t]`` to ``targets[t]``. Its first
    stick is number ``source_offsets[t]`` of what the source has in LX, and ``target_offsets[t]`` of what the target
    gets; it consists of ``runs[t]`` parts that are contiguous in both.
    """

    sources: Integers
    targets: Integers
    counts: Integers
    source_offsets: Integers
    target_offsets: Integers
    runs: Integers

    @property
    def sticks(self) -> Integers:
        """Sticks of each transfer."""
        return self.counts.prod(axis=1)


def transfers_of(relayout: Relayout) -> CoreTransfers:
    """Return the transfers of a ``relayout``.

    Raises:
        ValueError: A distribution has more cores than the ring has nodes.
    """
    nodes = relayout.device.device_cores
    source, target = (_extents(relayout, part, nodes) for part in (relayout.source, relayout.target))
    begins = np.maximum(source.begins[:, None], target.begins)
    counts = np.maximum(np.minimum(source.ends[:, None], target.ends) - begins, 0)
    # A value of one stick has no dims, so that counts alone do not say which cores have it.
    common = np.logical_and.outer(source.owns, target.owns) & (counts.prod(axis=2) > 0)
    sends = _nearest(parts_of(relayout.source.owners, nodes), common)
    sources, targets = np.nonzero(sends)
    begins, counts = begins[sends], counts[sends]
    # Sticks lie one behind the other in both up to the first dim of which a piece is not all in both.
    runs, broken = np.ones(len(sources), np.int64), np.zeros(len(sources), bool)
    for dim in relayout.order:
        runs *= np.where(broken, counts[:, dim], 1)
        broken |= (counts[:, dim] != source.shares[dim]) | (counts[:, dim] != target.shares[dim])
    return CoreTransfers(
        sources,
        targets,
        counts,
        ((begins - source.begins[sources]) * source.strides).sum(axis=1),
        ((begins - target.begins[targets]) * target.strides).sum(axis=1),
        runs,
    )


@dataclass(frozen=True)
class _Extents:
    """Sticks along each dim that each core ``owns``, half open; ``strides`` are those in LX, of whole shares."""

    owns: NDArray[np.bool_]
    begins: Integers
    ends: Integers
    shares: Integers
    strides: Integers


def _extents(relayout: Relayout, distribution: Distribution, nodes: int) -> _Extents:
    shares = np.array(shares_of(relayout.units, distribution.splits), np.int64)
    # A program may use fewer cores than the ring has nodes.
    owners = [*distribution.owners, *[None] * (nodes - len(distribution.owners))]
    if len(owners) > nodes:
        raise ValueError(f"A ring of {nodes} nodes has no place for {len(owners)} cores.")
    nothing = (0,) * len(shares)
    begins = np.array([slices or nothing for slices in owners], np.int64) * shares
    ends = np.minimum(begins + shares, relayout.units)
    for dim, halo in enumerate(distribution.halos):
        if halo is not None:
            begins[:, dim], ends[:, dim] = _with_halo(halo, begins[:, dim], ends[:, dim])
            shares[dim] = halo.most_accessed(int(shares[dim]))
    strides = np.ones_like(shares)
    for inner, dim in zip(relayout.order, relayout.order[1:], strict=False):
        strides[dim] = strides[inner] * shares[inner]
    owns = np.array([slices is not None for slices in owners])
    return _Extents(owns, begins, ends, shares, strides)


def _with_halo(halo: Sliding, begins: Integers, ends: Integers) -> tuple[Integers, Integers]:
    """The begins and ends of slices together with what is around them; at the ends of the dim there is nothing."""
    return np.maximum(begins - halo.before, 0), np.minimum(ends - 1 + halo.extent - halo.before, halo.size)


def parts_of(owners: Owners, nodes: int) -> Integers:
    """Return a number for each node of a ring, equal ones where cores have the same part."""
    numbers: dict[tuple[int, ...] | None, int] = {}
    filled = [*owners, *[None] * (nodes - len(owners))]
    return np.array([numbers.setdefault(slices, len(numbers)) for slices in filled])


def _nearest(parts: Integers, useful: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mask of the ``useful`` pairs of cores (from, to) that move something: of holders of one part the nearest does."""
    nodes = len(parts)
    # One number orders by distance, then by core id.
    rank = _distances(nodes) * nodes + np.arange(nodes)[:, None]
    rank = np.where(useful, rank, nodes * nodes)
    best = np.full_like(rank, nodes * nodes)
    # Unbuffered: several holders of a part compete for one row.
    np.minimum.at(best, parts, rank)
    return useful & (rank == best[parts])


@functools.cache
def _distances(nodes: int) -> Integers:
    """Links between two nodes, the shorter way round."""
    clockwise = ring_offsets(nodes)
    return np.minimum(clockwise, nodes - clockwise)


@functools.cache
def ring_offsets(nodes: int) -> Integers:
    """Return the links from one node of a ring to another, clockwise."""
    return (np.arange(nodes)[None, :] - np.arange(nodes)[:, None]) % nodes
