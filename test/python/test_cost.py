# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Costs of whole tensors, by which layouts are chosen, compared with calculations by hand."""

from __future__ import annotations

import pytest

from spyre_mlir.cost.of_space import pass_cost, wait_cost
from spyre_mlir.layout.stick_layout import StickLayout
from spyre_mlir.layout.view import from_order
from spyre_mlir.layout_search.layout_candidates import (
    candidate_of,
    copying_cost,
    op_layouts,
    relayout_cost,
    transfer_cost,
)
from spyre_mlir.layout_search.tensor_graph import signature
from spyre_mlir.target.target import default_target

MEBIBYTE = 1 << 20


def test_whole_bursts_cost_their_bytes():
    """150 bytes per ns in runs of a burst or more, in picoseconds."""
    burst = default_target().burst_bytes
    assert [pass_cost(default_target(), MEBIBYTE, burst * times) for times in (1, 2, 100)] == [
        round(MEBIBYTE / 0.150)
    ] * 3


def test_shorter_runs_cost_more():
    """The price never falls as runs get shorter, down to single sticks and below."""
    runs = [1 << bit for bit in range(20)]
    prices = [pass_cost(default_target(), MEBIBYTE, run) for run in runs]
    assert prices == sorted(prices, reverse=True) and prices[7] > prices[12]


def test_the_price_is_a_fixed_cost_for_each_run():
    """n runs of r bytes cost n (r + overhead), in the unit in which a burst costs its own bytes."""
    memory = default_target()
    unit = memory.burst_bytes / (memory.burst_bytes + memory.burst_overhead_bytes) / 0.150
    for run in (128, 512, 2048):
        runs = MEBIBYTE // run
        assert pass_cost(default_target(), MEBIBYTE, run) == pytest.approx(
            runs * (run + memory.burst_overhead_bytes) * unit
        )


def test_rows_apart_cost_more_than_their_bytes_say():
    """Single sticks are 3.5 times slower, as the products of AdnanHoque/torch-spyre say."""
    ratio = pass_cost(default_target(), MEBIBYTE, default_target().stick_bytes) / pass_cost(
        default_target(), MEBIBYTE, default_target().burst_bytes
    )
    assert ratio == pytest.approx((1 + 361 / 128) / (1 + 361 / 4096), rel=1e-4)


def test_nothing_costs_nothing():
    assert pass_cost(default_target(), 0, 0) == 0


@pytest.mark.parametrize("shape", [(128, 256), (64, 64), (96, 640)])
def test_a_conversion_reads_and_writes_all(shape):
    """At least the bytes of both layouts and two waits; another stick makes two operations more wait."""
    rows, turned = (
        candidate_of(StickLayout.for_tensor(default_target(), shape, "f16", order))
        for order in ((0, 1), (1, 0))
    )
    moved = pass_cost(default_target(), rows.bytes, 4096) + pass_cost(default_target(), turned.bytes, 4096)
    assert relayout_cost(rows, turned) >= moved + 4 * wait_cost(default_target())
    assert relayout_cost(rows, rows) >= 2 * pass_cost(default_target(), rows.bytes, 4096) + 2 * wait_cost(
        default_target()
    )


def test_converting_a_few_sticks_costs_what_the_waits_do():
    """Padding of small tensors is therefore not a reason for a conversion: moving 64 KB takes less than one wait."""
    rows, turned = (
        candidate_of(StickLayout.for_tensor(default_target(), (64, 64), "f16", order))
        for order in ((0, 1), (1, 0))
    )
    assert 4 * wait_cost(default_target()) < relayout_cost(rows, turned) < 5 * wait_cost(default_target())
    assert pass_cost(default_target(), 65536, 4096) < wait_cost(default_target())


def test_a_conversion_of_two_tensors_costs_more_than_one_of_both():
    """Every conversion is an operation: of equal bytes, fewer are cheaper."""
    whole, half = (
        candidate_of(StickLayout.for_tensor(default_target(), (rows, 256), "f16")) for rows in (256, 128)
    )
    turned, turned_half = (
        candidate_of(StickLayout.for_tensor(default_target(), (rows, 256), "f16", (1, 0)))
        for rows in (256, 128)
    )
    assert 2 * relayout_cost(half, turned_half) > relayout_cost(whole, turned)


def test_a_copy_of_the_program_waits_only_if_the_stick_changes():
    """With one stick it is an operation like others, whose operands may stay in LX."""
    rows, turned = (
        candidate_of(StickLayout.for_tensor(default_target(), (128, 128), "f16", order))
        for order in ((0, 1), (1, 0))
    )
    assert copying_cost(rows, turned) == relayout_cost(rows, turned)
    assert copying_cost(rows, rows) == relayout_cost(rows, rows) - 2 * wait_cost(default_target())


def test_an_operand_whose_rows_lie_apart_is_slower_to_move():
    """A batched product reads one matrix at a time: with the batch innermost each run is one stick."""
    shapes = ((64, 128, 64), (64, 64, 64), (64, 128, 64))
    made = signature(
        default_target(), "batchmatmul", ((0, 1, 3), (0, 3, 2), (0, 1, 2)), shapes, ("f16",) * 3, (3,)
    )
    default = candidate_of(StickLayout.for_tensor(default_target(), shapes[-1], "f16"))
    rows_together = candidate_of(from_order(default_target(), shapes[-1], "f16", 2, (0, 1)))
    costs = [transfer_cost(op_layouts(made)[0], -1, held) for held in (default, rows_together)]
    assert default.bytes == rows_together.bytes and costs[1] == round(default.bytes / 0.150)
    assert costs[0] == pass_cost(default_target(), default.bytes, default_target().stick_bytes)
