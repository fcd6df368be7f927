# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Buffers as "Scratchpad (LX) optimization" writes them: a start, an end, parents; and what such a list cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spyre_mlir.scratchpad import (
    BestFitLayoutSolver,
    FirstFitLayoutSolver,
    GreedyLayoutSolver,
    LifetimeBoundBuffer,
    MemorySpace,
    PlanError,
)


def test_times_are_the_first_and_the_last_use() -> None:
    """Live at the operations 2, 3 and 4; one that is live at one operation is used once."""
    buffer = LifetimeBoundBuffer("a", 512, start_time=2, end_time=5, in_place_parents=["b"])
    assert buffer == LifetimeBoundBuffer("a", 512, (2, 4), in_place_parents=("b",))
    assert (buffer.start_time, buffer.end_time, buffer.first, buffer.last) == (2, 5, 2, 4)
    assert LifetimeBoundBuffer("a", 512, start_time=2, end_time=3).uses == (2,)


def test_uses_change_the_times() -> None:
    buffer = LifetimeBoundBuffer("a", 512, start_time=0, end_time=2)
    assert replace(buffer, uses=(3, 5, 9)).end_time == 10
    assert hash(buffer) == hash(replace(buffer, uses=(0, 1)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"start_time": 3, "end_time": 3}, "live from 3 to before 3; the end is after the start"),
        ({"start_time": 3}, "takes either uses, or both start_time and end_time"),
        ({"end_time": 3}, "takes either uses, or both start_time and end_time"),
        ({"uses": (0, 1), "start_time": 0, "end_time": 2}, "takes either uses, or both"),
        ({"uses": 0, "first_use_is_read": 2}, "has uses 0; pass times by keyword, as start_time=0"),
    ],
)
def test_times_that_make_no_sense(given: dict, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        LifetimeBoundBuffer("a", 512, **given)


@pytest.mark.parametrize("solver", [GreedyLayoutSolver, FirstFitLayoutSolver, BestFitLayoutSolver])
def test_a_list_of_the_document_is_planned(solver: type) -> None:
    """A child that begins at the last read of its parent is in place of it: both fit 512 bytes."""
    parent = LifetimeBoundBuffer("parent", 512, start_time=0, end_time=2)
    child = LifetimeBoundBuffer("child", 512, start_time=1, end_time=3, in_place_parents=["parent"])
    assert solver().plan([parent, child], MemorySpace(512)).addresses == {"parent": 0, "child": 0}
    alone = replace(child, in_place_parents=())
    assert len(solver().plan([parent, alone], MemorySpace(512)).addresses) == 1
