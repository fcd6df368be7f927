# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of device operations: each entry three ways on random numbers, and entries that are not complete.

The body that an operation has in the IR runs on the CPU by upstream's lowering, the function of the simulator in numpy,
and a third time as PyTorch says it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cpu_reference import CpuReference

from spyre_mlir.dialects import context
from spyre_mlir.dialects.structured import device_op
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.body_operations import fold
from spyre_mlir.simulator.plan import Work, compute
from spyre_mlir.target import ops
from spyre_mlir.target.ops import DEVICE_OPS, DeviceOp, Kind, define

CONSTANTS = {
    "clipMin": -0.5, "clipMax": 0.75, "alpha": 0.25, "softplusBeta": 2.0, "softplusThresh": 3.0, "eps": 0.125,
    "scaling_factor": 0.25, "exx2scale": 0.125, "nmap": 0.25, "scaleact": 2.0, "shiftact": 1.0,
}  # fmt: skip
ROWS, COLUMNS, OUTPUTS, WINDOW = 7, 9, 5, 3

TORCH = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "realdiv": torch.div, "maximum": torch.maximum,
    "minimum": torch.minimum, "revsub": lambda x, y: y - x, "equal": torch.eq, "notequal": torch.ne,
    "greaterequal": torch.ge, "lesserequal": torch.le, "greaterthan": torch.gt, "lesserthan": torch.lt,
    "where3": lambda c, x, y: torch.where(c != 0, x, y), "abs": torch.abs, "neg": torch.neg, "exp": torch.exp,
    "floor": torch.floor, "log": torch.log, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "tanh": torch.tanh,
    "identity": torch.clone, "reciprocal": torch.reciprocal, "sigmoid": torch.sigmoid, "silu": F.silu,
    "relufwd": F.relu, "relu6fwd": F.relu6, "gelufwd": F.gelu, "clip": lambda x: torch.clip(x, -0.5, 0.75),
    "leakyrelufwd": lambda x: F.leaky_relu(x, 0.25), "softplus": lambda x: F.softplus(x, 2.0, 3.0), "mish": F.mish,
    "layernormscale": lambda x: (x + 0.125) ** -0.5, "addi32toi32": torch.add, "muli32toi32": torch.mul,
    "dl16tofp32": torch.Tensor.float, "fp32todl16": torch.Tensor.half, "fp32toint32": torch.Tensor.int,
    "int32tofp32": torch.Tensor.float, "fp8todl16": torch.Tensor.float, "qfp8ch": torch.Tensor.half,
    "csqint8ch": lambda x: (x * 2 + 1).to(torch.int8),
    "sum": lambda x: x.sum(1), "max": lambda x: x.amax(1), "min": lambda x: x.amin(1), "prod": lambda x: x.prod(1),
    "absmax": lambda x: x.abs().amax(1), "mean": lambda x: x.sum(1) * 0.25,
    "exx2_zeromean": lambda x: x.square().sum(1) * 0.125,
    "batchmatmul": lambda x, y: x.float() @ y.float(), "batchmatmulint8": lambda x, y: x.int() @ y.int(),
    "batchmatmulfp8": lambda x, y: x.float() @ y.float(), "gather": lambda positions, table: table[positions.long()],
    "conv2d": lambda x, w: torch.einsum("okc,kcf->of", x.float(), w.float()),
    "depthwiseconv2dnative": lambda x, w: (x.float() * w.float()).sum(1),
    "avgpoolfwd": lambda x: x.float().sum(1) * 0.25, "maxpoolfwd": lambda x: x.amax(1),
}  # fmt: skip
TORCH |= {name + "nonstick": TORCH[name] for name in ("sum", "max", "min", "absmax", "mean")}
#: Operations that only move data are not generic ops.
MOVING = {"ReStickifyOpHBM", "shuffle"}

