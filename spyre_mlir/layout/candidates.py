"""Candidate layouts of a tensor, and what it costs to convert one to another."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence

from spyre_mlir.cost.of_tensor import copy_cost, wait_cost
from spyre_mlir.layout.orders import from_order, natural_order, packed_order
from spyre_mlir.layout.space import pieces, refined
from spyre_mlir.layout.steps import Step, applied
from spyre_mlir.layout.stick_layout import StickLayout
from spyre_mlir.layout.view import BufferView, ViewError
from spyre_mlir.target.device import device


class Candidate:
    """One layout that a tensor may have: there is one object per layout, so that ``is`` compares.

    ``view`` says how the tensor lies in memory, ``lane`` is the dim in its stick (None: sparse), ``plain``
    whether a device operation can address it, ``bytes`` what a pass over it moves, padding included. ``sticks`` are the
    (dim, elements) of a stick that holds several dims, whose main one is the ``lane``.
    """

    def __init__(self, view: BufferView) -> None:
        self.view = view
        self.lane = view.main_lane
        self.sticks = tuple((axis.dim, axis.size) for axis in view.stick_axes)
        self.plain = view.why_not_plain() is None
        self.bytes = math.prod(axis.size for axis in view.axes) * device().stick_bytes

    @functools.cached_property
    def layout(self) -> StickLayout:
        """The layout of a buffer that lies like this, dims of size 1 outermost."""
        if not self.plain:
            return self.view.layout
        if self.sticks:
            return packed_order(self.view.shape, self.view.dtype, self.sticks, self.order)
        return from_order(self.view.shape, self.view.dtype, self.lane, self.order)

    @functools.cached_property
    def order(self) -> tuple[int, ...]:
        """Its device dims by logical dim, outermost first."""
        return tuple(axis.dim for axis in self.view.axes)

    def __repr__(self) -> str:
        return f"Candidate(stick {self.lane}, order {list(self.order)})"


@functools.lru_cache(maxsize=1 << 16)
def candidate(view: BufferView) -> Candidate:
    """The candidate of a view."""
    return Candidate(view)


@functools.lru_cache(maxsize=1 << 16)
def candidate_of(layout: StickLayout) -> Candidate:
    """The candidate of a whole buffer."""
    return candidate(BufferView.of(layout))


@functools.lru_cache(maxsize=1 << 16)
def image(step: Step, source: Candidate) -> Candidate | None:
    """What a view operation makes of a candidate of its source; None where that is no view."""
    try:
        return candidate(applied(step, source.view))
    except ViewError:
        return None


@functools.lru_cache(maxsize=1 << 12)
def default_layout(
    shape: tuple[int, ...], dtype: str, stick: int | None, stick_outermost: bool
) -> StickLayout:
    """The convention's layout with ``stick`` in the stick (None: sparse)."""
    others = [dim for dim in range(len(shape)) if dim != stick]
    return StickLayout.for_tensor(shape, dtype, [*others, -1 if stick is None else stick], stick_outermost)


@functools.lru_cache(maxsize=1 << 12)
def plain_candidates(
    shape: tuple[int, ...], dtype: str, stick: int | None, stick_outermost: bool
) -> tuple[Candidate, ...]:
    """The orders to try for any tensor: the convention's, and the one whose rows are innermost."""
    layouts = [default_layout(shape, dtype, stick, stick_outermost)]
    if len(shape) > (1 if stick is None else 2):
        layouts.append(natural_order(shape, dtype, stick))
    return distinct(map(candidate_of, layouts))


@functools.lru_cache(maxsize=1 << 12)
def ordered(shape: tuple[int, ...], dtype: str, stick: int | None, order: tuple[int, ...]) -> Candidate:
    """The dense candidate with these device dims, outermost first."""
    return candidate_of(from_order(shape, dtype, stick, order))


@functools.lru_cache(maxsize=1 << 12)
def packed(shape: tuple[int, ...], dtype: str, sticks: tuple[tuple[int, int], ...]) -> Candidate:
    """The dense candidate whose sticks hold several dims; the other dims are outermost, in logical order."""
    return candidate_of(packed_order(shape, dtype, sticks))


def packed_like(
    step: Step, shape: tuple[int, ...], dtype: str, wanted: Iterable[Candidate]
) -> tuple[Candidate, ...]:
    """The packed candidates of which a view operation makes one with the sticks of some wanted candidate."""
    sticks = {held.sticks for held in wanted if held.sticks}
    counts = dict.fromkeys(tuple(count for _, count in each) for each in sorted(sticks))
    dims = [dim for dim, size in enumerate(shape) if size > 1]
    found = [
        packed(shape, dtype, tuple(zip(chosen, each, strict=True)))
        for each in counts
        for chosen in itertools.permutations(dims, len(each))
    ]
    images = ((held, image(step, held)) for held in found)
    return distinct(held for held, made in images if made is not None and made.sticks in sticks)


def distinct(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Without repetitions, in order of first appearance."""
    return tuple(dict.fromkeys(candidates))


@functools.lru_cache(maxsize=1 << 16)
def conversion_cost(source: Candidate, target: Candidate, from_host: bool = False) -> int:
    """Picoseconds of copying a tensor from one layout into another, once.

    That is an operation of its own between two buffers in device memory. Where the pieces of the source do not
    fall on the sticks of the target, it takes one more; each counts as one that keeps the layout. A restickify bars
    both of its buffers from LX, so what makes the tensor and what reads it then have to wait, too; nobody makes a
    tensor that comes ``from_host``.
    """
    barred = 1 if from_host else 2
    opcode, waits = (
        ("identity", 0) if source.lane == target.lane else ("ReStickifyOpHBM", barred * wait_cost())
    )
    try:
        return copy_cost(opcode, refined([_with_room(source, target), _with_room(target, source)])) + waits
    except ViewError:
        return sum(copy_cost(opcode, refined([held.view, held.view])) for held in (source, target)) + waits


def _with_room(held: Candidate, other: Candidate) -> BufferView:
    """The view of a candidate with room for the whole pieces in which another one has its dims."""
    layout = held.layout
    for dim, piece in pieces(other.view):
        layout = layout.padded(dim, piece)
    return held.view if layout is held.layout else BufferView.of(layout)


def copying_cost(source: Candidate, target: Candidate) -> int:
    """Picoseconds of a copy that the program has anyway: another stick is a conversion, else an operation like others.

    What those move may stay in LX, so nothing but bytes and bursts counts.
    """
    waits = 2 * wait_cost() if source.lane == target.lane else 0
    return conversion_cost(source, target) - waits


def cheapest(sources: Sequence[Candidate], target: Candidate) -> Candidate:
    """The source that converts to ``target`` in the shortest time, the first of several."""
    return min(sources, key=lambda source: conversion_cost(source, target))
