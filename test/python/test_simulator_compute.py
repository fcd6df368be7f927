# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every device operation against an independent float64 expression."""

import math

import numpy as np
import pytest

from spyre_mlir.simulator.plan import Work, combine_partials, compute
from spyre_mlir.target.expressions import erf
from spyre_mlir.target.formats import Numerics
from spyre_mlir.target.ops import DEVICE_OPS, DL16, Kind

RNG = np.random.default_rng(7)
A, B, C = (RNG.uniform(-3, 3, (5, 7)) for _ in "abc")
A[0, :3], B[0, :3], C[0, :4] = (0, 1, -2), (1, 1, -2), 0
POSITIVE = np.abs(A) + 0.5

each = np.vectorize
UNARY = {
    "abs": abs,
    "neg": lambda x: -x,
    "exp": math.exp,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "relufwd": lambda x: max(x, 0.0),
    "floor": lambda x: float(math.floor(x)),
    "identity": lambda x: x,
    "tanh": math.tanh,
    "gelufwd": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "relu6fwd": lambda x: min(max(x, 0.0), 6.0),
    "mish": lambda x: x * math.tanh(math.log(1 + math.exp(x))),
    "ReStickifyOpHBM": lambda x: x,
    "dl16tofp32": lambda x: x,
    "fp32todl16": lambda x: x,
}
POSITIVE_UNARY = {
    "log": math.log,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: x**-0.5,
    "reciprocal": lambda x: 1 / x,
}
BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "revsub": lambda a, b: b - a,
    "mul": lambda a, b: a * b,
    "realdiv": lambda a, b: a / b,
    "maximum": max,
    "minimum": min,
    "equal": lambda a, b: float(a == b),
    "notequal": lambda a, b: float(a != b),
    "greaterequal": lambda a, b: float(a >= b),
    "lesserequal": lambda a, b: float(a <= b),
    "greaterthan": lambda a, b: float(a > b),
    "lesserthan": lambda a, b: float(a < b),
}
CONSTANT = {
    "clip": ({"clipMin": -1.0, "clipMax": 2.0}, lambda x: min(max(x, -1.0), 2.0)),
    "leakyrelufwd": ({"alpha": 0.25}, lambda x: x if x > 0 else 0.25 * x),
    "layernormscale": ({"eps": 4.0}, lambda x: (x + 4.0) ** -0.5),
    "softplus": (
        {"softplusBeta": 2.0, "softplusThresh": 3.0},
        lambda x: x if 2 * x > 3 else math.log(1 + math.exp(2 * x)) / 2,
    ),
}
REDUCTION = {
    "sum": ({}, lambda x: x.sum()),
    "max": ({}, lambda x: x.max()),
    "min": ({}, lambda x: x.min()),
    "absmax": ({}, lambda x: np.abs(x).max()),
    "prod": ({}, lambda x: x.prod()),
    "mean": ({"scaling_factor": 0.5}, lambda x: x.sum() / 2),
    "exx2_zeromean": ({"exx2scale": 0.25}, lambda x: (x**2).sum() / 4),
}
for _name in ("sum", "max", "min", "absmax", "mean"):
    REDUCTION[f"{_name}nonstick"] = REDUCTION[_name]
INTEGER = ("addi32toi32", "muli32toi32", "fp32toint32", "int32tofp32")
MATMULS = ("batchmatmul", "batchmatmulint8", "batchmatmulfp8")
WINDOWS = ("conv2d", "depthwiseconv2dnative", "avgpoolfwd", "maxpoolfwd")
# Casts, whose numbers equal their operand: the format of the result rounds them.
EIGHT_BITS = ("fp8todl16", "qfp8ch", "csqint8ch")
OTHER = ("where3", *MATMULS, "gather", *INTEGER, *EIGHT_BITS, *WINDOWS)
COMPUTING = {name for name, op in DEVICE_OPS.items() if op.kind is not Kind.RELAYOUT}


