# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bound of plans that spill buffers after a use and reload them before a later use, possibly at another address.

Such a plan keeps gaps between uses (``gaps.py``). Consecutive kept gaps are a *residency*, which has one address.
Between its residencies a buffer is in device memory: written once if the program writes it, and read for each reload
and for each use in between. The first residency begins with the operation that writes the buffer.
"""

from __future__ import annotations

from collections.abc import Sequence

from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.buffer_selection import select
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.scratchpad.gaps import gap_instance, gaps_of, groups_of
from spyre_mlir.scratchpad.instance import Instance


@dataclass(frozen=True)
class SpillAndReloadBound:
    """A lower bound ``traffic`` of any plan, with or without reloads, in bytes of device memory.

    ``attained`` says whether some choice of gaps within the capacity has exactly this traffic, ignoring addresses and
    the cost of moves on the chip; if not, the least such traffic is higher.
    """

    traffic: int
    attained: bool


def spill_and_reload_bound(
    buffers: Sequence[LifetimeBoundBuffer], space: MemorySpace, budget: int = 200_000
) -> SpillAndReloadBound:
    """Return the bound, after about ``budget`` steps of search; ``PlanError`` if the buffers are invalid."""
    instance = Instance.of(buffers, space)
    gaps = gaps_of(instance)
    groups = groups_of(gaps)
    selection = select(gap_instance(instance, gaps), space.capacity, groups=groups, budget=budget)
    spilled = sum(buffer.traffic_if_spilled for buffer in buffers)
    saved = sum(gap.saving for gap in gaps) + sum(group.extra for group in groups)
    return SpillAndReloadBound(spilled - saved + selection.bound, selection.exact)
