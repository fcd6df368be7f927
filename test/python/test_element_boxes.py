# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Boxes of elements: against sets of indices."""

import itertools
import math
import random

import pytest

from spyre_mlir.analysis import needed_elements as boxes


def members(box):
    return set(itertools.product(*box))


def random_range(choice, size, steps=(1,)):
    step = choice.choice(steps)
    start = choice.randrange(size)
    return range(start, choice.randrange(start, size) + 1, step)


@pytest.mark.parametrize("seed", range(40))
def test_unions_differences_and_counts(seed):
    """Exact without steps; with steps never more than there is."""
    choice = random.Random(seed)
    shape = [choice.randrange(1, 7) for _ in range(choice.randrange(1, 4))]
    steps = (1,) if seed % 2 else (1, 1, 2, 3)
    parts = [
        tuple(random_range(choice, size, steps) for size in shape) for _ in range(choice.randrange(1, 5))
    ]
    everything = set().union(*map(members, parts))
    joined = boxes.union(parts)
    assert set().union(*map(members, joined)) == everything
    count = sum(map(boxes.elements, boxes.disjoint(joined)))
    difference = set().union(*map(members, boxes.without(parts[0], parts[-1])))
    assert difference <= members(parts[0]) - members(parts[-1])
    assert count <= len(everything)
    if steps == (1,):
        assert count == len(everything)
        assert difference == members(parts[0]) - members(parts[-1])


@pytest.mark.parametrize("seed", range(40))
def test_positions_of_reshaped_dims(seed):
    """From row-major positions to boxes and back."""
    choice = random.Random(seed)
    sizes = [choice.randrange(1, 5) for _ in range(choice.randrange(1, 4))]
    positions = random_range(choice, math.prod(sizes), (1, 1, 2, 5))
    every = list(itertools.product(*map(range, sizes)))
    parts = boxes.split(positions, sizes)
    assert set().union(set(), *map(members, parts)) == {every[index] for index in positions}
    box = tuple(random_range(choice, size, (1, 2)) for size in sizes)
    joined = boxes.joined(box, sizes)
    assert sorted(itertools.chain(*joined)) == [every.index(index) for index in sorted(members(box))]


def test_halves_and_every_second_are_the_whole():
    """The two halves of rotary embedding, and its pairs."""
    assert boxes.union([(range(4), range(4)), (range(4), range(4, 8))]) == ((range(4), range(8)),)
    assert boxes.union([(range(0, 8, 2),), (range(1, 8, 2),)]) == ((range(8),),)