def check(opcode, operands, expected, work=None):
    numbers = [x.astype(np.float32) for x in operands]
    found = compute(opcode, numbers, work or Work())
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


def test_every_device_operation_is_tested_here():
    assert {*UNARY, *POSITIVE_UNARY, *BINARY, *CONSTANT, *REDUCTION, *OTHER} == COMPUTING


@pytest.mark.parametrize("opcode", ["fp8todl16", "qfp8ch"])
def test_casts_of_fp8_keep_their_numbers(opcode):
    """The format of the result rounds; an operation with a scale of 1 changes nothing."""
    numbers = np.array([[-448.0, -0.5, 0.0, 3.0, 448.0]])
    work = Work(constants={"scaleact": 1.0, "shiftact": 0.0} if opcode == "qfp8ch" else {})
    check(opcode, [numbers], numbers, work)


@pytest.mark.parametrize("opcode", UNARY)
def test_unary(opcode):
    check(opcode, [A], each(UNARY[opcode], otypes=[float])(A))


@pytest.mark.parametrize("opcode", POSITIVE_UNARY)
def test_unary_of_positive_numbers(opcode):
    check(opcode, [POSITIVE], each(POSITIVE_UNARY[opcode])(POSITIVE))


@pytest.mark.parametrize("opcode", BINARY)
def test_binary_with_broadcast(opcode):
    check(opcode, [A, B], each(BINARY[opcode], otypes=[float])(A, B))
    check(opcode, [A, B[:1]], each(BINARY[opcode], otypes=[float])(A, B[:1]))


@pytest.mark.parametrize("opcode", CONSTANT)
def test_with_constants(opcode):
    constants, function = CONSTANT[opcode]
    check(opcode, [A], each(function)(A), Work(constants=constants))


@pytest.mark.parametrize("opcode", REDUCTION)
def test_reduction(opcode):
    constants, function = REDUCTION[opcode]
    expected = np.array([[function(A[:, column]) for column in range(7)]])
    check(opcode, [A], expected, Work(reduced=(0,), constants=constants))
    check(opcode, [A], [[function(A)]], Work(reduced=(0, 1), constants=constants))


def test_windows():
    """Positions, a window, channels and features are axes."""
    x, w = RNG.uniform(-3, 3, (5, 3, 7, 1)), RNG.uniform(-3, 3, (1, 3, 7, 2))
    full = tuple((True,) * 4 for _ in "x")
    varies = ((True, True, True, False), (False, True, True, True), (True, False, False, True))
    check("conv2d", [x, w], np.einsum("okca,bkcf->of", x, w)[:, None, None, :], Work((1, 2), varies))
    expected = np.einsum("okca,bkcf->ocf", x, w[..., :1])[:, None]
    check("depthwiseconv2dnative", [x, w[..., :1]], expected, Work((1,), (*full, *full, *full)))
    check("avgpoolfwd", [x], x.sum(1, keepdims=True) / 3, Work((1,), constants={"nmap": 1 / 3}))
    check("maxpoolfwd", [x], x.max(1, keepdims=True), Work((1,)))


def test_gather():
    """Rows of a table over the axes (position, row, column); the table has no positions, these no columns."""
    positions = np.array([3, 0, 3], np.int32).reshape(3, 1, 1)
    table = np.arange(20).reshape(1, 5, 4)
    found = compute("gather", [positions, table], Work(reduced=(1,)))
    np.testing.assert_array_equal(found, table[0][[3, 0, 3]].reshape(3, 1, 4))


@pytest.mark.parametrize("opcode", [n for n, op in DEVICE_OPS.items() if op.kind.name.startswith("REDUCE")])
def test_partial_results_combine_to_the_whole(opcode):
    constants, function = REDUCTION[opcode]
    work = Work(reduced=(0,), constants=constants)
    parts = [compute(opcode, [A[rows].astype(np.float32)], work) for rows in (slice(2), slice(2, 5))]
    expected = [[function(A[:, column]) for column in range(7)]]
    np.testing.assert_allclose(combine_partials(opcode, parts), expected, rtol=1e-5)


