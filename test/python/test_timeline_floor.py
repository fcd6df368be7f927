"""The floor of predictions: no program is faster than its bytes, or its multiply-adds, at the peak."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import suite
import torch
from programs import Apply
from simulator_programs import Program

import spyre_mlir
from spyre_mlir.target.target import default_target
from spyre_mlir.timeline import Timeline, timeline

#: Operations of random programs, each of (512 x 256) twice to one of this shape.
OPERATIONS: tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], ...] = (
    lambda x, y: x + y,
    lambda x, y: x * y,
    lambda x, y: torch.exp(x) - y,
    lambda x, y: torch.softmax(x, 0) + y,
    lambda x, y: torch.softmax(x, 1) * y,
    lambda x, y: x @ y.T @ y,
    lambda x, y: x - y.sum(0),
    lambda x, y: x.T.contiguous().T * y.amax(1, keepdim=True),
)


def check_floor(found: Timeline) -> None:
    """Of the program, and of each operation alone; the peak of a core is 1.5 GHz x 1024 multiply-adds."""
    moved = sum(each.read_bytes + each.written_bytes for each in found.executions)
    multiply_adds = sum(
        each.runs * each.work.cores * each.work.multiply_adds_per_core for each in found.executions
    )
    assert moved > 0
    assert found.total_ns >= moved / default_target().peak_bytes_per_ns
    assert found.total_ns >= multiply_adds / (1536 * default_target().cores)


def random_program(seed: int, length: int) -> Callable[..., tuple[torch.Tensor, ...]]:
    """A chain whose operations each take two of what there is; it returns the last two."""
    rng = random.Random(seed)
    steps = [(rng.choice(OPERATIONS), rng.random(), rng.random()) for _ in range(length)]

    def run(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = [x, y]
        for operation, one, other in steps:
            values.append(operation(values[int(one * len(values))], values[int(other * len(values))]))
        return tuple(values[2:])

    return run


def compiled(seed: int, length: int, cores: int) -> Timeline:
    inputs = (torch.zeros(512, 256).half(), torch.zeros(512, 256).half())
    return spyre_mlir.compile(Apply(random_program(seed, length)), inputs, sencores=cores).timeline()


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_keep_the_floor_and_get_no_faster_by_an_operation(seed):
    """All values are results, so with one operation more the program has all that it had to do."""
    cores = (1, 4, 32)[seed % 3]
    fewer, more = (compiled(seed, length, cores) for length in (seed % 3 + 1, seed % 3 + 2))
    check_floor(fewer)
    check_floor(more)
    assert more.total_ns >= fewer.total_ns


@pytest.mark.parametrize("name", suite.SUITE)
def test_the_suite_keeps_the_floor(name):
    check_floor(spyre_mlir.compile(*suite.program(name, suite.REDUCED)).timeline())


@pytest.mark.parametrize("seed", range(20))
def test_more_bytes_or_operations_never_make_a_bundle_faster(seed):
    """A chain through LX; the same with one buffer in device memory; with an operation more."""
    rng = random.Random(seed)
    splits = [rng.choice(("mb", "out")) for _ in range(5)]
    places = [None if rng.random() < 0.5 else at << 17 for at in range(4)]
    at = rng.randrange(4)
    within, outside = (_chain(splits, [*places[:at], place, *places[at + 1 :]]) for place in (at << 17, None))
    assert within.total_ns <= outside.total_ns
    assert outside.total_ns <= _chain([*splits, "mb"], [*places[:at], None, *places[at + 1 :], None]).total_ns


def _chain(splits: list[str], places: list[int | None]) -> Timeline:
    """exp of exp of .. of 512 x 256, of which the last is a result; a buffer in LX is read as it was written."""
    program = Program()
    size = {"mb": 512, "out": 256}
    names = ["x", *(f"p{at}" for at in range(len(places))), "y"]
    for name, place in zip(names, [None, *places, None], strict=True):
        kind = {"x": "input", "y": "result"}.get(name)
        program.tensor(name, size, kind=kind, lx=place)
    splits = list(splits)
    for at, place in enumerate(places):
        splits[at + 1] = splits[at] if place is not None else splits[at + 1]
    for source, target, dim in zip(names, names[1:], splits, strict=False):
        program.op("exp", source, target, splits={dim: 4})
    return timeline(program.bundle())