POSITIVE = {"log", "sqrt", "rsqrt", "reciprocal", "realdiv", "layernormscale"}
INTEGERS = {"addi32toi32", "muli32toi32"}
#: Operations on floats that are integers.
WHOLE = {"csqint8ch"}
#: Element types of operands and result, where they are not f32. fp8 is f16 here: numpy has none.
ELEMENTS = {
    "dl16tofp32": ("f16", "f32"), "fp32todl16": ("f32", "f16"), "fp32toint32": ("f32", "i32"),
    "int32tofp32": ("i32", "f32"), "batchmatmul": ("f16", "f32"), "batchmatmulint8": ("i8", "i32"),
    "batchmatmulfp8": ("f16", "f32"), "conv2d": ("f16", "f32"), "depthwiseconv2dnative": ("f16", "f32"),
    "avgpoolfwd": ("f16", "f32"), "maxpoolfwd": ("f16", "f16"), "fp8todl16": ("f16", "f32"),
    "qfp8ch": ("f32", "f16"), "csqint8ch": ("f32", "i8"),
}  # fmt: skip
DTYPES = {"f16": np.float16, "f32": np.float32, "i32": np.int32, "i8": np.int8}


def elements_of(name: str) -> tuple[str, str]:
    """Element types of the operands and of the result."""
    return ELEMENTS.get(name, ("i32", "i32") if name in INTEGERS else ("f32", "f32"))


def inputs_of(op: DeviceOp) -> list[np.ndarray]:
    """Random operands, of which many are equal where that matters."""
    rng = np.random.default_rng(len(op.name))
    if op.kind is Kind.GATHER:
        return [
            rng.integers(0, ROWS, OUTPUTS).astype(np.int32),
            rng.standard_normal((ROWS, COLUMNS), np.float32),
        ]
    if op.kind is Kind.MATMUL:
        factors = [rng.uniform(-4, 4, shape) for shape in ((ROWS, COLUMNS), (COLUMNS, OUTPUTS))]
        return [x.astype(DTYPES[elements_of(op.name)[0]]) for x in factors]
    if op.kind.slides:
        # A window of each row, as a view by windows has them, and the weight of all.
        weight = (WINDOW, COLUMNS, OUTPUTS) if op.kind is Kind.CONVOLUTION else (WINDOW, COLUMNS)
        shapes = ((ROWS, WINDOW, COLUMNS), weight)[: op.arity]
        return [rng.uniform(-4, 4, shape).astype(np.float16) for shape in shapes]
    numbers = [rng.uniform(-4, 4, (ROWS, COLUMNS)) for _ in op.operands]
    if op.name in POSITIVE:
        numbers = [np.abs(x) + 0.5 for x in numbers]
    if op.name in WHOLE:
        numbers = [np.rint(x) for x in numbers]
    numbers[0][0] = numbers[-1][0] = 1.0
    if op.arity > 1:
        numbers[0][1] = 0.0
    return [x.astype(DTYPES[elements_of(op.name)[0]]) for x in numbers]


def space_of(op: DeviceOp) -> tuple[list[tuple[int, ...]], tuple[int, ...], tuple[int, ...]]:
    """The maps of the operands, the extents, and the reduced dims of an operation on ``inputs_of``."""
    if op.kind is Kind.GATHER:
        return [(0,), (2, 1)], (OUTPUTS, COLUMNS, ROWS), (2,)
    if op.kind is Kind.MATMUL:
        return [(0, 1), (1, 2)], (ROWS, COLUMNS, OUTPUTS), (1,)
    if op.kind is Kind.CONVOLUTION:
        return [(0, 1, 2), (1, 2, 3)], (ROWS, WINDOW, COLUMNS, OUTPUTS), (1, 2)
    if op.kind is Kind.POOLING:
        return [(0, 1, 2), (1, 2)][: op.arity], (ROWS, WINDOW, COLUMNS), (1,)
    return [(0, 1)] * op.arity, (ROWS, COLUMNS), (1,) if op.kind.combines else ()


