"""Why a buffer has no address: what it had to compete with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.scratchpad.instance import Array, Instance
from spyre_mlir.scratchpad.solver import LOST

#: Buffers that a reason names.
_MOST_NAMED = 4


def reasons(instance: Instance, kept: NDArray[np.bool_]) -> dict[int, str]:
    """For each buffer that is not kept the operation at which it is most of all one too many."""
    loads = instance.load_of(kept)
    return {int(at): _reason(instance, kept, loads, int(at)) for at in np.flatnonzero(~kept)}


def _reason(instance: Instance, kept: NDArray[np.bool_], loads: Array, spilled: int) -> str:
    capacity = instance.space.capacity
    begin, end = np.searchsorted(instance.times, (instance.starts[spilled], instance.ends[spilled] + 1))
    together = loads[begin:end] + instance.sizes[spilled] - _shared(instance, kept, spilled, begin, end)
    worst = int(np.argmax(together))
    needed, time = int(together[worst]), int(instance.times[begin + worst])
    if needed <= capacity:
        return f"{LOST}: no address is free over its whole life, although the bytes would be enough"
    others = np.flatnonzero(kept & (instance.starts <= time) & (instance.ends >= time))
    names = _names(instance, others)
    return f"{LOST}: at op {time} it, {names} need {needed} bytes together, and there are {capacity}"


def _shared(instance: Instance, kept: NDArray[np.bool_], spilled: int, begin: int, end: int) -> Array:
    """Per time of its life the bytes that a buffer would share with kept parents and children."""
    shared = np.zeros(end - begin, np.int64)
    if any(kept[parent] for parent in instance.parents[spilled]):
        shared[0] += instance.sizes[spilled]
    last = int(instance.ends[spilled])
    if instance.times[end - 1] != last:
        return shared
    low, high = np.searchsorted(instance.starts, (last, last + 1))
    for child in np.flatnonzero(kept[low:high]) + low:
        parents = instance.parents[child]
        if spilled in parents and not any(kept[parent] for parent in parents):
            shared[-1] += instance.sizes[child]
    return shared


def _names(instance: Instance, members: NDArray[np.intp]) -> str:
    """The largest ones by name, the others as a number."""
    ranked = members[np.argsort(-instance.sizes[members], kind="stable")]
    names = [f"'{instance.buffers[at].name}'" for at in ranked[:_MOST_NAMED]]
    if len(ranked) > _MOST_NAMED:
        names.append(f"{len(ranked) - _MOST_NAMED} more")
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)
