# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompose a ``linalg.generic`` into device operations: scalar ops of the body, the reduction, the contraction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from spyre_mlir.analysis.quantized_matmuls import PRODUCTS, narrowing_cast
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects.structured import (
    Map,
    Structured,
    device_op,
    element_of,
    shape_of,
    structured,
    use_empty,
)
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting import body_operations as scalar
from spyre_mlir.rewriting.body_operations import READS_SIGN
from spyre_mlir.rewriting.linalg_values import Term, Terms, device_element, number_tensor
from spyre_mlir.rewriting.tensor_builders import collapsed, constant, expanded
from spyre_mlir.target.element_types import ONE_BYTE, cast_between, widening_block
from spyre_mlir.target.formats import DL16_SMALLEST, FP8_MAX, FP8_NORMAL, FP8_STEP, fits_fp16
from spyre_mlir.target.ops import DEVICE_OPS, FP32, Kind

#: Operations in which a constant is a scale; in others an error below the device's smallest number is acceptable.
_SCALING = ("mul", "realdiv", "reciprocal")

#: The intermediate element type of a cast in two steps. Values cast to 8 bits are already numbers of the 8-bit format.
_BETWEEN = {
    ("f16", "i32"): "f32", ("i32", "f16"): "f32", ("i32", "i8"): "f32", ("i32", "f8E4M3FN"): "f32",
    ("f32", "i8"): "f16", ("f32", "f8E4M3FN"): "f16", ("f8E4M3FN", "f32"): "f16", ("f8E4M3FN", "i32"): "f16",
}  # fmt: skip

#: Constants of casts without scaling: numbers are scaled before the cast.
_CAST_CONSTANTS = {"csqint8ch": {"scaleact": 1.0, "shiftact": 0.0}}


@dataclass(frozen=True)
class Node:
    """A scalar of the body: a constant, or a device tensor over some iteration dims (in ``dims`` order)."""

    value: ir.Value | None
    dims: tuple[int | None, ...] = ()
    constant: float | None = None

    @property
    def element(self) -> str:
        assert self.value is not None
        return element_of(self.value)

    def tensor(self, element: str) -> ir.Value:
        """Return the device tensor; for a constant, a rank-0 tensor of this element type."""
        if self.value is not None:
            return self.value
        assert self.constant is not None
        return number_tensor(self.constant, element)


class NodeBuilder:
    """Build device operations for one ``linalg`` op at the current insertion point."""

    def __init__(self, op: ir.Operation, extents: Sequence[int]) -> None:
        self.op = op
        self.extents = extents

    def emit(self, opcode: str, nodes: list[Node], element: str | None = None, **constants: float) -> Node:
        """Build one device operation over the dims of its operands."""
        element = element or next(node.element for node in nodes if node.value is not None)
        described = DEVICE_OPS.get(opcode)
        if element in ONE_BYTE and not (DEVICE_OPS[opcode].kind is Kind.CAST or DEVICE_OPS[opcode].is_copy):
            raise error_at(
                self.op, f"'{opcode}' does not support {element}: only matmuls, casts and copies support it"
            )
        is_wide = any(node.constant is not None and not fits_fp16(node.constant) for node in nodes)
        if element == "f16" and is_wide and described is not None and FP32 in described.formats:
            # fp16 cannot represent the constant, so the operation runs in f32 and its result is rounded.
            wide = []
            for node in nodes:
                # The device would round a smaller constant to 0, which is harmless only in a scale.
                if node.constant and abs(node.constant) < DL16_SMALLEST and opcode not in _SCALING:
                    node = Node(None, constant=math.copysign(DL16_SMALLEST, node.constant))
                wide.append(self.cast(node, "f32", self.op))
            return self.cast(self.emit(opcode, wide, "f32", **constants), "f16", self.op)
        # In the order of the operand with the most dims, so that it is not transposed. Other dims come where the
        # iteration has them: at the end they would be the stick dim of the result.
        widest = max(nodes, key=lambda node: len(node.dims))
        dims = [dim for dim in widest.dims if dim is not None]
        for dim in sorted({dim for node in nodes for dim in node.dims if dim is not None} - set(dims)):
            later = (index for index, other in enumerate(dims) if other > dim)
            dims.insert(next(later, len(dims)), dim)
        return self._build(opcode, nodes, dims, element, constants)

    def _build(
        self,
        opcode: str,
        nodes: Sequence[Node],
        dims: list[int],
        element: str,
        constants: Mapping[str, float] | None = None,
        reduced: Sequence[int] = (),
    ) -> Node:
        """Build one device operation over ``dims``, of which some are ``reduced``."""
        where: dict[int | None, int | None] = {None: None, **{dim: index for index, dim in enumerate(dims)}}
        result = device_op(
            opcode,
            [node.tensor(element) for node in nodes],
            [tuple(where[dim] for dim in node.dims) for node in nodes],
            [self.extents[dim] for dim in dims],
            element,
            location=self.op.location,
            reduced=[index for index, dim in enumerate(dims) if dim in reduced],
            constants=constants,
        )
        return Node(result, tuple(dim for dim in dims if dim not in reduced))

    def cast(self, node: Node, element: str, op: ir.Operation) -> Node:
        """Cast a node to another element type with one or more casts of the device."""
        if node.value is None or node.element == element:
            return node
        if (node.element, element) in _BETWEEN:
            return self.cast(self.cast(node, _BETWEEN[node.element, element], op), element, op)
        try:
            opcode = cast_between(node.element, element)
        except KeyError:
            raise error_at(op, f"a cast from {node.element} to {element} has no device operation") from None
        return self.emit(opcode, [node], element, **_CAST_CONSTANTS.get(opcode, {}))

    def broadcast(self, node: Node, missing: list[int]) -> Node:
        """Broadcast a node along reduced dims that it does not have."""
        dims = sorted({*(dim for dim in node.dims if dim is not None), *missing})
        return self._build("identity", [node], dims, node.element)

    def reduce(self, node: Node, reduced: Sequence[int | None], opcode: str) -> Node:
        """Reduce some dims of a node."""
        assert node.value is not None
        shape = shape_of(node.value)
        result = device_op(
            opcode,
            [node.value],
            [tuple(range(len(shape)))],
            shape,
            node.element,
            location=self.op.location,
            reduced=[position for position, dim in enumerate(node.dims) if dim in reduced],
        )
        return Node(result, tuple(dim for dim in node.dims if dim not in reduced))

    def matmul(self, lhs: Node, rhs: Node, contracted: int, element: str) -> Node:
        """Multiply two nodes and sum over a dim of both."""
        dims = sorted({dim for node in (lhs, rhs) for dim in node.dims if dim is not None})
        return self._build(PRODUCTS[lhs.element], [lhs, rhs], dims, element, reduced=[contracted])


