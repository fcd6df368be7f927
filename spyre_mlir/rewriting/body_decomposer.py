# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One ``linalg.generic`` into device operations: its body's scalar ops, its reduction, its contraction."""

from __future__ import annotations

from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects.structured import Map, Structured, structured, use_empty
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting import body_operations as scalar
from spyre_mlir.rewriting.body_contractions import contraction
from spyre_mlir.rewriting.body_scalars import compared, extreme_without_nan, in_place_of_nan, power
from spyre_mlir.rewriting.linalg_values import Term, Terms, device_element
from spyre_mlir.rewriting.narrow_numbers import representable, rounded
from spyre_mlir.rewriting.node_builder import Node, NodeBuilder
from spyre_mlir.rewriting.widened_integers import as_read, widened
from spyre_mlir.target.element_types import ONE_BYTE


class BodyDecomposer:
    """Decomposes the body of one op; ``run`` gives the term of its result."""

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
        # An input that the body does not read has a shape and may have no values: the window of a pooling.
        self.nodes.update(
            (number, self._node(value, dims)) for number, value, dims in inputs if not use_empty(number)
        )
        *ops, terminator = [op.operation for op in body.operations]
        yielded = terminator.operands[0]
        accumulator = body.arguments[len(body.arguments) - 1]
        if self.generic.reduced:
            return self._reduction(ops, yielded, accumulator)
        # Most bodies overwrite their destination, which then is no operand.
        if any(accumulator in list(op.operands) for op in ops) or yielded == accumulator:
            self.nodes[accumulator] = self._node(self.generic.output, self.generic.maps[-1])
        self._elementwise(ops)
        node = self._lookup(yielded)
        # A boolean has the format of the values that were compared, but as a result it is fp16.
        return self._term(self.builder.cast(node, "f16", self.op) if str(yielded.type) == "i1" else node)

    # -- nodes ----------------------------------------------------------------------------------------

    def _node(self, value: ir.Value, dims: Map) -> Node:
        """An operand over the iteration dims, through the selection of its term."""
        term = self.terms[value]
        if term.value is None:
            return Node(None, constant=term.splat)
        return Node(term.value, tuple(None if dim is None else dims[dim] for dim in term.dims))

    def _lookup(self, value: ir.Value) -> Node:
        if value in self.nodes:
            return self.nodes[value]
        return Node(None, constant=self.terms[value].splat)

    def _term(self, node: Node) -> Term:
        """A node as the op's result: iteration dims back to result dims."""
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
        """An operation on nodes, its value if they are constants."""
        if all(node.value is None for node in nodes):
            values = [node.constant for node in nodes if node.constant is not None]
            return Node(None, constant=scalar.wrapped(scalar.fold(opcode, values), result))
        if opcode == "where3":
            return self._where(nodes, result)
        # The device has the reciprocal as an operation of its own, without a constant to write out.
        if opcode == "realdiv" and nodes[0].constant == 1.0:
            return self.builder.emit("reciprocal", nodes[1:])
        return self.builder.emit(opcode, self._agreeing(nodes))

    def _agreeing(self, nodes: list[Node]) -> list[Node]:
        """Convert booleans, which have the format of the values compared, to that of the first operand."""
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
        """Refuse sums and products of 64-bit integers: an overflow of the device's 32 bits would go unnoticed."""
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
            element = "f32"  # a scalar detour of the importer, between an extf and a comparison or truncf
        if element in ONE_BYTE:
            node = representable(self.builder, node, element, op)
        elif node.element == "i8" and element != "i8":
            node = widened(node, op)
        node = as_read(self.builder, node, op)
        return self.builder.cast(node, device_element(element, op.location), op)

    def _where(self, nodes: list[Node], result: str) -> Node:
        """``where3`` wants its condition in the element type of its values."""
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
        # Reductions of the device begin with the neutral element; any other initial value is combined at the end.
        init = self._node(self.generic.output, self.generic.maps[-1])
        if init.value is None and scalar.is_neutral(combine.name, init.constant, element):
            return self._term(node)
        operands = [node, self.builder.cast(init, element, self.op)]
        return self._term(self.builder.emit(combination.elementwise, operands, element))

    def _reduce(self, node: Node, combination: scalar.Combination) -> Node:
        """Reduce the last dim by the operation over the stick, the others by the other one."""
        over_stick, over_others = combination.over_stick, combination.over_others
        if node.value is None:
            raise error_at(self.op, "a reduction of a constant has no device operation")
        missing = [dim for dim in self.generic.reduced if dim not in node.dims]
        if missing:
            node = self.builder.broadcast(node, missing)
        reduced = [dim for dim in node.dims if dim in self.generic.reduced]
        last = node.dims[-1]
        # The last dim first: that leaves fewer elements for the other dims.
        if last in reduced and over_stick != over_others:
            node = self.builder.reduce(node, [last], over_stick)
            reduced.remove(last)
        return self.builder.reduce(node, reduced, over_others) if reduced else node

    def _integer_sum(self, ops: list[ir.Operation], combine: ir.Operation, accumulator: ir.Value) -> Term:
        """A sum of products of int8 that starts at 0; other sums of integers are the host's."""
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
