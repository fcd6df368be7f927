# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompose a ``linalg.generic`` into device operations: scalar ops of the body, the reduction, the contraction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from spyre_mlir.analysis.quantized_matmuls import PRODUCTS, narrowing_cast
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects.structured import Map, Structured, device_op, shape_of, structured, use_empty
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting import body_operations as scalar
from spyre_mlir.rewriting.body_operations import READS_SIGN
from spyre_mlir.rewriting.linalg_values import Term, Terms, device_element
from spyre_mlir.rewriting.narrow_numbers import representable, rounded
from spyre_mlir.rewriting.node_builder import Node, NodeBuilder
from spyre_mlir.rewriting.tensor_builders import collapsed, expanded
from spyre_mlir.target.element_types import ONE_BYTE, widening_block


class BodyDecomposer:
    """Decompose the body of one op; ``run`` returns the term of its result."""

    def __init__(self, terms: Terms, op: ir.Operation) -> None:
        generic = structured(op)
        if generic is None:
            why = "several results" if len(op.results) > 1 else "an indexing map that is no selection of dims"
            raise error_at(op, f"a linalg.generic with {why} has no device operation")
        self.terms = terms
        self.generic: Structured = generic
        self.op = op
        self.builder = NodeBuilder(terms, op, generic.extents)
        self.nodes: dict[ir.Value, Node] = {}
        #: Conditions that are false exactly where a comparison of the body is true.
        self.complements: dict[ir.Value, Node] = {}

    def run(self) -> Term:
        body = self.generic.body
        inputs = zip(list(body.arguments)[:-1], self.generic.inputs, self.generic.maps, strict=False)
        # An input that the body does not read has a shape but may not have values: the window of a pooling.
        self.nodes.update(
            (number, self._node(value, dims)) for number, value, dims in inputs if not use_empty(number)
        )
        *ops, terminator = [op.operation for op in body.operations]
        yielded = terminator.operands[0]
        accumulator = body.arguments[len(body.arguments) - 1]
        if self.generic.reduced:
            return self._reduction(ops, yielded, accumulator)
        # Most bodies overwrite their destination, which then is not an operand.
        if any(accumulator in list(op.operands) for op in ops) or yielded == accumulator:
            self.nodes[accumulator] = self._node(self.generic.output, self.generic.maps[-1])
        self._elementwise(ops)
        node = self._lookup(yielded)
        # A boolean has the format of the compared values, but as a result of the op it is fp16.
        return self._term(self.builder.cast(node, "f16", self.op) if str(yielded.type) == "i1" else node)

    # -- nodes ----------------------------------------------------------------------------------------

    def _node(self, value: ir.Value, dims: Map) -> Node:
        """Return an operand as a node over the iteration dims, through the dim selection of its term."""
        term = self.terms[value]
        if term.value is None:
            return Node(None, constant=term.splat)
        return Node(term.value, tuple(None if dim is None else dims[dim] for dim in term.dims))

    def _lookup(self, value: ir.Value) -> Node:
        if value in self.nodes:
            return self.nodes[value]
        return Node(None, constant=self.terms[value].splat)

    def _term(self, node: Node) -> Term:
        """Return a node as the term of the op's result: convert iteration dims to result dims."""
        if node.value is None:
            return Term(None, splat=node.constant)
        where = {dim: position for position, dim in enumerate(self.generic.maps[-1]) if dim is not None}
        return Term(node.value, tuple(None if dim is None else where[dim] for dim in node.dims))

    # -- elementwise ----------------------------------------------------------------------------------

    def _elementwise(self, ops: list[ir.Operation]) -> None:
        for op in ops:
            self.nodes[op.results[0]] = self._scalar(op)

    def _scalar(self, op: ir.Operation) -> Node:
        constant = scalar.scalar_constant(op)
        if constant is not None:
            return Node(None, constant=constant)
        if op.name == "tensor.extract" and len(op.operands) == 1:
            return self._node(op.operands[0], ())
        if op.name in scalar.CASTS:
            return self._cast(op)
        nodes = [self._lookup(operand) for operand in op.operands]
        if op.name in ("math.fpowi", "math.powf"):
            return power(self._apply, op, *nodes)
        if op.name == "math.roundeven" and nodes[0].value is not None:
            return rounded(self.builder, nodes[0], op)
        if op.name == "arith.cmpf":
            comparison = compared(self._apply, ir.IntegerAttr(op.attributes["predicate"]).value, *nodes)
            if comparison.complement is not None:
                self.complements[op.results[0]] = comparison.complement
            return comparison.condition
        if op.name in scalar.WITHOUT_NAN:
            return extreme_without_nan(self._apply, scalar.WITHOUT_NAN[op.name], *nodes)
        if op.name == "arith.select" and op.operands[0] in self.complements:
            nodes = [self.complements[op.operands[0]], nodes[2], nodes[1]]
        return self._apply(self._opcode(op), nodes, str(op.results[0].type))

    def _apply(self, opcode: str, nodes: list[Node], result: str = "") -> Node:
        """Return an operation on nodes, or its value if all nodes are constants."""
        if all(node.value is None for node in nodes):
            values = [node.constant for node in nodes if node.constant is not None]
            return Node(None, constant=scalar.wrapped(scalar.fold(opcode, values), result))
        if opcode == "where3":
            return self._where(nodes, result)
        # The device has a reciprocal operation, which does not need a constant in memory.
        if opcode == "realdiv" and nodes[0].constant == 1.0:
            return self.builder.emit("reciprocal", nodes[1:])
        return self.builder.emit(opcode, self._agreeing(nodes))

    def _agreeing(self, nodes: list[Node]) -> list[Node]:
        """Convert booleans, which have the format of the compared values, to the format of the first operand."""
        first = next((node.element for node in nodes if node.value is not None), "")
        return [self.builder.cast(node, first, self.op) for node in nodes]

    def _opcode(self, op: ir.Operation) -> str:
        if op.name == "arith.cmpi" and str(op.operands[0].type) == "i1":
            return scalar.LOGICAL_COMPARISONS[ir.IntegerAttr(op.attributes["predicate"]).value]
        if op.name in scalar.LOGICAL and str(op.results[0].type) == "i1":
            return scalar.LOGICAL[op.name]
        if op.name in scalar.DIRECT:
            self._check_width(op)
            return scalar.DIRECT[op.name]
        raise error_at(
            op, f"'{op.name}' has no device operation; see the device-operation table for what has"
        )

    def _check_width(self, op: ir.Operation) -> None:
        """Reject sums and products of 64-bit integers: an overflow of the device's 32 bits would not be detected."""
        if op.name in scalar.INTEGER and str(op.results[0].type) == "i64":
            raise error_at(
                op, f"'{op.name}' on 64-bit integers has no device operation, whose integers have 32 bits"
            )

    def _cast(self, op: ir.Operation) -> Node:
        node = self._lookup(op.operands[0])
        if node.constant is not None:
            return Node(None, constant=scalar.cast_constant(op, node.constant))
        element = str(op.results[0].type)
        if op.name in ("arith.trunci", "arith.fptosi") and element == "i1":
            raise error_at(op, "the lowest bit of an integer has no device operation")
        if op.name == "arith.trunci" and element in ONE_BYTE:
            raise error_at(op, "the lowest 8 bits of an integer have no device operation")
        if element == "f64":
            element = "f32"  # a scalar that the importer widens with extf before a comparison or truncf
        if element in ONE_BYTE:
            node = representable(self.builder, node, element, op)
        elif node.element == "i8" and element != "i8":
            node = widened(node, op)
        node = as_read(self.builder, node, op)
        return self.builder.cast(node, device_element(element, op.location), op)

    def _where(self, nodes: list[Node], result: str) -> Node:
        """Emit ``where3``, which requires its condition in the element type of its values."""
        condition, *values = nodes
        if condition.value is None:
            return values[0] if condition.constant else values[1]
        element = next((value.element for value in values if value.value is not None), None)
        element = element or device_element(result, self.op.location)
        return self.builder.emit(
            "where3", [self.builder.cast(node, element, self.op) for node in nodes], element
        )

    # -- reductions -----------------------------------------------------------------------------------

    def _reduction(self, ops: list[ir.Operation], yielded: ir.Value, accumulator: ir.Value) -> Term:
        combine = next((op for op in ops if op.results[0] == yielded), None)
        if combine is not None and combine.name == "arith.addi":
            return self._integer_sum(ops, combine, accumulator)
        combination = scalar.combination(combine.name) if combine is not None else None
        if combine is None or combination is None or accumulator not in list(combine.operands):
            raise error_at(
                self.op, "this reduction has no device operation; sums, products, minima and maxima have"
            )
        source = next(operand for operand in combine.operands if operand != accumulator)
        others = [op for op in ops if op != combine]
        if any(accumulator in list(op.operands) for op in others):
            raise error_at(self.op, "a reduction that uses its accumulator twice has no device operation")
        element = device_element(str(accumulator.type), self.op.location)
        product = (
            contraction(self.generic, self.nodes, others, source) if combine.name == "arith.addf" else None
        )
        if product is None:
            self._elementwise(others)
            operand = self.builder.cast(self._lookup(source), element, self.op)
            if combine.name in scalar.WITHOUT_NAN:
                operand = in_place_of_nan(self._apply, operand, combination.neutral)
            node = self._reduce(operand, combination)
        else:
            node = product
        # Device reductions begin with the neutral element; any other initial value is combined with the result.
        init = self._node(self.generic.output, self.generic.maps[-1])
        if init.value is None and scalar.is_neutral(combine.name, init.constant, element):
            return self._term(node)
        operands = [node, self.builder.cast(init, element, self.op)]
        return self._term(self.builder.emit(combination.elementwise, operands, element))

    def _reduce(self, node: Node, combination: scalar.Combination) -> Node:
        """Reduce the last dim with the opcode over the stick, and other dims with the opcode over other dims."""
        over_stick, over_others = combination.over_stick, combination.over_others
        if node.value is None:
            raise error_at(self.op, "a reduction of a constant has no device operation")
        missing = [dim for dim in self.generic.reduced if dim not in node.dims]
        if missing:
            node = self.builder.broadcast(node, missing)
        reduced = [dim for dim in node.dims if dim in self.generic.reduced]
        last = node.dims[-1]
        # The last dim first, which leaves fewer elements for the other dims.
        if last in reduced and over_stick != over_others:
            node = self.builder.reduce(node, [last], over_stick)
            reduced.remove(last)
        return self.builder.reduce(node, reduced, over_others) if reduced else node

    def _integer_sum(self, ops: list[ir.Operation], combine: ir.Operation, accumulator: ir.Value) -> Term:
        """Return a sum of products of int8 that starts at 0; other integer sums do not have a device operation."""
        source = next((operand for operand in combine.operands if operand != accumulator), accumulator)
        init = self._node(self.generic.output, self.generic.maps[-1])
        node = (
            contraction(self.generic, self.nodes, ops, source)
            if init.value is None and not init.constant
            else None
        )
        if node is None or node.element != "i32":
            raise error_at(self.op, "a sum of integers has no device operation, but for a matmul of int8")
        return self._term(node)


