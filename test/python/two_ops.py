# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of two operations: every device operation, then a pointwise one or a reduction.

A program has one *chain* per shape and tail, each with inputs and a result of its own: producer(inputs), then
tail(product). ``OPERATIONS`` are made at level *device ops* from the table of the device's operations, so that each
one is there, in each of its formats, whatever a frontend makes of a model. ``VIEWED`` are PyTorch functions.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from programs import Apply

from spyre_mlir.bundle.model import Bundle, Design, Execute
from spyre_mlir.dialects import context, sdsc, stick
from spyre_mlir.dialects.structured import device_op, element_of, shape_of
from spyre_mlir.frontend import import_torch
from spyre_mlir.layout import StickLayout
from spyre_mlir.lowering.export import export
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import Pipeline, SpyrePipeline, run_pipeline
from spyre_mlir.remarks import Remark, Remarks
from spyre_mlir.simulator import Statistics, run
from spyre_mlir.target.ops import DEVICE_OPS, DL16, FP32, INT32, DeviceOp, Kind
from spyre_mlir.target.target import default_target

#: No whole sticks, three dims; whole sticks, one row, one column.
SHAPES = ((63, 65), (4, 33, 130), (128, 256), (1, 70), (70, 1))
#: Pointwise operations are compiled alike: these have all shapes, the others fewer. So have second formats.
EXEMPLARY = ("exp", "add", "where3", "layernormscale")
ELEMENTS = {DL16: "f16", FP32: "f32", INT32: "i32"}
FORMATS = {element: format_ for format_, element in ELEMENTS.items()}
NUMBERS = {"f16": np.float16, "f32": np.float32, "i32": np.int32}
#: Columns of the second operand of a matmul, features of a convolution.
COLUMNS = 66
#: Rows of a window of a convolution or a pooling; one row is beyond each end.
WINDOW = 3
CONSTANTS = {
    "clipMin": -0.5, "clipMax": 0.75, "alpha": 0.25, "softplusBeta": 1.0, "softplusThresh": 20.0, "eps": 0.01,
}  # fmt: skip
#: Operations that are compared on numbers with many equal ones, and operations that need positive numbers.
INTEGERS = ("equal", "notequal", "greaterequal", "lesserequal", "greaterthan", "lesserthan", "where3")
POSITIVE = ("log", "sqrt", "rsqrt", "reciprocal", "realdiv", "layernormscale")

Maker = Callable[["Function", "Chain"], ir.Value]

#: Views, joins and composites between producer and tail, as PyTorch says them: function, shapes of its inputs.
VIEWED: dict[str, tuple[Callable[..., torch.Tensor], tuple[tuple[int, ...], ...]]] = {
    "transposed": (lambda x: torch.exp(x).T, ((63, 65),)),
    "transposed behind a batch dim": (lambda x: torch.exp(x).transpose(1, 2), ((3, 33, 66),)),
    "some rows": (lambda x: torch.exp(x)[3:40], ((65, 130),)),
    "every other row": (lambda x: torch.exp(x)[::2], ((33, 65),)),
    "whole sticks of columns": (lambda x: torch.exp(x)[:, 64:128], ((33, 192),)),
    "some columns": (lambda x: torch.exp(x)[:, 3:70], ((33, 130),)),
    "one of a dim": (lambda x: torch.exp(x)[:, 1], ((3, 5, 65),)),
    "two dims as one": (lambda x: torch.exp(x).flatten(0, 1), ((4, 33, 130),)),
    "one dim as two": (lambda x: torch.exp(x).view(4, 16, 130), ((64, 130),)),
    "flat": (lambda x: torch.exp(x).flatten(), ((3, 5, 65),)),
    "heads": (lambda x: torch.exp(x).view(2, 33, 4, 64).transpose(1, 2), ((2, 33, 256),)),
    "a column for all columns": (lambda x: torch.exp(x).expand(33, 65), ((33, 1),)),
    "a row for all rows": (lambda x: torch.exp(x).expand(33, 65), ((65,),)),
    "joined rows": (lambda x, y: torch.cat((torch.exp(x), y), 0), ((3, 65), (5, 65))),
    "joined columns": (lambda x, y: torch.cat((torch.exp(x), y), 1), ((33, 64), (33, 65))),
    "padded": (lambda x: F.pad(torch.exp(x), (1, 2, 0, 3)), ((33, 65),)),
    "added to itself transposed": (lambda x: torch.exp(x) + torch.exp(x).T, ((65, 65),)),
    "matmul of a transposed product": (lambda x, y: x @ torch.exp(y).T, ((33, 65), (63, 65))),
    "matmul of products": (lambda x, y: torch.tanh(x) @ torch.tanh(y), ((128, 256), (256, 128))),
    "batched matmul": (lambda x, y: x @ torch.tanh(y), ((3, 33, 64), (3, 64, 65))),
    "matrix and vector": (lambda x, y: torch.tanh(x) @ y, ((65, 130), (130,))),
    "softmax over rows": (lambda x: torch.softmax(x, 0), ((63, 65),)),
    "softmax over columns": (lambda x: torch.softmax(x, -1), ((63, 65),)),
    "layer norm": (lambda x: F.layer_norm(x, (65,)), ((2, 7, 65),)),
    "float32 between": (lambda x: (x.float() * 1.01).half(), ((33, 130),)),
}
VIEWED_TAILS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "abs": torch.abs, "sum": lambda x: x.sum(-1), "amax": lambda x: x.amax(0),
}  # fmt: skip


