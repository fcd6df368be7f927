# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batch norms folded into convolutions: fewer operations, the same numbers."""

from __future__ import annotations

import copy

import torch
from programs import check_close
from torch import Tensor, nn

import spyre_mlir
from spyre_mlir.dialects import context
from spyre_mlir.frontend import import_torch


class Normed(nn.Module):
    """A convolution, a batch norm with separate statistics, and an operation after them."""

    def __init__(self, convolution: nn.Module, channels: int) -> None:
        super().__init__()
        self.convolution, self.norm = convolution, nn.BatchNorm2d(channels)
        for data in (self.norm.weight, self.norm.bias, self.norm.running_mean):
            assert isinstance(data, Tensor)
            nn.init.normal_(data)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.convolution(x)))


class ReadTwice(Normed):
    def forward(self, x: Tensor) -> Tensor:
        y = self.convolution(x)
        return self.norm(y) + y


def _names(model: nn.Module, x: Tensor) -> list[str]:
    return [argument.name for argument in import_torch(model, (x,), context=context()).arguments]


def _check(model: nn.Module, x: Tensor) -> spyre_mlir.Program:
    model = model.eval().half()
    program = spyre_mlir.compile(copy.deepcopy(model), (x,))
    check_close("folded", program(x), model, (x,))
    return program


def test_a_batch_norm_takes_no_operation():
    torch.manual_seed(9)
    x = torch.randn(1, 16, 5, 7).half()
    program = _check(Normed(nn.Conv2d(16, 24, 1), 24), x)
    opcodes = {opcode for opcode, *_ in program.traffic().by_op}
    assert opcodes - {"ReStickifyOpHBM"} == {"batchmatmul", "add", "relufwd"}


def test_groups_have_a_scale_per_output_channel():
    torch.manual_seed(9)
    x = torch.randn(2, 16, 5, 7).half()
    model = Normed(nn.Conv2d(16, 32, 1, groups=2, bias=False), 32)
    _check(model, x)
    assert _names(model, x) == ["x", "convolution.weight.folded", "convolution.weight.folded_bias"]


def test_a_convolution_that_is_read_twice_stays():
    model = ReadTwice(nn.Conv2d(16, 16, 1, bias=False), 16).eval().half()
    assert "convolution.weight" in _names(model, torch.randn(1, 16, 5, 7).half())


def test_parameters_that_a_call_gives_are_not_folded():
    norm = nn.BatchNorm2d(16).eval().half()

    def model(x: Tensor, weight: Tensor) -> Tensor:
        return norm(torch.nn.functional.conv2d(x, weight))

    x, weight = torch.randn(1, 16, 5, 7).half(), nn.Parameter(torch.randn(16, 16, 1, 1).half())
    names = [each.name for each in import_torch(model, (x, weight), context=context()).arguments]
    assert "weight" in names and not [name for name in names if "folded" in name]
