"""Divisions, homes and relayouts chosen together: against all other choices, and what makes one pay."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
from division_spaces import Operand, matmul_of, space_of

from spyre_mlir.cost.model import operation_cost, transfer_ns
from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.cost.ring import relayout_ns
from spyre_mlir.division import Division
from spyre_mlir.division.agreement import Agreement, agree
from spyre_mlir.division.copies import copy_division
from spyre_mlir.division.distribute import work_distribution
from spyre_mlir.division.homes import Home, homes_of
from spyre_mlir.division.ownership import CoreView, local_bytes
from spyre_mlir.division.relayout import relayout
from spyre_mlir.division.variants import Shared, Variant, Work, left_view, read_view, variants_of
from spyre_mlir.layout.space import Space, refined
from spyre_mlir.target.device import device

LX = device().usable_lx_bytes()
SHAPE = (512, 1024)
COLUMNS = space_of(SHAPE, Operand((0, 1)), Operand((1,)))
MINUS = space_of(SHAPE, Operand((0, 1)), Operand((1,)), Operand((0, 1)))
UNARY = space_of(SHAPE, Operand((0, 1)), Operand((0, 1)))
ROW_SUMS = space_of(SHAPE, Operand((0, 1)), Operand((0,), (0, -1)))
ADD = space_of(SHAPE, Operand((0, 1)), Operand((0, 1)), Operand((0, 1)))
#: What the ring copies: a matrix, a row of it.
MATRIX, ROW = refined([UNARY.views[0]] * 2), refined([Operand((0,)).view(SHAPE[1:])] * 2)


def work(opcode: str, space: Space, *splits: int, blocked: frozenset[int] = frozenset()) -> Work:
    chosen = splits or work_distribution(space.units, space.reduced, 32)
    return Work(opcode, space, Division.of(chosen, space.units, space.reduced), blocked)


def fixed(opcode: str, space: Space, *splits: int) -> Work:
    """Work whose division stays as it is."""
    return replace(work(opcode, space, *splits), fixed=True)


def splits_of(found: Agreement) -> list[tuple[int, ...]]:
    return [each.division.splits for each in found.variants]


def relaid(found: Agreement) -> list[bool]:
    """Of each buffer, whether the ring carries it."""
    return [home is not None and home.relaid is not None for home in found.homes]


#: max over rows, sub, exp: the buffers are the maximum and the difference.
HEAD = [work("maxnonstick", COLUMNS), work("sub", MINUS), work("exp", UNARY)]
BUFFERS = [Shared(((0, 1), (1, 1)), space=ROW), Shared(((1, 2), (2, 0)), space=MATRIX)]


def test_the_head_of_a_softmax_agrees_on_columns():
    """512 rows in 2 x 16 and 32 slices become 16 slices of the columns everywhere."""
    found = agree(HEAD, BUFFERS, LX, relayouts=False)
    assert splits_of(found) == [(1, 16)] * 3
    assert found.proven and found.after < found.before


def test_blocked_dims_keep_their_slices():
    """A masked dim cannot be split, so the operation with the mask stays as it is and the others follow it."""
    works = [HEAD[0], work("sub", MINUS, 32, 1, blocked=frozenset({1})), HEAD[2]]
    found = agree(works, BUFFERS, LX)
    assert splits_of(found)[1:] == [(32, 1), (32, 1)]


def test_what_does_not_fit_is_no_reason_to_agree():
    """Without any room in LX all stays."""
    found = agree(HEAD, BUFFERS, 0)
    assert [each.division for each in found.variants] == [each.division for each in HEAD]
    assert found.after == found.before
    assert found.homes == (None, None)


def test_fixed_works_keep_their_divisions():
    """What a plan file pins stays, and what reads it follows."""
    works = [fixed("exp", UNARY, 4, 8), work("exp", UNARY, 32, 1)]
    found = agree(works, [Shared(((0, 1), (1, 0)), space=MATRIX)], LX)
    assert splits_of(found) == [(4, 8), (4, 8)]


# -- relayouts -----------------------------------------------------------------------------------------------


def pair(first: tuple[int, ...], second: tuple[int, ...]) -> list[Work]:
    return [fixed("exp", UNARY, *first), fixed("abs", UNARY, *second)]


def test_a_relayout_is_taken_when_it_pays():
    """Two divisions that cannot change: a megabyte goes over the ring in less time than through device memory."""
    buffer = Shared(((0, 1), (1, 0)), space=MATRIX)
    found = agree(pair((32, 1), (2, 16)), [buffer], LX)
    without = agree(pair((32, 1), (2, 16)), [buffer], LX, relayouts=False)
    assert relaid(found) == [True] and without.homes == (None,)
    assert found.after < without.after == without.before


def test_no_relayout_is_taken_when_none_is_needed():
    """Equal divisions find the buffer as it is."""
    found = agree(pair((32, 1), (32, 1)), [Shared(((0, 1), (1, 0)), space=MATRIX)], LX)
    assert found.homes[0] is not None and relaid(found) == [False]


def test_no_relayout_is_taken_that_costs_more_than_it_saves():
    """A reader that runs 100 times for each execution of the writer pays one relayout, one that needs 100 pays them."""
    writer, reader = pair((32, 1), (2, 16))
    slow = Shared(((0, 1), (1, 0)), copies=1, space=MATRIX, values=((0, 0), (0, 10_000)))
    assert relaid(agree([writer, reader], [slow], LX)) == [False]
    quick = replace(slow, values=((0, 0), (0, 1)))
    assert relaid(agree([writer, reader], [quick], LX)) == [True]


def test_what_the_ring_cannot_copy_goes_through_device_memory():
    """A buffer without the space of a copy."""
    assert agree(pair((32, 1), (2, 16)), [Shared(((0, 1), (1, 0)))], LX).homes == (None,)


def test_two_readers_pay_for_one_relayout():
    """Both want the same view: the relayout is in the time once."""
    writer, reader = pair((32, 1), (2, 16))
    found = agree([writer, reader, reader], [Shared(((0, 1), (1, 0), (2, 0)), space=MATRIX)], LX)
    (home,) = found.homes
    assert home is not None and home.relayout_ns > 0
    assert found.after == pytest.approx(
        sum(_alone([writer, reader, reader], [{1}, {0}, {0}])) + home.relayout_ns
    )


def test_two_values_of_a_buffer_pay_for_a_relayout_each():
    """Parts of a buffer that is filled meanwhile are copied each for itself."""
    writer, reader = pair((32, 1), (2, 16))
    buffer = Shared(((0, 1), (1, 0), (2, 0)), space=MATRIX, values=((0, 0), (0, 1), (1, 1)))
    found = agree([writer, reader, reader], [buffer], LX)
    (home,) = found.homes
    assert home is not None
    assert found.after == pytest.approx(
        sum(_alone([writer, reader, reader], [{1}, {0}, {0}])) + 2 * home.relayout_ns
    )


def _alone(works: Sequence[Work], in_lx: Sequence[set[int]]) -> list[float]:
    """Nanoseconds of each work with these operands in LX."""
    return [
        operation_cost(operation_work(each.opcode, each.space, each.division, frozenset(placed))).total_ns
        for each, placed in zip(works, in_lx, strict=True)
    ]


def test_a_split_sum_goes_over_the_ring():
    """Of a matmul with K in 4 parts the finishing cores hold the result; a shuffle brings it to all others."""
    product = matmul_of(512, 1024, 4096)
    works = [fixed("batchmatmul", product, 8, 1, 4), fixed("exp", UNARY, 32, 1)]
    found = agree(works, [Shared(((0, 2), (1, 0)), space=MATRIX)], LX)
    (home,) = found.homes
    assert home is not None and home.relaid == read_view(works[1], 0, found.variants[1])
    assert [core for core, region in enumerate(home.view.regions) if region] == list(range(3, 32, 4))


# -- layers --------------------------------------------------------------------------------------------------


def layers(number: int, odd: int | None = None) -> tuple[list[Work], list[Shared]]:
    """A matrix through softmax-like layers, one behind the other; the ``odd`` one has a mask on its columns."""
    works: list[Work] = []
    accesses: list[list[tuple[int, int]]] = []
    spaces: list[Space] = []
    matrix: list[tuple[int, int]] | None = None
    for layer in range(number):
        at = len(works)
        blocked = frozenset({1}) if layer == odd else frozenset()
        works += [
            work("maxnonstick", COLUMNS, *((32, 1) if blocked else (2, 16)), blocked=blocked),
            work("sub", MINUS, 32, 1, blocked=blocked),
            work("exp", UNARY, 32, 1, blocked=blocked),
        ]
        if matrix is not None:
            matrix += [(at, 0), (at + 1, 0)]
        matrix = [(at + 2, 1)]
        accesses += [[(at, 1), (at + 1, 1)], [(at + 1, 2), (at + 2, 0)], matrix]
        spaces += [ROW, MATRIX, MATRIX]
    buffers = [
        Shared(tuple(some), space=space)
        for some, space in zip(accesses, spaces, strict=True)
        if len(some) > 1
    ]
    return works, buffers


def plans(found: Agreement) -> list[tuple[Variant, ...]]:
    """The variants, layer by layer."""
    return list(itertools.batched(found.variants, 3))


def test_equal_layers_get_equal_plans():
    """Six layers, one plan."""
    found = agree(*layers(6), LX)
    assert len(set(plans(found))) == 1


@pytest.mark.parametrize("odd", range(6))
def test_a_layer_that_differs_changes_its_own_plan(odd: int):
    """Where one layer cannot slice its columns, the other five keep the plan that they had."""
    same, other = plans(agree(*layers(6), LX)), plans(agree(*layers(6, odd), LX))
    assert [at for at in range(6) if same[at] != other[at]] == [odd]


# -- all choices ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Use:
    """What a buffer does in one choice: the accesses in LX, and what copies and relayouts of it take."""

    in_lx: frozenset[tuple[int, int]]
    nanoseconds: float


def time_of(
    works: Sequence[Work], buffers: Sequence[Shared], chosen: Sequence[Variant], homes: Sequence[Home | None]
) -> float:
    """The time of a choice, operation by operation; ``inf`` where an operation does not find what it reads."""
    uses = [_use(works, buffer, chosen, home) for buffer, home in zip(buffers, homes, strict=True)]
    if any(use is None for use in uses):
        return math.inf
    return _total(works, chosen, [use for use in uses if use is not None])


def _total(works: Sequence[Work], chosen: Sequence[Variant], uses: Sequence[Use]) -> float:
    placed = frozenset[tuple[int, int]]().union(*(use.in_lx for use in uses))
    spent = sum(use.nanoseconds for use in uses)
    for at, (each, variant) in enumerate(zip(works, chosen, strict=True)):
        in_lx = frozenset(operand for work, operand in placed if work == at)
        done = operation_work(each.opcode, each.space, variant.division, in_lx)
        spent += each.executions * operation_cost(done).total_ns
    return spent


def _use(works: Sequence[Work], buffer: Shared, chosen: Sequence[Variant], home: Home | None) -> Use | None:
    """None if the writer does not leave the buffer at home, or a reader finds it neither there nor in device memory."""
    if home is None:
        return Use(frozenset(), 0.0)
    found, relays = set(), False
    for number, (at, operand) in enumerate(buffer.accesses):
        writes = number == 0 and not buffer.given
        view = (left_view if writes else lambda *who: read_view(*who[:1], operand, who[1]))(works[at], chosen[at])
        if view is not None and view.regions == home.view.regions:
            found.add((at, operand))
        elif not writes and view is not None and home.relaid and view.regions == home.relaid.regions:
            found.add((at, operand))
            relays = True
        elif writes or not home.copied:
            return None
    spent = _copy_ns(works, buffer, home.view) if home.copied else 0.0
    if relays:
        spent += buffer.copies * _ring_ns(buffer, home)
    return Use(frozenset(found), spent)
