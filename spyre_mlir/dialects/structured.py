# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reader and builder of the ``linalg.generic`` ops that represent device operations.

``Structured`` is a read-only view of one op with its maps as tuples of iteration dims; ``device_op`` builds the op
of one device operation. The body is built from the expression of the operation in ``target/ops.py``, so the body is a
function of the operation, and upstream's lowering can run every level.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from spyre_mlir.compile_lock import assigned
from spyre_mlir.dialects import sdsc
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.target.expressions import SCALARS, Expression
from spyre_mlir.target.ops import DEVICE_OPS, NEUTRAL, Kind, scalar_expression
from spyre_mlir.tiling.mask_tiles import RunLengths

#: Ops whose last operand is the destination of the result, and is not read.
DESTINATION = ("linalg.generic", "linalg.transpose", "linalg.fill")

#: Indexing map of an operand: for each of its dims the iteration dim that indexes it; None is the constant 0.
Map = tuple[int | None, ...]


@dataclass(frozen=True)
class Structured:
    """View of a ``linalg.generic`` with one result.

    Attributes:
        op: The operation.
        inputs: Its inputs.
        output: Its destination operand.
        maps: For each input, then for the output, the iteration dim that indexes each of its dims; None is the
            constant 0.
        iterators: "parallel" or "reduction" for each iteration dim.
    """

    op: ir.Operation
    inputs: tuple[ir.Value, ...]
    output: ir.Value
    maps: tuple[Map, ...]
    iterators: tuple[str, ...]

    @property
    def result(self) -> ir.Value:
        """The result of the op."""
        return self.op.results[0]

    @property
    def body(self) -> ir.Block:
        """The block with the scalar ops."""
        return self.op.regions[0].blocks[0]

    @functools.cached_property
    def reduced(self) -> tuple[int, ...]:
        """The reduction dims of the iteration space."""
        return reduced_dims(self.iterators)

    @functools.cached_property
    def extents(self) -> tuple[int, ...]:
        """The size of each iteration dim."""
        return extents_of(
            self.maps, [shape_of(value) for value in (*self.inputs, self.output)], len(self.iterators)
        )

    @functools.cached_property
    def opcode(self) -> str:
        """The device operation recorded on the op; empty without one."""
        return sdsc.opcode_of(self.op) or ""


def reduced_dims(iterators: Sequence[str]) -> tuple[int, ...]:
    """Return the dims of the ``iterators`` that are reductions."""
    return tuple(dim for dim, kind in enumerate(iterators) if kind == "reduction")


def extents_of(maps: Sequence[Map], shapes: Sequence[Sequence[int]], rank: int) -> tuple[int, ...]:
    """Return the size of each of ``rank`` iteration dims, from the shapes of the operands that the maps index."""
    sizes = [1] * rank
    for shape, dims in zip(shapes, maps, strict=True):
        for dim, size in zip(dims, shape, strict=True):
            if dim is not None:
                sizes[dim] = size
    return tuple(sizes)


#: Cache of maps and iterators by the attributes of generic ops, None if a map is not a selection; its owner decides
#: how long it lasts.
Known = dict[tuple[ir.Attribute, ir.Attribute], tuple[tuple[Map, ...], tuple[str, ...]] | None]

#: The cache of ``parsed_once``, None outside of it.
_known: contextvars.ContextVar[Known | None] = contextvars.ContextVar("known", default=None)


def parsed_once() -> AbstractContextManager[Any]:
    """Parse equal maps and iterators of all ops only once inside a ``with`` block.

    Attributes keep their MLIR context, and with it constants, alive, so the cache ends with the block.
    """
    return assigned(_known, {})


def structured(op: ir.Operation, known: Known | None = None) -> Structured | None:
    """Return the view of a ``linalg.generic``; None if it has several results or maps that are not selections.

    Args:
        op: The operation.
        known: A cache of parsed attributes: callers that read many ops outside of ``parsed_once`` pass the same one.
    """
    if op.name != "linalg.generic" or len(op.results) != 1:
        return None
    attributes = op.attributes
    key = attributes["indexing_maps"], attributes["iterator_types"]
    known = _known.get() if known is None else known
    if known is None:
        space = _space_of(*key)
    elif key in known:
        space = known[key]
    else:
        space = known[key] = _space_of(*key)
    if space is None:
        return None
    *inputs, output = op.operands
    return Structured(op, tuple(inputs), output, *space)


