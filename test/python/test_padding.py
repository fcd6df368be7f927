# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values in padding, against memory that is filled and inspected; padding that operations need."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from layout_cases import addresses, positions, random_layout, random_step

from spyre_mlir.layout import BufferView, Digit, StickLayout, ViewError
from spyre_mlir.layout.padding import UNDEFINED, Need, State, needs, operand_padding, uniform
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.view_transforms import Collapse, Expand, Slice, Transpose, ViewTransform
from spyre_mlir.passes.verify_padding import source_index
from spyre_mlir.target.target import default_target

FILL = 7.0
STEPS = {"transpose": Transpose, "collapse": Collapse, "expand": Expand, "slice": Slice}
BLOCKS, SEEDS_PER_BLOCK = range(10), 100


def layout_of(shape: tuple[int, ...], order: list[int] | None = None) -> StickLayout:
    return StickLayout.for_tensor(default_target(), shape, "f16", order)


def view_of(shape: tuple[int, ...], order: list[int] | None = None) -> BufferView:
    return BufferView.of(layout_of(shape, order))


# -- values after the end of a buffer, read by a view -------------------------------------------------


def filled(layout: StickLayout) -> np.ndarray:
    """Device memory with the fill in its padding, and something else in elements and empty lanes."""
    memory = np.full(layout.device_size, FILL)
    if layout.stick_dim is None:
        memory[..., 1:] = np.nan
    memory.ravel()[positions(layout).ravel()] = np.nan
    return memory.ravel()


def random_steps(
    rng: random.Random, layout: StickLayout
) -> tuple[BufferView, list[tuple[ViewTransform, tuple[int, ...]]]]:
    """A view that a device operation can address, as far as random steps give one; each with its source's shape."""
    view, steps = BufferView.of(layout), []
    for _ in range(rng.randrange(4)):
        name, arguments = random_step(rng, view.shape)
        if name == "drop":
            continue
        step = STEPS[name](*(tuple(map(_tuple, argument)) for argument in arguments))
        try:
            following = step.apply(view)
        except ViewError:
            continue
        if following.why_not_addressable() is None:
            steps.append((step, view.shape))
            view = following
    return view, steps


def _tuple(value):
    return tuple(value) if isinstance(value, list) else value


def behind(view: BufferView, dim: int) -> range:
    """The positions of a dim between its end and the end of its last stick, or of the room it has."""
    axis = view.axis_of(dim)
    room = axis.divisor * axis.size if axis else view.stick_elements(dim)
    return range(view.shape[dim], room)


@dataclass(frozen=True)
class Case:
    """A padded dim of a random view, the steps to the view, and the positions after its end."""

    layout: StickLayout
    view: BufferView
    steps: list[tuple[ViewTransform, tuple[int, ...]]]
    dim: int
    places: range

    def held(self, state: State, places: range | None = None) -> State:
        states = uniform(self.layout, state)
        return operand_padding(
            self.layout, states, self.view, self.dim, self.places if places is None else places
        )


def cases(block: int) -> Iterator[Case]:
    for seed in range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK):
        rng = random.Random(seed)
        layout = random_layout(rng)
        view, steps = random_steps(rng, layout)
        if view.why_not_addressable() is None:
            dims = [dim for dim in range(len(view.shape)) if behind(view, dim)]
            yield from (Case(layout, view, steps, dim, behind(view, dim)) for dim in dims)


@pytest.mark.parametrize("block", BLOCKS)
def test_padding_holds_what_memory_holds(block):
    """The fill, exactly if no position after the end, for any position of the other dims, is an element."""
    for case in cases(block):
        end, shape = case.places.stop, case.view.shape
        longer = tuple(end if dim == case.dim else size for dim, size in enumerate(shape))
        found = filled(case.layout)[addresses(replace(case.view, shape=longer))]
        slab = np.take(found, list(case.places), axis=case.dim)
        assert case.held(FILL) == (FILL if (slab == FILL).all() else UNDEFINED)
        assert case.held(UNDEFINED) is UNDEFINED


@pytest.mark.parametrize("block", BLOCKS)
def test_positions_of_padding_are_followed_through_views(block):
    """Positions beyond the shape of the buffer have the fill, by logical index, as in the verifier."""
    for case in cases(block):
        for place in case.places:
            index = tuple(place if dim == case.dim else 0 for dim in range(len(case.view.shape)))
            for step, shape in reversed(case.steps):
                index = source_index(step, index, shape)
            beyond = any(at >= size for at, size in zip(index, case.layout.shape, strict=True))
            assert case.held(FILL, range(place, place + 1)) == (FILL if beyond else UNDEFINED)


