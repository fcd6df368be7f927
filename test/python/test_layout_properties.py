# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Properties of layouts of every form over random shapes of rank 0 to 5, against loop nests and definitions."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from layout_cases import ALL_ELEMENTS, moved, positions, random_form

from spyre_mlir.layout import BufferView, Digit, StickLayout
from spyre_mlir.layout.host_transfer import DmaTuples, dma_tuples
from spyre_mlir.target.target import default_target


def small_form(rng: random.Random, places: int) -> StickLayout:
    """Return a random layout whose device array has at most ``places`` places."""
    while math.prod((layout := random_form(rng, 500)).device_size) > places:
        pass
    return layout


def read_back(tuples: DmaTuples, device: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Runs the loop nest of RFC 0047 backwards: the host array."""
    host = np.full(math.prod(shape), -1)
    loops = np.indices(tuples.ranges).reshape(len(tuples.ranges), -1)
    inside = np.ones(loops.shape[1], bool)
    for which, weights, size in tuples.bounds:
        inside &= np.array(weights) @ loops[list(which)] < size
    loops = loops[:, inside]
    host[np.array(tuples.host_strides) @ loops] = device[np.array(tuples.device_strides) @ loops]
    return host.reshape(shape)


def test_1000_round_trips_are_exact():
    """Host to device and back by the DMA tuples: each element at its place, none in the padding."""
    seen = set()
    for seed in range(1000):
        layout = small_form(random.Random(seed), 50_000)
        elements = math.prod(layout.device_size)
        host = np.arange(math.prod(layout.shape)).reshape(layout.shape)
        tuples = dma_tuples(layout)
        expected = np.full(elements, -1)
        expected[positions(layout)] = host
        device = moved(tuples, host, elements)
        np.testing.assert_array_equal(device, expected, err_msg=f"seed {seed}: {layout}")
        np.testing.assert_array_equal(read_back(tuples, device, layout.shape), host)
        seen.add((layout.dtype, len(layout.shape), len(layout.stick_dims)))
    assert {dtype for dtype, _, _ in seen} == set(ALL_ELEMENTS)
    assert {(rank, sticks) for _, rank, sticks in seen if sticks < 3} >= {
        *itertools.product(range(1, 6), (0, 1)),
        *itertools.product(range(2, 6), (2,)),
    }


@pytest.mark.parametrize("seed", range(300))
def test_sizes_strides_and_bytes(seed):
    """Row-major strides, sticks of 128 bytes, one coordinate per digit, padding for the shape."""
    layout = random_form(random.Random(seed))
    size, inside = layout.device_size, max(1, len(layout.stick_digits))
    assert len(size) == len(layout.digits) == len(layout.outer_digits) + inside
    assert math.prod(size[-inside:]) == ALL_ELEMENTS[layout.dtype]
    assert layout.device_strides == tuple(np.zeros(size, np.int8).strides)
    assert layout.bytes == 128 * math.prod(size[:-inside])
    room = [max([1, *(d.divisor * n for d, n in zip(layout.digits, size, strict=True) if d.dim == dim)])
            for dim in range(len(layout.shape))]  # fmt: skip
    assert layout.padding == tuple(r - n for r, n in zip(room, layout.shape, strict=True))
    assert min(layout.padding, default=0) >= 0
    if layout.stick_dims:
        assert math.prod(size) == math.prod(room)


@pytest.mark.parametrize("seed", range(200))
def test_the_stride_map_is_the_step_on_the_host(seed):
    """One step in a device dim, if the next place holds an element, equals its stride on the host."""
    layout = small_form(random.Random(seed), 50_000)
    host = np.full(layout.device_size, -1)
    host.ravel()[positions(layout)] = np.arange(math.prod(layout.shape)).reshape(layout.shape)
    for axis, step in enumerate(layout.stride_map):
        low, high = np.delete(host, -1, axis), np.delete(host, 0, axis)
        steps = np.unique((high - low)[(low >= 0) & (high >= 0)])
        assert step == -1 or steps.size == 0 or steps.tolist() == [step]
        assert step != -1 or steps.size == 0


@pytest.mark.parametrize("seed", range(300))
def test_the_inverse_over_the_whole_device_array(seed):
    """Place by place: the element that was put there, or none; each element comes once."""
    layout = small_form(random.Random(seed), 50_000)
    index, holds = layout.to_host(np.indices(layout.device_size))
    expected = np.full(math.prod(layout.device_size), -1)
    expected[positions(layout)] = np.arange(math.prod(layout.shape)).reshape(layout.shape)
    flat = np.zeros(layout.device_size, np.int64)
    for size, own in zip(layout.shape, index, strict=True):
        flat = flat * size + own
    np.testing.assert_array_equal(np.where(holds, flat, -1).ravel(), expected)


@pytest.mark.parametrize("seed", range(100))
def test_the_map_index_by_index(seed):
    """A loop nest over all indices: the coordinate, its offset, and back; and the same for arrays at once."""
    layout = random_form(random.Random(seed), 200)
    where = positions(layout)
    places = layout.to_device(np.indices(layout.shape))
    for index in itertools.product(*map(range, layout.shape)):
        coordinate = layout.to_device(index)
        assert all(0 <= at < size for at, size in zip(coordinate, layout.device_size, strict=True))
        assert np.dot(coordinate, layout.device_strides) == where[index]
        assert layout.to_host(coordinate) == index
        assert tuple(places[:, *index]) == coordinate


@pytest.mark.parametrize("seed", range(100))
def test_places_without_an_element(seed):
    """A loop nest over all places: the inverse is None exactly where nothing was put."""
    layout = small_form(random.Random(seed), 5_000)
    filled = set(positions(layout).ravel().tolist())
    for place, coordinate in enumerate(itertools.product(*map(range, layout.device_size))):
        assert (layout.to_host(coordinate) is not None) == (place in filled)


@pytest.mark.parametrize("seed", range(400))
def test_same_memory_is_the_same_place_of_each_element(seed):
    """Two layouts of one tensor, the second with a dim of size 1 more: the same memory if all positions agree."""
    rng = random.Random(seed)
    first = random_form(rng, 300)
    second = with_a_one(rng, another(rng, first))
    agree = np.array_equal(positions(first).ravel(), positions(second).ravel())
    assert first.same_memory(second) == second.same_memory(first) == agree


def test_same_memory_has_both_answers():
    """The test above sees each answer for many layouts."""
    pairs = [(rng := random.Random(seed), random_form(rng, 300)) for seed in range(400)]
    assert 100 < sum(first.same_memory(another(rng, first)) for rng, first in pairs) < 300


def another(rng: random.Random, layout: StickLayout) -> StickLayout:
    """A layout of the same tensor: itself, the default, or its outer device dims shuffled."""
    outer, lanes = list(layout.outer_digits), layout.digits[len(layout.outer_digits) :]
    shuffled = StickLayout(
        default_target(), layout.shape, layout.dtype, (*rng.sample(outer, len(outer)), *lanes)
    )
    return rng.choice(
        [layout, StickLayout.for_tensor(default_target(), layout.shape, layout.dtype), shuffled]
    )


def with_a_one(rng: random.Random, layout: StickLayout) -> StickLayout:
    """Return the same layout of a tensor with one more dim, of size 1, with a digit of size 1."""
    at = rng.randint(0, len(layout.shape))
    shape = (*layout.shape[:at], 1, *layout.shape[at:])
    digits = [
        digit if digit.dim is None or digit.dim < at else Digit(digit.dim + 1, digit.divisor, digit.modulus)
        for digit in layout.digits
    ]
    outer = len(layout.outer_digits)
    digits.insert(rng.randint(0, outer), Digit(at))
    return StickLayout(default_target(), shape, layout.dtype, tuple(digits))


@pytest.mark.parametrize("seed", range(100))
def test_equal_layouts_and_views_are_equal_keys(seed):
    """Equal layouts have equal hashes and are found in a dictionary."""
    first, second = (random_form(random.Random(seed)) for _ in range(2))
    backwards = list(reversed(range(len(first.shape))))
    for one, other in (
        (first, second),
        [BufferView.of(each).transpose(backwards) for each in (first, second)],
    ):
        assert one is not other and one == other and hash(one) == hash(other)
        assert {one: seed}[other] == seed
