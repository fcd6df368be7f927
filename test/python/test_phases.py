# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Device and host take turns as rarely as a program allows."""

from __future__ import annotations

import itertools
import random

import pytest

from spyre_mlir.passes.outline_host_functions import ExecutionSide, Phase, PhaseOp, phases

D, H, E = ExecutionSide.DEVICE, ExecutionSide.HOST, ExecutionSide.EITHER


def chain(*sides: ExecutionSide) -> list[PhaseOp]:
    """Return a chain of nodes, each reading the one before."""
    return [PhaseOp(side, frozenset({at - 1} if at else ())) for at, side in enumerate(sides)]


def sides(found: list[Phase]) -> list[tuple[ExecutionSide, tuple[int, ...]]]:
    return [(phase.side, phase.nodes) for phase in found]


def test_a_chain_is_cut_where_the_side_changes() -> None:
    assert sides(phases(chain(D, H, D))) == [(D, (0,)), (H, (1,)), (D, (2,))]


def test_what_runs_on_either_side_follows_its_neighbours() -> None:
    assert sides(phases(chain(E, H, E, D))) == [(H, (0, 1, 2)), (D, (3,))]
    assert sides(phases(chain(E, E))) == [(D, (0, 1))]


def test_what_reads_the_program_s_inputs_goes_to_its_reader() -> None:
    """A transposed weight, which either side may make, is made where it is read: nothing crosses then."""
    nodes = [
        PhaseOp(E, frozenset(), 100),
        PhaseOp(H, frozenset(), 1),
        PhaseOp(D, frozenset({0, 1}), 1),
    ]
    assert sides(phases(nodes)) == [(H, (1,)), (D, (0, 2))]


def test_independent_work_for_the_host_waits_for_the_rest_of_it() -> None:
    """Two branches that both go to the host make one call of it."""
    nodes = [
        PhaseOp(D, frozenset()),
        PhaseOp(H, frozenset({0})),
        PhaseOp(D, frozenset({1})),
        PhaseOp(H, frozenset()),
    ]
    found = phases(nodes)
    assert [phase.side for phase in found] == [D, H, D]
    assert found[1].nodes == (1, 3)


def test_the_host_begins_if_that_saves_a_turn() -> None:
    nodes = [PhaseOp(H, frozenset()), PhaseOp(D, frozenset({0})), PhaseOp(D, frozenset())]
    assert sides(phases(nodes)) == [(H, (0,)), (D, (1, 2))]


def test_an_operation_moves_to_its_reader_where_less_crosses_then() -> None:
    """Node 2 enlarges its operand; only node 3, after the host, reads the result."""
    small, large = 1, 100
    nodes = [
        PhaseOp(D, frozenset(), small), PhaseOp(H, frozenset({0}), small), PhaseOp(D, frozenset({0}), large),
        PhaseOp(D, frozenset({1, 2}), small),
    ]  # fmt: skip
    assert sides(phases(nodes)) == [(D, (0,)), (H, (1,)), (D, (2, 3))]
    nodes[2] = PhaseOp(D, frozenset({0}), small)
    assert sides(phases(nodes)) == [(D, (0, 2)), (H, (1,)), (D, (3,))]


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    """Each node once, after all that it reads, on its side; neighbours differ; no cut has fewer phases."""
    rng = random.Random(seed)
    nodes = [
        PhaseOp(
            rng.choice([D, D, H, E]),
            frozenset(rng.sample(range(at), min(at, rng.randint(0, 2)))),
            rng.randint(1, 9),
        )
        for at in range(rng.randint(1, 8))
    ]
    found = phases(nodes)
    home = {at: number for number, phase in enumerate(found) for at in phase.nodes}
    assert sorted(home) == list(range(len(nodes)))
    assert sum(len(phase.nodes) for phase in found) == len(nodes)
    for at, node in enumerate(nodes):
        assert node.side in (E, found[home[at]].side)
        assert all(home[source] <= home[at] for source in node.reads)
    assert all(one.side != other.side for one, other in itertools.pairwise(found))
    assert len(found) == fewest(nodes)


def fewest(nodes: list[PhaseOp]) -> int:
    """Return the least number of phases by brute force over all assignments of nodes."""
    for count in range(1, len(nodes) + 1):
        for first in (D, H):
            order = [first if at % 2 == 0 else (H if first is D else D) for at in range(count)]
            if fits(nodes, order, []):
                return count
    return len(nodes)


def fits(nodes: list[PhaseOp], order: list[ExecutionSide], homes: list[int]) -> bool:
    """Return whether the other nodes can be assigned to the phases of ``order``."""
    if len(homes) == len(nodes):
        return True
    node = nodes[len(homes)]
    begin = max((homes[source] for source in node.reads), default=0)
    return any(
        fits(nodes, order, [*homes, at]) for at in range(begin, len(order)) if node.side in (E, order[at])
    )
