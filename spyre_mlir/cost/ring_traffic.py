"""Traffic over the ring, link by link, and the time of a relayout. No IR.

Core ``c`` is node ``c`` of a ring of all cores of the device. Link ``l`` joins the nodes ``l`` and ``l + 1``; it
carries bytes clockwise, to ``l + 1``, and counter-clockwise, to ``l``, at the same time.

A *piece* is what a part of the source's distribution and one of the target's have in common. It goes to all cores that
want it, to each from the nearest core that holds it; of equally near ones from the lower core id. From there it takes
the shorter way round, clockwise if both are equal, and what goes to several cores in one direction crosses each link
once. A core that holds a piece takes it from itself.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spyre_mlir.division.relayout import Distribution, Relayout
from spyre_mlir.division.slices import shares_of
from spyre_mlir.target.target import Target

#: For each core the slice of each dim, None where it has no part.
Owners = Sequence["tuple[int, ...] | None"]


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
        """Bytes of all links together: each byte as often as it crosses one."""
        return sum(self.clockwise) + sum(self.counterclockwise)


@dataclass(frozen=True)
class RelayoutTraffic:
    """The traffic of a relayout.

    ``moved_bytes`` are those that cores get from others, once for each core, ``bytes_per_core`` those of a core's
    source part, ``runs_per_core`` the contiguous runs that the busiest core takes, ``split`` the most cores that one
    core takes from; the core itself is one of them in both.
    """

    links: LinkLoads
    moved_bytes: int
    bytes_per_core: int
    runs_per_core: int
    split: int


@functools.lru_cache(maxsize=1 << 14)
def relayout_ns(relayout: Relayout) -> float:
    """Time of a relayout: the fit to measured ones, or its busiest link if that takes longer.

    The fit (torch-spyre's): ``runs_per_core * (-1.14 + 3.92 log2(split)) + bytes_per_core * split / 547 bytes per ns``,
    split clamped to 2 .. 8. It does not say whether a core's bytes are those of its source or of its target part. Here
    they are those of the source: K [1, 4, 4096, 128] that 8 neighbours gather then takes 128 KiB * 8 / 547 = 1.9 us,
    and the 4.8 us of its busiest link decide. With the 1 MiB of the target it would be 15 us, with all links idle
    most of the time.
    """
    rates, traffic = relayout.device.ring, relayout_traffic(relayout)
    least, largest = rates.relayout_splits
    split = min(max(traffic.split, least), largest)
    run_ns = rates.relayout_run_ns + rates.relayout_run_split_ns * math.log2(split)
    fitted = traffic.runs_per_core * run_ns + traffic.bytes_per_core * split / rates.relayout_bytes_per_ns
    return max(fitted, link_ns(relayout.device, traffic.links.busiest_bytes))


def link_ns(target: Target, moved_bytes: int) -> float:
    """Time of a link for so many bytes in one direction."""
    return moved_bytes / target.ring.link_bytes_per_ns


def cheapest(relayouts: Sequence[Relayout]) -> int:
    """The number of the relayout that takes least time; of equal ones that with the least busy links, the first.

    For core orders of the target division that are equally good for its reader, but not for the links.
    """
    return min(range(len(relayouts)), key=lambda index: _order_key(relayouts[index]))


def _order_key(relayout: Relayout) -> tuple[float, int, int]:
    links = relayout_traffic(relayout).links
    return relayout_ns(relayout), links.busiest_bytes, links.total_bytes


@functools.lru_cache(maxsize=1 << 14)
def relayout_traffic(relayout: Relayout) -> RelayoutTraffic:
    """Return the traffic of a relayout; ``ValueError`` if a distribution has more cores than the ring has nodes."""
    source, target = relayout.source, relayout.target
    nodes, cores = relayout.device.device_cores, max(len(source.owners), len(target.owners))
    if cores > nodes:
        raise ValueError(f"A ring of {nodes} nodes has no place for {cores} cores.")
    sticks, runs = _pieces(relayout)
    is_source = _nearest(_parts(source.owners, nodes), sticks > 0)
    moved = np.where(is_source, sticks * relayout.device.stick_bytes, 0)
    shares = shares_of(relayout.units, source.splits)
    return RelayoutTraffic(
        _loads(moved, _parts(target.owners, nodes)),
        moved_bytes=int(moved.sum() - moved.trace()),
        bytes_per_core=math.prod(shares) * relayout.device.stick_bytes,
        runs_per_core=int((runs * is_source).sum(axis=0).max()),
        split=int(is_source.sum(axis=0).max()),
    )


def reduce_links(target: Target, groups: Sequence[Sequence[int]], part_bytes: int) -> LinkLoads:
    """The partial sums of a split reduction: each core of a group passes one of so many bytes on to the next.

    ``groups`` are the cores that add up the same values, in the order in which they do (``Division.groups``).
    """
    hops = np.zeros((target.device_cores,) * 2, dtype=np.int64)
    for group in groups:
        for core, following in itertools.pairwise(group):
            hops[core, following] += part_bytes
    return _loads(hops, np.arange(target.device_cores))


# -- pieces --------------------------------------------------------------------------------------------


def _pieces(relayout: Relayout) -> tuple[np.ndarray, np.ndarray]:
    """Sticks of the piece that core i holds and core j wants, for all i and j, and its contiguous runs.

    Sticks of a piece lie one behind the other in both images up to the first dim of which it is not all in both.
    """
    source, target = relayout.source, relayout.target
    before, after = shares_of(relayout.units, source.splits), shares_of(relayout.units, target.splits)
    nodes = relayout.device.device_cores
    have, want = _slices(source, nodes), _slices(target, nodes)
    sticks = np.logical_and.outer(have[0], want[0]).astype(np.int64)
    runs, broken = np.ones_like(sticks), np.zeros(sticks.shape, dtype=bool)
    for dim in relayout.order:
        counts = _common(relayout.units[dim], before[dim], have[1][:, dim], after[dim], want[1][:, dim])
        sticks *= counts
        runs *= np.where(broken, counts, 1)
        broken |= (counts != before[dim]) | (counts != after[dim])
    return sticks, runs


def _slices(distribution: Distribution, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return whether each node of the ring has a part, and its slices; 0 where it has none."""
    # A program may use fewer cores than the ring has nodes.
    owners = [*distribution.owners, *[None] * (nodes - len(distribution.owners))]
    nothing = (0,) * len(distribution.splits)
    return np.array([slices is not None for slices in owners]), np.array(
        [slices or nothing for slices in owners]
    )


def _common(units: int, before: int, have: Any, after: int, want: Any) -> np.ndarray:
    """Units that slices of so many units each, numbers ``have`` and ``want``, have in common."""
    begin = np.maximum.outer(have * before, want * after)
    end = np.minimum.outer((have + 1) * before, (want + 1) * after)
    return np.maximum(np.minimum(end, units) - begin, 0)


def _parts(owners: Owners, nodes: int) -> np.ndarray:
    """A number for each node, equal ones where cores have the same part."""
    numbers: dict[tuple[int, ...] | None, int] = {}
    filled = [*owners, *[None] * (nodes - len(owners))]
    return np.array([numbers.setdefault(slices, len(numbers)) for slices in filled])


def _nearest(parts: np.ndarray, useful: np.ndarray) -> np.ndarray:
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
def _distances(nodes: int) -> np.ndarray:
    """Links between two nodes, the shorter way round."""
    clockwise = _offsets(nodes)
    return np.minimum(clockwise, nodes - clockwise)


@functools.cache
def _offsets(nodes: int) -> np.ndarray:
    """Links from one node to another, clockwise."""
    return (np.arange(nodes)[None, :] - np.arange(nodes)[:, None]) % nodes


# -- links ---------------------------------------------------------------------------------------------


def _loads(moved: np.ndarray, parts: np.ndarray) -> LinkLoads:
    """The loads of bytes ``moved`` from node to node; to nodes of the same part go the same bytes."""
    nodes = len(moved)
    offsets = np.where(moved > 0, _offsets(nodes), 0)
    # Clockwise where both ways are equally long.
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
    """For each row the largest number of each part."""
    largest = np.zeros_like(numbers)
    np.maximum.at(largest.T, parts, numbers.T)
    return largest


def _carried(volume: np.ndarray, far: np.ndarray) -> np.ndarray:
    """Bytes that cross the k-th link from each node, of bytes that go so ``far``."""
    nodes = len(volume)
    by_distance = np.zeros((nodes, nodes + 1), dtype=np.int64)
    np.add.at(by_distance, (np.arange(nodes)[:, None], far), volume)
    # Bytes that go k links or farther cross the k-th, so the sum runs from the far end.
    return by_distance[:, :0:-1].cumsum(axis=1)[:, ::-1]
