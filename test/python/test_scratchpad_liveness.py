# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lifetimes over loops, against a program that is written out; and the order of reasons."""

from __future__ import annotations

import dataclasses
import random
import string
from collections.abc import Iterator, Sequence

import pytest

from spyre_mlir import passes
from spyre_mlir.records import Statement
from spyre_mlir.scratchpad.eligibility import TITLES, LostCompetition, ReadByHost, TooLarge, ordered
from spyre_mlir.scratchpad.liveness import LiveRange, LoopAccesses, OpAccesses, live_ranges


def test_a_straight_line():
    """Live from the first touch to the last."""
    program = [OpAccesses((), ("a",)), OpAccesses(("a",), ("b",)), OpAccesses(("a", "b"), ("c",))]
    assert live_ranges(program) == {
        "a": LiveRange((0, 1, 2), False),
        "b": LiveRange((1, 2), False),
        "c": LiveRange((2,), False),
    }


def test_what_is_not_written_first_is_read_first():
    assert live_ranges([OpAccesses(("x",), ("y",))])["x"] == LiveRange((0,), True)


def test_what_a_loop_reads_from_outside_lives_to_its_end():
    """The next iteration reads it again."""
    program = [
        OpAccesses((), ("a",)),
        LoopAccesses((OpAccesses(("a",), ("t",)), OpAccesses(("t",), ("u",)))),
        OpAccesses(("u",), ()),
    ]
    lives = live_ranges(program)
    assert lives["a"] == LiveRange((0, 1, 2), False)
    assert lives["t"] == LiveRange((1, 2), False)
    assert lives["u"] == LiveRange((1, 2, 3), False)


def test_what_an_iteration_leaves_for_the_next_lives_for_the_whole_loop():
    """An accumulator that is read before it is written."""
    body = LoopAccesses((OpAccesses(("x",), ("t",)), OpAccesses(("sum", "t"), ("sum",))))
    assert live_ranges([OpAccesses((), ("sum",)), body])["sum"] == LiveRange((0, 1, 2), False)
    assert live_ranges([body])["sum"] == LiveRange((0, 1), True)


def test_nested_loops():
    """A buffer of the outer body is live through the inner loop that reads it, not through the outer one."""
    inner = LoopAccesses((OpAccesses(("a",), ("t",)),))
    program = [
        LoopAccesses(
            (OpAccesses(("x",), ("a",)), inner, OpAccesses(("y",), ("b",)), OpAccesses(("b",), ("z",)))
        )
    ]
    assert live_ranges(program)["a"] == LiveRange((0, 1), False)
    assert live_ranges(program)["b"] == LiveRange((2, 3), False)


def written_out(
    program: Sequence[OpAccesses | LoopAccesses], start: int = 0, times: int = 3
) -> list[tuple[int, OpAccesses]]:
    """Every step with its position in the text, loops repeated."""
    found, position = [], start
    for item in program:
        if isinstance(item, OpAccesses):
            found.append((position, item))
            position += 1
            continue
        body = written_out(item.body, position, times)
        found += body * times
        position += len({each for each, _ in body})
    return found


def needed(program: Sequence[OpAccesses | LoopAccesses]) -> Iterator[tuple[str, int]]:
    """Yield every buffer with every position at which its contents are still needed, since a write or a load."""
    trace = written_out(program)
    for at, (position, step) in enumerate(trace):
        for name in (*step.reads, *step.writes):
            yield name, position
        for name in step.reads:
            before = [k for k in range(at) if name in trace[k][1].writes]
            touched = [k for k in range(at) if name in (*trace[k][1].reads, *trace[k][1].writes)]
            since = before[-1] if before else min(touched, default=at)
            yield from ((name, trace[k][0]) for k in range(since, at))


def random_body(rng: random.Random, names: Sequence[str], depth: int) -> list[OpAccesses | LoopAccesses]:
    made: list[OpAccesses | LoopAccesses] = []
    for _ in range(rng.randint(1, 4)):
        if depth and rng.random() < 0.4:
            made.append(LoopAccesses(tuple(random_body(rng, names, depth - 1))))
        else:
            made.append(OpAccesses(tuple(rng.sample(names, rng.randint(0, 2))), (rng.choice(names),)))
    return made


@pytest.mark.parametrize("seed", range(200))
def test_no_life_is_too_short(seed: int):
    """Random nests: a buffer that the unrolled program needs is live."""
    rng = random.Random(seed)
    program = random_body(rng, "abcdef", 2)
    lives = live_ranges(program)
    for name, position in needed(program):
        assert lives[name].uses[0] <= position <= lives[name].uses[-1], (name, position)


def test_reasons_have_one_order():
    """Reasons are in the order of their classes, one of each kind; the text is the title and the sentence."""
    given = [TooLarge(9, 4), ReadByHost(), TooLarge(8, 4)]
    assert [str(each) for each in ordered(given)] == [
        "graph input or output: the host reads it",
        "too large: 9 bytes per core, LX has 4",
    ]
    assert TITLES[-1] == LostCompetition.title


def kinds(base: type[Statement]) -> Iterator[type[Statement]]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_a_sentence_names_fields_of_its_record():
    """Braces of a sentence contain fields of the record, or attributes of its fields."""
    passes.load_all()
    for kind in kinds(Statement):
        names = [name.partition(".")[0] for _, name, *_ in string.Formatter().parse(kind.sentence) if name]
        fields = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
        assert set(names) <= fields, kind
