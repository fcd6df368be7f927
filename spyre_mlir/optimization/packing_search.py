# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The search of ``packing``: place shapes within a capacity, or prove that they do not fit. Compiled by numba.

Time is a row of sections. A shape covers the sections ``lower`` to ``upper`` (excluded), with a height in each of
them, and gets one offset. The search considers only solutions in which no shape can be moved down alone, so that each
shape stands on 0 or on another shape; every solution can be turned into such a solution.

State. ``floor[s]`` is a lower bound of the offset of an unplaced shape over section s; ``base[b]`` is a lower bound of
the offset of shape b: the highest floor that it covers. ``rest[s]`` is the sum of the unplaced heights over s. A state
is dead if ``floor[s] + rest[s]`` exceeds the capacity; the difference is the slack of s. A floor rises to the lowest
base of the unplaced shapes over it, because no shape can begin below (``_settle``).

Branching rule. A valley is a run of sections with equal floor f between higher floors. Choose a section s of some
valley, such as the one with the least slack, and branch on the shape that begins at f over s. This shape is inside the
valley, so there are few candidates; in each branch one of them is placed at f. In the last branch none of them
begins at f: the floor rises to the lowest height at which a shape that reaches over the walls can begin, or a shape can
stand on a shape next to s (``_height_if_none``). The branches exclude each other, and each solution considered is in
one of them, so a search that ends without a solution is a proof. Of equal shapes over s only one is tried.

Parts. A border between sections that no unplaced shape crosses separates two independent parts. A node belongs to one
part, and later nodes stay inside it until it is completely placed. If a part fails, later nodes of other parts did not
cause the failure and are dropped (``_retreat``): their other solutions are not tried.

Failed states. Whether a part can be completed depends only on its floors and unplaced shapes. Failed states are kept in
a table by two 64-bit hashes (Zobrist); a new state replaces the state in its slot. The table stays valid over restarts,
because it depends neither on the order of the branches nor on the choice of sections.

Sections are chosen by the fewest branches per failure so far, ties by slack, or vice versa. A section with a single
branch comes first, because it is not a choice. Failures are counted within one search (the weighted degree of
constraint programming): weights learnt in another order of branches mislead it. ``packing`` has an overview.

Literature: canonical solutions, section-wise bounds and decomposition as in Moffitt, "MiniMalloc: A Lightweight
Memory Allocator for Hardware-Accelerated Machine Learning", 2023; skyline and "nothing begins here" as in exact
strip packing, e.g. Kenmochi et al., "Exact algorithms for the two-dimensional strip packing problem with and without
rotations", 2009; failures as weights: Boussemart et al., "Boosting systematic search by weighting constraints", 2004.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spyre_mlir.jit import njit
from spyre_mlir.optimization.arrays import Array

#: Results of a search: no packing exists, packing found, or the budget of nodes (or the memory for them) is spent.
IMPOSSIBLE, PLACED, GAVE_UP = 0, 1, 2

#: Rules to choose a section.
FEWEST_BRANCHES, LEAST_SLACK = 0, 1

#: Scales a ratio of small numbers to an integer, such that different ratios stay different.
_SCALE = 1 << 20

#: Columns of ``PackingState.nodes``: the section of a node; the shape of its current branch, or -1; the end of
#: ``trail`` before the node; the end of its choices and the next choice to try; its part.
_SECTION, _SHAPE, _TRAIL, _END, _NEXT, _LOWER, _UPPER = range(7)
_COLUMNS = 7

#: Entries of ``PackingState.ends``: the used length of each array.
_TRAIL_END, _QUEUE_END, _CHOICES_END, _DEPTH, _UNPLACED = range(5)
_ENDS = 5

_FAR = 1 << 62

#: For functions that only compiled functions call: without the wrappers for Python, which take a third of the compile
#: time, and inlined, since a call would pass each of the arrays' fields.
_inner = njit(  # pyright: ignore[reportCallIssue]
    cache=True, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True
)


