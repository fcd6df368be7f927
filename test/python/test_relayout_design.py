# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The design of a shuffle from its space and divisions: its source has the slices of the operation before."""

from __future__ import annotations

import random
from dataclasses import replace
from math import prod

import pytest
from relayouts import diagnostics, held_sticks, splits_of, sticks

from spyre_mlir.bundle.json_fields import Field, from_plain, to_plain
from spyre_mlir.bundle.model import Design
from spyre_mlir.dialects import context
from spyre_mlir.dialects.attributes import from_attribute, to_attribute
from spyre_mlir.division import Division
from spyre_mlir.division.relayout import held_view, relayout
from spyre_mlir.layout import BufferView, StickLayout
from spyre_mlir.layout.space import Space, refined
from spyre_mlir.lowering.design_builder import DesignBuilder
from spyre_mlir.mlir import ir
from spyre_mlir.target.target import default_target


def with_copies(space: Space, copies: int) -> Space:
    """The space with a last dim that no operand has."""
    rank, sizes = len(space.sizes), (*space.sizes, copies)
    views = tuple(view.rename(range(rank), rank + 1, sizes) for view in space.views)
    return replace(space, sizes=sizes, views=views)


def designs(seed: int) -> tuple[Design, Design]:
    """Return a copy of a random tensor into LX, on some cores, and a shuffle of its result to other slices."""
    rng = random.Random(seed)
    shape = [rng.randrange(1, 7) for _ in range(rng.randrange(3))] + [rng.randrange(1, 300)]
    order = rng.sample(range(len(shape)), len(shape)) + [-1] * (rng.random() < 0.2)
    view = BufferView.of(StickLayout.for_tensor(default_target(), shape, rng.choice(("f16", "f32")), order))
    space = refined([view, view])
    wanted = random_splits(rng, space.units, 32)
    wanted = (*wanted, rng.randrange(1, 32 // prod(wanted) + 1))
    target = Division.mixed_radix(wanted, rng.sample(range(len(wanted)), len(wanted)))
    writer = random_splits(rng, space.units, 32)
    written = Division.mixed_radix(writer, rng.sample(range(len(writer)), len(writer)))
    copied = with_copies(space, wanted[-1])
    taken = relayout(copied, held_view(space, 1, written), target)
    assert taken is not None
    first = DesignBuilder("identity", space, written, {}, {}, (0, 1))
    second = DesignBuilder("shuffle", copied, target, {}, {}, (0, 1), taken)
    return first.build(0, _start, None), second.build(1, _start, None)


def random_splits(rng: random.Random, units: tuple[int, ...], room: int) -> tuple[int, ...]:
    splits = splits_of(rng, dict(enumerate(units)), room)
    return tuple(splits[dim] for dim in range(len(units)))


def _start(operand: int, core: int, offset: int) -> int:
    """The addresses of sources and results: operands of one tensor lie in one place."""
    assert offset == 0
    return operand << 20


@pytest.mark.parametrize("seed", range(60))
def test_the_source_lies_where_the_writer_left_it(seed):
    """Each core holds the sticks that it wrote, each at its address; a core that the writer did not run on nothing."""
    written, shuffle = designs(seed)
    result = replace(written.operands[1], start=shuffle.operands[0].start)
    for core in range(shuffle.cores):
        own = written.core_slices[core] if core < written.cores else None
        left = set() if own is None else set(sticks(written, result, written.slices, own))
        assert set(held_sticks(shuffle, core)) == left


@pytest.mark.parametrize("seed", range(60))
def test_the_design_is_a_good_one(seed):
    """The rules have nothing against it; copies are cores that hold the same, not a dim."""
    _, shuffle = designs(seed)
    assert diagnostics(shuffle) == []
    assert all(dim in each.scale for dim in shuffle.sizes for each in shuffle.operands)
    assert all(-1 not in each.scale.values() for each in shuffle.operands)


@pytest.mark.parametrize("seed", range(60))
def test_the_design_comes_back_from_its_attribute(seed):
    """The design survives as plain data and as an attribute of a module, also for cores without a slice."""
    _, shuffle = designs(seed)
    with context():
        attribute = to_attribute(to_plain(shuffle))
        assert from_plain(Design, Field(from_attribute(ir.Attribute.parse(str(attribute))), "")) == shuffle