# Scalar ops of a ``linalg`` body that need several device operations: comparisons, extremes that ignore NaN, powers.
#
# ``apply`` creates one device operation from an opcode and nodes, and folds it if the nodes are constants.

Apply = Callable[..., Node]


class ComparedNodes(NamedTuple):
    """A condition, and its complement if the complement needs one operation less."""

    condition: Node
    complement: Node | None = None


def compared(apply: Apply, predicate: int, first: Node, second: Node) -> ComparedNodes:
    """Build a comparison for a predicate of ``arith.cmpf``; some unordered ones are complements of ordered ones."""
    if predicate in scalar.COMPARISONS:
        return ComparedNodes(apply(scalar.COMPARISONS[predicate], [first, second]))
    if predicate in (6, 8):  # "one": smaller or larger; "ueq": neither
        one = apply("maximum", [apply(opcode, [first, second]) for opcode in ("lesserthan", "greaterthan")])
        return ComparedNodes(one) if predicate == 6 else _complement_of(apply, one)
    if predicate in (7, 14):  # "ord": both are numbers; "uno": not both
        same, combine = ("equal", "mul") if predicate == 7 else ("notequal", "maximum")
        return ComparedNodes(apply(combine, [apply(same, [node, node]) for node in (first, second)]))
    if predicate in scalar.COMPLEMENTS:
        opposite = scalar.COMPARISONS[scalar.COMPLEMENTS[predicate]]
        return _complement_of(apply, apply(opposite, [first, second]))
    return ComparedNodes(Node(None, constant=float(predicate == 15)))