class PackingProblem(NamedTuple):
    """Shapes over sections.

    ``heights[column[b] + s]`` is the height of shape b over section s, ``least[b]`` the least height of shape b.
    ``cover[first[s]:first[s + 1]]`` are the shapes over section s. Shapes of equal ``kind`` are interchangeable.
    """

    capacity: int
    lower: Array
    upper: Array
    column: Array
    heights: Array
    least: Array
    kind: Array
    first: Array
    cover: Array


class PackingState(NamedTuple):
    """A partial packing and the path to it; see the module docstring. ``offset`` is -1 for unplaced shapes.

    ``crossing[s]`` is the number of unplaced shapes that cover both s and s + 1. ``trail`` holds old values of
    ``floor`` and (from index ``len(floor)`` on) of ``base``. ``queue`` lists sections to settle, marked in ``queued``.
    ``codes[s]`` is the hash of the unplaced shapes that begin with section s, ``keys`` the hash of each node's state.
    """

    floor: Array
    rest: Array
    crossing: Array
    base: Array
    offset: Array
    trail: Array
    queue: Array
    queued: Array
    choices: Array
    nodes: Array
    codes: np.ndarray
    keys: np.ndarray
    ends: Array


def start(problem: PackingProblem) -> PackingState:
    """Return a state without placed shapes. Arrays for nodes and trail are much larger than any search seen needs."""
    shapes, sections = len(problem.lower), len(problem.first) - 1
    room = 4 * (shapes + sections) + 4096
    per_node = 1 + int(np.diff(problem.first).max(initial=0))
    state = PackingState(
        floor=np.zeros(sections, np.int64),
        rest=np.zeros(sections, np.int64),
        crossing=np.zeros(sections, np.int64),
        base=np.zeros(shapes, np.int64),
        offset=np.full(shapes, -1),
        trail=np.empty((6 * len(problem.cover) + 64 * room, 2), np.int64),
        queue=np.empty(sections, np.int64),
        queued=np.zeros(sections, np.int64),
        choices=np.empty(room * min(per_node, 64) + per_node, np.int64),
        nodes=np.empty((room, _COLUMNS), np.int64),
        codes=np.zeros((sections, 2), np.uint64),
        keys=np.empty((room, 2), np.uint64),
        ends=np.zeros(_ENDS, np.int64),
    )
    _add_all(problem, state)
    return state


@njit(cache=True)
def _add_all(problem: PackingProblem, state: PackingState) -> None:
    for shape in range(len(state.offset)):
        _add(problem, state, shape)


@njit(cache=True)
def search(
    problem: PackingProblem,
    state: PackingState,
    scores: np.ndarray,
    rule: int,
    budget: int,
    failed: np.ndarray,
) -> tuple[int, int]:
    """Search depth first; return the result and the number of nodes. ``state.offset`` is the packing if there is one.

    ``state`` comes from ``start``, or from an earlier search of the same problem, which is undone. Branches are tried
    by falling ``scores`` (float64, one per shape). ``failed`` (2**k rows of two uint64) collects failed states, also
    for the next search of the same problem.
    """
    visited = 0
    failures = np.ones(len(state.floor), np.int64)
    while state.ends[_DEPTH] > 0:
        state.ends[_DEPTH] -= 1
        _take_back(problem, state, state.ends[_DEPTH])
    state.ends[_CHOICES_END] = 0
    for section in range(len(state.floor)):
        if state.rest[section] > problem.capacity:
            return IMPOSSIBLE, visited
    while state.ends[_UNPLACED] > 0:
        lower, upper = _open_range(state)
        section = _choose(problem, state, lower, upper, rule, failures)
        lower, upper = _part(state, section, lower, upper)
        first_key, second_key = _hash(state, lower, upper)
        slot = np.int64(first_key & np.uint64(len(failed) - 1))
        if failed[slot, 0] == first_key and failed[slot, 1] == second_key:
            _retreat(problem, state, lower, upper)
        elif visited == budget or not _has_room(problem, state):
            return GAVE_UP, visited
        else:
            visited += 1
            depth = state.ends[_DEPTH]
            state.keys[depth, 0], state.keys[depth, 1] = first_key, second_key
            _push(problem, state, scores, section, lower, upper)
        if not _advance(problem, state, failures, failed):
            return IMPOSSIBLE, visited
    return PLACED, visited


