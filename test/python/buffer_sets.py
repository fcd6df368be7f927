# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sets of buffers to plan: random ones, operator chains, torch-spyre's patterns; and the definition of a plan."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Sequence

import pytest
from foreign_data import PATTERNS

from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.scratchpad.solver import MemoryPlan


def buffer(
    size: int, *uses: int, name: str = "", parents: Sequence[str] = (), **fields
) -> LifetimeBoundBuffer:
    return LifetimeBoundBuffer(name, size, uses, in_place_parents=tuple(parents), **fields)


def buffers(*some: LifetimeBoundBuffer) -> list[LifetimeBoundBuffer]:
    """Return buffers; buffers without a name are called b0, b1, .. by their index."""
    return [each if each.name else _named(each, f"b{at}") for at, each in enumerate(some)]


def _named(each: LifetimeBoundBuffer, name: str) -> LifetimeBoundBuffer:
    fields = {**vars(each), "name": name}
    return LifetimeBoundBuffer(**fields)


def random_set(seed: int, most: int = 12) -> tuple[list[LifetimeBoundBuffer], MemorySpace]:
    """1 to ``most`` buffers, often too many for the memory, with parents, copies, reads and traffic of all kinds."""
    rng = random.Random(seed)
    ops, largest = rng.randint(1, 12), rng.choice((4, 40, 1000))
    found: list[LifetimeBoundBuffer] = []
    for at in range(rng.randint(1, most)):
        uses = sorted(rng.randrange(ops) for _ in range(rng.randint(1, 4)))
        dying = [each.name for each in found if each.last == uses[0]]
        parents = [name for name in dying if rng.random() < 0.6]
        if found and rng.random() < 0.1:
            parents.append(rng.choice(found).name)
        spilled = rng.choice((None, None, rng.randrange(3 * largest)))
        found.append(
            LifetimeBoundBuffer(
                f"b{at}", rng.randint(1, largest), tuple(uses), rng.random() < 0.2, tuple(dict.fromkeys(parents)),
                copies=2 if rng.random() < 0.1 else 1, spilled_traffic=spilled,
            )
        )  # fmt: skip
    rng.shuffle(found)
    space = MemorySpace(rng.randint(0, 3 * largest), rng.choice((1, 1, 1, 4, 16)))
    return found, space


def chain(
    count: int, seed: int = 0, sizes: Sequence[int] = (128, 256, 1024, 4096, 65536)
) -> list[LifetimeBoundBuffer]:
    """An operator chain: op i reads the result of op i - 1; every eighth result is read once more 4 ops later."""
    rng = random.Random(seed)
    return [
        LifetimeBoundBuffer(
            f"b{at}", rng.choice(sizes) * rng.randint(1, 8), (at, at + 1, *([at + 5] * (at % 8 == 0)))
        )
        for at in range(count)
    ]


def random_lives(count: int, seed: int = 0) -> list[LifetimeBoundBuffer]:
    """Lives of random length up to the whole program: many are live at the same time."""
    rng = random.Random(seed)
    lives = (sorted((rng.randrange(count), rng.randrange(count))) for _ in range(count))
    return [LifetimeBoundBuffer(f"b{at}", rng.randint(1, 1000), tuple(life)) for at, life in enumerate(lives)]


def pattern(name: str) -> tuple[list[LifetimeBoundBuffer], MemorySpace]:
    """A pattern of torch-spyre's tests of scratchpads; without the file the test is skipped."""
    if not PATTERNS.exists():
        pytest.skip("the patterns of torch-spyre are not there")
    entry = json.loads(PATTERNS.read_text())[name]
    found = [
        buffer(each["size"], *each["uses"], name=each["name"], parents=each["in_place_parents"])
        for each in entry["buffers"]
    ]
    return found, MemorySpace(entry["capacity"])


def conflicts(
    some: Sequence[LifetimeBoundBuffer], space: MemorySpace, plan: MemoryPlan
) -> Iterator[tuple[str, str]]:
    """All pairs that break the definition of a plan, in quadratic time."""
    placed = [each for each in some if each.name in plan.addresses]
    for one, other in itertools.combinations(placed, 2):
        if one.first > other.last or other.first > one.last:
            continue
        begin, start = plan.addresses[one.name], plan.addresses[other.name]
        if begin + space.bytes_of(one) <= start or start + space.bytes_of(other) <= begin:
            continue
        if not (begin == start and (hands_over(one, other, space) or hands_over(other, one, space))):
            yield one.name, other.name


def hands_over(parent: LifetimeBoundBuffer, child: LifetimeBoundBuffer, space: MemorySpace) -> bool:
    """Return whether the child may have the address of the parent."""
    meets = parent.name in child.in_place_parents and parent.last == child.first
    return meets and parent.copies == child.copies == 1 and space.bytes_of(child) <= space.bytes_of(parent)