def _space_of(maps: ir.Attribute, iterators: ir.Attribute) -> tuple[tuple[Map, ...], tuple[str, ...]] | None:
    selections = [selection(ir.AffineMapAttr(attr).value) for attr in ir.ArrayAttr(maps)]
    selected = tuple(dims for dims in selections if dims is not None)
    if len(selected) < len(selections):
        return None
    # Iterator types in text may be enums or strings (``parser_limits.py``), and both contain the
    # word.
    names = ("reduction" if "reduction" in str(attr) else "parallel" for attr in ir.ArrayAttr(iterators))
    return selected, tuple(names)


def selection(map_: ir.AffineMap) -> Map | None:
    """Return the dims that a map selects; None if a result is anything but a dim or the constant 0."""
    dims: list[int | None] = []
    for result in map_.results:
        if isinstance(result, ir.AffineDimExpr):
            dims.append(result.position)
        elif isinstance(result, ir.AffineConstantExpr) and result.value == 0:
            dims.append(None)
        else:
            return None
    return tuple(dims)


def affine_map(dims: Map, rank: int) -> ir.AffineMap:
    """Build the affine map of a selection, from ``rank`` iteration dims."""
    return ir.AffineMap.get(
        rank, 0, [ir.AffineConstantExpr.get(0) if dim is None else ir.AffineDimExpr.get(dim) for dim in dims]
    )


def shape_of(value: ir.Value) -> tuple[int, ...]:
    """Return the shape of a tensor ``value``."""
    if not isinstance(value.type, ir.RankedTensorType):
        return ()
    return tuple(ir.RankedTensorType(value.type).shape)


def element_of(value: ir.Value) -> str:
    """Return the element type of a tensor ``value``, as text."""
    if isinstance(value.type, ir.RankedTensorType):
        return str(ir.RankedTensorType(value.type).element_type)
    return str(value.type)