@_inner
def _advance(problem: PackingProblem, state: PackingState, failures: Array, failed: np.ndarray) -> bool:
    """Go to the next branch that is not immediately dead, up the tree as far as needed; False if there is none."""
    while state.ends[_DEPTH] > 0:
        top = state.ends[_DEPTH] - 1
        _take_back(problem, state, top)
        if not _next_branch(problem, state, top):
            slot = np.int64(state.keys[top, 0] & np.uint64(len(failed) - 1))
            failed[slot, 0], failed[slot, 1] = state.keys[top, 0], state.keys[top, 1]
            state.ends[_DEPTH] = top
            _retreat(problem, state, state.nodes[top, _LOWER], state.nodes[top, _UPPER])
        elif _settle(problem, state, failures):
            return True
    return False


@_inner
def _next_branch(problem: PackingProblem, state: PackingState, top: int) -> bool:
    """Take the next branch of the last node: each shape, then that no shape begins there; False if all are tried."""
    node = state.nodes[top]
    position: int = node[_NEXT]
    section: int = node[_SECTION]
    node[_NEXT] = position + 1
    if position < node[_END]:
        node[_SHAPE] = state.choices[position]
        _place(problem, state, state.choices[position], state.floor[section])
        return True
    if position > node[_END] or state.floor[section] + state.rest[section] == problem.capacity:
        return False
    raised = _height_if_none(problem, state, section, node[_LOWER], node[_UPPER])
    if raised + state.rest[section] > problem.capacity:
        return False
    _raise(problem, state, section, raised)
    return True


@_inner
def _retreat(problem: PackingProblem, state: PackingState, lower: int, upper: int) -> None:
    """Drop the last nodes as long as they belong to other parts than the failed part."""
    while state.ends[_DEPTH] > 0:
        top = state.ends[_DEPTH] - 1
        if state.nodes[top, _LOWER] < upper and lower < state.nodes[top, _UPPER]:
            return
        _take_back(problem, state, top)
        state.ends[_DEPTH] = top


@_inner
def _take_back(problem: PackingProblem, state: PackingState, top: int) -> None:
    """Restore the state before the current branch of the last node."""
    node = state.nodes[top]
    if node[_SHAPE] >= 0:
        _add(problem, state, node[_SHAPE])
        node[_SHAPE] = -1
    sections = len(state.floor)
    for entry in range(state.ends[_TRAIL_END] - 1, node[_TRAIL] - 1, -1):
        index = state.trail[entry, 0]
        if index < sections:
            state.floor[index] = state.trail[entry, 1]
        else:
            state.base[index - sections] = state.trail[entry, 1]
    state.ends[_TRAIL_END] = node[_TRAIL]
    state.ends[_CHOICES_END] = node[_END]


@_inner
def _has_room(problem: PackingProblem, state: PackingState) -> bool:
    """Return whether another node fits into the arrays, with everything that its branches may write."""
    return (
        state.ends[_DEPTH] < len(state.nodes)
        and state.ends[_CHOICES_END] + len(state.offset) <= len(state.choices)
        and state.ends[_TRAIL_END] + 2 * len(problem.cover) + 2 * len(state.floor) <= len(state.trail)
    )


@_inner
def _open_range(state: PackingState) -> tuple[int, int]:
    """Return the sections of the last node whose part is not completely placed; all sections before the first node."""
    for depth in range(state.ends[_DEPTH] - 1, -1, -1):
        for section in range(state.nodes[depth, _LOWER], state.nodes[depth, _UPPER]):
            if state.rest[section] > 0:
                return state.nodes[depth, _LOWER], state.nodes[depth, _UPPER]
    return 0, len(state.floor)