def by_the_body(op: DeviceOp, inputs: list[np.ndarray]) -> np.ndarray:
    """The result of the op's body, on the CPU by upstream's lowering."""
    maps, extents, reduced = space_of(op)
    source, target = elements_of(op.name)
    module = ir.Module.parse("func.func @main() {\n  return\n}", context())
    func = module.body.operations[0].operation
    block = func.regions[0].blocks[0]
    with module.context, ir.Location.unknown():
        names = ["i32" if x.dtype == np.int32 else source for x in inputs]
        types = [
            ir.RankedTensorType.get(x.shape, ir.Type.parse(n)) for x, n in zip(inputs, names, strict=True)
        ]
        arguments = [block.add_argument(type_, ir.Location.unknown()) for type_ in types]
        with ir.InsertionPoint(block):
            block.operations[0].operation.erase()
            constants = {name: CONSTANTS[name] for name in op.constants}
            result = device_op(op.name, arguments, maps, extents, target, location=ir.Location.unknown(),
                               reduced=reduced, constants=constants)  # fmt: skip
            ir.Operation.create("func.return", operands=[result])
        func.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, [result.type]))
    (array,) = CpuReference(module)(*inputs)
    return array


def by_the_simulator(op: DeviceOp, inputs: list[np.ndarray]) -> np.ndarray:
    """The result of the simulator's function: one axis per iteration dim, in float32 or int32."""
    maps, extents, reduced = space_of(op)
    operands = []
    for array, dims in zip(inputs, maps, strict=True):
        order = np.argsort(dims)
        shape = [extents[dim] if dim in dims else 1 for dim in range(len(extents))]
        wide = array if array.dtype == np.int32 else array.astype(np.float32)
        operands.append(wide.transpose(order).reshape(shape))
    result_dims = tuple(dim for dim in range(len(extents)) if dim not in reduced)
    varies = tuple(tuple(dim in dims for dim in range(len(extents))) for dims in (*maps, result_dims))
    array = compute(op.name, operands, Work(reduced, varies, CONSTANTS))
    return array.reshape([extents[dim] for dim in result_dims])


@pytest.mark.sampled(len(TORCH))
@pytest.mark.parametrize("name", TORCH)
def test_body_simulator_and_torch_agree(name):
    op = DEVICE_OPS[name]
    inputs = inputs_of(op)
    expected = TORCH[name](*map(torch.from_numpy, inputs)).numpy().astype(np.float64)
    tolerance = 2e-3 if name in ("fp32todl16", "qfp8ch") else 1e-5
    for result in (by_the_body(op, inputs), by_the_simulator(op, inputs)):
        np.testing.assert_allclose(result.astype(np.float64), expected, rtol=tolerance, atol=1e-5)


def test_every_operation_is_compared():
    assert {*TORCH, *MOVING} == set(DEVICE_OPS)


@pytest.mark.parametrize("name", [name for name in TORCH if DEVICE_OPS[name].kind is Kind.POINTWISE])
def test_constants_fold_to_what_the_device_computes(name):
    op = DEVICE_OPS[name]
    if op.constants:
        return
    inputs = inputs_of(op)
    for numbers in zip(*(x.ravel()[::8] for x in inputs), strict=True):
        expected = compute(name, [np.asarray(number) for number in numbers], Work())
        assert fold(name, [float(number) for number in numbers]) == pytest.approx(float(expected), rel=1e-6)


# -- entries that are not complete --------------------------------------------------------------------------

SQUARE = DeviceOp("square", Kind.POINTWISE, ("x",), ("mul", "x", "x"))
TOTAL = DeviceOp("total", Kind.REDUCE_STICK, ("x",), "x", combine="add", neutral=0.0)