def _complement_of(apply: Apply, condition: Node) -> ComparedNodes:
    return ComparedNodes(apply("equal", [condition, Node(None, constant=0.0)]), condition)


def extreme_without_nan(apply: Apply, opcode: str, first: Node, second: Node) -> Node:
    """Return the larger or smaller of two numbers; if one of them is NaN, the other."""
    element = next((node.element for node in (first, second) if node.value is not None), "f32")
    result = apply(opcode, [first, second])
    for node, other in ((second, first), (first, second)):
        result = apply("where3", [apply("equal", [node, node]), result, other], element)
    return result


def in_place_of_nan(apply: Apply, node: Node, number: float) -> Node:
    """Return a node in which each NaN is replaced by a number."""
    return apply("where3", [apply("equal", [node, node]), node, Node(None, constant=number)], node.element)


def power(apply: Apply, op: ir.Operation, base: Node, exponent: Node) -> Node:
    """Return a power as a chain of products, roots or a reciprocal."""
    if exponent.constant is not None and base.value is None:
        with np.errstate(all="ignore"):
            return Node(None, constant=float(np.float64(base.constant or 0.0) ** exponent.constant))
    chain = scalar.power(exponent.constant) if exponent.constant is not None else None
    if chain is None:
        raise error_at(
            op, "a power with this exponent has no device operation; 1, 2, 3, 4, 0.5, -0.5 and -1 have"
        )
    node = base
    for step in chain:
        if step == "mul":
            node = apply("mul", [node, base])
        elif step == "square":
            node = apply("mul", [node, node])
        elif step != "identity":
            node = apply(step, [node])
    return node


