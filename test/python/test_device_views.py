# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views of tensors on the device, their layouts, factories, and arithmetic by programs of one operation."""

from __future__ import annotations

import contextlib
import random
import sys
from typing import Any, cast

import numpy as np
import pytest
import torch
from device_chains import SHAPES, numbers, random_arithmetic, random_view, strides_of_ones_as, viewed
from layout_cases import random_layout

import spyre_mlir
from spyre_mlir import CompileError, DeviceTensor, to_device
from spyre_mlir.frontend.graph_edits import overload_of
from spyre_mlir.layout.host_transfer import dma_tuples, layout_of_tuples
from spyre_mlir.layout.strided import StridedView, layout_of_view
from spyre_mlir.target.target import default_target
from spyre_mlir.tensors.device_views import steps_to

# Views of 32-bit numbers need a restickify, which the back end likely refuses; test_conformance.py tests the warning.
pytestmark = pytest.mark.filterwarnings("ignore::spyre_mlir.PassWarning")


def same(x: torch.Tensor, made: DeviceTensor) -> bool:
    """Shapes, strides, offsets and numbers."""
    assert (made.shape, made.stride()) == (tuple(x.shape), x.stride())
    np.testing.assert_array_equal(made.numpy(), x.numpy())
    return True


@pytest.mark.parametrize("seed", range(200))
def test_chains_of_views_are_those_of_pytorch(seed):
    """Random stick dims and chains of six views; every third chain runs on the simulator and is viewed again."""
    rng = random.Random(seed)
    x = numbers(rng, rng.choice(SHAPES), rng.choice((torch.float16, torch.float32)))
    made = to_device(x, stick_dims=[rng.randrange(x.dim())] if rng.random() < 0.5 else None)
    for step in range(6):
        name, arguments = random_view(rng, x)
        try:
            expected = viewed(x, name, arguments)
        except (RuntimeError, ValueError):
            with pytest.raises(CompileError):
                viewed(made, name, arguments)
            continue
        if not expected.numel() or expected.numel() > 20000:
            continue
        copied = expected.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
        if copied and seed % 3:
            continue
        x, source, made = expected, made, viewed(made, name, arguments)
        assert same(x, made)
        assert (made.storage is source.storage) != copied
        if step == 2 and seed % 3 == 0:
            _, operation = random_arithmetic(rng)
            x, made = operation(x), operation(made)
            x = x.as_strided(x.shape, strides_of_ones_as(x.stride(), made))
            assert same(x, made)


@pytest.mark.parametrize("seed", range(150))
def test_the_layout_of_a_view_puts_each_element_where_it_is(seed):
    """Permutes and reshapes of random layouts; where there is a layout, its bytes are read as the storage has them."""
    rng = random.Random(seed)
    x = numbers(rng, rng.choice(SHAPES), torch.float16)
    made = to_device(x, dim_order=rng.sample(range(x.dim()), x.dim()), stick_outermost=rng.random() < 0.5)
    for _ in range(rng.randint(1, 3)):
        name, arguments = random_view(rng, x)
        if name in ("permute", "transpose", "t", "unsqueeze", "squeeze", "view"):
            try:
                x, made = viewed(x, name, arguments), viewed(made, name, arguments)
            except (RuntimeError, CompileError):
                continue
    layout = layout_of_view(made.storage.layout, made.strided)
    if layout is None:
        with pytest.raises(CompileError, match="no layout of its own"):
            _ = made.layout
        return
    assert layout.bytes == made.nbytes
    np.testing.assert_array_equal(DeviceTensor(layout, "float16", made.data).numpy(), x.numpy())


@pytest.mark.parametrize("seed", range(200))
def test_a_layout_comes_back_from_its_loops(seed):
    layout = random_layout(random.Random(seed))
    tuples = dma_tuples(layout)
    made = layout_of_tuples(default_target(), tuples, layout.shape, layout.dtype)
    assert made.same_memory(layout) and made.device_size == layout.device_size


def test_views_have_layouts():
    made = to_device(np.zeros((512, 256), np.float16))
    assert made.t().layout.device_size == (4, 512, 64) and made.t().layout.stick_dims == (0,)
    assert made.view(512, 4, 64).layout.device_size == (4, 512, 64)
    assert made.view(2, 256, 256).layout.device_size == (4, 2, 256, 64)
    assert made[None].layout.device_size == (4, 512, 64)
    with pytest.raises(CompileError, match="no layout of its own"):
        _ = made[:64].layout


