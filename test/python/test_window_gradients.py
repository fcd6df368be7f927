# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of convolutions, poolings and interpolations, against those of PyTorch in f64, and where they run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import spyre_mlir

aten = torch.ops.aten

#: Layers with the shape of their input.
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "dense": (lambda: nn.Conv2d(8, 8, 3, padding=1), (2, 8, 9, 9)),
    "patches": (lambda: nn.Conv2d(3, 16, 4, stride=4), (2, 3, 16, 16)),
    "groups": (lambda: nn.Conv2d(8, 8, 3, padding=1, groups=4), (2, 8, 9, 9)),
    "groups, dilated": (lambda: nn.Conv2d(8, 8, 3, padding=2, groups=2, dilation=2), (2, 8, 9, 9)),
    "depthwise": (lambda: nn.Conv2d(8, 8, 3, padding=1, groups=8), (2, 8, 9, 9)),
    "depthwise, rest of a step": (lambda: nn.Conv2d(8, 8, 3, stride=2, groups=8), (2, 8, 10, 10)),
    "depthwise, two features": (lambda: nn.Conv2d(8, 16, 3, 2, 1, groups=8), (2, 8, 9, 9)),
    "one dim": (lambda: nn.Conv1d(8, 16, 4, stride=3, groups=2), (2, 8, 20)),
    "three dims": (lambda: nn.Conv3d(4, 4, 2, groups=2), (1, 4, 4, 5, 4)),
    "transposed": (lambda: nn.ConvTranspose2d(8, 4, 3, stride=2), (2, 8, 9, 9)),
    "transposed, groups": (lambda: nn.ConvTranspose2d(8, 8, 3, 2, 1, 1, groups=4), (2, 8, 5, 5)),
    "transposed, one dim": (lambda: nn.ConvTranspose1d(8, 4, 4, stride=2, padding=1), (2, 8, 9)),
    "average": (lambda: nn.AvgPool2d(3, 2, 1), (2, 8, 9, 9)),
    "average of what is there": (
        lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), (2, 8, 10, 8)
    ),
    "average, another divisor": (lambda: nn.AvgPool2d((2, 3), divisor_override=5), (2, 8, 10, 9)),
    "average, one dim": (lambda: nn.AvgPool1d(2), (2, 8, 10)),
    "average, three dims": (lambda: nn.AvgPool3d(2), (1, 4, 4, 4, 6)),
    "average of unequal windows": (lambda: nn.AdaptiveAvgPool2d((3, 2)), (2, 8, 7, 7)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_layers(name: str) -> None:
    """Input and parameters of a layer under torch.compile; nothing runs on the host."""
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    layer = make().half()
    exact, x = copy.deepcopy(layer).double(), torch.randn(shape).half()
    torch._dynamo.reset()
    gradients = []
    for module, call in ((layer, torch.compile(layer, backend=spyre_mlir.torch_backend)), (exact, exact)):
        value = (x.clone() if module is layer else x.double()).detach().requires_grad_()
        (call(value) ** 2).sum().backward()
        gradients.append([value.grad, *(parameter.grad for parameter in module.parameters())])
    for found, expected in zip(*gradients, strict=True):
        scale = float(expected.abs().max())
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=2**-8 * scale)
    backward = spyre_mlir.torch_backend.programs[-1]
    assert not [step for step in backward.steps if step.name.startswith("host")]


def check_form(function: Callable[..., Any], *arguments: Any) -> None:
    """An operation in f16 has a form on the device, with the results of f64."""
    program = spyre_mlir.compile(lambda grad: function(grad, *arguments[1:]), arguments[:1])
    expected = function(arguments[0].double(), *arguments[1:])
    result = program(arguments[0])
    torch.testing.assert_close(result.double(), expected, rtol=2**-8, atol=2**-7)
    assert len(program.steps) == 1 and program.steps[0].name.startswith("device")


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("size", [(10, 15), (7, 5), (5, 8)])
def test_gradients_of_linear_interpolation(size: tuple[int, int], corners: bool) -> None:
    grad = torch.randn(2, 8, *size).half()
    check_form(aten.upsample_bilinear2d_backward.default, grad, size, [2, 8, 5, 5], corners)


def test_gradients_of_repeated_elements() -> None:
    grad = torch.randn(2, 8, 10, 15).half()
    check_form(aten.upsample_nearest2d_backward.default, grad, [10, 15], [2, 8, 5, 5])
