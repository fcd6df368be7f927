"""One ``linalg.generic`` into device operations: its body's scalar ops, its reduction, its contraction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spyre_mlir.analysis.quantized_matmuls import PRODUCTS
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects.structured import Map, Structured, device_op, shape_of, structured
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting import body_operations as scalar
from spyre_mlir.rewriting.linalg_values import Term, Terms, device_element
from spyre_mlir.target.element_types import ONE_BYTE, cast_between
from spyre_mlir.target.formats import DL16_SMALLEST, fits_fp16
from spyre_mlir.target.ops import DEVICE_OPS, FP32

_MULTIPLY = ("arith.mulf", "arith.muli")

#: Where a constant scales: elsewhere it may be moved by less than the device has numbers.
_SCALING = ("mul", "realdiv", "reciprocal")


@dataclass(frozen=True)
class Node:
    """A scalar of the body: a constant, or a device tensor over some iteration dims (in ``dims`` order)."""

    value: ir.Value | None
    dims: tuple[int | None, ...] = ()
    constant: float | None = None

    @property
    def element(self) -> str:
        assert self.value is not None
        return str(ir.RankedTensorType(self.value.type).element_type)


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
        self.extents = generic.extents
        self.nodes: dict[ir.Value, Node] = {}

    def run(self) -> Term:
        body = self.generic.body
        inputs = [
            self._node(value, dims)
            for value, dims in zip(self.generic.inputs, self.generic.maps, strict=False)
        ]
        self.nodes.update(zip(list(body.arguments)[:-1], inputs, strict=True))
        *ops, terminator = [op.operation for op in body.operations]
        yielded = terminator.operands[0]
        accumulator = body.arguments[len(body.arguments) - 1]
        if self.generic.reduced:
            return self._reduction(ops, yielded, accumulator)
        if any(accumulator in list(op.operands) for op in ops) or yielded == accumulator:
            self.nodes[accumulator] = self._node(self.generic.output, self.generic.maps[-1])
        self._elementwise(ops)
        node = self._lookup(yielded)
        return self._term(self._to(node, "f16", self.op) if str(yielded.type) == "i1" else node)

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

    def _emit(self, opcode: str, nodes: list[Node], element: str | None = None, **constants: float) -> Node:
        """One device operation over the dims that its operands have."""
        element = element or next(node.element for node in nodes if node.value is not None)
        if element in ONE_BYTE:
            raise error_at(self.op, f"'{opcode}' has no form for {element}: only matmuls have")
        if element == "f16" and any(_is_wide(node) for node in nodes) and _has_f32_form(opcode):
            wide = [self._to(_guarding(opcode, node), "f32", self.op) for node in nodes]
            return self._to(self._emit(opcode, wide, "f32", **constants), "f16", self.op)
        dims = _dims_of(nodes)
        where: dict[int | None, int | None] = {
            None: None,
            **{dim: position for position, dim in enumerate(dims)},
        }
        values = [node.value if node.value is not None else self._constant(node, element) for node in nodes]
        result = device_op(
            opcode,
            values,
            [tuple(where[dim] for dim in node.dims) for node in nodes],
            [self.extents[dim] for dim in dims],
            element,
            location=self.op.location,
            constants=constants,
        )
        return Node(result, tuple(dims))

    def _constant(self, node: Node, element: str) -> ir.Value:
        assert node.constant is not None
        return self.terms.constant(node.constant, element)

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
            return self._power(op, *nodes)
        opcode = self._opcode(op)
        if all(node.value is None for node in nodes):
            values = [node.constant for node in nodes if node.constant is not None]
            return Node(None, constant=scalar.fold(opcode, values))
        if opcode == "where3":
            return self._where(nodes, str(op.results[0].type))
        if opcode == "realdiv" and nodes[0].constant == 1.0:
            return self._emit("reciprocal", nodes[1:])
        return self._emit(opcode, self._agreeing(nodes))

    def _agreeing(self, nodes: list[Node]) -> list[Node]:
        """Convert booleans, which have the format of the values compared, to that of the first operand."""
        first = next((node.element for node in nodes if node.value is not None), "")
        return [self._to(node, first, self.op) for node in nodes]

    def _opcode(self, op: ir.Operation) -> str:
        if op.name == "arith.cmpf":
            predicate = ir.IntegerAttr(op.attributes["predicate"]).value
            if predicate in scalar.COMPARISONS:
                return scalar.COMPARISONS[predicate]
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
        if node.value is None:
            return node
        element = str(op.results[0].type)
        if op.name == "arith.trunci" and element == "i1":
            raise error_at(op, "the lowest bit of an integer has no device operation")
        if element == "f64":
            element = "f32"  # a scalar detour of the importer, between an extf and a comparison or truncf
        return self._to(node, device_element(element, op.location), op)

    def _to(self, node: Node, element: str, op: ir.Operation) -> Node:
        """A node in another element type, by the device's casts (f16 and i32 meet in f32)."""
        if node.value is None or node.element == element:
            return node
        if (node.element, element) == ("f16", "i32"):
            node = self._emit("dl16tofp32", [node], "f32")
        elif (node.element, element) == ("i32", "f16"):
            node = self._emit("int32tofp32", [node], "f32")
        try:
            opcode = cast_between(node.element, element)
        except KeyError:
            raise error_at(op, f"a cast from {node.element} to {element} has no device operation") from None
        return self._emit(opcode, [node], element)

    def _where(self, nodes: list[Node], result: str) -> Node:
        """``where3`` wants its condition in the element type of its values."""
        condition, *values = nodes
        if condition.value is None:
            return values[0] if condition.constant else values[1]
        element = next((value.element for value in values if value.value is not None), None)
        element = element or device_element(result, self.op.location)
        return self._emit("where3", [self._to(node, element, self.op) for node in nodes], element)

    def _power(self, op: ir.Operation, base: Node, exponent: Node) -> Node:
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
                node = self._emit("mul", [node, base])
            elif step == "square":
                node = self._emit("mul", [node, node])
            elif step != "identity":
                node = self._emit(step, [node])
        return node

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
        product = self._contraction(others, source) if combine.name == "arith.addf" else None
        if product is None:
            self._elementwise(others)
            node = self._reduce(self._to(self._lookup(source), element, self.op), combination)
        else:
            node = product
        init = self._node(self.generic.output, self.generic.maps[-1])
        if init.value is None and scalar.is_neutral(combine.name, init.constant, element):
            return self._term(node)
        operands = [node, self._to(init, element, self.op)]
        return self._term(self._emit(combination.elementwise, operands, element))

    def _reduce(self, node: Node, combination: scalar.Combination) -> Node:
        """Reduce the last dim by the operation over the stick, the others by the other one."""
        over_stick, over_others = combination.over_stick, combination.over_others
        if node.value is None:
            raise error_at(self.op, "a reduction of a constant has no device operation")
        missing = [dim for dim in self.generic.reduced if dim not in node.dims]
        if missing:
            node = self._broadcast(node, missing)
        reduced = [dim for dim in node.dims if dim in self.generic.reduced]
        last = node.dims[-1]
        if last in reduced and over_stick != over_others:
            node = self._reduce_dims(node, [last], over_stick)
            reduced.remove(last)
        return self._reduce_dims(node, reduced, over_others) if reduced else node

    def _broadcast(self, node: Node, missing: list[int]) -> Node:
        """Write out reduced dims that the source does not have."""
        dims = sorted({*(dim for dim in node.dims if dim is not None), *missing})
        where: dict[int | None, int | None] = {
            None: None,
            **{dim: position for position, dim in enumerate(dims)},
        }
        assert node.value is not None
        result = device_op(
            "identity", [node.value], [tuple(where[dim] for dim in node.dims)], [self.extents[dim] for dim in dims],
            node.element, location=self.op.location,
        )  # fmt: skip
        return Node(result, tuple(dims))

    def _reduce_dims(self, node: Node, reduced: Sequence[int | None], opcode: str) -> Node:
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

    def _integer_sum(self, ops: list[ir.Operation], combine: ir.Operation, accumulator: ir.Value) -> Term:
        """A sum of products of int8 that starts at 0; other sums of integers are the host's."""
        source = next((operand for operand in combine.operands if operand != accumulator), accumulator)
        init = self._node(self.generic.output, self.generic.maps[-1])
        node = self._contraction(ops, source) if init.value is None and not init.constant else None
        if node is None or node.element != "i32":
            raise error_at(self.op, "a sum of integers has no device operation, but for a matmul of int8")
        return self._term(node)

    # -- contractions ---------------------------------------------------------------------------------

    def _contraction(self, ops: list[ir.Operation], source: ir.Value) -> Node | None:
        """``sum_k a[.., k] * b[.., k]`` of two inputs as one batchmatmul; None if it is something else."""
        product = next((op for op in ops if op.results[0] == source), None)
        if product is None or product.name not in _MULTIPLY or len(self.generic.reduced) != 1:
            return None
        if self.extents[self.generic.reduced[0]] == 1:
            return None  # one product, no sum
        factors = [self._uncast(ops, operand) for operand in product.operands]
        if any(factor is None for factor in factors):
            return None
        lhs, rhs = (factor for factor in factors if factor is not None)
        contracted = self.generic.reduced[0]
        if lhs.element != rhs.element or lhs.element not in PRODUCTS:
            return self._no_contraction(lhs, rhs, contracted)
        if lhs.element in ONE_BYTE:
            if not set(lhs.dims) ^ set(rhs.dims):
                raise error_at(self.op, f"a matmul of {lhs.element} needs rows or columns")
        elif not _is_matmul(lhs, rhs, contracted):
            return None
        element = device_element(str(source.type), self.op.location)
        return self._matmul(lhs, rhs, contracted, element)

    def _no_contraction(self, lhs: Node, rhs: Node, contracted: int) -> None:
        if (
            _is_matmul(lhs, rhs, contracted)
            and set(lhs.dims) - set(rhs.dims)
            and set(rhs.dims) - set(lhs.dims)
        ):
            raise error_at(
                self.op,
                f"a matmul takes fp16, fp8 or int8, not {lhs.element} x {rhs.element}; cast the operands",
            )

    def _uncast(self, ops: list[ir.Operation], value: ir.Value) -> Node | None:
        """An input of the body, through casts that widen it."""
        producer = next((op for op in ops if op.results[0] == value), None)
        if producer is not None and producer.name in ("arith.extf", "arith.extsi"):
            value = producer.operands[0]
        node = self.nodes.get(value)
        return node if node is not None and node.value is not None else None

    def _matmul(self, lhs: Node, rhs: Node, contracted: int, element: str) -> Node:
        dims = sorted({dim for node in (lhs, rhs) for dim in node.dims if dim is not None})
        where = {dim: position for position, dim in enumerate(dims)}
        if lhs.value is None or rhs.value is None:
            raise CompileError("a matmul needs two tensors")
        result = device_op(
            PRODUCTS[lhs.element],
            [lhs.value, rhs.value],
            [tuple(None if dim is None else where[dim] for dim in node.dims) for node in (lhs, rhs)],
            [self.extents[dim] for dim in dims],
            element,
            location=self.op.location,
            reduced=[where[contracted]],
        )
        return Node(result, tuple(dim for dim in dims if dim != contracted))


