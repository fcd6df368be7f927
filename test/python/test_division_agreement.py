"""Divisions that agree: the choice against all others, and what makes one pay."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import pytest
from division_spaces import Operand, space_of

from spyre_mlir.cost.model import access_ns, compute_ns, ring_ns, transfer_ns
from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.division import Division
from spyre_mlir.division.agreement import Shared, Variant, Work, _variants, agree
from spyre_mlir.division.distribute import work_distribution
from spyre_mlir.division.matching import view_of
from spyre_mlir.division.ownership import local_bytes
from spyre_mlir.target.device import device

LX = device().usable_lx_bytes()
SHAPE = (512, 1024)
COLUMNS = space_of(SHAPE, Operand((0, 1)), Operand((1,)))
MINUS = space_of(SHAPE, Operand((0, 1)), Operand((1,)), Operand((0, 1)))
UNARY = space_of(SHAPE, Operand((0, 1)), Operand((0, 1)))
ROW_SUMS = space_of(SHAPE, Operand((0, 1)), Operand((0,), (0, -1)))


def work(opcode: str, space, *splits: int, blocked=frozenset()) -> Work:
    chosen = splits or work_distribution(space.units, space.reduced, 32)
    return Work(opcode, space, Division.of(chosen, space.units, space.reduced), blocked)


#: max over rows, sub, exp: the buffers are the maximum and the difference.
HEAD = [work("maxnonstick", COLUMNS), work("sub", MINUS), work("exp", UNARY)]
BUFFERS = [Shared(((0, 1), (1, 1))), Shared(((1, 2), (2, 0)))]


def test_the_head_of_a_softmax_agrees_on_columns():
    """512 rows in 2 x 16 and 32 slices become 16 slices of the columns everywhere."""
    found = agree(HEAD, BUFFERS, LX)
    assert [each.division.splits for each in found.variants] == [(1, 16)] * 3
    assert found.proven and found.after < found.before


def test_blocked_dims_keep_their_slices():
    """A masked dim cannot be split, so the operation with the mask stays as it is and the others follow it."""
    works = [HEAD[0], work("sub", MINUS, 32, 1, blocked=frozenset({1})), HEAD[2]]
    found = agree(works, BUFFERS, LX)
    assert found.variants[1].division.splits == (32, 1)
    assert found.variants[2].division.splits == (32, 1)


def test_what_does_not_fit_is_no_reason_to_agree():
    """Without any room in LX all stays."""
    found = agree(HEAD, BUFFERS, 0)
    assert [each.division for each in found.variants] == [each.division for each in HEAD]
    assert found.after == found.before


def cost(works, buffers, chosen) -> float:
    """The sum of a choice, buffer by buffer, without tables."""
    touched = {access for buffer in buffers for access in buffer.accesses}
    total = 0.0
    for at, (each, variant) in enumerate(zip(works, chosen, strict=True)):
        done = operation_work(each.opcode, each.space, variant.division)
        total += compute_ns(done) + ring_ns(done)
        for operand, access in enumerate(done.operands):
            if (at, operand) not in touched:
                total += access_ns(done, access)
    return total + sum(_buffer_cost(works, buffer, chosen) for buffer in buffers)


def _buffer_cost(works, buffer, chosen) -> float:
    moved, views = {}, {}
    for at, operand in buffer.accesses:
        division = chosen[at].division
        view = view_of(works[at].space, operand, division)
        fits = local_bytes(works[at].space, operand, division) <= LX
        views[at, operand] = view.regions if view and not view.partial and fits else None
        done = operation_work(works[at].opcode, works[at].space, division)
        moved[at, operand] = access_ns(done, done.operands[operand])
    spilled = sum(moved.values())
    at, operand = buffer.accesses[0]
    first = operation_work(works[at].opcode, works[at].space, works[at].division).operands[operand]
    own = set(views.values()) if buffer.given else {views[buffer.accesses[0]]}
    choices: list[float] = [spilled]
    for view in own:
        if view is None or len(set(view)) < len(view):
            continue
        rest = sum(moved[access] for access, each in views.items() if each != view)
        copied = buffer.given or buffer.result or rest > 0
        copy = replace(first, core_bytes=first.bytes // len(view))
        choices.append(rest + (_copy_ns(copy, len(view)) if copied else 0))
    return min(choices)


def _copy_ns(operand, cores: int) -> float:
    """A copy waits once, and shares its loads with nobody."""
    return device().hbm_access_ns + transfer_ns(operand, cores, device().one_way_bytes_per_ns)


@pytest.mark.parametrize("seed", range(60))
def test_no_other_choice_is_cheaper(seed: int):
    """Against all choices of variants of random programs of 3 to 5 operations."""
    rng = random.Random(seed)
    works, buffers = _random_program(rng)
    found = agree(works, buffers, LX, most=4)
    assert found.proven
    variants = _variants(works, buffers, 4)
    assert math.prod(map(len, variants)) <= 4**5
    best = min(cost(works, buffers, choice) for choice in itertools.product(*variants))
    own = [Variant(each.division) for each in works]
    assert cost(works, buffers, found.variants) == pytest.approx(best, abs=0.1)
    if found.before:
        assert found.after == pytest.approx(best, abs=0.1)
        assert found.before == pytest.approx(cost(works, buffers, own), abs=0.1)
    else:
        assert all(len(some) == 1 for some in variants)


def _random_program(rng: random.Random):
    """Operations over one matrix: matrices read matrices, vectors of columns are subtracted."""
    works: list[Work] = []
    matrices: list[list[tuple[int, int]]] = [[]]  # the accesses of each matrix; the first is given
    columns: list[list[tuple[int, int]]] = []
    for at in range(rng.randint(3, 5)):
        source = rng.choice(matrices)
        kind = rng.choice(("exp", "max", "rows", "sub" if columns else "exp"))
        if kind == "exp":
            splits = rng.choice(((32, 1), (4, 8), (2, 16), (1, 16)))
            works.append(work("exp", UNARY, *splits))
            matrices.append([(at, 1)])
        elif kind == "sub":
            works.append(work("sub", MINUS, *rng.choice(((32, 1), (1, 16), (4, 8)))))
            rng.choice(columns).append((at, 1))
            matrices.append([(at, 2)])
        elif kind == "max":
            works.append(work("maxnonstick", COLUMNS, *rng.choice(((2, 16), (1, 8), (1, 16)))))
            columns.append([(at, 1)])
        else:
            works.append(work("sum", ROW_SUMS, *rng.choice(((32, 1), (16, 1), (16, 2)))))
        source.append((at, 0))
    given = [Shared(tuple(matrices[0]), given=True)] if len(matrices[0]) > 1 else []
    made = [
        Shared(tuple(some), result=rng.random() < 0.2) for some in (*matrices[1:], *columns) if len(some) > 1
    ]
    return works, given + made