def defining_op(value: ir.Value) -> ir.Operation | None:
    """Return the op that defines a ``value``; None for a block argument."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def use_empty(value: ir.Value) -> bool:
    """Return whether no operation reads a ``value``; the ``Value::use_empty`` of MLIR."""
    return next(iter(value.uses), None) is None


def maker_of(value: ir.Value) -> ir.Operation:
    """Return the defining op of a value; ``TypeError`` for a block argument."""
    op = defining_op(value)
    if op is None:
        raise TypeError("a block argument has no defining op")
    return op


def device_op(
    opcode: str,
    inputs: Sequence[ir.Value],
    maps: Sequence[Map],
    shape: Sequence[int],
    element: str,
    *,
    location: ir.Location,
    reduced: Sequence[int] = (),
    result_map: Map | None = None,
    constants: Mapping[str, float] | None = None,
) -> ir.Value:
    """Build one device operation at the current insertion point and return its result.

    Args:
        opcode: The name of the operation.
        inputs: Its inputs.
        maps: For each input the iteration dim that indexes each of its dims; None is the constant 0.
        shape: The elements of each iteration dim.
        element: The element type of the result, as text.
        location: The location of the operation.
        reduced: The iteration dims that are reductions.
        result_map: The dims of the result; by default all that are not ``reduced``, in order.
        constants: The numbers of its constants by name.
    """
    rank = len(shape)
    if result_map is None:
        result_map = tuple(dim for dim in range(rank) if dim not in reduced)
    sizes = [shape[dim] for dim in result_map if dim is not None]
    type_ = ir.RankedTensorType.get(sizes, ir.Type.parse(element))
    all_maps = [ir.AffineMapAttr.get(affine_map(dims, rank)) for dims in (*maps, result_map)]
    empty = ir.Operation.create("tensor.empty", results=[type_], loc=location).result
    neutral = NEUTRAL.get(opcode)
    if neutral is None:
        init = empty
    else:
        with location:
            constant = Body(type_.element_type, {}).constant(neutral)
            init = filled(constant, empty)
    operands = [*inputs, init]
    with location:
        op = generic_without_body(operands, [type_], all_maps, iterators(rank, frozenset(reduced)))
    op.attributes[sdsc.OP] = sdsc.op_attr(opcode, constants)
    scalars = [ir.RankedTensorType(value.type).element_type for value in inputs]
    block = ir.Block.create_at_start(op.regions[0], [*scalars, type_.element_type])
    with ir.InsertionPoint(block), location:
        body = Body(type_.element_type, constants or {}, rank)
        value = body.build(opcode, list(block.arguments))
        ir.Operation.create("linalg.yield", operands=[value])
    return op.result


def rebuilt(
    generic: Structured,
    inputs: Sequence[ir.Value],
    extents: Sequence[int] | None = None,
    element: str | None = None,
) -> ir.Value:
    """Build the device operation of ``generic`` on other inputs, and copy its history.

    Args:
        generic: The view of the operation.
        inputs: The other inputs, in equal number.
        extents: The elements of each iteration dim; by default of ``generic``.
        element: The element type of the result, as text; by default of ``generic``.
    """
    result = device_op(
        generic.opcode,
        inputs,
        generic.maps[:-1],
        generic.extents if extents is None else extents,
        element or element_of(generic.result),
        location=generic.op.location,
        reduced=generic.reduced,
        result_map=generic.maps[-1],
        constants=sdsc.constants_of(generic.op),
    )
    sdsc.inherit(maker_of(result), generic.op)
    return result


def iterators(rank: int, reduced: frozenset[int]) -> ir.Attribute:
    """Build the iterator types of ``rank`` dims; the ``reduced`` dims are reductions."""
    names = ["reduction" if dim in reduced else "parallel" for dim in range(rank)]
    return ir.Attribute.parse("[" + ", ".join(f"#linalg.iterator_type<{name}>" for name in names) + "]")


def generic_without_body(
    operands: Sequence[ir.Value],
    types: Sequence[ir.Type],
    maps: Sequence[ir.Attribute],
    iterator_types: ir.Attribute,
) -> ir.Operation:
    """Build a ``linalg.generic`` without its body; the last operands are the destinations of the results."""
    attributes = {
        "indexing_maps": ir.ArrayAttr.get(list(maps)),
        "iterator_types": iterator_types,
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands) - len(types), len(types)]),
    }
    return ir.Operation.create("linalg.generic", list(types), list(operands), attributes, regions=1)


def filled(constant: ir.Value, empty: ir.Value) -> ir.Value:
    """Build a ``linalg.fill`` of a tensor with a scalar."""
    fill = ir.Operation.create(
        "linalg.fill",
        results=[empty.type],
        operands=[constant, empty],
        attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1])},
        regions=1,
    )
    block = ir.Block.create_at_start(fill.regions[0], [constant.type, constant.type])
    with ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=[block.arguments[0]])
    return fill.result


class Body:
    """Builder of the scalar ops of a device operation, in an element type."""

    def __init__(self, element: ir.Type, constants: Mapping[str, float], rank: int = 0) -> None:
        self.element = element
        self.constants = constants
        self.rank = rank  # of the iteration space

    def __call__(
        self, name: str, *operands: ir.Value, result: ir.Type | None = None, **attributes: Any
    ) -> ir.Value:
        return ir.Operation.create(
            name, results=[result or self.element], operands=list(operands), attributes=attributes
        ).result

    def build(self, opcode: str, arguments: Sequence[ir.Value]) -> ir.Value:
        """Build a device operation on scalars: its inputs, and the previous value of its result.

        ``KeyError`` for a constant that is missing.
        """
        *inputs, accumulator = arguments
        op = DEVICE_OPS.get(opcode)
        if op is None:  # a scalar function that a fused operation takes up
            return self._apply(opcode, inputs)
        if op.expression is None:
            return self._row(*arguments)
        if op.kind in (Kind.MATMUL, Kind.CONVOLUTION, Kind.POOLING):
            inputs = [self._widened(value) for value in inputs]
        values: dict[Expression, ir.Value] = dict(zip(op.operands, inputs, strict=True))
        if op.kind is Kind.CAST:
            # Build a cast, whose argument is computed in the element type of the input.
            assert isinstance(op.expression, tuple)
            function, argument = op.expression
            source = Body(values["x"].type, self.constants, self.rank)
            return self._apply(function, [source._expression(argument, values)])
        value = self._expression(scalar_expression(op.expression), values)
        return value if op.combine is None else self._apply(op.combine, [accumulator, value])

    def constant(self, value: float | str) -> ir.Value:
        """Build a constant: a number, or a constant of the device operation by name."""
        number = self.constants[value] if isinstance(value, str) else value
        if isinstance(self.element, ir.IntegerType):
            attr: ir.Attribute = ir.IntegerAttr.get(self.element, int(number))
        else:
            attr = ir.FloatAttr.get(self.element, number)
        return self("arith.constant", value=attr)

    def _expression(self, expression: Expression, values: dict[Expression, ir.Value]) -> ir.Value:
        """Build an expression of scalar functions; ``values`` are the values of expressions that are already built."""
        if expression in values:
            return values[expression]
        if not isinstance(expression, tuple):
            return self.constant(expression)
        function, *arguments = expression
        if function == "where3":
            condition, *others = arguments
            truth = self._condition(condition, values)
            values[expression] = self(
                "arith.select", truth, *(self._expression(argument, values) for argument in others)
            )
        else:
            values[expression] = self._apply(
                function, [self._expression(argument, values) for argument in arguments]
            )
        return values[expression]

    def _apply(self, function: str, operands: Sequence[ir.Value]) -> ir.Value:
        scalar = SCALARS[function]
        if scalar.predicate is not None:
            # Not sitofp: a true i1 is -1 as a signed number.
            return self("arith.uitofp", self._compare(scalar.predicate, *operands))
        is_integer = scalar.integer_op and isinstance(self.element, ir.IntegerType)
        return self(scalar.integer_op if is_integer else scalar.op, *operands)

    def _condition(self, expression: Expression, values: dict[Expression, ir.Value]) -> ir.Value:
        """Build the i1 of a truth value, whose element type may differ from the element type of the body."""
        if isinstance(expression, tuple):
            predicate = SCALARS[expression[0]].predicate
            if predicate is not None:
                return self._compare(
                    predicate, *(self._expression(argument, values) for argument in expression[1:])
                )
        value = self._expression(expression, values)
        zero = self("arith.constant", result=value.type, value=ir.FloatAttr.get(value.type, 0.0))
        return self._compare(_NOT_EQUAL, value, zero)

    def _compare(self, predicate: int, lhs: ir.Value, rhs: ir.Value, *, op: str = "arith.cmpf") -> ir.Value:
        i1, i64 = ir.IntegerType.get_signless(1), ir.IntegerType.get_signless(64)
        return self(op, lhs, rhs, result=i1, predicate=ir.IntegerAttr.get(i64, predicate))

    def _widened(self, value: ir.Value) -> ir.Value:
        """Cast a factor to the type of the sum."""
        if value.type == self.element:
            return value
        if not isinstance(value.type, ir.IntegerType):
            return self("arith.extf", value)
        return self("arith.extsi" if isinstance(self.element, ir.IntegerType) else "arith.sitofp", value)

    def _row(self, position: ir.Value, row: ir.Value, accumulator: ir.Value) -> ir.Value:
        """Select the row at the position; the last iteration dim iterates over all rows of the table."""
        i64 = ir.IntegerType.get_signless(64)
        index = self("linalg.index", result=ir.IndexType.get(), dim=ir.IntegerAttr.get(i64, self.rank - 1))
        row_number = self("arith.index_cast", index, result=position.type)
        is_match = self._compare(_EQUAL_INTEGERS, row_number, position, op="arith.cmpi")
        return self("arith.select", is_match, row, accumulator)


_NOT_EQUAL = SCALARS["notequal"].predicate or 0
_EQUAL_INTEGERS = 0  # of arith.cmpi


# ``sdsc.runs``: a constant argument as runs of equal elements.


def runs_attr(runs: RunLengths) -> ir.DictAttr:
    """Build the attribute. Needs a current context."""
    return ir.DictAttr.get(
        {"ends": ir.DenseElementsAttr.get(runs.ends), "values": ir.DenseElementsAttr.get(runs.values)}
    )


def runs_of(attr: ir.Attribute, shape: tuple[int, ...]) -> RunLengths:
    """Parse the attribute of an argument of a shape; ``CompileError`` for a malformed attribute."""
    try:
        entries = ir.DictAttr(attr)
        ends, values = (np.array(ir.DenseElementsAttr(entries[name])) for name in ("ends", "values"))
    except (KeyError, ValueError, TypeError) as error:
        raise CompileError("'sdsc.runs' must have 'ends' and 'values', tensors of numbers") from error
    is_increasing = len(ends) and ends[0] > 0 and bool((np.diff(ends) > 0).all())
    if not is_increasing or len(ends) != len(values) or ends[-1] != np.prod(shape):
        raise CompileError("'sdsc.runs' must have ends that increase up to the size of the argument")
    return RunLengths(shape, ends.astype(np.int32), values.astype(np.float32))
