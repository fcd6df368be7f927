# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Costs of the cost model: each factor against a calculation by hand, and monotonicity."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from spyre_mlir.cost.cost_model import (
    OperationCost,
    access_ns,
    compute_ns,
    least_ns,
    memory_ns,
    operation_cost,
    program_cost,
    ring_ns,
    saturation,
    stream_ns,
    transfer_ns,
)
from spyre_mlir.cost.work import OperandWork, OperationWork
from spyre_mlir.target.target import packaged_target

MEGABYTE = 1_000_000
READ = OperandWork(False, MEGABYTE, MEGABYTE // 32, 1, 4096)
WRITE = replace(READ, writes=True)
TARGET = packaged_target()
UNARY = OperationWork(TARGET, "exp", 32, 3000, 0, 0, 1, 192_000, 6_144_000, False, (READ, WRITE))
MATMUL = OperationWork(
    TARGET, "batchmatmul", 32, 0, 1_140_000, 64, 1, 4096, 131_072, False, (READ, READ, WRITE)
)


def test_the_vector_unit_passes_two_sticks_per_cycle_and_corelet():
    """Two corelets at 1.5 GHz: 3000 sticks take 500 ns."""
    assert compute_ns(UNARY) == 500


@pytest.mark.parametrize(("rows", "slowdown"), [(1, 1), (64, 1), (256, 1), (384, 1.5), (512, 2), (4096, 2)])
def test_the_array_sustains_its_rate_for_256_rows(rows: int, slowdown: float):
    """1140 multiply-adds per ns; from there on the time grows with the rows, to twice that."""
    assert compute_ns(replace(MATMUL, rows_per_core=rows)) == pytest.approx(1000 * slowdown)


def test_a_split_reduction_keeps_one_corelet_busy():
    """Half the rate however many parts there are, and a hop more per part."""
    halves, quarters = (replace(MATMUL, parts=parts) for parts in (2, 4))
    assert compute_ns(halves) == compute_ns(quarters) == 2000
    assert [ring_ns(each) for each in (MATMUL, halves, quarters)] == [0, 4096 * 0.0104, 3 * 4096 * 0.0104]


def test_one_way_and_balanced_bandwidth():
    """150 GB/s in one direction, 105 if as much is written as read ("Analytical Cost Model")."""
    assert memory_ns(replace(UNARY, operands=(READ,))) == pytest.approx(MEGABYTE / 150)
    assert memory_ns(UNARY) == pytest.approx(2 * MEGABYTE / 105, rel=0.002)


@pytest.mark.parametrize(
    ("opcode", "broadcast", "results", "rate"),
    [("mul", True, 1, 118), ("sum", False, 3700, 114 + 61 / 2.718281828)],
)
def test_kinds_with_a_measured_rate(opcode: str, broadcast: bool, results: int, rate: float):
    """Repeated operands, row reductions: the rate of all that is read and written."""
    work = replace(UNARY, opcode=opcode, broadcast=broadcast, results=results)
    assert memory_ns(work) == pytest.approx(2 * MEGABYTE / rate)


def test_reductions_of_few_rows_have_the_whole_bandwidth():
    """114 + 61 exp(-rows / 3700) is above 150 for few rows."""
    assert memory_ns(replace(UNARY, opcode="max", results=64, operands=(READ,))) == pytest.approx(
        MEGABYTE / 150
    )


def test_operands_that_more_than_eight_cores_share_wait():
    """(fan-out / 8)^0.75: not for 8 cores, 2.83 times as long for 32."""
    shared = [replace(READ, fan_out=cores) for cores in (1, 8, 32)]
    one, eight, all_cores = (stream_ns(replace(UNARY, operands=(each,)), each) for each in shared)
    assert one == eight and all_cores / one == pytest.approx(4**0.75)


def test_the_array_takes_its_operands_in_core_by_core():
    """All bytes at the peak of 204.8, bytes of the busiest core at 40.5: hypot of both; 8 cores share, none waits."""
    operand = replace(READ, fan_out=8)
    by_hand = math.hypot(MEGABYTE / 204.8, operand.core_bytes / 40.5)
    assert stream_ns(MATMUL, operand) == pytest.approx(by_hand)
    whole = replace(operand, core_bytes=MEGABYTE)
    assert stream_ns(MATMUL, whole) == pytest.approx(math.hypot(MEGABYTE / 204.8, MEGABYTE / 40.5))


@pytest.mark.parametrize(
    ("fraction", "cores", "slowdown"), [(0.2, 1, 4), (0.2, 2, 2), (0.2, 8, 1), (0.8, 1, 1)]
)
def test_loads_of_the_array_wait_for_room_in_the_back_end(fraction: float, cores: int, slowdown: float):
    """(bytes that loads of one core each need / what there is)^0.314; cores that share a load need less."""
    work = replace(MATMUL, target=TARGET.with_backend_fraction(fraction))
    read, write = replace(READ, fan_out=cores, core_bytes=0), replace(WRITE, core_bytes=0)
    assert stream_ns(work, read) == pytest.approx(MEGABYTE / 204.8 * slowdown**0.314, rel=1e-4)
    assert stream_ns(work, write) == pytest.approx(MEGABYTE / 204.8)


def test_a_part_of_lx_holds_matrices_that_are_loaded_together():
    """0.0528 of the back end's 406,323 bytes hold 4 tiles of 5,363: runs of one stick become runs of four."""
    work = replace(MATMUL, tile_bytes=round(0.0528 * 406323.2 / 4))
    sticks = replace(READ, run_bytes=128, batch_run_bytes=1 << 20)
    together = replace(sticks, run_bytes=512, batch_run_bytes=512)
    assert stream_ns(work, sticks) == pytest.approx(stream_ns(work, together), rel=1e-3)
    # A core has no more matrices than its own.
    assert stream_ns(work, replace(sticks, batch_run_bytes=256)) > stream_ns(work, sticks)


def test_a_restickify_is_no_faster_than_a_copy():
    """Balanced it moves 105 GB/s like any other, 116 if little is written."""
    copy, other = (replace(UNARY, opcode=opcode) for opcode in ("identity", "ReStickifyOpHBM"))
    assert memory_ns(other) == pytest.approx(memory_ns(copy))
    little = replace(
        other, operands=(READ, replace(WRITE, bytes=MEGABYTE // 64, core_bytes=MEGABYTE // 2048))
    )
    assert memory_ns(little) == pytest.approx((MEGABYTE + MEGABYTE // 64) / 116)


def test_many_divisions_have_the_prices_of_each():
    """Numbers of a work may be arrays: each entry equals the cost of a work with its numbers."""
    parts, rows, shared = np.array([1, 2, 4]), np.array([128, 16, 1]), np.array([4, 16, 32])
    many = replace(
        MATMUL, cores=shared, parts=parts, rows_per_core=rows, operands=(replace(READ, fan_out=shared), WRITE)
    )
    cost = operation_cost(many)
    total, serial = np.asarray(cost.total_ns), np.asarray(cost.serial_ns)
    for at in range(3):
        work = replace(MATMUL, cores=int(shared[at]), parts=int(parts[at]), rows_per_core=int(rows[at]))
        each = replace(work, operands=(replace(READ, fan_out=int(shared[at])), WRITE))
        assert total[at] == pytest.approx(operation_cost(each).total_ns)
        assert serial[at] == pytest.approx(operation_cost(each).serial_ns)


def test_few_cores_do_not_saturate_the_memory():
    """0.43 of the peak for 1 core ("Scratchpad (LX) optimization"), 0.54 for 8 and more, relative to all cores."""
    assert (
        saturation(TARGET, 1) == pytest.approx(0.43 / 0.54)
        and saturation(TARGET, 4) == saturation(TARGET, 32) == 1
    )
    assert transfer_ns(TARGET, READ, 1, 150) == pytest.approx(MEGABYTE / 150 * 0.54 / 0.43)


def test_the_busiest_core_is_no_faster_than_alone():
    """If one core of 32 moves all, the others do not help."""
    assert transfer_ns(TARGET, replace(READ, core_bytes=MEGABYTE), 32, 150) == transfer_ns(
        TARGET, READ, 1, 150
    )


def test_single_sticks_are_slower_than_bursts():
    """n runs of r bytes cost n (r + 361), against bursts of 4096: 3.51 times as much for sticks."""
    sticks, bursts = (transfer_ns(TARGET, replace(READ, run_bytes=run), 32, 150) for run in (128, 4096))
    assert sticks / bursts == pytest.approx((1 + 361 / 128) / (1 + 361 / 4096), rel=1e-4)


def test_what_is_in_lx_moves_nothing_and_waits_for_nothing():
    inside = replace(UNARY, operands=(replace(READ, in_lx=True), replace(WRITE, in_lx=True)))
    assert operation_cost(inside) == OperationCost(500, 0, 0, 0)
    assert (inside.read_bytes, inside.written_bytes) == (0, 0)


def test_no_operation_is_faster_than_its_bytes_at_the_peak():
    assert memory_ns(UNARY) > least_ns(UNARY) == 2 * MEGABYTE / 204.8


def test_the_price_is_made_of_separable_parts():
    """Without overlap the cost is a sum: compute, an access each, the ring, and the turnaround between two operands."""
    parts = compute_ns(MATMUL) + sum(access_ns(MATMUL, each) for each in MATMUL.operands) + ring_ns(MATMUL)
    assert operation_cost(MATMUL).serial_ns == pytest.approx(parts + 0.00574 * MEGABYTE)


def test_what_binds_an_operation():
    """The longest part; of 9 + 1 + 1 + 1 compute and memory overlap, and each slows the other."""
    costs = [OperationCost(*(9 if at == which else 1 for at in range(4))) for which in range(4)]
    assert [each.bound_by for each in costs] == ["compute", "memory", "ring", "overhead"]
    assert [each.total_ns for each in costs] == pytest.approx([2 + 82**0.5] * 2 + [10 + 2**0.5] * 2)


def test_a_program_lies_within_its_bracket():
    """Two operations, one bound by compute and one by memory."""
    made = program_cost([UNARY, replace(MATMUL, multiply_adds_per_core=114_000_000)])
    one, two = made.operations
    assert (one.bound_by, two.bound_by) == ("memory", "compute")
    assert made.lower_ns == one.compute_ns + two.compute_ns
    overlapped = [math.hypot(each.compute_ns, each.memory_ns) for each in (one, two)]
    assert made.total_ns == pytest.approx(sum(overlapped) + one.overhead_ns + two.overhead_ns)
    assert made.lower_ns < made.total_ns < made.upper_ns


def _random_work(rng: random.Random) -> OperationWork:
    operands = tuple(
        OperandWork(
            writes, bytes_ := rng.randint(1, 1 << 24), bytes_ // rng.randint(1, 32),
            rng.choice((1, 8, 16, 32)), 128 << rng.randint(0, 8), rng.random() < 0.2,
        )
        for writes in (False, False, True)
    )  # fmt: skip
    opcode = rng.choice(("mul", "sum", "sumnonstick", "batchmatmul", "ReStickifyOpHBM"))
    matmul = opcode == "batchmatmul"
    numbers = [rng.randint(1, 1 << 20) for _ in range(2)]
    return OperationWork(
        TARGET, opcode, rng.randint(1, 32), 0 if matmul else numbers[0], numbers[0] if matmul else 0,
        rng.randint(1, 512), rng.choice((1, 2, 8)), numbers[1], numbers[1], opcode == "mul", operands,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(50))
def test_more_work_is_never_cheaper(seed: int):
    """More bytes, more sharing, shorter runs, a busier core, fewer cores, more rows, more parts; LX is cheaper.

    Of the array a load that more cores share waits less: the other way round there.
    """
    rng = random.Random(seed)
    work = _random_work(rng)
    at = rng.randrange(3)
    operand = work.operands[at]

    def with_operand(**changes):
        return replace(
            work, operands=(*work.operands[:at], replace(operand, **changes), *work.operands[at + 1 :])
        )

    dearer = [
        with_operand(bytes=operand.bytes + rng.randint(1, MEGABYTE)),
        with_operand(fan_out=1 if work.on_array else operand.fan_out + 8),
        with_operand(run_bytes=operand.run_bytes // 2),
        with_operand(core_bytes=operand.core_bytes * 2),
        replace(work, cores=max(1, work.cores // 2)),
        replace(work, parts=2 * work.parts),
        replace(work, rows_per_core=2 * work.rows_per_core),
    ]
    price = operation_cost(work).total_ns
    assert all(operation_cost(each).total_ns >= price for each in dearer)
    assert operation_cost(with_operand(in_lx=True)).total_ns <= price
    assert operation_cost(work).memory_ns >= least_ns(work)
