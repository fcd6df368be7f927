# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that the device does not have, on every number of 16 bits: at most 3 units in the last place off."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import spyre_mlir
from spyre_mlir.passes.expand_scalar_functions import EXPANSIONS
from spyre_mlir.target.expressions import SCALARS, applications_of
from spyre_mlir.target.ops import DEVICE_OPS

#: Every number of fp16, infinities and NaN too.
NUMBERS = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.float16).reshape(256, 256)


def _ordered(numbers: torch.Tensor) -> torch.Tensor:
    """Integers in the order of fp16 numbers, one for each; both zeros are 0."""
    bits = numbers.half().view(torch.int16).int()
    return torch.where(bits < 0, -(1 << 15) - bits, bits)


# Numbers leave the range of the format; test_range.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.RangeWarning")
@pytest.mark.parametrize("name", EXPANSIONS)
@pytest.mark.parametrize("numerics", ["ieee", "dl16"])
def test_every_number(name: str, numerics: str) -> None:
    """In fp16 as good as rounding each of a few steps can be; so in DL16, of the numbers that it has, in its units."""
    function = getattr(torch, name)
    program = spyre_mlir.compile(function, (NUMBERS,), numerics=numerics)
    assert [step.name for step in program.steps] == ["device_0"]
    result, exact = program(NUMBERS), function(NUMBERS.double()).half()
    # DL16 has one bit less; other tests cover the numbers below its smallest number.
    is_number = (NUMBERS.view(torch.int16) & 1 == 0) & (NUMBERS.abs() > 1e-3) & (exact.abs() > 1e-3)
    is_compared = exact.isfinite() & (is_number | (numerics == "ieee"))
    units = (_ordered(result) - _ordered(exact)).abs()[is_compared]
    assert units.max() <= (3 if numerics == "ieee" else 2 * 3)
    if numerics == "ieee":
        same = (result == exact) | (result.isnan() & exact.isnan())
        assert same[~exact.isfinite()].all()


@pytest.mark.parametrize("name", EXPANSIONS)
def test_expansions_are_of_what_the_device_has(name: str) -> None:
    assert name in SCALARS and name not in DEVICE_OPS
    assert all(function in DEVICE_OPS for function, *_ in applications_of(EXPANSIONS[name]))


def test_a_fused_operation_comes_first() -> None:
    """softplus is one operation of the device, although it is a log1p."""
    summary = spyre_mlir.compile(F.softplus, (NUMBERS[:64],)).summary()
    assert "1 softplus" in summary and "realdiv" not in summary


# A part of the program runs on the host; test_host_work_warning.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_f32_stays_with_the_host() -> None:
    """The device does not have a logarithm in f32, and 16-bit steps would not have the requested precision."""
    program = spyre_mlir.compile(torch.log1p, (NUMBERS[:4].float(),))
    assert [step.name for step in program.steps] == ["host_0"]


# A part of the program runs on the host; test_host_work_warning.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
@pytest.mark.parametrize("eps", [None, 0.125, 1e-6])
def test_logit(eps: float | None) -> None:
    x = (
        torch.cat([torch.linspace(0, 1, 1024), 0.5 + torch.linspace(-0.01, 0.01, 1024)])
        .half()
        .reshape(32, 64)
    )
    result = spyre_mlir.compile(lambda x: torch.logit(x, eps), (x,))(x)
    exact = torch.logit(x.double(), eps)
    np.testing.assert_allclose(result.double(), exact, rtol=3e-3, atol=2e-6)


def test_xlogy() -> None:
    x = torch.tensor([[0.0, 0.0, 0.0, 2.0, -1.5, float("nan")]]).half()
    y = torch.tensor([[0.0], [1.5], [float("nan")], [float("inf")], [-1.0]]).half()
    result = spyre_mlir.compile(torch.xlogy, (x, y))(x, y)
    np.testing.assert_allclose(result.double(), torch.xlogy(x.double(), y.double()), rtol=2e-3)
