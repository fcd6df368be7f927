# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loads that the backend can omit: only data that the same cores read in the operation before, and that fits."""

from __future__ import annotations

import itertools
from dataclasses import replace

import bundles
import pytest
from simulator_programs import Program

from spyre_mlir.bundle.model import IndexConstant, Loop
from spyre_mlir.target.target import default_target
from spyre_mlir.timeline import timeline

ROWS = {"mb": 512, "out": 256}
#: Bytes of a tensor.
SIZE = 512 * 256 * 2


def chain(*splits: str, rows: dict[str, int] = ROWS, place: int | None = None) -> Program:
    """exp of exp of .., each split along a dim over 4 cores, from x over p0, p1, .. to y, all in device memory.

    With a ``place`` all of them are live together with a buffer of 128 KiB in LX.
    """
    program = Program()
    if place is not None:
        program.tensor("w", ROWS, kind="input")
        program.tensor("kept", ROWS, lx=place)
        program.op("exp", "w", "kept", splits={"mb": 4})
    names = ["x", *(f"p{at}" for at in range(len(splits) - 1)), "y"]
    for name in names:
        program.tensor(name, rows, kind={"x": "input", "y": "result"}.get(name))
    for (source, target), dim in zip(itertools.pairwise(names), splits, strict=True):
        program.op("exp", source, target, splits={dim: 4})
    if place is not None:
        program.tensor("z", ROWS, kind="result")
        program.op("exp", "kept", "z", splits={"mb": 4})
    return program


def moved(program: Program) -> list[int]:
    return [each.moved_bytes for each in timeline(program.bundle()).executions]


def test_what_the_operation_before_left_on_the_same_cores_is_not_fetched():
    """The value is not stored either, if all its readers find it there."""
    assert moved(chain("mb", "mb")) == [SIZE, SIZE]


def test_what_other_cores_have_is_fetched():
    assert moved(chain("mb", "out")) == [2 * SIZE, 2 * SIZE]


def test_what_has_been_there_before_another_operation_is_fetched():
    """x is read by the first operation and, with another one between, by the last."""
    program = chain("mb", "mb")
    program.tensor("w", ROWS, kind="result")
    program.op("exp", "x", "w", splits={"mb": 4})
    assert moved(program) == [SIZE, SIZE, 2 * SIZE]


def test_what_does_not_fit_beside_the_plan_is_fetched():
    """A slice of 1984 KiB has all of LX except the reserve of the backend; with 64 KiB in LX it does not fit."""
    rows, size = {"mb": 4 * 7936, "out": 128}, 4 * 7936 * 256
    assert default_target().with_backend_fraction(0).usable_lx_bytes == 1984 << 10
    assert moved(chain("mb", "mb", rows=rows)) == [size, size]
    assert moved(chain("mb", "mb", rows=rows, place=0))[1:3] == [2 * size, 2 * size]


@pytest.mark.parametrize("tiles", [8, 128])
def test_a_loop_fetches_again_what_it_moves_over(tiles):
    """x in tiles three times over, and each time twice: once it is there."""
    bundle = bundles.loop_bundle(tiles)
    *setup, over_tiles = bundle.statements
    again = Loop("again", "zero", "three", "one", (over_tiles,))
    absolute, added = timeline(
        replace(bundle, statements=(*setup, IndexConstant("three", 3), again))
    ).executions
    assert absolute.moved_bytes == added.moved_bytes == 3 * tiles * 65536


def test_the_memory_moves_the_bytes_of_the_plan_in_the_end():
    """A hundred operations that pass on 256 KiB on the same cores: no faster than the peak."""
    found = timeline(chain(*["mb"] * 100).bundle())
    assert found.total_ns >= 200 * SIZE / default_target().peak_bytes_per_ns
    assert found.lower_ns <= found.total_ns <= found.upper_ns
    assert found.shares.total == found.run.total
