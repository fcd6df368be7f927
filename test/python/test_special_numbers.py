# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""NaN, infinities and zeros of both signs: comparisons, selections and extremes have the semantics of the program."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pytest
import torch

import spyre_mlir
from spyre_mlir.errors import CompileError
from spyre_mlir.target.ops import DL16, DeviceOp, Kind, define

INF, NAN = float("inf"), float("nan")
NUMBERS = np.array([0.0, -0.0, 1.0, -1.5, INF, -INF, NAN], np.float16)
FIRST, SECOND = (grid.reshape(-1) for grid in np.meshgrid(NUMBERS, NUMBERS))

#: Predicates of arith.cmpf.
PREDICATES = "oeq ogt oge olt ole one ord ueq ugt uge ult ule une uno".split()


def _expected(predicate: str) -> np.ndarray:
    """Truth of a predicate; ordered ones are false for NaN, and unordered ones true."""
    nan = np.isnan(FIRST) | np.isnan(SECOND)
    if predicate in ("ord", "uno"):
        return nan == (predicate == "uno")
    compare: Callable = getattr(operator, predicate[1:])
    return np.where(nan, predicate[0] == "u", compare(FIRST, SECOND))


def _elementwise(body: str, element: str = "f16") -> str:
    size = len(FIRST)
    return f"""
#id = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<{size}xf16>, %y: tensor<{size}xf16>) -> tensor<{size}x{element}> {{
  %e = tensor.empty() : tensor<{size}x{element}>
  %0 = linalg.generic {{indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}}
      ins(%x, %y : tensor<{size}xf16>, tensor<{size}xf16>) outs(%e : tensor<{size}x{element}>) {{
  ^bb0(%a: f16, %b: f16, %o: {element}):
    {body}
    linalg.yield %r : {element}
  }} -> tensor<{size}x{element}>
  return %0 : tensor<{size}x{element}>
}}
"""


@pytest.mark.parametrize("predicate", PREDICATES)
def test_a_predicate_is_itself_for_nan(predicate):
    program = spyre_mlir.compile(_elementwise(f"%r = arith.cmpf {predicate}, %a, %b : f16", "i1"))
    assert np.array_equal(program(FIRST, SECOND), _expected(predicate))


@pytest.mark.parametrize("predicate", PREDICATES)
def test_a_choice_by_a_predicate(predicate):
    body = f"%c = arith.cmpf {predicate}, %a, %b : f16\n    %r = arith.select %c, %a, %b : f16"
    program = spyre_mlir.compile(_elementwise(body))
    expected = np.where(_expected(predicate), FIRST, SECOND)
    assert np.array_equal(program(FIRST, SECOND), expected, equal_nan=True)


@pytest.mark.parametrize("name, function", [
    ("maximumf", np.maximum), ("minimumf", np.minimum), ("maxnumf", np.fmax), ("minnumf", np.fmin),
])  # fmt: skip
def test_extremes_with_nan_and_without(name, function):
    program = spyre_mlir.compile(_elementwise(f"%r = arith.{name} %a, %b : f16"))
    assert np.array_equal(program(FIRST, SECOND), function(FIRST, SECOND), equal_nan=True)


@pytest.mark.parametrize("name, begin, function", [
    ("maximumf", "0xFC00", np.max), ("maxnumf", "0xFC00", np.nanmax), ("minnumf", "0x7C00", np.nanmin),
])  # fmt: skip
def test_a_reduction_with_nan_and_without(name, begin, function):
    program = spyre_mlir.compile(f"""
func.func @main(%x: tensor<4x64xf16>) -> tensor<4xf16> {{
  %c = arith.constant {begin} : f16
  %e = tensor.empty() : tensor<4xf16>
  %f = linalg.fill ins(%c : f16) outs(%e : tensor<4xf16>) -> tensor<4xf16>
  %r = linalg.reduce {{ arith.{name} }} ins(%x : tensor<4x64xf16>) outs(%f : tensor<4xf16>) dimensions = [1]
  return %r : tensor<4xf16>
}}
""")
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float16)
    x[0, 3] = x[2, 5] = NAN
    assert np.array_equal(program(x), function(x, 1), equal_nan=True)