@_inner
def _choose(
    problem: PackingProblem, state: PackingState, lower: int, upper: int, rule: int, failures: Array
) -> int:
    """Return the best section of a valley by the rule, the first in a tie; at once any section with a single branch."""
    best, least, least_tie = -1, _FAR, _FAR
    begin = lower
    while begin < upper:
        end = begin + 1
        if state.rest[begin] == 0:
            begin = end
            continue
        height = state.floor[begin]
        while end < upper and state.crossing[end - 1] > 0 and state.floor[end] == height:
            end += 1
        walled_below = begin == lower or state.crossing[begin - 1] == 0 or state.floor[begin - 1] > height
        walled_above = end == upper or state.crossing[end - 1] == 0 or state.floor[end] > height
        if walled_below and walled_above:
            for section in range(begin, end):
                slack = problem.capacity - height - state.rest[section]
                if rule == LEAST_SLACK and slack > least:
                    continue
                branches = _candidates(problem, state, section) + (slack > 0)
                if branches == 1:
                    return section
                ratio = branches * _SCALE // failures[section]
                value, tie = (slack, ratio) if rule == LEAST_SLACK else (ratio, slack)
                if value < least or (value == least and tie < least_tie):
                    best, least, least_tie = section, value, tie
        begin = end
    return best


@_inner
def _candidates(problem: PackingProblem, state: PackingState, section: int) -> int:
    """Count the shapes that may begin at the floor of a section."""
    count = 0
    for entry in range(problem.first[section], problem.first[section + 1]):
        shape: int = problem.cover[entry]
        if state.offset[shape] < 0 and state.base[shape] == state.floor[section]:
            count += 1
    return count


@_inner
def _part(state: PackingState, section: int, lower: int, upper: int) -> tuple[int, int]:
    """Return the sections around ``section`` up to the borders that no unplaced shape crosses."""
    begin, end = section, section + 1
    while begin > lower and state.crossing[begin - 1] > 0:
        begin -= 1
    while end < upper and state.crossing[end - 1] > 0:
        end += 1
    return begin, end


@_inner
def _push(
    problem: PackingProblem, state: PackingState, scores: np.ndarray, section: int, lower: int, upper: int
) -> None:
    """Push a new node: the shapes that may begin at the section's floor, by falling score."""
    depth, begin = state.ends[_DEPTH], state.ends[_CHOICES_END]
    end = begin
    for entry in range(problem.first[section], problem.first[section + 1]):
        shape: int = problem.cover[entry]
        if state.offset[shape] >= 0 or state.base[shape] > state.floor[section]:
            continue
        if np.any(problem.kind[state.choices[begin:end]] == problem.kind[shape]):
            continue
        place = end
        while place > begin and scores[state.choices[place - 1]] < scores[shape]:
            state.choices[place] = state.choices[place - 1]
            place -= 1
        state.choices[place] = shape
        end += 1
    node = state.nodes[depth]
    node[_SECTION], node[_SHAPE], node[_TRAIL] = section, -1, state.ends[_TRAIL_END]
    node[_END], node[_NEXT] = end, begin
    node[_LOWER], node[_UPPER] = lower, upper
    state.ends[_DEPTH], state.ends[_CHOICES_END] = depth + 1, end


@_inner
def _height_if_none(
    problem: PackingProblem, state: PackingState, section: int, lower: int, upper: int
) -> int:
    """Return the least height at which shapes over a section can begin if none begins at its floor.

    The lowest of these shapes has its base above the floor, or it stands on a shape that is not over the section but
    meets the valley; a shape that stands on a shape over the section is at least as high.
    """
    floor, least = state.floor[section], _FAR
    begin, end = section, section + 1
    while begin > lower and state.floor[begin - 1] == floor:
        begin -= 1
    while end < upper and state.floor[end] == floor:
        end += 1
    for other in range(begin, end):
        for entry in range(problem.first[other], problem.first[other + 1]):
            shape: int = problem.cover[entry]
            if state.offset[shape] >= 0:
                continue
            if not problem.lower[shape] <= section < problem.upper[shape]:
                least = min(least, state.base[shape] + problem.least[shape])
            elif state.base[shape] > floor:
                least = min(least, state.base[shape])
    return least


@_inner
def _place(problem: PackingProblem, state: PackingState, shape: int, offset: int) -> None:
    """Place a shape; the floors under it rise to its top."""
    lower: int = problem.lower[shape]
    upper: int = problem.upper[shape]
    for section in range(lower, upper):
        state.rest[section] -= problem.heights[problem.column[shape] + section]
    for section in range(lower, upper - 1):
        state.crossing[section] -= 1
    _toggle(state, shape, lower)
    state.offset[shape] = offset
    state.ends[_UNPLACED] -= 1
    for section in range(lower, upper):
        position: int = problem.column[shape] + section
        _raise(problem, state, section, offset + problem.heights[position])