def test_the_random_views_are_of_both_kinds():
    """Otherwise the tests above say little."""
    found = [case.held(FILL) for block in BLOCKS for case in cases(block)]
    assert found.count(FILL) > 300 and found.count(UNDEFINED) > 30


def test_behind_the_end_of_a_slice_lie_elements():
    """Columns 0 to 64 of 130 end within the tensor, columns 64 to 129 where it ends."""
    layout = layout_of((3, 130))
    states, view = uniform(layout, 0.0), BufferView.of(layout)
    assert (
        operand_padding(layout, states, view.slice([0, 0], [3, 65], [1, 1]), 1, range(65, 128)) is UNDEFINED
    )
    assert operand_padding(layout, states, view.slice([0, 64], [3, 66], [1, 1]), 1, range(66, 128)) == 0.0


def test_each_dim_has_a_state_of_its_own():
    """Rows 71 to 127 are undefined; positions beyond both dims have a state only if both agree."""
    layout = layout_of((71, 100)).padded(0, 128)
    view = BufferView.of(layout)
    states = {0: UNDEFINED, 1: 0.0}
    assert uniform(layout, 0.0) == {0: 0.0, 1: 0.0}
    assert operand_padding(layout, states, view, 1, range(100, 128)) == 0.0
    assert operand_padding(layout, states, view, 0, range(71, 128)) is UNDEFINED


def test_the_empty_lanes_of_a_sparse_stick_belong_to_no_dim():
    """A dim of one element in the stick has 63 positions of padding; a sparse tensor has none."""
    dense, sparse = (
        StickLayout(default_target(), (5, 1), "f16", (Digit(0), Digit(1, 1, 64))),
        layout_of((5, 1), [1, 0, -1]),
    )
    assert (uniform(dense, 0.0), uniform(sparse, 0.0)) == ({1: 0.0}, {})
    for layout, expected in ((dense, 0.0), (sparse, UNDEFINED)):
        view = replace(BufferView.of(layout), stick_dim=1)
        assert operand_padding(layout, uniform(layout, 0.0), view, 1, range(1, 64)) == expected


# -- who needs which value ----------------------------------------------------------------------------


def reduction(columns: int, *, stick: bool) -> Space:
    """[3, columns] reduced over its columns, in the stick, or over its rows."""
    source = view_of((3, columns))
    reduced = 1 if stick else 0
    result = view_of((3,), [0, -1]) if stick else view_of((columns,))
    dims = [1 - reduced]
    made = result.rename(dims, 2, (3, columns))
    return Space((3, columns), (source, made), (frozenset({0, 1}), frozenset(dims)), frozenset({reduced}))


@pytest.mark.parametrize(
    ("opcode", "value"), [("sum", 0.0), ("max", -np.inf), ("min", np.inf), ("absmax", 0.0)]
)
def test_a_reduction_over_a_padded_stick_needs_its_neutral_value(opcode, value):
    assert needs(opcode, reduction(65, stick=True)) == (Need(0, 1, range(65, 128), value),)
    assert needs(opcode, reduction(128, stick=True)) == ()


def test_a_reduction_over_rows_needs_nothing():
    assert needs("maxnonstick", reduction(65, stick=False)) == ()


def test_a_matmul_needs_zeros_in_both_inputs():
    """67 x 71 times 71 x 256: the contracted dim 2 has room for 128; rows and columns are not read beyond."""
    sizes = (67, 256, 71)
    views = [
        view_of((67, 71)).rename([0, 2], 3, sizes),
        BufferView.of(layout_of((71, 256)).padded(0, 128)).rename([2, 1], 3, sizes),
        view_of((67, 256)).rename([0, 1], 3, sizes),
    ]
    space = Space(
        sizes, tuple(views), (frozenset({0, 2}), frozenset({1, 2}), frozenset({0, 1})), frozenset({2})
    )
    expected = [Need(operand, 2, range(71, 128), 0.0) for operand in (0, 1)]
    assert list(needs("batchmatmul", space)) == expected


def test_pointwise_operations_and_copies_need_nothing():
    both = (frozenset({0, 1}),) * 2
    space = Space((3, 65), (view_of((3, 65)),) * 2, both)
    assert [needs(opcode, space) for opcode in ("exp", "identity", "dl16tofp32")] == [()] * 3