def test_what_a_view_tells():
    made = to_device(np.zeros((512, 250), np.float16), stick_dims=[0])
    assert repr(made.t()[1:3]) == (
        "DeviceTensor(shape=[2, 512], stride=[1, 250], offset=1, dtype=float16, "
        "view of [512, 250]: device size=[8, 250, 64], stick dim 0, 256000 bytes)"
    )


def test_a_program_reads_the_storage_of_a_view_where_it_lies():
    """No copy: the program reads only the elements of the views, and takes the storage once."""
    from spyre_mlir.frontend import eager

    made = to_device(np.ones((256, 128), np.float16))
    _ = made[64:128] + made[128:192]
    program = next(reversed(eager.programs.values())).program
    arguments = [each for each in program.bundle.manifest.arguments if each.kind == "input"]
    assert [each.host_shape for each in arguments] == [(256, 128)]
    assert program.traffic().read_bytes == 2 * 64 * 128 * 2
    again = len(eager.programs)
    _ = made[64:128] + made[128:192]
    assert len(eager.programs) == again


def test_restickify_is_a_program():
    x = torch.randn(128, 192).half()
    made = to_device(x)
    for copy in (made.restickify([0]), spyre_mlir.restickify(made, [0]), to_device(made, stick_dims=[0]),
                 made.to("spyre", stick_dims=[0])):  # fmt: skip
        assert copy.layout == to_device(x, stick_dims=[0]).layout and copy.storage is not made.storage
        np.testing.assert_array_equal(copy.numpy(), x.numpy())
    from spyre_mlir.frontend import eager

    program = next(reversed(eager.programs.values())).program
    assert program.traffic().read_bytes == program.traffic().written_bytes == 128 * 192 * 2
    turned = to_device(made.t(), dim_order=[0, 1], stick_outermost=True)
    np.testing.assert_array_equal(turned.numpy(), x.t().numpy())


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "bfloat16", "int32", "int64", "bool", "int8", "float8_e4m3fn"]
)
def test_the_way_to_the_host_and_to_another_layout(dtype):
    x = (
        (torch.arange(70 * 3).reshape(70, 3) % (2 if dtype == "bool" else 100))
        .float()
        .to(getattr(torch, dtype))
    )
    made = to_device(x)
    assert made.dtype == dtype
    for each, expected in ((made, x), (made.t(), x.t()), (made.restickify([0]), x), (made[5:9], x[5:9])):
        back = each.to("cpu")
        assert back.dtype == x.dtype and torch.equal(back.float(), expected.float())
    assert made.t().cpu().stride() == x.t().stride()


def test_arithmetic():
    x, y = torch.randn(64, 70).half(), torch.randn(70, 64).half()
    a, b = to_device(x, stick_dims=[0]), to_device(y)
    for made, expected in (
        (a + b.t(), x + y.t()), (a - 1, x - 1), (2 - a, 2 - x), (a * b.T, x * y.T), (a / 2, x / 2),
        (a @ b, x @ y), (-a, -x), (abs(a), abs(x)), (1 / (abs(a) + 1), 1 / (abs(x) + 1)),
        (a + a[:1], x + x[:1]), (a[:, 3] + a[:, 4], x[:, 3] + x[:, 4]),
    ):  # fmt: skip
        assert made.stride() == expected.stride()
        np.testing.assert_allclose(made.numpy(), expected.numpy(), atol=0.02)


def test_factories():
    for made, expected in (
        (spyre_mlir.zeros(3, 4), torch.zeros(3, 4)),
        (spyre_mlir.zeros((3, 4), dtype=torch.half), torch.zeros(3, 4).half()),
        (spyre_mlir.full((2, 70), 1.5), torch.full((2, 70), 1.5)),
        (spyre_mlir.full((2,), True), torch.full((2,), True)),
        (spyre_mlir.full((), 3), torch.full((), 3)), (spyre_mlir.arange(10), torch.arange(10)),
        (spyre_mlir.arange(2, 9, 3), torch.arange(2, 9, 3)), (spyre_mlir.arange(0, 1, 0.25), torch.arange(0, 1, 0.25)),
    ):  # fmt: skip
        assert torch.equal(made.cpu(), expected) and made.cpu().dtype == expected.dtype
    made = spyre_mlir.empty(512, 240, dtype="float16", stick_dims=[0])
    assert made.layout == to_device(np.zeros((512, 240), np.float16), stick_dims=[0]).layout