def test_where_takes_the_second_operand_where_the_condition_is_not_zero():
    check("where3", [C, A, B], each(lambda c, a, b: a if c else b)(C, A, B))


def test_functions_stay_finite_far_from_zero():
    far = np.array([-1e4, -90, 90, 1e4], np.float32)
    for opcode in ("sigmoid", "silu", "tanh", "gelufwd", "mish"):
        assert np.isfinite(compute(opcode, [far], Work())).all(), opcode


def test_erf_is_exact_to_a_float32():
    x = np.linspace(-8, 8, 4001)
    np.testing.assert_allclose(erf(x), [math.erf(value) for value in x], rtol=0, atol=1e-8)
    assert np.isnan(erf(np.array([np.nan]))).all()
    assert erf(np.array([np.inf, -np.inf])).tolist() == pytest.approx([1, -1])


def test_integers_wrap_and_are_not_rounded():
    a, b = np.array([2**31 - 1, 7], np.int32), np.array([1, -3], np.int32)
    assert compute("addi32toi32", [a, b], Work()).tolist() == [-(2**31), 4]
    assert compute("muli32toi32", [a, b], Work()).tolist() == [2**31 - 1, -21]


def test_casts_between_float_and_integer():
    x = np.array([2.9, -2.9, 3e9, -3e9, np.nan], np.float32)
    assert compute("fp32toint32", [x], Work()).tolist() == [2, -2, 2**31 - 1, -(2**31), 0]
    assert compute("int32tofp32", [np.array([-5], np.int32)], Work()).tolist() == [-5.0]


def varies(*operands: str) -> tuple[tuple[bool, ...], ...]:
    return tuple(tuple(label in labels for label in "xmio") for labels in operands)


@pytest.mark.parametrize(
    ("left", "right", "expression"),
    [("mi", "io", "xmi,xio->xmo"), ("xmi", "xio", "xmi,xio->xmo"), ("xmi", "io", "xmi,yio->xmo")],
    ids=["plain", "batched", "shared weight"],
)
def test_matmul(left, right, expression):
    sizes = {"x": 3 if "x" in left else 1, "m": 5, "i": 8, "o": 6}
    a = RNG.standard_normal([sizes[label] if label in left else 1 for label in "xmio"])
    b = RNG.standard_normal([sizes[label] if label in right else 1 for label in "xmio"])
    expected = np.einsum(expression, a[..., 0], b[:, 0])[:, :, None, :]
    for opcode in MATMULS:  # they differ in the formats of their operands
        check(opcode, [a, b], expected, Work(varies=varies(left, right, left.strip("i") + "o")))


ONE_OPERAND = [
    op for op in DEVICE_OPS.values() if op.kind is Kind.POINTWISE and op.arity == 1 and DL16 in op.formats
]


@pytest.mark.parametrize("op", ONE_OPERAND, ids=lambda op: op.name)
def test_a_result_depends_on_its_own_element_alone(op):
    """The simulator may therefore look results up by the 16-bit code of the operand, for any shape."""
    numerics, work = Numerics(), Work(constants=dict.fromkeys(op.constants, 1.5))
    codes = np.arange(1 << 16, dtype=np.uint16)
    table = numerics.store(compute(op.name, [numerics.load(codes, DL16)], work), DL16)
    order = np.random.default_rng(1).integers(0, 1 << 16, (3, 41, 64)).astype(np.uint16)
    result = compute(op.name, [numerics.load(order, DL16)[:, ::2, 1:]], work)
    is_nan = np.isnan(result)
    stored = numerics.store(result, DL16)
    np.testing.assert_array_equal(stored[~is_nan], table[order][:, ::2, 1:][~is_nan])
    assert np.isnan(numerics.load(table[order][:, ::2, 1:], DL16)[is_nan]).all()
