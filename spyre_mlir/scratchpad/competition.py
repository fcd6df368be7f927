# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reasons for buffers without an address: the buffers that compete with them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.optimization.arrays import Array
from spyre_mlir.optimization.bipartite import Child, most_shared
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.solver import LOST

#: Maximum number of buffers that a reason names.
_MOST_NAMED = 4


def reasons(instance: Instance, selected: NDArray[np.bool_]) -> dict[int, str]:
    """Return the reason of each buffer that is not kept: the operation at which it exceeds the capacity most."""
    loads = instance.load_of(selected)
    return {int(index): _reason(instance, selected, loads, int(index)) for index in np.flatnonzero(~selected)}


def _reason(instance: Instance, selected: NDArray[np.bool_], loads: Array, spilled: int) -> str:
    capacity = instance.space.capacity
    begin, end = np.searchsorted(
        instance.times, (instance.starts[spilled], instance.ends[spilled] + 1)
    ).tolist()
    together = loads[begin:end] + instance.sizes[spilled]
    with_it = selected.copy()
    with_it[spilled] = True
    for time in {begin, end - 1}:  # only at these times the buffer could share bytes with parents or children
        together[time - begin] = _needed(instance, with_it, int(instance.times[time]))
    worst = int(np.argmax(together))
    needed, time = int(together[worst]), int(instance.times[begin + worst])
    if needed <= capacity:
        return f"{LOST}: no address is free over its whole life, although the bytes would be enough"
    competitors = _listed(instance, _live(instance, selected, time))
    return f"{LOST}: at op {time} {competitors} need {needed} bytes together, and there are {capacity}"


def _live(instance: Instance, selected: NDArray[np.bool_], time: int) -> NDArray[np.intp]:
    return np.flatnonzero(selected & (instance.starts <= time) & (instance.ends >= time))


def _needed(instance: Instance, selected: NDArray[np.bool_], time: int) -> int:
    """Return the load at one time."""
    live = _live(instance, selected, time)
    children = [
        Child(index, int(instance.sizes[index]), tuple(p for p in instance.parents[index] if selected[p]))
        for index in live.tolist()
        if instance.starts[index] == time
    ]
    return int(instance.sizes[live].sum()) - most_shared(children)


def _listed(instance: Instance, others: NDArray[np.intp]) -> str:
    """Format the spilled buffer and the others: the largest ones by name and the rest as a number."""
    # Stable, so that buffers of equal size are named in the order of their first use.
    ranked = others[np.argsort(-instance.sizes[others], kind="stable")]
    listed = ["it", *(f"'{instance.buffers[index].name}'" for index in ranked[:_MOST_NAMED])]
    if len(ranked) > _MOST_NAMED:
        listed.append(f"{len(ranked) - _MOST_NAMED} more")
    return f"{', '.join(listed[:-1])} and {listed[-1]}"