CHOICES = {
    "a > b": lambda a, b: torch.where(a > b, a, b),
    "a < b": lambda a, b: torch.where(a < b, b, a),
    "a >= b": lambda a, b: torch.where(a >= b, a, b),
    "smaller": lambda a, b: torch.where(a > b, b, a),
    "guard by 0": lambda a, b: torch.where(a > 0, a, 0.0) + torch.where(b < 0, 0.0, b),
    "guard by a limit": lambda a, b: torch.where(a < 2.0, a, 2.0) - torch.where(b > -1.0, b, -1.0),
    "leaky": lambda a, b: torch.where(a > 0, a, a * 0.25) * torch.where(b >= 0, b, b * 0.5),
    "clamp": lambda a, b: torch.clamp(a, -1.0, 1.0) + torch.clamp(b, min=0.5),
    "clamp by NaN": lambda a, b: torch.clamp(a, NAN, 1.0) + torch.clamp(b, -1.0, NAN),
    "hardtanh by NaN": lambda a, b: torch.nn.functional.hardtanh(a, NAN, 1.0),
    "hardtanh to infinity": lambda a, b: torch.nn.functional.hardtanh(a, -1.0, INF),
    "clamp by tensors": lambda a, b: torch.clamp(a, b, b + 1),
    "relu6": lambda a, b: torch.nn.functional.relu6(a) - torch.relu(b),
    "leaky_relu of slope 0": lambda a, b: torch.nn.functional.leaky_relu(a, 0.0) + torch.minimum(a, b),
    "fmax": lambda a, b: torch.fmax(a, b) - torch.fmin(a, b),
    "max": lambda a, b: torch.maximum(a, b) * 2,
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_choices_and_extremes_from_pytorch(name, dtype):
    """A guard by a comparison removes NaN, and extremes keep it."""
    a, b = torch.from_numpy(FIRST).to(dtype), torch.from_numpy(SECOND).to(dtype)
    result = spyre_mlir.compile(CHOICES[name], (a, b))(a, b)
    torch.testing.assert_close(result, CHOICES[name](a, b), rtol=0, atol=0, equal_nan=True)


#: Activations with a number that multiplies one side of a choice.
SCALED = {
    "leaky_relu": lambda x, number: torch.nn.functional.leaky_relu(x, number),
    "elu": lambda x, number: torch.nn.functional.elu(x, number),
    "celu": lambda x, number: torch.nn.functional.celu(x, number),
    "rrelu": lambda x, number: torch.nn.functional.rrelu(x, number, number),
    "prelu": lambda x, number: torch.nn.functional.prelu(x, torch.full((1,), number, dtype=x.dtype)),
    "where": lambda x, number: torch.where(x > 0, x, x * number),
}


#: Numbers that PyTorch refuses for an activation.
REFUSED = {("celu", 0.0), ("rrelu", INF), ("rrelu", -INF), ("rrelu", NAN)}


@pytest.mark.parametrize("number", [INF, -INF, NAN, 0.0, -0.0], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", SCALED)
def test_a_number_scales_only_its_side_of_a_choice(name, dtype, number):
    """0 * infinity on the other side is not computed."""
    if (name, number) in REFUSED:
        pytest.skip("PyTorch refuses the number.")
    x = torch.from_numpy(NUMBERS).to(dtype)
    expected = SCALED[name](x, number)
    result = spyre_mlir.compile(lambda x: SCALED[name](x, number), (x,))(x)
    torch.testing.assert_close(result, expected, equal_nan=True)
    is_zero = expected == 0
    assert torch.equal(result[is_zero].signbit(), expected[is_zero].signbit())


@pytest.mark.parametrize("written", [
    ("where3", ("greaterthan", "x", 0.0), "x", 0.0),
    ("mul", "x", ("greaterthan", "x", 0.0)),
])  # fmt: skip
def test_a_written_form_of_the_table_is_to_agree_for_nan_and_infinities(written):
    op = DeviceOp(
        "ramp", Kind.POINTWISE, ("x",), ("maximum", "x", 0.0), (DL16,), written=((written, {}),)
    )  # fmt: skip
    with pytest.raises(CompileError, match="'ramp' gives other numbers than its written form"):
        define(op)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_the_norm_of_one_number_is_its_size(dtype):
    """The square of the number overflows."""
    largest = torch.finfo(dtype).max
    x = torch.tensor([[largest], [-largest], [INF], [NAN], [-0.0], [1e-7]]).to(dtype)

    def model(x):
        return torch.linalg.vector_norm(x, dim=1), x.norm(3, 1), torch.nn.functional.normalize(x, dim=1)

    for got, expected in zip(spyre_mlir.compile(model, (x,))(x), model(x), strict=True):
        torch.testing.assert_close(got, expected, equal_nan=True)
