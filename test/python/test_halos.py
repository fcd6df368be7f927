# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Halos: over the ring cores get the rows and columns of their neighbours that their windows read."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from programs import check_close
from test_convolution import check_exact, whole_numbers
from torch import nn

import spyre_mlir
from spyre_mlir.bundle.design_json import from_json, to_json
from spyre_mlir.bundle.model import Design
from spyre_mlir.bundle.validate import validate
from spyre_mlir.cost.ring_traffic import transfers_of
from spyre_mlir.division import Division, core_view
from spyre_mlir.division.relayout import copy_division, relayout, ring_division
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.space import Space, halo_of, refined
from spyre_mlir.layout.view import BufferView
from spyre_mlir.layout.view_transforms import Slice
from spyre_mlir.target.target import default_target, packaged_target

#: A copy of 12 rows of 8 columns, each apart, and of two sticks of channels; the order of the dims is that of shapes.
IMAGE = refined([BufferView.of(StickLayout.for_tensor(default_target(), (12, 8, 128), "f16"))] * 2)
SLIDING = ("conv2d", "depthwiseconv2dnative", "maxpoolfwd")


def _axis(size: int) -> int:
    return IMAGE.sizes.index(size)


def _rows_and_columns(rows: int, columns: int) -> Division:
    splits = [1] * len(IMAGE.sizes)
    splits[_axis(12)], splits[_axis(8)] = rows, columns
    return Division.mixed_radix(tuple(splits))


def _with_halos(*halos: tuple[int, int, int]) -> Space:
    return replace(IMAGE, halos=tuple((_axis(size), halo_of(b, a, size)) for size, b, a in sorted(halos)))


@pytest.mark.parametrize(
    "splits, halos",
    [
        ((4, 1), [(12, 1, 1)]),
        ((4, 2), [(12, 1, 1), (8, 2, 2)]),
        ((3, 4), [(12, 0, 1), (8, 1, 0)]),
    ],
)
def test_what_cores_have_says_slices_and_halos(splits, halos):
    """Only the ring brings halos."""
    space, division = _with_halos(*halos), _rows_and_columns(*splits)
    wanted = core_view(space, 1, division)
    copy = ring_division(IMAGE, wanted)
    assert copy is not None and copy_division(IMAGE, wanted) is None
    assert core_view(replace(IMAGE, halos=copy.halos), 1, copy.division) == wanted
    assert set(copy.halos) == set(space.halos)


def test_halos_longer_than_slices_are_none():
    """Several slices then begin with the first row, so that begins do not tell how many there are."""
    wanted = core_view(_with_halos((12, 4, 4)), 1, _rows_and_columns(6, 1))
    assert ring_division(IMAGE, wanted) is None


def test_slices_alone_have_no_halos():
    copy = ring_division(IMAGE, core_view(IMAGE, 1, _rows_and_columns(4, 2)))
    assert copy is not None and not copy.halos


def test_a_copy_of_a_part_has_the_slices_of_its_readers():
    """Readers see where the part lies in its buffer, not the copy, which begins at 0."""
    whole = BufferView.of(StickLayout.for_tensor(default_target(), (24, 8, 128), "f16"))
    part = Slice((12, 0, 0), (12, 8, 128), (1, 1, 1)).apply(whole)
    space = refined([part, BufferView.of(StickLayout.for_tensor(default_target(), (12, 8, 128), "f16"))])
    division = Division.mixed_radix(tuple(4 if size == 12 else 1 for size in space.sizes))
    copy = copy_division(space, core_view(space, 0, division))
    assert copy is not None and copy.division == division


@pytest.mark.parametrize("before, after", [(1, 1), (0, 2), (3, 0)])
def test_transfers_bring_each_core_its_rows(before, after):
    """A core takes its own slice from itself, the rows around it from those that have them; at the ends are none."""
    space, division = _with_halos((12, before, after)), _rows_and_columns(4, 1)
    plan = relayout(space, core_view(IMAGE, 1, division), division)
    assert plan is not None
    transfers = transfers_of(plan)
    received = [0] * 4
    for target, sticks in zip(transfers.targets, transfers.sticks, strict=True):
        received[target] += int(sticks)
    rows = [min(3 * core + 3 + after, 12) - max(3 * core - before, 0) for core in range(4)]
    assert received == [count * 8 * 2 for count in rows]


