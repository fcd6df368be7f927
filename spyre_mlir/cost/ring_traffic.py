# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Traffic over the ring, link by link, and the time of a relayout. No IR.

Core ``c`` is node ``c`` of a ring of all cores of the device. Link ``l`` joins the nodes ``l`` and ``l + 1``; it
carries bytes clockwise, to ``l + 1``, and counter-clockwise, to ``l``, at the same time.

What a core sends (``division/core_transfers.py``) takes the shorter way round, clockwise if both are equal, and what
goes to several cores in one direction crosses each link once.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np

from spyre_mlir.division.core_transfers import parts_of, ring_offsets, transfers_of
from spyre_mlir.division.relayout import Relayout
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
        """Bytes of all links together: each byte as often as it crosses one."""
        return sum(self.clockwise) + sum(self.counterclockwise)


@dataclass(frozen=True)
class RelayoutTraffic:
    """The traffic of a relayout.

    Attributes:
        links: Bytes over each link of the ring.
        moved_bytes: Bytes that cores get from others, once for each core.
        bytes_per_core: Bytes of a core's source part.
        runs_per_core: The contiguous runs that the busiest core takes, from itself too.
        split: The most cores that one core takes from, itself among them.
    """

    links: LinkLoads
    moved_bytes: int
    bytes_per_core: int
    runs_per_core: int
    split: int


@functools.lru_cache(maxsize=1 << 14)
def relayout_ns(relayout: Relayout) -> float:
    """Return the nanoseconds of a ``relayout``: the fit to measured ones, or its busiest link if that takes longer.

    The fit (torch-spyre #3844): ``runs_per_core * (-1.14 + 3.92 log2(split)) +
    bytes_per_core * split / 547 bytes per ns``, split clamped to 2 .. 8. It does not say whether a core's bytes are
    those of its source or of its target part. Here they are those of the source: K [1, 4, 4096, 128] that 8
    neighbours gather then takes 128 KiB * 8 / 547 = 1.9 us, and the 4.8 us of its busiest link decide. With the 1 MiB
    of the target it would be 15 us, with all links idle most of the time.
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
    """Return the index of the relayout that takes least time; of equal ones that with the least busy links, the first.

    For core orders of the target division that are equally good for its reader, but not for the links.

    Args:
        relayouts: The relayouts, at least one.
    """
    return min(range(len(relayouts)), key=lambda index: _order_key(relayouts[index]))


def _order_key(relayout: Relayout) -> tuple[float, int, int]:
    links = relayout_traffic(relayout).links
    return relayout_ns(relayout), links.busiest_bytes, links.total_bytes


@functools.lru_cache(maxsize=1 << 14)
def relayout_traffic(relayout: Relayout) -> RelayoutTraffic:
    """Return the traffic of a relayout.

    Args:
        relayout: The relayout, of a buffer of at most as many cores as the ring has nodes.

    Raises:
        ValueError: A distribution has more cores than that.
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
    """The partial sums of a split reduction: each core of a group passes one of so many bytes on to the next.

    ``groups`` are the cores that add up the same values, in the order in which they do (``Division.groups``).
    """
    hops = np.zeros((target.device_cores,) * 2, dtype=np.int64)
    for group in groups:
        for core, following in itertools.pairwise(group):
            hops[core, following] += part_bytes
    return _loads(hops, np.arange(target.device_cores))


# -- links ---------------------------------------------------------------------------------------------


def _loads(moved: np.ndarray, parts: np.ndarray) -> LinkLoads:
    """The loads of bytes ``moved`` from node to node; to nodes of the same part go the same bytes."""
    nodes = len(moved)
    offsets = np.where(moved > 0, ring_offsets(nodes), 0)
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