# Widening of int8 to fp16: a product with the unit matrix. The device has no such cast, but int8 products in fp16.
#
#     w : [rows, inner] i8  ->  sum over k of eye[b, j, k] * w[n, b, k] : [b, j, n] f16, where inner = b * block
#
# The product is exact, because each sum has one nonzero product, and the array multiplies int8 faster than memory
# supplies it. Columns become rows, which is the order that a matmul requires for the weight of a linear layer.


def widened(node: Node, op: ir.Operation) -> Node:
    """Return a node of int8 in fp16; ``CompileError`` for a shape that the product does not support."""
    assert node.value is not None
    if narrowing_cast(node.value) is not None:
        # The columns are not in pairs, and the operand of the cast may contain integers of more than 8 bits.
        raise error_at(op, "a cast from i8 that the device has cast to i8 has no device operation")
    shape = shape_of(node.value)
    block = widening_block(shape, target_of(op).stick_bytes)
    if block is None:
        text = f"a cast from i8 to f16 has no device operation for the shape {list(shape)}"
        raise error_at(op, text)
    *batches, rows, inner = shape
    rank, count = len(batches), inner // block
    groups = [*([dim] for dim in range(rank + 1)), [rank + 1, rank + 2]]
    source = expanded(node.value, groups, [*batches, rows, count, block])
    batch = range(rank + 1)
    product = device_op(
        "batchmatmulint8",
        [_unit_matrices([*batches, count], block, op.location), source],
        [(*batch, rank + 1, rank + 3), (*range(rank), rank + 2, rank, rank + 3)],
        [*batches, count, block, rows, block],
        "f16",
        location=op.location,
        reduced=[rank + 3],
    )
    merged = collapsed(product, [*([dim] for dim in range(rank)), [rank, rank + 1], [rank + 2]])
    *lead, row, column = node.dims
    return Node(merged, (*lead, column, row))


def as_read(builder: NodeBuilder, node: Node, op: ir.Operation) -> Node:
    """Return the operand of a cast as the cast reads it: for casts of integers, as signed or unsigned numbers.

    On the device booleans are 0 and 1, other integers are signed, and bytes are 16-bit floats, which hold 0 to 255.
    """
    element, reads_sign = str(op.operands[0].type), READS_SIGN.get(op.name)
    if reads_sign is None or reads_sign == (element != "i1"):
        return node
    if element == "i1":
        return builder.emit("neg", [node])
    if element != "i8":
        text = (
            f"'{op.name}' of {element} has no device operation: the device's integers have 32 bits and a sign"
        )
        raise error_at(op, text)
    is_negative = builder.emit("lesserthan", [node, Node(None, constant=0.0)])
    lacking = builder.emit("mul", [is_negative, Node(None, constant=256.0)])
    return builder.emit("add", [node, lacking])


