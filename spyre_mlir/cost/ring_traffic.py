# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Traffic over the ring, link by link, and the time of a relayout. No IR.

Core ``c`` is node ``c`` of a ring of all cores of the device. Link ``l`` joins the nodes ``l`` and ``l + 1``; it
carries bytes clockwise, to ``l + 1``, and counter-clockwise, to ``l``, at the same time.

A transfer takes the shorter direction, clockwise if both are equally long. Data that goes to several cores in one
direction crosses each link once.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.division.relayout import Distribution, Relayout
from spyre_mlir.division.slices import shares_of
from spyre_mlir.records import dataclass
from spyre_mlir.target.target import Target


@dataclass(frozen=True)
class LinkLoads:
    """Bytes over each link of the ring, in each direction."""

    clockwise: tuple[int, ...]
    counterclockwise: tuple[int, ...]

    def of(self, clockwise: bool) -> tuple[int, ...]:
        """Return the loads of one direction."""
        return self.clockwise if clockwise else self.counterclockwise

    @property
    def busiest_bytes(self) -> int:
        """Bytes of the busiest link in its busier direction."""
        return max(*self.clockwise, *self.counterclockwise)

    @property
    def total_bytes(self) -> int:
        """Bytes over all links together: a byte counts once for each link that it crosses."""
        return sum(self.clockwise) + sum(self.counterclockwise)


@dataclass(frozen=True)
class RelayoutTraffic:
    """The traffic of a relayout.

    Attributes:
        links: Bytes over each link of the ring.
        moved_bytes: Bytes that cores receive from other cores, counted once for each receiving core.
        bytes_per_core: Bytes of a core's source part.
        runs_per_core: The contiguous runs that the busiest core receives, including runs from itself.
        split: The largest number of cores from which one core receives, itself included.
    """

    links: LinkLoads
    moved_bytes: int
    bytes_per_core: int
    runs_per_core: int
    split: int


@functools.lru_cache(maxsize=1 << 14)
def relayout_ns(relayout: Relayout) -> float:
    """Return the nanoseconds of ``relayout``: the fit to measurements, or the time of its busiest link if longer.

    The fit (torch-spyre #3844): ``runs_per_core * (-1.14 + 3.92 log2(split)) +
    bytes_per_core * split / 547 bytes per ns``, split clamped to 2 .. 8. The source does not say whether a core's bytes
    are its source part or its target part. We take the source part: K [1, 4, 4096, 128] that 8 neighbours gather then
    takes 128 KiB * 8 / 547 = 1.9 us, and the 4.8 us of its busiest link decide. With the 1 MiB of the target part it
    would take 15 us, with all links idle most of the time.
    """
    rates, traffic = relayout.device.ring, relayout_traffic(relayout)
    least, largest = rates.relayout_splits
    split = min(max(traffic.split, least), largest)
    run_ns = rates.relayout_run_ns + rates.relayout_run_split_ns * math.log2(split)
    fitted = traffic.runs_per_core * run_ns + traffic.bytes_per_core * split / rates.relayout_bytes_per_ns
    return max(fitted, link_ns(relayout.device, traffic.links.busiest_bytes))


def link_ns(target: Target, moved_bytes: int) -> float:
    """Return the nanoseconds that a link takes to move ``moved_bytes`` in one direction."""
    return moved_bytes / target.ring.link_bytes_per_ns


def cheapest(relayouts: Sequence[Relayout]) -> int:
    """Return the index of the fastest relayout; ties are decided by the least busy links, then by the index.

    Chooses between core orders of the target division that are equally good for its reader, but not for the links.

    Args:
        relayouts: The relayouts, at least one.
    """

    def key(index: int) -> tuple[float, int, int]:
        links = relayout_traffic(relayouts[index]).links
        return relayout_ns(relayouts[index]), links.busiest_bytes, links.total_bytes

    return min(range(len(relayouts)), key=key)


@functools.lru_cache(maxsize=1 << 14)
def relayout_traffic(relayout: Relayout) -> RelayoutTraffic:
    """Return the traffic of a relayout.

    Args:
        relayout: The relayout, of a buffer of at most as many cores as the ring has nodes.

    Raises:
        ValueError: A distribution has more cores than the ring has nodes.
    """
    nodes, transfers = relayout.device.device_cores, transfers_of(relayout)
    moved = np.zeros((nodes, nodes), np.int64)
    moved[transfers.sources, transfers.targets] = transfers.sticks * relayout.device.stick_bytes
    runs = np.zeros(nodes, np.int64)
    np.add.at(runs, transfers.targets, transfers.runs)
    shares = shares_of(relayout.units, relayout.source.splits)
    return RelayoutTraffic(
        _loads(moved, parts_of(relayout.target.owners, nodes)),
        moved_bytes=int(moved.sum() - moved.trace()),
        bytes_per_core=math.prod(shares) * relayout.device.stick_bytes,
        runs_per_core=int(runs.max()),
        split=int(np.bincount(transfers.targets, minlength=1).max()),
    )


def reduce_links(target: Target, groups: Sequence[Sequence[int]], part_bytes: int) -> LinkLoads:
    """Return the link loads of a split reduction: each core of a group passes ``part_bytes`` on to the next core.

    ``groups`` are the cores that add up the same values, in the order in which they add (``Division.groups``).
    """
    hops = np.zeros((target.device_cores,) * 2, dtype=np.int64)
    for group in groups:
        for core, following in itertools.pairwise(group):
            hops[core, following] += part_bytes
    return _loads(hops, np.arange(target.device_cores))