@dataclass(frozen=True)
class Chain:
    """One result of a program: its producer in the format of the inputs, their shape, and the operations after it."""

    producer: str
    element: str
    shape: tuple[int, ...]
    tail: str

    def __str__(self) -> str:
        return f"{self.producer} of {'x'.join(map(str, self.shape))} {self.element}, then {self.tail}"


class Function:
    """Builder of @main: arguments are in the order of the chains."""

    def __init__(self) -> None:
        self.module = ir.Module.parse("func.func @main() {\n  return\n}", context())
        self.func = self.module.body.operations[0].operation
        self.block = self.func.regions[0].blocks[0]
        self.inputs: dict[str, np.ndarray] = {}

    def argument(self, chain: Chain, shape: tuple[int, ...]) -> ir.Value:
        """Add an input of the program, and its numbers."""
        numbers = _numbers(chain, shape, self._generator(chain))
        return self._add(numbers, chain.element)

    def positions(self, chain: Chain, count: int, rows: int) -> ir.Value:
        """Add an input of ``count`` positions in a table of ``rows`` rows."""
        return self._add(self._generator(chain).integers(0, rows, count).astype(np.int32), "i32")

    def _generator(self, chain: Chain) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32(f"{chain.producer} input{len(self.inputs)}".encode()))

    def _add(self, numbers: np.ndarray, element: str) -> ir.Value:
        self.inputs[f"input{len(self.inputs)}"] = numbers
        type_ = ir.RankedTensorType.get(numbers.shape, ir.Type.parse(element))
        return self.block.add_argument(type_, ir.Location.current)

    def finish(self, results: list[ir.Value]) -> ir.Module:
        """Return the module, with its arguments and results described for the host."""
        arguments = list(self.block.arguments)
        with ir.InsertionPoint(self.block):
            self.block.operations[len(self.block.operations) - 1].operation.erase()
            ir.Operation.create("func.return", operands=results)
        types = ir.FunctionType.get([each.type for each in arguments], [each.type for each in results])
        self.func.attributes["function_type"] = ir.TypeAttr.get(types)
        self.func.attributes["arg_attrs"] = _hosts("input", arguments)
        self.func.attributes["res_attrs"] = _hosts("result", results)
        return self.module


def _hosts(kind: str, values: list[ir.Value]) -> ir.ArrayAttr:
    hosts = [
        sdsc.host_attr(f"{kind}{number}", kind, element_of(value)) for number, value in enumerate(values)
    ]
    return ir.ArrayAttr.get([ir.DictAttr.get({sdsc.HOST: host}) for host in hosts])


