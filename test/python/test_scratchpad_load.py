# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The load of some of the buffers of an instance, against a count at each time by itself."""

import random

import numpy as np
import pytest

from spyre_mlir.optimization.bipartite import Child, most_shared
from spyre_mlir.scratchpad import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.scratchpad.instance import Instance

SPACE = MemorySpace(1 << 20, 128)


def random_instance(rng: random.Random) -> Instance:
    """Buffers of which several begin where others end, with several parents and without."""
    buffers: list[LifetimeBoundBuffer] = []
    for number in range(14):
        first = rng.randrange(6)
        parents = [buffer.name for buffer in buffers if buffer.last == first and rng.random() < 0.8]
        uses = (first, first + rng.randrange(4)) if rng.random() < 0.9 else (first,)
        buffers.append(
            LifetimeBoundBuffer(
                str(number), 128 * rng.randint(1, 6), tuple(sorted(set(uses))), in_place_parents=parents
            )
        )
    return Instance.of(buffers, SPACE)


def load_at(instance: Instance, selected: list[bool], time: int) -> int:
    """Bytes of the kept buffers that are live at a time, less what pairs that meet there share at most."""
    live = [index for index, keep in enumerate(selected) if keep and instance.starts[index] <= time]
    live = [index for index in live if time <= instance.ends[index]]
    children = [
        Child(index, int(instance.sizes[index]), tuple(p for p in instance.parents[index] if selected[p]))
        for index in live
        if instance.starts[index] == time
    ]
    return sum(int(instance.sizes[index]) for index in live) - most_shared(children)


@pytest.mark.parametrize("seed", range(40))
def test_the_load_of_some_buffers_is_the_count_at_each_time(seed):
    rng = random.Random(seed)
    instance = random_instance(rng)
    for _ in range(5):
        selected = [rng.random() < 0.7 for _ in range(len(instance))]
        expected = [load_at(instance, selected, int(time)) for time in instance.times]
        assert instance.load_of(np.array(selected)).tolist() == expected