class BodyDecomposer:
    """Decompose the body of one op; ``run`` returns the term of its result."""

    def __init__(self, terms: Terms, op: ir.Operation) -> None:
        generic = structured(op)
        if generic is None:
            why = "several results" if len(op.results) > 1 else "an indexing map that computes indices"
            raise error_at(op, f"a linalg.generic with {why} has no device operation")
        self.terms = terms
        self.generic: Structured = generic
        self.op = op
        self.builder = NodeBuilder(op, generic.extents)
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
        number = scalar.scalar_constant(op)
        if number is not None:
            return Node(None, constant=number)
        if op.name == "tensor.extract" and len(op.operands) == 1:
            return self._node(op.operands[0], ())
        if op.name in scalar.CASTS:
            return self._cast(op)
        nodes = [self._lookup(operand) for operand in op.operands]
        if op.name in ("math.fpowi", "math.powf"):
            return self._power(op, *nodes)
        if op.name == "math.roundeven" and nodes[0].value is not None:
            return rounded(self.builder, nodes[0], op)
        if op.name == "arith.cmpf":
            return self._comparison(op, *nodes)
        if op.name in scalar.WITHOUT_NAN:
            # If one of the numbers is NaN, the other.
            element = next((node.element for node in nodes if node.value is not None), "f32")
            result = self._apply(scalar.WITHOUT_NAN[op.name], nodes)
            for node, other in (nodes[::-1], nodes):
                result = self._apply("where3", [self._apply("equal", [node, node]), result, other], element)
            return result
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
        # Booleans have the format of the compared values, here the format of the first operand.
        first = next((node.element for node in nodes if node.value is not None), "")
        return self.builder.emit(opcode, [self.builder.cast(node, first, self.op) for node in nodes])

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

    def _opcode(self, op: ir.Operation) -> str:
        if op.name == "arith.cmpi" and str(op.operands[0].type) == "i1":
            return scalar.LOGICAL_COMPARISONS[ir.IntegerAttr(op.attributes["predicate"]).value]
        result = str(op.results[0].type)
        if op.name in scalar.LOGICAL and result == "i1":
            return scalar.LOGICAL[op.name]
        if op.name not in scalar.DIRECT:
            raise error_at(op, f"'{op.name}' has no device operation; see the device-operation table")
        # An overflow of the device's 32 bits would not be detected.
        if op.name in scalar.INTEGER and result == "i64":
            raise error_at(
                op, f"'{op.name}' on 64-bit integers has no device operation; the device has 32-bit integers"
            )
        return scalar.DIRECT[op.name]

    def _comparison(self, op: ir.Operation, first: Node, second: Node) -> Node:
        """Build an ``arith.cmpf``, and record its complement if the complement needs one operation less."""
        predicate = ir.IntegerAttr(op.attributes["predicate"]).value
        if predicate in scalar.COMPARISONS:
            return self._apply(scalar.COMPARISONS[predicate], [first, second])
        if predicate in (7, 14):  # "ord": both are numbers; "uno": not both
            same, combine = ("equal", "mul") if predicate == 7 else ("notequal", "maximum")
            return self._apply(combine, [self._apply(same, [node, node]) for node in (first, second)])
        if predicate in scalar.COMPLEMENTS:
            opposite = self._apply(scalar.COMPARISONS[scalar.COMPLEMENTS[predicate]], [first, second])
        elif predicate in (6, 8):  # "one": smaller or larger; "ueq": neither
            sides = [self._apply(opcode, [first, second]) for opcode in ("lesserthan", "greaterthan")]
            opposite = self._apply("maximum", sides)
            if predicate == 6:
                return opposite
        else:
            return Node(None, constant=float(predicate == 15))
        self.complements[op.results[0]] = opposite
        return self._apply("equal", [opposite, Node(None, constant=0.0)])

    def _power(self, op: ir.Operation, base: Node, exponent: Node) -> Node:
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
                node = self._apply("mul", [node, base])
            elif step == "square":
                node = self._apply("mul", [node, node])
            elif step != "identity":
                node = self._apply(step, [node])
        return node

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

    # -- reductions -----------------------------------------------------------------------------------

    def _reduction(self, ops: list[ir.Operation], yielded: ir.Value, accumulator: ir.Value) -> Term:
        """Return the term of a reduction: its body without the combination, reduced by one device operation."""
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
        node = self._contraction(others, source) if combine.name == "arith.addf" else None
        if node is None:
            self._elementwise(others)
            operand = self.builder.cast(self._lookup(source), element, self.op)
            if combine.name in scalar.WITHOUT_NAN:
                is_number = self._apply("equal", [operand, operand])
                neutral = Node(None, constant=combination.neutral)
                operand = self._apply("where3", [is_number, operand, neutral], operand.element)
            node = self._reduce(operand, combination)
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
        starts_at_0 = init.value is None and not init.constant
        node = self._contraction(ops, source) if starts_at_0 else None
        if node is None or node.element != "i32":
            raise error_at(self.op, "a sum of integers has no device operation, except in a matmul of int8")
        return self._term(node)

    def _contraction(self, ops: list[ir.Operation], source: ir.Value) -> Node | None:
        """Return ``sum_k a[.., k] * b[.., k]`` of two inputs as one batchmatmul; None for another reduction."""
        generic, makers = self.generic, {op.results[0]: op for op in ops}
        product = makers.get(source)
        if product is None or product.name not in ("arith.mulf", "arith.muli") or len(generic.reduced) != 1:
            return None
        (contracted,) = generic.reduced
        if generic.extents[contracted] == 1:
            return None  # one product, no sum
        factors = []
        for value in product.operands:
            cast = makers.get(value)
            is_widened = cast is not None and cast.name in ("arith.extf", "arith.extsi")
            node = self.nodes.get(cast.operands[0] if cast is not None and is_widened else value)
            if node is None or node.value is None:
                return None
            factors.append(node)
        lhs, rhs = factors
        rows, columns = set(lhs.dims) - set(rhs.dims), set(rhs.dims) - set(lhs.dims)
        is_matmul = contracted in lhs.dims and contracted in rhs.dims and bool(rows or columns)
        if is_matmul and not (rows and columns):
            # Matrix times vector: if the contracted dim is in the stick, a product and a sum are enough.
            is_matmul = (rhs if columns else lhs).dims[-1] != contracted
        if lhs.element != rhs.element or lhs.element not in PRODUCTS:
            if is_matmul and rows and columns:
                text = f"a matmul supports fp16, fp8 or int8, not {lhs.element} x {rhs.element}; cast the operands"
                raise error_at(self.op, text)
            return None
        if lhs.element in ONE_BYTE and not (rows or columns):
            raise error_at(self.op, f"a matmul of {lhs.element} needs rows or columns")
        if lhs.element not in ONE_BYTE and not is_matmul:
            return None
        element = device_element(str(source.type), self.op.location)
        return self.builder.matmul(lhs, rhs, contracted, element)