def _unit_matrices(batches: list[int], size: int, location: ir.Location) -> ir.Value:
    """Return one unit matrix per batch, copied from a matrix that the host provides."""
    i8 = ir.IntegerType.get_signless(8)
    dense = ir.DenseElementsAttr.get(
        np.eye(size, dtype=np.int8), type=ir.RankedTensorType.get([size, size], i8)
    )
    one = ir.Operation.create("arith.constant", results=[dense.type], attributes={"value": dense}).result
    rank = len(batches)
    return device_op("identity", [one], [(rank, rank + 1)], [*batches, size, size], "i8", location=location)


# Contractions in the body of a ``linalg`` op: a reduced product of two inputs becomes one matmul of the device.

_MULTIPLY = ("arith.mulf", "arith.muli")


def contraction(
    generic: Structured,
    nodes: Mapping[ir.Value, Node],
    ops: list[ir.Operation],
    source: ir.Value,
) -> Node | None:
    """Return ``sum_k a[.., k] * b[.., k]`` of two inputs as one batchmatmul; None for another reduction."""
    product = next((op for op in ops if op.results[0] == source), None)
    if product is None or product.name not in _MULTIPLY or len(generic.reduced) != 1:
        return None
    if generic.extents[generic.reduced[0]] == 1:
        return None  # one product, no sum
    factors = [_uncast(nodes, ops, operand) for operand in product.operands]
    if any(factor is None for factor in factors):
        return None
    lhs, rhs = (factor for factor in factors if factor is not None)
    contracted = generic.reduced[0]
    if lhs.element != rhs.element or lhs.element not in PRODUCTS:
        return _no_contraction(generic.op, lhs, rhs, contracted)
    if lhs.element in ONE_BYTE:
        if not set(lhs.dims) ^ set(rhs.dims):
            raise error_at(generic.op, f"a matmul of {lhs.element} needs rows or columns")
    elif not _is_matmul(lhs, rhs, contracted):
        return None
    element = device_element(str(source.type), generic.op.location)
    return _matmul(generic, lhs, rhs, contracted, element)


def _no_contraction(op: ir.Operation, lhs: Node, rhs: Node, contracted: int) -> None:
    if _is_matmul(lhs, rhs, contracted) and set(lhs.dims) - set(rhs.dims) and set(rhs.dims) - set(lhs.dims):
        raise error_at(
            op,
            f"a matmul takes fp16, fp8 or int8, not {lhs.element} x {rhs.element}; cast the operands",
        )


def _uncast(nodes: Mapping[ir.Value, Node], ops: list[ir.Operation], value: ir.Value) -> Node | None:
    """Return the input of the body from which a value is computed, through a widening cast; None if there is none."""
    producer = next((op for op in ops if op.results[0] == value), None)
    if producer is not None and producer.name in ("arith.extf", "arith.extsi"):
        value = producer.operands[0]
    node = nodes.get(value)
    return node if node is not None and node.value is not None else None


def _matmul(generic: Structured, lhs: Node, rhs: Node, contracted: int, element: str) -> Node:
    dims = sorted({dim for node in (lhs, rhs) for dim in node.dims if dim is not None})
    where = {dim: position for position, dim in enumerate(dims)}
    if lhs.value is None or rhs.value is None:
        raise CompileError("a matmul needs two tensors")
    result = device_op(
        PRODUCTS[lhs.element],
        [lhs.value, rhs.value],
        [tuple(None if dim is None else where[dim] for dim in node.dims) for node in (lhs, rhs)],
        [generic.extents[dim] for dim in dims],
        element,
        location=generic.op.location,
        reduced=[where[contracted]],
    )
    return Node(result, tuple(dim for dim in dims if dim != contracted))


def _is_matmul(lhs: Node, rhs: Node, contracted: int) -> bool:
    """Return whether both nodes have the contracted dim and the contraction is worth a matmul."""
    if contracted not in lhs.dims or contracted not in rhs.dims:
        return False
    rows, columns = set(lhs.dims) - set(rhs.dims), set(rhs.dims) - set(lhs.dims)
    if rows and columns:
        return True
    # Matrix times vector: if the contracted dim is in the stick, a product and a sum are enough.
    wide = rhs if columns else lhs
    return bool(rows or columns) and wide.dims[-1] != contracted
