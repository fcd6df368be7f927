# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions and poolings from PyTorch to numbers.

Most inputs and weights are small integers, whose sums fp16 holds exactly, whatever the order of the taps: any
difference from float64 is an element in the wrong place or a lost one.
"""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from programs import Apply, check_close
from torch import Tensor, nn

import spyre_mlir
from spyre_mlir.bundle.validate import validate


def whole_numbers(model: nn.Module, *shape: int, seed: int = 0) -> tuple[nn.Module, Tensor]:
    """The model for inference with weights of -1, 0 and 1, and an input of them."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in model.parameters():
        tensor.data = torch.randint(-1, 2, tensor.shape, generator=generator).float()
    return model.half().eval(), torch.randint(-1, 2, shape, generator=generator).half()


def check_exact(model: nn.Module, x: Tensor, **options) -> spyre_mlir.Program:
    """Compile with all checks of the levels, validate, and run: the numbers equal the float64 numbers."""
    program = spyre_mlir.compile(model, (x,), verify_each=True, **options)
    assert not (findings := validate(program.bundle)), "\n".join(map(str, findings))
    result = program(x)
    with torch.no_grad():
        exact = model.double()(x.double())
    model.half()
    assert exact.abs().max() <= 2048, "the sums are not exact in fp16"
    assert result.shape == exact.shape
    wrong = (result.double() != exact).sum().item()
    assert not wrong, f"{wrong} of {exact.numel()} elements are wrong"
    return program


CASES = {
    "3x3": (nn.Conv2d(64, 64, 3, padding=1), (1, 64, 7, 9)),
    "1x1": (nn.Conv2d(64, 32, 1), (1, 64, 5, 7)),
    "1x1_batch": (nn.Conv2d(64, 65, 1), (3, 64, 5, 7)),
    "1x1_stride": (nn.Conv2d(64, 32, 1, stride=2, bias=False), (1, 64, 7, 7)),
    "stride_of_3_in_room_for_64": (nn.Conv2d(130, 4, 3, stride=3, groups=2), (1, 130, 9, 9)),
    "no_pad": (nn.Conv2d(64, 64, 3, bias=False), (1, 64, 6, 8)),
    "stride": (nn.Conv2d(64, 64, 3, padding=1, stride=2), (1, 64, 9, 8)),
    "dilation": (nn.Conv2d(64, 64, 3, padding=2, dilation=2), (1, 64, 7, 8)),
    "asymmetric": (nn.Conv2d(65, 33, (2, 5), padding=(1, 2), stride=(1, 2)), (1, 65, 6, 11)),
    "batch": (nn.Conv2d(64, 32, 3, padding=1), (3, 64, 5, 6)),
    "batch_stride": (nn.Conv2d(64, 32, 3, padding=1, stride=2), (2, 64, 7, 9)),
    "patches": (nn.Conv2d(3, 65, 16, stride=16), (1, 3, 48, 32)),
    "patches_of_a_batch": (nn.Conv2d(3, 32, (8, 4), stride=(8, 4), bias=False), (3, 3, 40, 12)),
    "patches_beside_sticks": (nn.Conv2d(2, 16, 6, stride=6), (1, 2, 12, 18)),
    "patches_of_the_whole": (nn.Conv2d(3, 16, 4, stride=4), (2, 3, 4, 4)),
    "few_channels": (nn.Conv2d(3, 16, 3, padding=1), (2, 3, 8, 8)),
    "one_channel": (nn.Conv2d(1, 16, 3, padding=1), (1, 1, 8, 8)),
    "one_output": (nn.Conv2d(64, 1, 3, padding=1), (1, 64, 6, 6)),
    "groups_of_64": (nn.Conv2d(128, 128, 3, padding=1, groups=2), (1, 128, 5, 6)),
    "groups_of_16": (nn.Conv2d(64, 32, 3, padding=1, groups=4), (2, 64, 5, 6)),
    "depthwise": (nn.Conv2d(96, 96, 3, padding=1, groups=96), (1, 96, 7, 6)),
    "depthwise_batch_stride": (nn.Conv2d(64, 64, 3, padding=1, stride=2, groups=64), (2, 64, 7, 7)),
    "depthwise_multiplier": (nn.Conv2d(64, 128, 3, padding=1, groups=64), (1, 64, 5, 5)),
    "1d": (nn.Conv1d(64, 64, 5, padding=2), (2, 64, 33)),
    "1d_causal_depthwise": (nn.Conv1d(64, 64, 4, padding=3, groups=64), (1, 64, 17)),
    "3d": (nn.Conv3d(64, 32, (2, 3, 1)), (2, 64, 4, 5, 6)),
    "max_pool": (nn.MaxPool2d(3, stride=2, padding=1), (2, 64, 9, 9)),
    "max_pool_2": (nn.MaxPool2d(2), (1, 65, 8, 8)),
    "avg_pool_2": (nn.AvgPool2d(2), (1, 64, 8, 8)),
    "avg_pool_global": (nn.AdaptiveAvgPool2d(1), (2, 64, 4, 4)),
}  # fmt: skip


