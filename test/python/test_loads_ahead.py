# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies into LX during the previous operation: the addresses that this needs, and the price where there are none."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from programs import PROGRAMS
from race_programs import A, B, C, program
from test_races import GOOD

import spyre_mlir
from spyre_mlir.bundle.context import Context
from spyre_mlir.bundle.core_slices import core_regions
from spyre_mlir.bundle.memory_order import walk
from spyre_mlir.driver.program_findings import buffer_findings
from spyre_mlir.passes import scratchpad_planning
from spyre_mlir.report.summary import buffer_waits_text
from spyre_mlir.scratchpad import LifetimeBoundBuffer, MemorySpace, solver
from spyre_mlir.scratchpad.check import check_plan
from spyre_mlir.scratchpad.loads_ahead import with_loads_ahead
from spyre_mlir.timeline import timeline
from spyre_mlir.timeline.timeline import _peeled, _Stores, _storing, _Visit


def planned(capacity: int, *ranges: tuple[int, int, int]):
    """Return buffers of (first, last, size), their memory, and the plan of the greedy solver."""
    buffers = [
        LifetimeBoundBuffer(str(k), size, (first, last)) for k, (first, last, size) in enumerate(ranges)
    ]
    space = MemorySpace(capacity, 128)
    return buffers, space, solver("greedy").plan(buffers, space)


def test_a_loaded_buffer_moves_if_there_are_free_bytes():
    """Buffer 1 is loaded from operation 3 on, and operation 2 uses buffer 0; only the larger memory has other bytes."""
    for capacity, address in ((256, 0), (512, 256)):
        buffers, space, plan = planned(capacity, (0, 2, 256), (3, 4, 256))
        assert plan.addresses == {"0": 0, "1": 0}
        ahead = with_loads_ahead(plan, buffers, space, {"1": (2,)})
        assert ahead.addresses == {"0": 0, "1": address} and ahead.peak == 256 + address
        check_plan(buffers, space, ahead)
        # Operation 1, of a loop whose first operation is the load, does not use the buffer.
        assert with_loads_ahead(plan, buffers, space, {"1": (5,)}) == plan


@pytest.mark.parametrize("seed", range(20))
def test_random_plans_stay_right(seed: int):
    """Plans pass the check; a buffer that moved has no byte of a buffer that the operation before uses."""
    rng = random.Random(seed)
    starts = [rng.randrange(30) for _ in range(25)]
    ranges = [(start, start + rng.randrange(1, 6), 128 * rng.randrange(1, 8)) for start in starts]
    buffers, space, plan = planned(128 * 40, *ranges)
    previous = {each.name: (each.first - 1,) for each in buffers if rng.random() < 0.4}
    ahead = with_loads_ahead(plan, buffers, space, previous)
    check_plan(buffers, space, ahead)
    assert ahead.addresses.keys() == plan.addresses.keys() and ahead.traffic == plan.traffic
    named = {each.name: each for each in buffers}
    for name in plan.addresses:
        begin, end = ahead.addresses[name], ahead.addresses[name] + named[name].size
        if begin == plan.addresses[name]:
            continue
        for other, address in ahead.addresses.items():
            is_used = named[other].first <= previous[name][0] <= named[other].last
            assert not is_used or end <= address or address + named[other].size <= begin


def waiting(address: int):
    """Return a bundle whose copy c is at an address; the operation before uses the address A."""
    steps = ("exp", "x", "a"), ("tanh", "a", "b"), ("identity", "x", "c"), ("add", "b", "c", "z")
    return program(*steps, a=A, b=B, c=address)


def test_the_price_of_a_wait_is_the_time_that_a_second_buffer_saves():
    line, other = timeline(waiting(A)), timeline(waiting(C))
    (wait,) = line.buffer_waits
    assert (wait.position, wait.buffer, wait.used, other.buffer_waits) == (2, "c", "a", ())
    assert wait.saved_ps == line.run.total - other.run.total > 0
    assert line.buffer_wait_ns == wait.saved_ps / 1000
    assert timeline(waiting(A), overlap="sequential").buffer_waits == ()
    saved = f"{wait.saved_us:,.1f} us"
    assert buffer_waits_text(line) == (
        f"1 copy waits for a buffer in use, {saved}; a second buffer of 32 KiB for 'c' would save {saved}"
    )
    assert buffer_waits_text(other) == ""


def test_a_wait_that_costs_time_is_a_finding(monkeypatch: pytest.MonkeyPatch):
    """A plan in program order lets the mask wait for the product before it; the plan of the compiler does not."""
    model, inputs = PROGRAMS["sdpa_mask_bool"]()
    good = spyre_mlir.compile(model, inputs, sencores=7)
    assert not any(buffer_findings(good.timelines)) and "buffer waits" not in good.summary()
    monkeypatch.setattr(scratchpad_planning, "with_loads_ahead", lambda plan, *_: plan)
    program = spyre_mlir.compile(model, inputs, sencores=7)
    finding = next(each for each in program.findings if "a second buffer of" in each.change)
    assert finding.problem.startswith("The load of '") and "waits for the operation before" in finding.problem
    before, after = (each.timeline().total_ns / 1000 for each in (program, good))
    assert finding.before_us == pytest.approx(before) and finding.after_us == pytest.approx(after)
    assert "buffer waits" in program.summary(findings=False)


def visits(nodes: list) -> Iterator[_Visit]:
    for node in nodes:
        if isinstance(node, _Visit):
            yield node
        else:
            yield from visits(node[1])


def sticks(context: Context, step, operand: int, iterations) -> set[int]:
    """Return the sticks of an operand in one iteration, core by core."""
    entry = step.design.operands[operand]
    found = set[int]()
    regions = core_regions(step.design, entry, valid=operand < len(step.design.operands) - 1)
    for core, region in regions.items():
        start = step.values[entry.start[core]]
        moved = sum(factor * iterations[atom].lower for atom, factor in start.terms if atom in iterations)
        found.update(region.positions((start.offset + moved) // context.target.stick_bytes).tolist())
    return found


@pytest.mark.parametrize(
    ("kind", "dropped"), [("llama in tiles", 2), ("loop of the pool", 0), ("planted 4", 0)]
)
def test_loads_wait_for_the_stores_of_their_sticks(kind: str, dropped: int):
    """The sources of each load are the executes that store a stick of it in some iteration, not all of its buffer."""
    context = Context(GOOD[kind]())
    every = list(visits(_peeled(context.tree, ())))
    stores, ranges, fewer = _Stores(context, every), _storing(context), 0
    runs = list(walk(context.tree, {}, False))
    for visit in every:
        firsts = dict(zip((loop.atom for loop in visit.step.loops), visit.firsts, strict=True))
        lower = {loop.atom: loop.lower for loop in visit.step.loops}
        for operand, entry in enumerate(visit.step.design.operands[:-1]):
            if entry.memory == "lx":
                continue
            read = set[int]().union(
                *(
                    sticks(context, run.step, operand, run.iterations)
                    for run in runs
                    if run.step is visit.step
                    and all((run.iterations[a].lower == lower[a]) == first for a, first in firsts.items())
                )
            )
            near = ranges[context.uses(visit.step)[operand]]
            expected = tuple(
                position
                for position in near
                if any(
                    read & sticks(context, run.step, len(run.step.design.operands) - 1, run.iterations)
                    for run in runs
                    if run.step.position == position
                )
            )
            assert tuple(dict.fromkeys(position for position, _ in stores.of(visit, operand))) == expected
            fewer += len(near) - len(expected)
    assert fewer == dropped