# -- programs ------------------------------------------------------------------------------------------


def _pair(channels: int, middle: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(8, channels, 1, bias=False), nn.ReLU(), middle)


PROGRAMS = {
    "3x3": (_pair(16, nn.Conv2d(16, 16, 3, padding=1)), (1, 8, 16, 16)),
    "of a batch": (_pair(16, nn.Conv2d(16, 16, 3, padding=1)), (2, 8, 8, 16)),
    "by steps of 2": (_pair(16, nn.Conv2d(16, 16, 3, 2, 1)), (1, 8, 16, 16)),
    "dilated": (_pair(16, nn.Conv2d(16, 16, 3, padding=2, dilation=2)), (1, 8, 16, 12)),
    "odd sizes": (_pair(16, nn.Conv2d(16, 16, 3, padding=1)), (1, 8, 15, 9)),
    "depthwise 7x7": (_pair(64, nn.Conv2d(64, 64, 7, padding=3, groups=64)), (1, 8, 16, 8)),
    "a pooling": (_pair(64, nn.MaxPool2d(3, 1, 1)), (1, 8, 16, 16)),
}


def _executions(program: spyre_mlir.Program) -> list:
    return list(program.timeline().executions)


@pytest.mark.parametrize("name", PROGRAMS)
def test_windows_with_padding_read_lx(name):
    """The image between two convolutions never goes to device memory; numbers are exact."""
    model, shape = PROGRAMS[name]
    program = check_exact(*whole_numbers(model, *shape), sencores=8)
    slid = [execution for execution in _executions(program) if execution.opcode in SLIDING]
    assert slid and all(execution.work.operands[0].in_lx for execution in slid)


def _halo_design() -> Design:
    model, shape = PROGRAMS["3x3"]
    model, x = whole_numbers(model, *shape)
    program = spyre_mlir.compile(model, (x,), sencores=8)
    assert not validate(program.bundle)
    designs = program.bundle.designs.values()
    return next(design for design in designs if design.opcode == "shuffle" and design.operands[-1].windows)


def test_a_design_with_halos_is_read_as_it_was_written():
    design = _halo_design()
    again = from_json(to_json(design), "x.json", packaged_target())
    assert again.operands[-1].windows == design.operands[-1].windows
    assert again.operands[-1].held == design.operands[-1].held


@pytest.mark.parametrize("seed", range(3))
def test_random_chains(seed):
    """Convolutions of all kinds in a row, of random sizes, steps, dilations, batches and numbers of cores."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    channels, (height, width) = rng.choice([16, 64, 100]), rng.choice([(8, 8), (14, 14), (12, 9), (7, 7)])
    shape, layers = (rng.choice([1, 2]), channels, height, width), []
    for _ in range(2):
        inner, dilation, step = rng.choice([64, 128]), rng.choice([1, 1, 2]), rng.choice([1, 1, 2])
        groups = inner if rng.random() < 0.4 else 1
        layers += [nn.Conv2d(channels, inner, 1), rng.choice([nn.ReLU(), nn.ReLU6()])]
        layers += [nn.Conv2d(inner, inner, 3, step, dilation, dilation, groups=groups), nn.ReLU()]
        channels = inner
    model, x = nn.Sequential(*layers).half(), torch.randn(shape).half()
    program = spyre_mlir.compile(model, (x,), sencores=rng.choice([4, 8, 32]))
    check_close(f"seed {seed}", program(x), model, (x,))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32])
def test_images_that_no_layout_has(dtype: torch.dtype) -> None:
    """Bands are for what lies in sticks: sums over windows of integers are for the host, and right there."""
    x = torch.randint(0, 9, (2, 4, 6, 6)).to(dtype)
    model = lambda x: torch.nn.functional.conv2d(x, torch.ones(4, 1, 3, 3, dtype=dtype), padding=1, groups=4)  # noqa: E731
    assert torch.equal(spyre_mlir.compile(model, (x,))(x), model(x))