def test_writing_to_a_view_writes_its_storage():
    x = torch.zeros(4, 70)
    made = to_device(x)
    made.t()[3:5].write(np.ones((2, 4), np.float32))
    x.t()[3:5] = 1
    np.testing.assert_array_equal(made.numpy(), x.numpy())


def test_without_arithmetic_nothing_needs_torch():
    code = (
        "import sys, numpy as np, spyre_mlir as s; x = s.to_device(np.ones((4, 4), np.float16)); "
        "x.t()[1:].numpy(); s.arange(4, stick_dims=[0]); assert 'torch' not in sys.modules"
    )
    import subprocess

    subprocess.run([sys.executable, "-c", code], check=True)


X = to_device(np.zeros((3, 70), np.float16))
REFUSED = {
    "a dim too far": (lambda: X.select(2, 0), "There is no dim 2; the tensor has 2 dims."),
    "an index too far": (lambda: X[3], "Index 3 is outside the 3 elements of dim 0."),
    "too many": (lambda: X[0, 0, 0], "3 indices are too many for a tensor of 2 dims."),
    "a list": (lambda: X[[0, 1]], "A view takes numbers, slices, None and '...'"),
    "nothing": (lambda: X[1:1], "has no elements to lay out."),
    "backwards": (lambda: X[::-1], "positive step"),
    "a bad permutation": (lambda: X.permute(0, 0), "permute takes each of the 2 dims once"),
    "no view": (lambda: X.t().view(210), "has no view of [210]; reshape copies it."),
    "another size": (lambda: X.view(211), "has no shape [211]: it has 210 elements."),
    "an expansion": (lambda: X.expand(4, 70), "does not expand to [4, 70]."),
    "another device": (lambda: X.to("cuda"), "must be 'cpu', or 'spyre' for another layout"),
    "two places": (lambda: X + np.zeros((3, 70), np.float16), "requires all tensors on the device"),
    "no tensor": (lambda: spyre_mlir.restickify(cast(Any, [3]), [0]), "Only a tensor on the device is restickified"),
    "no dtype": (lambda: spyre_mlir.zeros(3, dtype="float64"), "float64 is not supported by the device"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    action, words = REFUSED[case]
    with pytest.raises(CompileError) as raised:
        action()
    assert words in raised.value.message and raised.value.message.endswith(".")


def test_strided_views_of_scalars():
    assert StridedView.whole(()).view((1, 1)) == StridedView((1, 1), (1, 1))


@pytest.mark.parametrize("seed", range(100))
def test_steps_lead_to_a_view(seed):
    """View operations that are derived from sizes and strides read the same elements."""
    rng = random.Random(seed)
    whole = numbers(rng, rng.choice(SHAPES), torch.float32)
    x = whole
    for _ in range(4):
        name, arguments = random_view(rng, x)
        with contextlib.suppress(RuntimeError, ValueError, IndexError):
            view = viewed(x, name, arguments)
            x = view if view.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr() else x
    made = whole
    for step in steps_to(whole.shape, StridedView(tuple(x.shape), x.stride(), x.storage_offset())):
        made = overload_of(step.name)(made, *step.arguments)
    assert made.shape == x.shape and torch.equal(made, x)


@pytest.mark.parametrize("shape", [(1, 8, 4, 4), (2, 1, 4, 4), (1, 8, 1, 16), (1, 1, 2, 3), (2, 8, 4, 4)])
def test_dims_of_one_element_keep_their_strides(shape: tuple[int, ...]):
    """PyTorch recognizes an image in channels-last order by all of its strides."""
    image = torch.zeros(shape).to(memory_format=torch.channels_last)
    tensor = image.to("spyre").device_tensor
    replayed = torch.zeros(tensor.storage.shape)
    for step in tensor.steps:
        replayed = overload_of(step.name)(replayed, *step.arguments)
    assert replayed.stride() == image.stride()