@pytest.mark.parametrize("native", (True, False))
@pytest.mark.parametrize("name", CASES)
def test_convolutions_are_exact(name, native):
    """Strides, padding, dilation, groups, batches; one, two and three dims; poolings."""
    model, shape = CASES[name]
    check_exact(*whole_numbers(model, *shape), sencores=4, native_windows=native)


@pytest.mark.parametrize("cores", (1, 32))
@pytest.mark.parametrize("name", ("3x3", "batch", "groups_of_64", "depthwise"))
def test_any_number_of_cores(name, cores):
    """The numbers are right on one core, and on all cores."""
    model, shape = CASES[name]
    check_exact(*whole_numbers(model, *shape), sencores=cores)


@pytest.mark.parametrize("native", (True, False))
@pytest.mark.parametrize("seed", range(12))
def test_random_convolutions_are_exact(seed, native):
    """Any kernel, stride, dilation, padding, groups and batch."""
    rng = random.Random(seed)
    groups = rng.choice((1, 1, 2, 4))
    kernel = (rng.randint(1, 4), rng.randint(1, 4))
    dilation = (rng.randint(1, 2), rng.randint(1, 2))
    model = nn.Conv2d(
        groups * rng.choice((1, 3, 16, 64, 65)),
        groups * rng.choice((1, 2, 32, 64)),
        kernel,
        stride=(rng.randint(1, 3), rng.randint(1, 3)),
        padding=(rng.randint(0, kernel[0]), rng.randint(0, kernel[1])),
        dilation=dilation,
        groups=groups,
        bias=rng.random() < 0.5,
    )
    least = [step * (size - 1) + 1 for step, size in zip(dilation, kernel, strict=True)]
    shape = (rng.randint(1, 3), model.in_channels, *(size + rng.randint(0, 7) for size in least))
    cores = rng.choice((1, 3, 8, 32))
    check_exact(*whole_numbers(model, *shape, seed=seed), sencores=cores, native_windows=native)


class Residual(nn.Module):
    """Two 3x3 convolutions with norms, and a sum with their input: the block of a ResNet."""

    def __init__(self, channels: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, outputs, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(_norm(outputs) for _ in range(2))
        same = stride == 1 and channels == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2d(channels, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(y)) + self.shortcut(x))


def _norm(channels: int) -> nn.BatchNorm2d:
    """A norm as after training."""
    norm, state = nn.BatchNorm2d(channels), {}
    for name in ("running_mean", "bias"):
        state[name] = torch.randn(channels) * 0.3
    for name in ("running_var", "weight"):
        state[name] = torch.rand(channels) + 0.5
    norm.load_state_dict(state, strict=False)
    return norm


BLOCKS = {
    "same": (lambda: Residual(64, 64), (1, 64, 12, 12)),
    "batch": (lambda: Residual(64, 64), (2, 64, 7, 7)),
    "down": (lambda: Residual(64, 128, stride=2), (1, 64, 12, 12)),
    "stem": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), _norm(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        ),
        (1, 3, 32, 32),
    ),
    "head": (
        lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
        (2, 64, 7, 7),
    ),
    "mobile": (
        lambda: nn.Sequential(
            nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False),
            _norm(64),
            nn.ReLU6(),
            nn.Conv2d(64, 128, 1),
        ),
        (1, 64, 9, 9),
    ),
    "average": (lambda: nn.AvgPool2d(3, 2, padding=1), (1, 64, 9, 9)),
}