def _numbers(chain: Chain, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    dtype = NUMBERS[chain.element]
    if chain.element == "i32" or chain.producer in INTEGERS:
        return generator.integers(-2, 3, shape).astype(dtype)
    if chain.producer in POSITIVE:
        return generator.uniform(0.5, 2, shape).astype(dtype)
    if chain.producer == "prod":
        return generator.uniform(0.9, 1.1, shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


# -- operations ---------------------------------------------------------------------------------------


def _apply(opcode: str, inputs: list[ir.Value], reduced: tuple[int, ...] = ()) -> ir.Value:
    """A device operation over all dims of its inputs."""
    op, shape = DEVICE_OPS[opcode], shape_of(inputs[0])
    element = ELEMENTS[op.result] if op.result else element_of(inputs[0])
    scale = {name: 1 / math.prod(shape[dim] for dim in reduced) for name in ("scaling_factor", "exx2scale")}
    return device_op(
        opcode,
        inputs,
        [tuple(range(len(shape)))] * len(inputs),
        shape,
        element,
        location=ir.Location.current,
        reduced=reduced,
        constants={name: (CONSTANTS | scale)[name] for name in op.constants},
    )


def _pointwise(function: Function, chain: Chain) -> ir.Value:
    arity = DEVICE_OPS[chain.producer].arity
    return _apply(chain.producer, [function.argument(chain, chain.shape) for _ in range(arity)])


def _over_the_last(function: Function, chain: Chain) -> ir.Value:
    return _apply(chain.producer, [function.argument(chain, chain.shape)], (len(chain.shape) - 1,))


def _over_the_first(function: Function, chain: Chain) -> ir.Value:
    return _apply(chain.producer, [function.argument(chain, chain.shape)], (0,))


def _matmul(function: Function, chain: Chain) -> ir.Value:
    """[.., m, k] by [.., k, n]; the shape gives the batch dims."""
    *batch, rows, inner = chain.shape
    left, right = function.argument(chain, chain.shape), function.argument(chain, (*batch, inner, COLUMNS))
    dims, (m, k, n) = tuple(range(len(batch))), range(len(batch), len(batch) + 3)
    return device_op(
        chain.producer,
        [left, right],
        [(*dims, m, k), (*dims, k, n)],
        [*batch, rows, inner, COLUMNS],
        chain.element,
        location=ir.Location.current,
        reduced=(k,),
    )


def _restickify(function: Function, chain: Chain) -> ir.Value:
    """To the layout whose stick is the first dim."""
    rank = len(chain.shape)
    layout = StickLayout.for_tensor(default_target(), chain.shape, chain.element, (*range(1, rank), 0))
    return stick.requested_restickify(function.argument(chain, chain.shape), layout, ir.Location.current)


def _clone(function: Function, chain: Chain) -> ir.Value:
    return sdsc.clone(function.argument(chain, chain.shape), ir.Location.current)


def _gather(function: Function, chain: Chain) -> ir.Value:
    """Rows by positions, two more than the table has."""
    rows, *row = chain.shape
    rank = len(row) + 2
    dims = range(1, rank - 1)
    return device_op(
        chain.producer,
        [function.positions(chain, rows + 2, rows), function.argument(chain, chain.shape)],
        [(0,), (rank - 1, *dims)],
        [rows + 2, *row, rows],
        chain.element,
        location=ir.Location.current,
        reduced=(rank - 1,),
    )


def _convolution(function: Function, chain: Chain) -> ir.Value:
    """[.., rows, channels] by windows of rows, by [window, channels, features]."""
    *batch, rows, channels = chain.shape
    windows, dims = _windows(function, chain), tuple(range(len(batch)))
    weight = function.argument(chain, (WINDOW, channels, COLUMNS))
    row, window, channel, feature = range(len(batch), len(batch) + 4)
    return device_op(
        chain.producer,
        [windows, weight],
        [(*dims, row, window, channel), (window, channel, feature)],
        [*batch, rows, WINDOW, channels, COLUMNS],
        chain.element,
        location=ir.Location.current,
        reduced=(window, channel),
    )


def _pooling(function: Function, chain: Chain) -> ir.Value:
    """[.., rows, channels] by windows of rows, and a weight per channel and row of a window where there is one."""
    *batch, rows, channels = chain.shape
    op, dims = DEVICE_OPS[chain.producer], tuple(range(len(batch)))
    inputs = [_windows(function, chain)]
    inputs += [function.argument(chain, (WINDOW, channels)) for _ in range(op.arity - 1)]
    row, window, channel = range(len(batch), len(batch) + 3)
    return device_op(
        chain.producer,
        inputs,
        [(*dims, row, window, channel), (window, channel)][: op.arity],
        [*batch, rows, WINDOW, channels],
        chain.element,
        location=ir.Location.current,
        reduced=(window,),
        constants=dict.fromkeys(op.constants, 1 / WINDOW),
    )


def _windows(function: Function, chain: Chain) -> ir.Value:
    *batch, rows, channels = chain.shape
    source = function.argument(chain, chain.shape)
    return sdsc.windows(source, (*batch, rows, WINDOW, channels), [len(batch)], [1], [1], [1])


_MAKERS: dict[Kind, Maker] = {
    Kind.POINTWISE: _pointwise,
    Kind.CAST: _pointwise,
    Kind.REDUCE_STICK: _over_the_last,
    Kind.REDUCE_OTHER: _over_the_first,
    Kind.MATMUL: _matmul,
    Kind.RESTICKIFY: _restickify,
    Kind.GATHER: _gather,
    Kind.CONVOLUTION: _convolution,
    Kind.POOLING: _pooling,
}


def _shapes(op: DeviceOp, element: str) -> tuple[tuple[int, ...], ...]:
    if op.kind in (Kind.MATMUL, Kind.CONVOLUTION):
        return tuple(
            shape for shape in SHAPES if shape[-1] > 1
        )  # K of 1 is a product of vectors, without a sum
    is_like_another = op.kind is Kind.POINTWISE and op.name not in EXEMPLARY
    is_first = FORMATS[element] == op.formats[0]
    return SHAPES[: 1 + is_first] if is_like_another else SHAPES if is_first else SHAPES[:2]


def _tails(op: DeviceOp, element: str, rank: int) -> tuple[str, ...]:
    """Return the operations that may follow a producer on inputs of ``rank`` dims. The device reduces no integers."""
    if op.result_format(FORMATS[element]) == INT32:
        return ("addi32toi32", "int32tofp32")
    dims = rank - (op.kind in (Kind.REDUCE_STICK, Kind.REDUCE_OTHER))
    return ("abs", "sum", "maxnonstick")[: dims + 1]


def _after(tail: str, product: ir.Value) -> ir.Value:
    """The tail: pointwise, or over the last dim, or over the first."""
    reduced = {"sum": (len(shape_of(product)) - 1,), "maxnonstick": (0,)}.get(tail, ())
    return _apply(tail, [product] * DEVICE_OPS[tail].arity, reduced)


# -- programs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TwoOps:
    """A program as text at a level, its inputs by name, and what each result is."""

    text: str
    level: str
    inputs: dict[str, np.ndarray]
    chains: tuple[str, ...]


#: The device operations that a program names: not the relayout, which planning alone makes. Matmuls of 8 bits read
#: arguments alone; test_quantized.py has them, and test_eight_bits.py casts to and from 8 bits.
NAMED = {
    name: op
    for name, op in DEVICE_OPS.items()
    if op.kind is not Kind.RELAYOUT
    and ELEMENTS.keys() >= {*op.formats, *(op.result_format(form) for form in op.formats)}
}

#: Name -> producer and its builder.
OPERATIONS: dict[str, tuple[DeviceOp, Maker]] = {
    **{name: (op, _MAKERS[op.kind]) for name, op in NAMED.items()},
    "clone": (DEVICE_OPS["identity"], _clone),
}
NAMES = (*OPERATIONS, *VIEWED)


@functools.cache
def program(name: str) -> TwoOps:
    """The chains of a producer: all its shapes, all tails."""
    return _viewed(name) if name in VIEWED else _of_operation(*OPERATIONS[name])


def _of_operation(op: DeviceOp, make: Maker) -> TwoOps:
    chains = [
        Chain(op.name, element, shape, tail)
        for element in (ELEMENTS[form] for form in op.formats if form in ELEMENTS)
        for shape in _shapes(op, element)
        for tail in _tails(op, element, len(shape))
    ]
    function = Function()
    with function.module.context, ir.Location.unknown():
        with ir.InsertionPoint.at_block_terminator(function.block):
            results = [_after(chain.tail, make(function, chain)) for chain in chains]
        module = function.finish(results)
    return TwoOps(str(module), "device-ops", function.inputs, tuple(map(str, chains)))


def viewed(name: str) -> tuple[Apply, tuple[torch.Tensor, ...]]:
    """Return the model of a program with views: the same function before each tail, of separate inputs."""
    function, shapes = VIEWED[name]
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    inputs = tuple(torch.randn(shape, generator=generator).half() for _ in VIEWED_TAILS for shape in shapes)

    def chains(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        each = len(shapes)
        groups = (inputs[number * each :][:each] for number in range(len(VIEWED_TAILS)))
        return tuple(
            tail(function(*group)) for tail, group in zip(VIEWED_TAILS.values(), groups, strict=True)
        )

    return Apply(chains).eval().half(), inputs


def _viewed(name: str) -> TwoOps:
    model, inputs = viewed(name)
    imported = import_torch(model, inputs, context=context())
    names = (argument.name for argument in imported.arguments)
    given = dict(zip(names, imported.operands(*inputs), strict=True))
    chains = tuple(f"{name}, then {tail}" for tail in VIEWED_TAILS)
    return TwoOps(str(imported.module), "linalg", given, chains)


@dataclass(frozen=True)
class Executed:
    """A compiled program that has run; its results in the order of its chains, and the counts of the simulator."""

    bundle: Bundle
    remarks: tuple[Remark, ...]
    results: tuple[np.ndarray, ...]
    statistics: Statistics

    @property
    def moved_bytes(self) -> int:
        return self.statistics.read_bytes + self.statistics.write_bytes


@functools.cache
def executed(name: str, sencores: int, lx_planning: bool) -> Executed:
    """A program, compiled from its level on and run on the simulator."""
    made, remarks = program(name), Remarks()
    module = placed(name, sencores, lx_planning, remarks)
    run_pipeline(module, _stages(sencores, lx_planning)["bundle"], remarks=remarks)
    bundle, constants = export(module)
    result = run(bundle, {**constants, **made.inputs})
    outputs = tuple(result.outputs[f"result{number}"] for number in range(len(made.chains)))
    return Executed(bundle, tuple(remarks), outputs, result.statistics)


def placed(name: str, sencores: int, lx_planning: bool, remarks: Remarks | None = None) -> ir.Module:
    """A program compiled from its level on until every buffer has its place."""
    made = program(name)
    module, stages = ir.Module.parse(made.text, context()), _stages(sencores, lx_planning)
    wanted = [passes for level, passes in stages.items() if level not in (made.level, "bundle")]
    target = Pipeline.parse(f"attach-target{{sencores={sencores}}}")
    run_pipeline(module, sum(wanted, target), remarks=remarks)
    return module


def _stages(sencores: int, lx_planning: bool) -> dict[str, Pipeline]:
    """The passes of each level."""
    return dict(SpyrePipeline(sencores=sencores, lx_planning=lx_planning).stages())


# -- results of a program -----------------------------------------------------------------------------


def executions(bundle: Bundle) -> list[tuple[Design, tuple[str, ...]]]:
    """The designs in program order, each with the buffers of its operands."""
    statements = [each for each in bundle.statements if isinstance(each, Execute)]
    designs = (bundle.designs[each.filename] for each in statements)
    return list(zip(designs, bundle.manifest.uses, strict=True))


def producers(bundle: Bundle) -> set[str]:
    """The operations whose result another one reads."""
    known = executions(bundle)
    read = {name for _, (*inputs, _) in known for name in inputs}
    return {design.opcode for design, names in known if names[-1] in read}


def sums_of(bundle: Bundle, number: int) -> list[tuple[str, tuple[int, ...]]]:
    """Return the sums of a result, and the cores that share them: they determine the order of its additions."""
    wanted, found = {f"result{number}"}, []
    for design, (*inputs, output) in reversed(executions(bundle)):
        if output in wanted:
            wanted.update(inputs)
            found += [(design.opcode, _shared(design))] if _adds(design) else []
    return found


def _adds(design: Design) -> bool:
    op = DEVICE_OPS[design.opcode]
    return op.kind.reduces and not op.name.startswith(("max", "min", "absmax"))


def _shared(design: Design) -> tuple[int, ...]:
    scale = design.operands[-1].scale
    return tuple(split for label, split in sorted(design.slices.items()) if scale.get(label, -1) < 0)


def least_bytes(bundle: Bundle) -> int:
    """Each argument once: no program moves less."""
    return sum(argument.bytes for argument in bundle.manifest.arguments)
