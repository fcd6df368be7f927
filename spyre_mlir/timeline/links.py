# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Load of each link of the ring while a program runs: its bytes and its busy time."""

from __future__ import annotations

from collections.abc import Iterable

from spyre_mlir.cost.ring_traffic import LinkLoads, link_ns
from spyre_mlir.cost.units import picoseconds
from spyre_mlir.records import dataclass
from spyre_mlir.target.target import Target


@dataclass(frozen=True)
class LinkUse:
    """A link of a ring of ``nodes`` in one direction.

    In the program ``bytes`` cross the link, which takes ``busy_ps`` at the rate of the link.

    Clockwise, link ``l`` leads from core ``l`` to the next core; counter-clockwise, it leads back.
    """

    link: int
    nodes: int
    clockwise: bool
    bytes: int
    busy_ps: int

    @property
    def cores(self) -> tuple[int, int]:
        """The cores (from, to) that the link connects."""
        following = (self.link + 1) % self.nodes
        return (self.link, following) if self.clockwise else (following, self.link)

    @property
    def name(self) -> str:
        return "core {} to {}".format(*self.cores)


def link_uses(target: Target, runs: Iterable[tuple[LinkLoads | None, int]]) -> tuple[LinkUse, ...]:
    """Return the use of each link clockwise, then of each counter-clockwise; empty if nothing uses the ring.

    ``runs`` has for each operation its link loads (None if it has none) and the number of its runs.
    """
    loading = [(loads, times) for loads, times in runs if loads is not None and loads.busiest_bytes]
    if not loading:
        return ()
    return tuple(
        LinkUse(link, target.device_cores, clockwise, bytes_, picoseconds(link_ns(target, bytes_)))
        for clockwise in (True, False)
        for link in range(target.device_cores)
        for bytes_ in [sum(times * loads.of(clockwise)[link] for loads, times in loading)]
    )


def busiest(uses: Iterable[LinkUse]) -> LinkUse:
    """Return the link use with the most bytes, the first one in a tie."""
    return max(uses, key=lambda use: use.bytes)