@pytest.mark.parametrize(
    ("name", "cores"),
    [*((name, 4) for name in BLOCKS), ("same", 1), ("same", 32), ("down", 32), ("stem", 32)],
)
def test_blocks_are_as_good_as_pytorch(name, cores):
    """Partial sums that are rounded after each tap stay within the tolerance of other operations."""
    torch.manual_seed(0)
    make, shape = BLOCKS[name]
    model, x = make().half().eval(), torch.randn(shape).half()
    program = spyre_mlir.compile(model, (x,), sencores=cores, verify_each=True)
    check_close(name, program(x), model, (x,))


def test_bit_true_numbers():
    """A block in the device's own format, whose mantissa is a bit shorter."""
    torch.manual_seed(0)
    model, x = Residual(64, 64).half().eval(), torch.randn(1, 64, 6, 6).half()
    program = spyre_mlir.compile(model, (x,), sencores=4, numerics="dl16")
    check_close("dl16", program(x), model, (x,), floor=4e-3)


def test_an_input_is_converted_once():
    """Nine taps are slices of one padded tensor with its channels in the stick."""
    model, x = whole_numbers(nn.Conv2d(64, 64, 3, padding=1), 1, 64, 14, 14)
    program = check_exact(model, x, sencores=32, native_windows=False, argument_layouts="default")
    operations = [each.opcode for each in program.bundle.designs.values()]
    assert operations.count("ReStickifyOpHBM") == 1
    conversions = [remark for remark in program.remarks if remark.kind in ("restickify", "copy")]
    assert len(conversions) == 1


def test_patches_are_one_matmul():
    """Patches of a vision transformer, also of a batch: the host cuts them out, and nothing is converted or copied."""
    for batch in (1, 2):
        program = check_exact(*whole_numbers(nn.Conv2d(3, 64, 16, stride=16, bias=False), batch, 3, 224, 32))
        assert [opcode for opcode, *_ in program.traffic().by_op] == ["batchmatmul"]


def test_patches_of_what_is_computed_are_slices():
    """The host has them no more."""
    model = nn.Sequential(nn.ReLU(), nn.Conv2d(64, 32, 2, stride=2, bias=False))
    program = check_exact(*whole_numbers(model, 1, 64, 6, 4), native_windows=False)
    assert [opcode for opcode, *_ in program.traffic().by_op].count("batchmatmul") == 4