@_inner
def _add(problem: PackingProblem, state: PackingState, shape: int) -> None:
    """Make a shape unplaced; the trail restores the floors."""
    lower, upper = problem.lower[shape], problem.upper[shape]
    for section in range(lower, upper):
        state.rest[section] += problem.heights[problem.column[shape] + section]
    for section in range(lower, upper - 1):
        state.crossing[section] += 1
    _toggle(state, shape, lower)
    state.offset[shape] = -1
    state.ends[_UNPLACED] += 1


@_inner
def _raise(problem: PackingProblem, state: PackingState, section: int, height: int) -> None:
    """Raise a floor and the bases of the unplaced shapes over it; queue the sections that these shapes cover."""
    _record(state, section, state.floor[section])
    state.floor[section] = height
    _enqueue(state, section)
    for entry in range(problem.first[section], problem.first[section + 1]):
        shape: int = problem.cover[entry]
        if state.offset[shape] < 0 and state.base[shape] < height:
            old: int = state.base[shape]
            _record(state, len(state.floor) + shape, old)
            state.base[shape] = height
            for other in range(problem.lower[shape], problem.upper[shape]):
                # A floor is the lowest base over it, so the rise of a higher base does not matter.
                if old <= state.floor[other]:
                    _enqueue(state, other)


@_inner
def _settle(problem: PackingProblem, state: PackingState, failures: Array) -> bool:
    """Raise each queued floor to the lowest base over it; False, and one more failure, if this exceeds the capacity.

    The bases do not change, because they are at least as high as the new floor.
    """
    alive = True
    while state.ends[_QUEUE_END] > 0:
        end: int = state.ends[_QUEUE_END] - 1
        section: int = state.queue[end]
        state.ends[_QUEUE_END] = end
        state.queued[section] = 0
        # The queue is emptied even after a failure, because the next branch starts with an empty queue.
        if not alive or state.rest[section] == 0:
            continue
        lowest = _FAR
        for entry in range(problem.first[section], problem.first[section + 1]):
            shape: int = problem.cover[entry]
            if state.offset[shape] < 0:
                lowest = min(lowest, state.base[shape])
        if lowest + state.rest[section] > problem.capacity:
            failures[section] += 1
            alive = False
        elif lowest > state.floor[section]:
            _record(state, section, state.floor[section])
            state.floor[section] = lowest
    return alive


@_inner
def _enqueue(state: PackingState, section: int) -> None:
    if state.queued[section] == 0:
        state.queued[section] = 1
        state.queue[state.ends[_QUEUE_END]] = section
        state.ends[_QUEUE_END] += 1


@_inner
def _record(state: PackingState, index: int, value: int) -> None:
    end = state.ends[_TRAIL_END]
    state.trail[end, 0], state.trail[end, 1] = index, value
    state.ends[_TRAIL_END] = end + 1


@_inner
def _hash(state: PackingState, lower: int, upper: int) -> tuple[np.uint64, np.uint64]:
    """Return two hashes of the floors and the unplaced shapes of a part."""
    first, second = np.uint64(0), np.uint64(0)
    for section in range(lower, upper):
        mixed = _mixed(np.uint64(section) << np.uint64(44) ^ np.uint64(state.floor[section]))
        first ^= mixed ^ state.codes[section, 0]
        second ^= _mixed(mixed) ^ state.codes[section, 1]
    return first, second


@_inner
def _toggle(state: PackingState, shape: int, lower: int) -> None:
    mixed = _mixed(~np.uint64(shape))
    state.codes[lower, 0] ^= mixed
    state.codes[lower, 1] ^= _mixed(mixed)


@_inner
def _mixed(value: np.uint64) -> np.uint64:
    """Mix bits by a bijection without visible pattern: the output of SplitMix64 (Steele, Lea and Flood, 2014)."""
    value += np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