# -- links ---------------------------------------------------------------------------------------------


def _loads(moved: np.ndarray, parts: np.ndarray) -> LinkLoads:
    """Return the loads of bytes ``moved`` from node to node; nodes of the same part receive the same bytes."""
    nodes = len(moved)
    offsets = np.where(moved > 0, ring_offsets(nodes), 0)
    # Clockwise if both directions are equally long.
    up = offsets <= nodes // 2
    volume = _largest(moved, parts)
    clockwise = _carried(volume, _largest(np.where(up, offsets, 0), parts))
    counterclockwise = _carried(volume, _largest(np.where(up, 0, nodes - offsets), parts))
    from_, steps = np.arange(nodes)[:, None], np.arange(nodes)[None, :]
    return LinkLoads(
        tuple(clockwise[(from_ - steps) % nodes, steps].sum(axis=1).tolist()),
        tuple(counterclockwise[(from_ + 1 + steps) % nodes, steps].sum(axis=1).tolist()),
    )


def _largest(numbers: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Return for each row the largest number of each part."""
    largest = np.zeros_like(numbers)
    np.maximum.at(largest.T, parts, numbers.T)
    return largest


def _carried(volume: np.ndarray, far: np.ndarray) -> np.ndarray:
    """Return the bytes that cross the k-th link from each node, given the number of links that they go (``far``)."""
    nodes = len(volume)
    by_distance = np.zeros((nodes, nodes + 1), dtype=np.int64)
    np.add.at(by_distance, (np.arange(nodes)[:, None], far), volume)
    # Bytes that go k links or farther cross the k-th, so the sum runs from the far end.
    return by_distance[:, :0:-1].cumsum(axis=1)[:, ::-1]


# Transfers of a relayout: the sticks that each core sends to each other core, and their LX offsets on both. No IR.
#
# A *piece* is the intersection of a part of the source distribution with a part of the target distribution. Every core
# that needs the piece gets it from the nearest core of the ring that holds it, or from the lower core id if several
# are equally near. A core that holds a piece takes it from itself.

Integers = NDArray[np.int64]

#: For each core the slice of each dim; None if the core has no part.
Owners = Sequence["tuple[int, ...] | None"]


@dataclass(frozen=True)
class CoreTransfers:
    """Transfers of sticks between cores, one for each pair of cores, a core and itself included; all arrays alike.

    Transfer ``t`` moves ``counts[t]`` sticks along each dim from the core ``sources[t]`` to ``targets[t]``. The first
    stick has offset ``source_offsets[t]`` in the source's part in LX, and ``target_offsets[t]`` in the target's part.
    The transfer consists of ``runs[t]`` runs that are contiguous in both.
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
    # A value of one stick has no dims, so counts alone do not determine which cores have it.
    common = np.logical_and.outer(source.owns, target.owns) & (counts.prod(axis=2) > 0)
    sends = _nearest(parts_of(relayout.source.owners, nodes), common)
    sources, targets = np.nonzero(sends)
    begins, counts = begins[sends], counts[sends]
    # Sticks are contiguous in both up to the first dim of which the piece does not cover all in both.
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
    """Sticks along each dim that each core ``owns``, half open; ``strides`` are strides in LX, of whole shares."""

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
        raise ValueError(f"A ring of {nodes} nodes does not have {len(owners)} cores.")
    nothing = (0,) * len(shares)
    begins = np.array([slices or nothing for slices in owners], np.int64) * shares
    ends = np.minimum(begins + shares, relayout.units)
    for dim, halo in enumerate(distribution.halos):
        if halo is not None:
            # Clipped at the ends of the dim.
            begins[:, dim] = np.maximum(begins[:, dim] - halo.before, 0)
            ends[:, dim] = np.minimum(ends[:, dim] - 1 + halo.extent - halo.before, halo.size)
            shares[dim] = halo.most_accessed(int(shares[dim]))
    strides = np.ones_like(shares)
    for inner, dim in zip(relayout.order, relayout.order[1:], strict=False):
        strides[dim] = strides[inner] * shares[inner]
    owns = np.array([slices is not None for slices in owners])
    return _Extents(owns, begins, ends, shares, strides)


def parts_of(owners: Owners, nodes: int) -> Integers:
    """Return a number for each node of a ring; cores with the same part have equal numbers."""
    numbers: dict[tuple[int, ...] | None, int] = {}
    filled = [*owners, *[None] * (nodes - len(owners))]
    return np.array([numbers.setdefault(slices, len(numbers)) for slices in filled])


def _nearest(parts: Integers, useful: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the mask of the ``useful`` core pairs (from, to) that transfer: the nearest holder of a part sends it."""
    nodes = len(parts)
    clockwise = ring_offsets(nodes)
    # One number orders by distance in the shorter direction, then by core id.
    rank = np.minimum(clockwise, nodes - clockwise) * nodes + np.arange(nodes)[:, None]
    rank = np.where(useful, rank, nodes * nodes)
    best = np.full_like(rank, nodes * nodes)
    # Unbuffered: several holders of a part compete for one row.
    np.minimum.at(best, parts, rank)
    return useful & (rank == best[parts])


@functools.cache
def ring_offsets(nodes: int) -> Integers:
    """Return the links from one node of a ring to another, clockwise."""
    return (np.arange(nodes)[None, :] - np.arange(nodes)[:, None]) % nodes