TRANSPOSED = {
    "parts side by side": (nn.ConvTranspose2d(64, 32, 2, 2), (1, 64, 6, 5)),
    "parts of sticks": (nn.ConvTranspose2d(32, 64, (2, 3), (2, 3), bias=False), (2, 32, 4, 5)),
    "overlapping": (nn.ConvTranspose2d(17, 64, 4, 2, 1), (2, 17, 5, 6)),
    "rows behind": (nn.ConvTranspose2d(64, 32, 3, 2, 1, output_padding=1), (1, 64, 5, 6)),
    "groups": (nn.ConvTranspose2d(64, 32, 3, 2, 1, groups=2), (1, 64, 5, 6)),
    "one dim": (nn.ConvTranspose1d(64, 32, 4, 4), (2, 64, 9)),
    "dilated": (nn.ConvTranspose2d(64, 32, 3, 1, 0, dilation=2), (1, 64, 5, 6)),
    "more padding than kernel": (nn.ConvTranspose2d(64, 32, 2, 1, 2), (1, 64, 7, 6)),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolutions_are_exact(name):
    """A transposed convolution is a matmul with pixels side by side, or uses an image with zeros between its pixels."""
    model, shape = TRANSPOSED[name]
    program = check_exact(*whole_numbers(model, *shape), sencores=4)
    assert program.is_one_bundle


def test_a_convolution_over_mirrored_borders_runs_on_the_device():
    model = nn.Conv2d(64, 32, 3, padding=1, padding_mode="reflect")
    assert check_exact(*whole_numbers(model, 1, 64, 8, 8)).is_one_bundle


class WeightGradient(nn.Module):
    """The gradient of the weight of a convolution: its kernel is the gradient of the result."""

    def forward(self, gradient: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        sizes = [0], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [False, True, False]
        return torch.ops.aten.convolution_backward(gradient, x, weight, *sizes)[1]


@pytest.mark.parametrize("shape", [(1, 8, 16, 10), (2, 5, 7, 9)], ids=str)
def test_the_gradient_of_a_weight_is_a_matmul_per_position_of_the_weight(shape: tuple[int, ...]):
    """The number of matmuls does not depend on the thousands of positions of the image; each sum is one operation."""
    count, channels, features, size = shape
    generator = torch.Generator().manual_seed(1)
    shapes = (count, features, size, size), (count, channels, size, size), (features, channels, 3, 3)
    gradient, x, weight = (torch.randint(-1, 2, each, generator=generator).half() for each in shapes)
    program = spyre_mlir.compile(WeightGradient().eval(), (gradient, x, weight), verify_each=True, sencores=4)
    assert not validate(program.bundle)
    result = program(gradient, x, weight)
    exact = WeightGradient()(gradient.double(), x.double(), weight.double())
    assert (result.double() == exact).all()
    assert [opcode for opcode, *_ in program.traffic().by_op].count("batchmatmul") == 9


def test_a_window_of_thousands_of_positions_is_for_the_host():
    """A device form would need one operation per position; the remark reports this."""
    model, x = whole_numbers(nn.Conv2d(2, 2, 24, groups=2, bias=False), 1, 2, 50, 50)
    with pytest.warns(spyre_mlir.HostWorkWarning, match="a window of 576 positions"):
        program = spyre_mlir.compile(model, (x,), sencores=2, native_windows=False)
    assert any("a window of 576 positions" in remark.reason for remark in program.remarks)
    assert (program(x).double() == model.double()(x.double())).all()


POOLS = {
    "3d": (lambda x: F.max_pool3d(x, 3, 2, 1), (2, 8, 6, 7, 8), "maximum", 9 - 3),
    "2d by single steps": (lambda x: F.max_pool2d(x, 9, 1, 4), (1, 65, 11, 9), "maximum", 18 - 2),
    "steps that go past the end": (lambda x: F.max_pool2d(x, (4, 5), 2), (1, 8, 11, 13), "maximum", 9 - 2),
    "dilated": (lambda x: F.max_pool2d(x, 3, 1, 1, dilation=2), (1, 8, 9, 10), "maximum", 6 - 2),
    "minima": (lambda x: -F.max_pool2d(-x, 3, 1), (1, 8, 7, 6), "maximum", 6 - 2),
    "hundreds of positions": (lambda x: F.max_pool2d(x, 24, 1), (1, 2, 26, 25), "maximum", 48 - 2),
    "means": (lambda x: F.avg_pool2d(x, 4, 1) * 16, (1, 8, 7, 6), "add", 8 - 2),
    "means in 3d": (lambda x: F.avg_pool3d(x, 4, 1) * 64, (1, 8, 5, 6, 7), "add", 12 - 3),
}


@pytest.mark.parametrize("name", POOLS)
def test_poolings_that_overlap_are_reduced_dim_by_dim(name: str):
    """An operation less than positions for each dim, and not one per position of the kernel."""
    function, shape, opcode, count = POOLS[name]
    x = torch.randint(-8, 8, shape, generator=torch.Generator().manual_seed(1)).half()
    program = check_exact(Apply(function).eval(), x, sencores=4, native_windows=False)
    assert [each.opcode for each in program.bundle.designs.values()].count(opcode) == count


def test_poolings_side_by_side_are_reduced_tap_by_tap():
    """Dim by dim they would compute more."""
    x = torch.randint(-8, 8, (1, 8, 8, 8)).half()
    program = check_exact(Apply(lambda x: F.max_pool2d(x, 2)).eval(), x, sencores=4, native_windows=False)
    assert [each.opcode for each in program.bundle.designs.values()].count("maximum") == 3
