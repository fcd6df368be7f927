"""The graph of a function for the layout choice: one node per tensor that an op makes."""

from __future__ import annotations

from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.structured import Structured, defining_op, element_of, maker_of, shape_of, structured
from spyre_mlir.errors import CompileError
from spyre_mlir.layout.choice import LayoutError
from spyre_mlir.layout.graph import (
    Assembled,
    Compute,
    Copy,
    Given,
    Graph,
    Node,
    Part,
    Signature,
    View,
    signature,
    whole,
)
from spyre_mlir.layout.stick_layout import StickLayout
from spyre_mlir.mlir import ir
from spyre_mlir.passes._terms import fail
from spyre_mlir.passes._view_ops import VIEWS, place_of, step_of


class LayoutGraph:
    """``graph`` and, for each of its tensors, the IR value that it stands for.

    ``tensors`` names the tensor of each value: a ``stick.pin`` is its operand, an insertion is the buffer
    that it fills. ``insertions`` are the insertions of each assembled buffer, in order.
    """

    def __init__(self, func: ir.Operation) -> None:
        self.func = func
        self.graph = Graph()
        self.tensors: dict[ir.Value, int] = {}
        self.values: list[ir.Value] = []
        self.insertions: dict[int, list[ir.Operation]] = {}
        self.block = func.regions[0].blocks[0]
        hosts = func.attributes["arg_attrs"]
        for argument, host in zip(self.block.arguments, hosts, strict=True):
            self._argument(argument, ir.DictAttr(host)[sdsc.HOST])
        for op in self.block.operations:
            self._visit(op.operation)

    @property
    def fixed(self) -> set[ir.Value]:
        """The arguments whose layout is the caller's: they get no more room than it has."""
        nodes = self.graph.nodes
        pinned = [
            tensor for tensor, node in enumerate(nodes) if isinstance(node, Given) and node.pin is not None
        ]
        return {self.values[tensor] for tensor in pinned}

    def part_values(self, tensor: int) -> list[tuple[ir.Value, int]]:
        """The values that are put into a buffer, each with its number; 0 is what it held before."""
        chain = self.insertions[tensor]
        first = chain[0].operands[1]
        before = [(first, 0)] if first in self.tensors else []
        return [*before, *((op.operands[0], number) for number, op in enumerate(chain, 1))]

    def second_argument(self, value: ir.Value) -> ir.Value:
        """A further argument that takes its host array from that of ``value``."""
        number = value.arg_number
        attrs = list(self.func.attributes["arg_attrs"])
        host = ir.DictAttr(attrs[number])[sdsc.HOST]
        source = ir.StringAttr(host.label).value
        label = f"{source}@{sum(1 for each in attrs if _source_of(each) == source) + 1}"
        made = self.block.add_argument(value.type, self.func.location)
        texts = (ir.StringAttr(host.kind).value, ir.StringAttr(host.dtype).value)
        attrs.append(
            ir.DictAttr.get(
                {sdsc.HOST: sdsc.host_attr(label, *texts), sdsc.SOURCE: ir.StringAttr.get(source)}
            )
        )
        self.func.attributes["arg_attrs"] = ir.ArrayAttr.get(attrs)
        return made

    def error(self, error: LayoutError) -> CompileError:
        """The error of the choice at the op that makes the tensor."""
        value, name = self.values[error.node], self.graph.nodes[error.node].name
        op = defining_op(value)
        what = name or f"the result of '{op.name if op else 'func.func'}', {value.type}"
        return fail(op or self.func, f"{what}: {error}")

    def _add(self, value: ir.Value, node: Node) -> None:
        self.tensors[value] = self.graph.add(node)
        self.values.append(value)

    def _argument(self, argument: ir.Value, host: ir.Attribute) -> None:
        pinned = stick.layout_of(argument.type)
        free = pinned is None and ir.StringAttr(host.kind).value != "input"
        name = ir.StringAttr(host.label).value
        node = Given(
            shape_of(argument), element_of(argument), pin=pinned, name=f"argument '{name}'", free=free
        )
        self._add(argument, node)

    def _visit(self, op: ir.Operation) -> None:
        if op.name in _SKIPPED:
            return
        if op.name in VIEWS:
            result, source = op.results[0], self.tensors[op.operands[0]]
            self._add(result, View(shape_of(result), element_of(result), source=source, step=step_of(op)))
        elif op.name == "linalg.generic":
            self._device_op(op)
        elif op.name in ("sdsc.clone", "stick.restickify"):
            self._copy(op)
        elif op.name == "tensor.insert_slice":
            self._insertion(op)
        elif op.name == "arith.constant" and isinstance(op.results[0].type, ir.RankedTensorType):
            self._add(op.results[0], Given(shape_of(op.results[0]), element_of(op.results[0]), free=True))
        elif op.name == "stick.pin":
            self._pin(op)

    def _device_op(self, op: ir.Operation) -> None:
        generic = structured(op)
        if generic is None or not generic.opcode:
            raise fail(op, "this linalg.generic does not say which device operation it does (sdsc.op)")
        operands = tuple(self.tensors[value] for value in generic.inputs)
        result = op.results[0]
        node = Compute(shape_of(result), element_of(result), signature=_signature(generic), operands=operands)
        self._add(result, node)

    def _copy(self, op: ir.Operation) -> None:
        pin = None
        if op.name == "stick.restickify":
            if stick.TO not in op.attributes:
                raise fail(op, "a stick.restickify names the layout of its result in 'stick.to'")
            pin = stick.requested_layout(op)
        result, source = op.results[0], self.tensors[op.operands[0]]
        self._add(result, Copy(shape_of(result), element_of(result), pin=pin, source=source))

    def _insertion(self, op: ir.Operation) -> None:
        """The last insertion into a buffer stands for all of them."""
        if any(_fills(use.owner.operation, op.results[0]) for use in op.results[0].uses):
            return
        chain = [op]
        while (before := defining_op(chain[-1].operands[1])) is not None and before.name == op.name:
            chain.append(before)
        chain.reverse()
        parts = [Part(self.tensors[each.operands[0]], place_of(each)) for each in chain]
        first = chain[0].operands[1]
        if defining_op(first) is None or maker_of(first).name != "tensor.empty":
            parts.insert(0, Part(self.tensors[first], whole(shape_of(first))))
        result = op.results[0]
        self._add(result, Assembled(shape_of(result), element_of(result), parts=tuple(parts)))
        self.insertions[self.tensors[result]] = chain
        for each in chain:
            self.tensors[each.results[0]] = self.tensors[result]

    def _pin(self, op: ir.Operation) -> None:
        tensor = self.tensors[op.operands[0]]
        node, layout = self.graph.nodes[tensor], stick.requested_layout(op)
        if node.pin is not None and not _same(node.pin, layout):
            raise fail(
                op, f"{node.name or 'this tensor'} is pinned to another layout already: {_text(node.pin)}"
            )
        node.pin = layout
        if isinstance(node, Given):
            node.free = False
        self.tensors[op.results[0]] = tensor


_SKIPPED = ("tensor.empty", "linalg.fill", "func.return")


def _fills(user: ir.Operation, value: ir.Value) -> bool:
    return user.name == "tensor.insert_slice" and user.operands[1] == value


def _source_of(attrs: ir.Attribute) -> str | None:
    entries = ir.DictAttr(attrs)
    return ir.StringAttr(entries[sdsc.SOURCE]).value if sdsc.SOURCE in entries else None


def _same(left: StickLayout, right: StickLayout) -> bool:
    return left.same_memory(right)


def _text(layout: StickLayout) -> str:
    return str(stick.affine_map(layout))


def _signature(op: Structured) -> Signature:
    values = (*op.inputs, op.result)
    return signature(
        op.opcode, op.maps, tuple(map(shape_of, values)), tuple(map(element_of, values)), op.reduced
    )
