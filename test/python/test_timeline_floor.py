# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The floor of predictions: no program is faster than its bytes, or its multiply-adds, at the peak."""

from __future__ import annotations

import random

import pytest
from floor_programs import least_ns, prices
from simulator_programs import Program

import spyre_mlir
from spyre_mlir.timeline import Timeline, timeline
from spyre_mlir.zoo import suite


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_keep_the_floor_and_get_no_faster_by_an_operation(seed):
    fewer, more = prices(seed)
    assert fewer.total_ns >= least_ns(fewer) > 0
    assert more.total_ns >= max(least_ns(more), fewer.total_ns)


@pytest.mark.parametrize("name", suite.SUITE)
def test_the_suite_keeps_the_floor(name):
    found = spyre_mlir.compile(*suite.program(name, suite.REDUCED)).timeline()
    assert found.total_ns >= least_ns(found) > 0


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
