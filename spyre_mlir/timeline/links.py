"""What each link of the ring carries while a program runs, and how long it is busy with that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spyre_mlir.cost.ring import LinkLoads, link_ns
from spyre_mlir.cost.units import picoseconds
from spyre_mlir.target.device import device


@dataclass(frozen=True)
class LinkUse:
    """A link in one direction: the ``bytes`` of the program that cross it, and how long they take at its rate.

    Clockwise link ``l`` leads from core ``l`` to the next one, counter-clockwise back.
    """

    link: int
    clockwise: bool
    bytes: int
    busy_ps: int

    @property
    def cores(self) -> tuple[int, int]:
        """From which core it leads to which."""
        following = (self.link + 1) % device().cores
        return (self.link, following) if self.clockwise else (following, self.link)

    @property
    def name(self) -> str:
        return "core {} to {}".format(*self.cores)


def link_uses(runs: Iterable[tuple[LinkLoads | None, int]]) -> tuple[LinkUse, ...]:
    """Each link clockwise, then each counter-clockwise; nothing if nothing goes over the ring.

    ``runs`` are what operations load links with, None if they load none, and how often they run.
    """
    loading = [(loads, times) for loads, times in runs if loads is not None and loads.busiest_bytes]
    if not loading:
        return ()
    return tuple(
        LinkUse(link, clockwise, bytes_, picoseconds(link_ns(bytes_)))
        for clockwise in (True, False)
        for link in range(device().cores)
        for bytes_ in [sum(times * loads.of(clockwise)[link] for loads, times in loading)]
    )


def busiest(uses: Iterable[LinkUse]) -> LinkUse:
    """The one with most bytes, of equals the first."""
    return max(uses, key=lambda use: use.bytes)