INCOMPLETE = {
    "no expression": (
        replace(SQUARE, expression=None),
        "'square' has no expression: state its result as a function of x",
    ),
    "unknown operand": (
        replace(SQUARE, expression=("mul", "x", "w")),
        "'square' reads 'w' in ('mul', 'x', 'w'), which is not one of its operands and constants (x)",
    ),
    "unread operand": (
        replace(SQUARE, operands=("x", "y")),
        "'square' does not use 'y' in ('mul', 'x', 'x')",
    ),
    "unread constant": (
        replace(SQUARE, constants=("alpha",)),
        "'square' does not use 'alpha' in ('mul', 'x', 'x')",
    ),
    "unknown function": (
        replace(SQUARE, expression=("sin", "x")),
        "'square' uses 'sin' in ('sin', 'x'), which is not a scalar function or an earlier operation",
    ),
    "missing argument": (
        replace(SQUARE, expression=("mul", "x")),
        "'square' gives 'mul' 1 argument in ('mul', 'x'); it takes 2",
    ),
    "missing constant of another operation": (
        replace(SQUARE, expression=("leakyrelufwd", "x")),
        "'square' gives 'leakyrelufwd' 1 argument in ('leakyrelufwd', 'x'); it takes 2",
    ),
    "constant of a pattern": (
        DeviceOp("scaled", Kind.POINTWISE, ("x",), ("mul", ("neg", "x"), "by"), constants=("by",),
                 written=((("neg", ("neg", ("neg", "x"))), {}),)),
        "'scaled' does not use 'by' in ('neg', ('neg', ('neg', 'x')))",
    ),
    "unknown format": (
        replace(SQUARE, formats=("FP64",)),
        "'square' has the unknown number format 'FP64'",
    ),
    "no combination": (
        replace(TOTAL, combine=None),
        "'total' does not state its combination (combine): the scalar function that combines two elements",
    ),
    "unknown combination": (
        replace(TOTAL, combine="max"),
        "'total' combines elements by 'max', which is not a scalar function of two operands",
    ),
    "no neutral element": (
        replace(TOTAL, neutral=None),
        "'total' does not state its neutral element (neutral): the input that changes no result",
    ),
    "wrong neutral element": (
        replace(TOTAL, neutral=1.0),
        "'total' has the neutral element 1.0, which is not neutral for 'add'",
    ),
    "pointwise with a neutral element": (
        replace(SQUARE, neutral=0.0),
        "'square' states how it combines elements, but a pointwise operation does not",
    ),
    "movement with an expression": (
        DeviceOp("turn", Kind.RESTICKIFY, ("x",), "x"),
        "'turn' has an expression, but a restickify computes nothing",
    ),
    "twice": (DEVICE_OPS["silu"], "'silu' is in the table already"),
    "ambiguous pattern": (
        DeviceOp("swish", Kind.POINTWISE, ("a",), ("mul", ("sigmoid", "a"), "a")),
        "'silu' and 'swish' are both fused from ('mul', ('sigmoid', 'a'), 'a')",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", INCOMPLETE)
def test_an_incomplete_entry_is_one_clear_error(what):
    op, message = INCOMPLETE[what]
    before = dict(DEVICE_OPS), list(ops.PATTERNS)
    with pytest.raises(CompileError) as error:
        define(op)
    assert message in str(error.value)
    assert before == (DEVICE_OPS, ops.PATTERNS)


def test_the_packaged_operations_pass_the_checks_of_define(monkeypatch):
    """The package adds its operations without checks, which cost time at each start."""
    packaged, patterns = list(DEVICE_OPS.values()), list(ops.PATTERNS)
    for name, empty in [
        ("DEVICE_OPS", {}),
        ("KINDS", {}),
        ("NEUTRAL", {}),
        ("COMBINE", {}),
        ("PATTERNS", []),
    ]:
        monkeypatch.setattr(ops, name, empty)
    define(*packaged)
    assert ops.DEVICE_OPS == {op.name: op for op in packaged} and ops.PATTERNS == patterns


def test_a_pattern_that_takes_up_more_is_tried_first():
    sizes = [pattern.size for pattern in ops.PATTERNS]
    assert sizes == sorted(sizes, reverse=True)
