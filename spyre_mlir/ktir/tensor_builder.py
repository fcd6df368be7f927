# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders of ops at the current insertion point: ops on tensors and numbers, and ops between the cores of a program.

Constants come first in the function. A number that differs from core to core is computed from the core id, or read from
a table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from spyre_mlir.dialects import ktdp
from spyre_mlir.dialects.structured import element_of, shape_of
from spyre_mlir.errors import CompileError
from spyre_mlir.ktir.operand_tiles import regrouped
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.tensor_builders import collapsed, expanded, generic_op, with_body

Shape = Sequence[int]


class TensorBuilder:
    """Builder of the ops of one function, whose body is ``block``; ``core`` is the id of the current core."""

    def __init__(self, block: ir.Block) -> None:
        self.index = ir.IndexType.get()
        self.i64 = ir.IntegerType.get_signless(64)
        self._constants: dict[tuple, ir.Value] = {}
        self._types: dict[tuple, ir.Type] = {}
        with ir.InsertionPoint(block):
            core = ir.Operation.create("ktdp.get_compute_tile_id", results=[self.index])
            ir.Operation.create("func.return")
        self.core = core.result
        self._first = ir.InsertionPoint(core)

    # -- types and constants ------------------------------------------------------------------------------

    def type(self, shape: Shape, element: str) -> ir.Type:
        """Return the type of a tensor."""
        key = (tuple(shape), element)
        if key not in self._types:
            self._types[key] = ir.RankedTensorType.get(list(shape), ir.Type.parse(element))
        return self._types[key]

    def number(self, value: int) -> ir.Value:
        """Return an index constant."""
        return self._constant((value,), self.index, lambda: ir.IntegerAttr.get(self.index, value))

    def scalar(self, value: float, element: str) -> ir.Value:
        """Return a constant number of an element type."""
        type_ = ir.Type.parse(element)
        return self._constant((repr(value), element), type_, lambda: _number(type_, value))

    def filled(self, shape: Shape, element: str, value: float) -> ir.Value:
        """Return a constant tensor of one number."""
        type_ = self.type(shape, element)
        return self._constant((repr(value), element, tuple(shape)), type_, lambda: _splat(type_, value))

    def table(self, values: Sequence[int]) -> ir.Value:
        """Return a constant tensor of 64-bit integers."""
        type_ = self.type([len(values)], "i64")
        return self._constant(
            tuple(values),
            type_,
            lambda: ir.DenseElementsAttr.get([ir.IntegerAttr.get(self.i64, v) for v in values], type_),
        )

    def _constant(self, key: tuple, type_: ir.Type, attribute: Callable[[], ir.Attribute]) -> ir.Value:
        if (key, type_) not in self._constants:
            with self._first:
                self._constants[key, type_] = self.op("arith.constant", type_, value=attribute())
        return self._constants[key, type_]

    # -- ops ----------------------------------------------------------------------------------------------

    def op(
        self, name: str, result: ir.Type | None, *operands: ir.Value, **attributes: ir.Attribute
    ) -> ir.Value:
        """Build an op with one result, or without results."""
        results = [] if result is None else [result]
        op = ir.Operation.create(name, results=results, operands=list(operands), attributes=attributes)
        return op.result if results else None  # pyright: ignore[reportReturnType]

    def add(self, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
        """Build the sum of two indices."""
        return self.op("arith.addi", lhs.type, lhs, rhs)

    def times(self, value: ir.Value, factor: int) -> ir.Value:
        """Build the product of an index and a constant."""
        return value if factor == 1 else self.op("arith.muli", value.type, value, self.number(factor))

    def compare(self, predicate: int, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
        """Build a comparison of indices; ``predicate`` is the number of the predicate in MLIR."""
        i1 = ir.IntegerType.get_signless(1)
        return self.op("arith.cmpi", i1, lhs, rhs, predicate=ir.IntegerAttr.get(self.i64, predicate))

    def reshaped(self, value: ir.Value, shape: Shape) -> ir.Value:
        """Build a reshape of at least one element; return the value itself if it already has the shape."""
        source, target = shape_of(value), tuple(shape)
        if source == target:
            return value
        ends = regrouped(source, target)
        begins = [(0, 0), *ends[:-1]]
        runs = [(range(i, m), range(j, n)) for (i, j), (m, n) in zip(begins, ends, strict=True)]
        if any(len(old) > 1 for old, _ in runs):
            value = collapsed(value, [old for old, _ in runs])
        if any(len(new) > 1 for _, new in runs):
            value = expanded(value, [new for _, new in runs], target)
        return value

    def empty(self, shape: Shape, element: str) -> ir.Value:
        """Build a tensor with undefined elements."""
        return self.op("tensor.empty", self.type(shape, element))

    def transposed(self, value: ir.Value, order: Shape) -> ir.Value:
        """Build a transpose: dim ``k`` of the result is dim ``order[k]`` of the value."""
        if list(order) == sorted(order):
            return value
        shape, element = shape_of(value), element_of(value)
        # A constant, because ktir-cpu would charge an empty tensor, which nothing reads, until the function ends.
        out = self.filled([shape[dim] for dim in order], element, 0)
        permutation = ir.DenseI64ArrayAttr.get(list(order))
        return self._named("linalg.transpose", [value], out, lambda args: args[0], permutation=permutation)

    def broadcast(self, value: ir.Value, shape: Shape, new: Shape) -> ir.Value:
        """Build a tensor of ``shape`` that repeats a value along the dims ``new``."""
        if not new:
            return value
        out, dims = self.empty(shape, element_of(value)), ir.DenseI64ArrayAttr.get(list(new))
        return self._named("linalg.broadcast", [value], out, lambda args: args[0], dimensions=dims)

    def reduced(self, value: ir.Value, dims: Shape, combine: str, neutral: float) -> ir.Value:
        """Build a reduction of the dims by the op ``combine``."""
        if not dims:
            return value
        element = element_of(value)
        kept = [size for dim, size in enumerate(shape_of(value)) if dim not in dims]
        if not kept:
            # ktir-cpu turns a tensor without dims into a number.
            value, kept = self.reshaped(value, (1, *shape_of(value))), [1]
            dims = [dim + 1 for dim in dims]
        # A separate constant: ktir-cpu also binds the result to the name of the destination.
        type_, axes = self.type(kept, element), ir.DenseI64ArrayAttr.get(list(dims))
        out = self.op("arith.constant", type_, value=_splat(type_, neutral))

        # A body with the accumulator first prints as the op alone, which is the form that ktir-cpu reads.
        def body(args: Sequence[ir.Value]) -> ir.Value:
            return self.op(combine, args[0].type, args[1], args[0])

        return self._named("linalg.reduce", [value], out, body, dimensions=axes)

    def matmul(self, lhs: ir.Value, rhs: ir.Value, out: ir.Value) -> ir.Value:
        """Build ``out`` plus the product of matrices, or of batches of matrices."""

        def body(args: Sequence[ir.Value]) -> ir.Value:
            factors = [self.widened(arg, args[2].type) for arg in args[:2]]
            return self.op("arith.addf", args[2].type, args[2], self.op("arith.mulf", args[2].type, *factors))

        name = "linalg.matmul" if len(shape_of(lhs)) == 2 else "linalg.batch_matmul"
        return self._named(name, [lhs, rhs], out, body, operandSegmentSizes=ir.DenseI32ArrayAttr.get([2, 1]))

    def generic(
        self,
        inputs: Sequence[ir.Value],
        out: ir.Value,
        body: Callable[[Sequence[ir.Value], Callable[[int], ir.Value]], ir.Value],
    ) -> ir.Value:
        """Build a ``linalg.generic`` on tensors of one shape, and on some tensors without dims.

        The body gets the elements, and a function that builds the index along a dim.
        """
        rank = len(shape_of(out))
        every = tuple(range(rank))
        maps = [every if shape_of(value) else () for value in (*inputs, out)]

        def index(dim: int) -> ir.Value:
            return self.op("linalg.index", self.index, dim=ir.IntegerAttr.get(self.i64, dim))

        return with_body(generic_op(inputs, out, maps, rank, 0), lambda arguments: body(arguments, index))

    def widened(self, value: ir.Value, type_: ir.Type) -> ir.Value:
        """Build a cast of a number, or of a tensor, to a wider type of floating-point numbers."""
        return value if value.type == type_ else self.op("arith.extf", type_, value)

    def cast(self, value: ir.Value, element: str) -> ir.Value:
        """Build a cast of a tensor between floating-point types."""
        source = element_of(value)
        if source == element:
            return value
        if {source, element} != {"f16", "f32"}:
            raise CompileError(f"KTIR has no cast from {source} to {element} inside an operation.")
        name = "arith.extf" if element == "f32" else "arith.truncf"
        return self.op(name, self.type(shape_of(value), element), value)

    def _named(
        self,
        name: str,
        inputs: Sequence[ir.Value],
        out: ir.Value,
        body: Callable[[Sequence[ir.Value]], ir.Value],
        **attributes: ir.Attribute,
    ) -> ir.Value:
        operands = [*inputs, out]
        op = ir.Operation.create(
            name, results=[out.type], operands=operands, attributes=attributes, regions=1
        )
        return with_body(op, body)

    # -- control ------------------------------------------------------------------------------------------

    def if_(
        self,
        condition: ir.Value,
        then: Callable[[], ir.Value | None],
        other: Callable[[], ir.Value | None] | None = None,
        result: ir.Type | None = None,
    ) -> ir.Value | None:
        """Build a branch, whose two sides yield a value of the type ``result`` unless ``result`` is None."""
        results = [] if result is None else [result]
        op = ir.Operation.create("scf.if", results=results, operands=[condition], regions=2)
        for region, side in zip(op.regions, (then, other), strict=True):
            if side is None:
                continue
            with ir.InsertionPoint(ir.Block.create_at_start(region, [])):
                value = side()
                ir.Operation.create("scf.yield", operands=[] if result is None or value is None else [value])
        return op.result if results else None


def _splat(type_: ir.Type, value: float) -> ir.Attribute:
    return ir.DenseElementsAttr.get_splat(type_, _number(ir.RankedTensorType(type_).element_type, value))


def _number(type_: ir.Type, value: float) -> ir.Attribute:
    if isinstance(type_, ir.IntegerType | ir.IndexType):
        return ir.IntegerAttr.get(type_, int(value))
    return ir.FloatAttr.get(type_, value)


_EQUAL, _LESS = 0, 6


class CoreValues:
    """Values of the current core, one of ``cores`` cores."""

    def __init__(self, build: TensorBuilder, cores: int) -> None:
        self.build, self.cores = build, cores
        self.core = build.core

    def value(self, numbers: Sequence[int]) -> ir.Value:
        """Return the entry of ``numbers`` for this core."""
        build = self.build
        if len(set(numbers)) == 1:
            return build.number(numbers[0])
        digit = _digit(tuple(numbers))
        if digit is None:
            entry = build.op("tensor.extract", build.i64, build.table(numbers), self.core)
            return build.op("arith.index_cast", build.index, entry)
        divisor, modulus, factor, offset = digit
        value = self.core
        if divisor > 1:
            value = build.op("arith.divui", build.index, value, build.number(divisor))
        if modulus * divisor < self.cores:
            value = build.op("arith.remui", build.index, value, build.number(modulus))
        value = build.times(value, factor)
        return build.add(value, build.number(offset)) if offset else value

    def is_among(self, chosen: Sequence[bool]) -> ir.Value:
        """Return whether this core is one of the chosen cores, which must not be all cores."""
        first = sum(chosen)
        if all(chosen[:first]):
            return self.build.compare(_LESS, self.core, self.build.number(first))
        if first == 1:
            return self.build.compare(_EQUAL, self.core, self.build.number(list(chosen).index(True)))
        number = self.value([int(each) for each in chosen])
        return self.build.compare(_EQUAL, number, self.build.number(1))

    def synchronize(self) -> None:
        """Build a barrier of all cores: each core offers one number, and waits for the numbers of the others."""
        number = self.build.filled([1], "i32", 0)
        everybody = f"(i)[g] : (i - g >= 0, -i + g + {self.cores - 1} >= 0)"
        self._exchanged(number, number, "arith.addi", everybody, "(g) : (g == 0)")

    def combined(
        self, partial: ir.Value, identity: ir.Value, combine: str, groups: Sequence[Sequence[int]]
    ) -> ir.Value:
        """Build the combination of the partial results of each group of cores; ``CompileError`` if groups differ."""
        # The distance between neighbours in a group, and the size of a group.
        step, count, last = groups[0][1] - groups[0][0], len(groups[0]), self.cores - 1
        if step < 1 or any(
            list(group) != list(range(group[0], group[0] + step * count, step)) or group[0] // step % count
            for group in groups
        ):
            raise CompileError("KTIR requires equal distances between the ids of the cores that share a sum.")
        members = (
            f"(i)[g] : (i - ((i floordiv {step}) mod {count}) * {step} - g == 0, i >= 0, -i + {last} >= 0)"
        )
        leaders = f"(g) : ((g floordiv {step}) mod {count} == 0, g >= 0, -g + {last} >= 0)"
        return self._exchanged(partial, identity, combine, members, leaders)

    def _exchanged(
        self, partial: ir.Value, identity: ir.Value, combine: str, producers: str, groups: str
    ) -> ir.Value:
        type_, text = partial.type, {"producers": ir.StringAttr.get(producers)}
        future_type = ktdp.TileFutureType.get(ir.TypeAttr.get(type_), ir.StringAttr.get(groups))
        future = ir.Operation.create(
            "ktdp.inter_tile_produce", results=[future_type], attributes=text, regions=1
        )
        with ir.InsertionPoint(ir.Block.create_at_start(future.regions[0], [self.build.index])):
            ir.Operation.create("ktdp.yield_partial", operands=[partial])
        reduce = ir.Operation.create(
            "ktdp.inter_tile_reduce",
            results=[type_],
            operands=[future.result, identity],
            attributes=text,
            regions=1,
        )
        block = ir.Block.create_at_start(reduce.regions[0], [type_, type_])
        with ir.InsertionPoint(block):
            result = self.build.op(combine, type_, *block.arguments)
            ir.Operation.create("ktdp.yield_reduced", operands=[result])
        return reduce.result


@functools.lru_cache(maxsize=1 << 12)
def _digit(numbers: tuple[int, ...]) -> tuple[int, int, int, int] | None:
    """Return divisor, modulus, factor and offset: ``numbers[c]`` is ``c // divisor % modulus * factor + offset``."""
    offset = numbers[0]
    divisor = next(core for core, number in enumerate(numbers) if number != offset)
    factor = numbers[divisor] - offset
    repeats = (core for core in range(divisor + 1, len(numbers)) if numbers[core] == offset)
    period = next(repeats, len(numbers))
    modulus = -(-period // divisor)
    if factor < 0 or offset < 0:
        return None
    digits = tuple(core // divisor % modulus * factor + offset for core in range(len(numbers)))
    return (divisor, modulus, factor, offset) if digits == numbers else None