def _dims_of(nodes: list[Node]) -> list[int]:
    """The dims of all operands in the order of the one with most, so that one operand alone is not transposed."""
    widest = max(nodes, key=lambda node: len(node.dims))
    dims = [dim for dim in widest.dims if dim is not None]
    return [*dims, *sorted({dim for node in nodes for dim in node.dims if dim is not None} - set(dims))]


def _is_matmul(lhs: Node, rhs: Node, contracted: int) -> bool:
    """Return whether both have the contracted dim and their contraction is more than a sum over rows."""
    if contracted not in lhs.dims or contracted not in rhs.dims:
        return False
    rows, columns = set(lhs.dims) - set(rhs.dims), set(rhs.dims) - set(lhs.dims)
    if rows and columns:
        return True
    wide = rhs if columns else lhs
    return bool(rows or columns) and wide.dims[-1] != contracted


def _is_wide(node: Node) -> bool:
    """Return whether a node is a constant out of the range of fp16, of bf16 or of a wider type."""
    return node.constant is not None and not fits_fp16(node.constant)


def _has_f32_form(opcode: str) -> bool:
    return opcode in DEVICE_OPS and FP32 in DEVICE_OPS[opcode].formats


def _guarding(opcode: str, node: Node) -> Node:
    """Replace a constant that the device would round to 0 by its smallest number, except where it scales."""
    if node.constant and abs(node.constant) < DL16_SMALLEST and opcode not in _SCALING:
        return Node(None, constant=math.copysign(DL16_SMALLEST, node.constant))
    return node