# Casts of integers.


def widened(node: Node, op: ir.Operation) -> Node:
    """Return a node of int8 in fp16, by a product with the unit matrix: the device has no such cast.

        w : [rows, inner] i8  ->  sum over k of eye[b, j, k] * w[n, b, k] : [b, j, n] f16, where inner = b * block

    The product is exact, because each sum has one nonzero product, and the array multiplies int8 faster than memory
    supplies it. Columns become rows, which is the order that a matmul requires for the weight of a linear layer.
    ``CompileError`` for a shape that the product does not support.
    """
    assert node.value is not None
    if narrowing_cast(node.value) is not None:
        # The columns are not in pairs, and the operand of the cast may contain integers of more than 8 bits.
        raise error_at(op, "a cast from i8 of a value that the device cast to i8 has no device operation")
    shape = shape_of(node.value)
    block = widening_block(shape, target_of(op).stick_bytes)
    if block is None:
        raise error_at(op, f"a cast from i8 to f16 has no device operation for the shape {list(shape)}")
    *batches, rows, inner = shape
    rank, count = len(batches), inner // block
    groups = [*([dim] for dim in range(rank + 1)), [rank + 1, rank + 2]]
    source = expanded(node.value, groups, [*batches, rows, count, block])
    # One unit matrix per batch, copied from a matrix that the host provides.
    type_ = ir.RankedTensorType.get([block, block], ir.IntegerType.get_signless(8))
    one = constant(ir.DenseElementsAttr.get(np.eye(block, dtype=np.int8), type=type_))
    sizes = [*batches, count, block, block]
    units = device_op("identity", [one], [(rank + 1, rank + 2)], sizes, "i8", location=op.location)
    product = device_op(
        "batchmatmulint8",
        [units, source],
        [(*range(rank + 1), rank + 1, rank + 3), (*range(rank), rank + 2, rank, rank + 3)],
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


# Rounding of f32 numbers to fewer digits, in f32: the casts that follow are exact, so that numbers are rounded once.
#
# The device casts f32 to 8 bits through DL16, and does not have a rounding to integers. Here both are sums and
# products, each of which the device rounds to nearest, ties to even.

#: x * 2^20 + x - x * 2^20 keeps the first 4 of 24 bits: the bits of an FP8 number (Dekker 1971, Veltkamp's splitting).
_SPLITTER = 2.0**20 + 1

#: In f32 the last place of numbers from 2^23 to 2^24 is 1, and larger numbers are integers.
_INTEGERS = 2.0**23
#: The sum of ``_UNIT`` and a number of a magnitude below 2^22 lies between 2^23 and 2^24.
_UNIT = 1.5 * _INTEGERS


def representable(builder: NodeBuilder, node: Node, element: str, op: ir.Operation) -> Node:
    """Return a node rounded, as in PyTorch, to numbers that an element type of one byte represents."""
    if element == "i8":
        # Towards zero, as for any integer type.
        return builder.cast(node, "i32", op)
    if node.value is None or node.element not in ("f32", "i32"):
        return node  # the cast of the device rounds once
    # Ties go to even; larger numbers saturate to the largest number.
    x = builder.emit("maximum", [builder.cast(node, "f32", op), Node(None, constant=-FP8_MAX)])
    x = builder.emit("minimum", [x, Node(None, constant=FP8_MAX)])
    scaled = builder.emit("mul", [x, Node(None, constant=_SPLITTER)])
    normal = builder.emit("sub", [scaled, builder.emit("sub", [scaled, x])])
    return _below(builder, x, FP8_NORMAL, _to_multiple(builder, x, FP8_STEP), normal)


def rounded(builder: NodeBuilder, node: Node, op: ir.Operation) -> Node:
    """Return a node rounded to integers, ties to even, computed in f32."""
    x = builder.cast(node, "f32", op)
    if node.element != "f32":
        # Numbers of 16 bits are integers from 2^22 on.
        near_0 = _below(builder, x, _INTEGERS / 2, _to_multiple(builder, x, 1.0), x)
        return builder.cast(near_0, node.element, op)
    # The magnitude is rounded, because the last place of a sum with 2^23 is 1 only for positive numbers.
    integers, zero = Node(None, constant=_INTEGERS), Node(None, constant=0.0)
    size = builder.emit("abs", [x])
    whole = builder.emit("sub", [builder.emit("add", [size, integers]), integers])
    is_negative = builder.emit("lesserthan", [x, zero])
    signed = builder.emit("where3", [is_negative, builder.emit("neg", [whole]), whole])
    return builder.emit("where3", [builder.emit("lesserthan", [size, integers]), signed, x])


def _to_multiple(builder: NodeBuilder, x: Node, step: float) -> Node:
    """Round small numbers to multiples of a power of two: adding a large number rounds off all smaller digits."""
    large = Node(None, constant=_UNIT * step)
    return builder.emit("sub", [builder.emit("add", [x, large]), large])


def _below(builder: NodeBuilder, x: Node, limit: float, inner: Node, outer: Node) -> Node:
    """Return ``inner`` where the magnitude of x is below a limit, ``outer`` elsewhere."""
    is_small = builder.emit("lesserthan", [builder.emit("abs", [x]), Node(None, constant=limit)])
    return builder.emit("where3", [is_small, inner, outer])
