# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Addresses for loads that begin during the previous operation (assumption C3 of docs/concurrency.md).

In program order a buffer is live from its first use on. A load that begins during the previous operation needs its
bytes one operation earlier, so that a plan may be right in program order and let the load wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.scratchpad.solver import MemoryPlan


def with_loads_ahead(
    plan: MemoryPlan,
    buffers: Sequence[LifetimeBoundBuffer],
    space: MemorySpace,
    previous: Mapping[str, Sequence[int]],
) -> MemoryPlan:
    """Return the plan with other addresses of loaded buffers that share bytes with a buffer of a previous operation.

    ``previous`` has, for each loaded buffer, the positions of the operations during which its load may begin. A buffer
    moves to the lowest bytes that are free in its live range and at these positions, large buffers first; without such
    bytes it stays, and its load waits. No other buffer moves, so the traffic is the same.
    """
    named = {buffer.name: buffer for buffer in buffers}
    addresses, bytes_ = dict(plan.addresses), {name: space.bytes_of(named[name]) for name in plan.addresses}

    def overlaps(name: str, address: int, other: str) -> bool:
        return address < addresses[other] + bytes_[other] and addresses[other] < address + bytes_[name]

    for name in sorted(
        previous.keys() & addresses.keys(), key=lambda name: (-bytes_[name], named[name].first, name)
    ):
        others = [other for other in addresses if other != name]
        used = [
            each
            for each in others
            if any(named[each].first <= at <= named[each].last for at in previous[name])
        ]
        if not any(overlaps(name, addresses[name], other) for other in used):
            continue
        buffer = named[name]
        live = (
            each for each in others if named[each].first <= buffer.last and buffer.first <= named[each].last
        )
        near = sorted({*used, *live}, key=addresses.__getitem__)
        free = 0
        for other in near:
            if addresses[other] - free >= bytes_[name]:
                break
            free = max(free, addresses[other] + bytes_[other])
        if free + bytes_[name] <= space.capacity:
            addresses[name] = free
    peak = max((address + bytes_[name] for name, address in addresses.items()), default=0)
    return replace(plan, addresses=addresses, peak=peak)
