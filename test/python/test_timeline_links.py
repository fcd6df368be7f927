# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loads of the links of the ring over a whole program: sums over its operations and their runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bundles import loop_bundle, relayout_bundle

from spyre_mlir.cost.ring_traffic import LinkLoads, reduce_links
from spyre_mlir.target.target import packaged_target
from spyre_mlir.timeline import timeline
from spyre_mlir.timeline.timeline import busiest, link_uses

IDLE = (0,) * 32


def test_operations_that_use_one_link_add_up():
    """Three runs of 100 bytes and one of 50; 350 bytes take 1.823 ns at 192 bytes per ns."""
    one, other = (LinkLoads((number, *IDLE[1:]), IDLE) for number in (100, 50))
    first, *others = link_uses(packaged_target(), [(one, 3), (None, 5), (other, 1)])
    assert (first.bytes, first.busy_ps, first.cores) == (350, 1823, (0, 1))
    assert len(others) == 63 and not any(use.bytes or use.busy_ps for use in others)


def test_links_lead_to_neighbours_in_both_directions():
    """From 0 to 1, .., from 31 to 0, then from 1 to 0, .., from 0 to 31."""
    uses = link_uses(packaged_target(), [(reduce_links(packaged_target(), [range(32)], 128), 1)])
    assert [use.cores for use in uses[:32]] == [(core, (core + 1) % 32) for core in range(32)]
    assert [use.cores for use in uses[32:]] == [
        (after, before) for before, after in (u.cores for u in uses[:32])
    ]


def test_the_busiest_link_is_the_first_of_equals():
    uses = link_uses(packaged_target(), [(LinkLoads((0, 7, 9, *IDLE[3:]), (9, *IDLE[1:])), 1)])
    assert (busiest(uses).link, busiest(uses).clockwise) == (2, True)


@pytest.mark.parametrize("runs", [[], [(None, 3)], [(LinkLoads(IDLE, IDLE), 1)]])
def test_a_ring_that_carries_nothing_has_no_links(runs):
    assert link_uses(packaged_target(), runs) == ()


def test_a_program_without_a_shuffle_or_a_split_sum_uses_no_link():
    found = timeline(loop_bundle())
    assert found.links == () and found.shares.ring == 0


def test_the_links_of_a_program_are_those_of_its_operations():
    """A quarter of a tensor of 64 KiB goes over link 0, in both directions; other operations do not use the ring."""
    bundle = relayout_bundle()
    used = [(use.cores, use.bytes) for use in timeline(bundle).links if use.bytes]
    assert used == [((0, 1), 16384), ((1, 0), 16384)]


def test_a_shuffle_that_runs_twice_moves_twice():
    bundle = relayout_bundle()
    twice = replace(
        bundle,
        statements=(*bundle.statements, bundle.statements[-2]),
        manifest=replace(bundle.manifest, uses=(*bundle.manifest.uses, ("e", "t"))),
    )
    assert busiest(timeline(twice).links).bytes == 2 * busiest(timeline(bundle).links).bytes
