# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tensor graph of a function for the layout choice: one node per tensor."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from spyre_mlir.analysis import loops
from spyre_mlir.analysis.aliasing import argument_attributes
from spyre_mlir.analysis.carried_buffers import is_read_from, names_place, updated_slices
from spyre_mlir.analysis.view_ops import VIEWS, place_of, step_of, windows_of
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.structured import Known, defining_op, element_of, shape_of, structured
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.errors import CompileError
from spyre_mlir.layout.padding import why_not_made
from spyre_mlir.layout.space import window_dims
from spyre_mlir.layout.stick_layout import StickLayout
from spyre_mlir.layout.view_transforms import ViewTransform
from spyre_mlir.layout_search.minimum_cost import LayoutError
from spyre_mlir.layout_search.tensor_graph import (
    ArgumentNode,
    Compute,
    Copy,
    Graph,
    InsertedSlice,
    InsertSliceBuffer,
    IterArg,
    LoopResult,
    TensorNode,
    ViewNode,
    signature,
    whole,
)
from spyre_mlir.mlir import ir
from spyre_mlir.target.element_types import ONE_BYTE
from spyre_mlir.target.ops import DEVICE_OPS, KINDS

#: Minimum bytes of inputs that the host may lay out by price. For smaller inputs a conversion on the device takes only
#: two or three microseconds, which does not justify a layout that the caller does not expect.
_LARGE = 1 << 17


class LayoutGraph:
    """The tensor ``graph`` of a function and, for each tensor, the IR value that it represents.

    ``tensors`` maps each value to its tensor: a ``stick.pin`` is the tensor of its operand, an insertion is the buffer
    that it fills. ``insertions`` has the insertions into each buffer, in order. An iter_arg has three tensors:
    the argument inside, the result of the loop, and the buffer before the loop, which has no IR value. With
    ``by_price``, inputs of 128 KiB or more without a layout may get a layout other than the default. With ``in_lx``,
    results that only operations read may stay in LX if they are small. ``ineligible`` has orders of operands that
    tensors, by number, must not have.
    """

    def __init__(
        self,
        func: ir.Operation,
        *,
        by_price: bool = False,
        in_lx: bool = True,
        ineligible: Mapping[int, tuple[int, ...]] | None = None,
    ) -> None:
        self.func, self._by_price = func, by_price
        self.graph = Graph(target_of(func), ineligible)
        self.tensors: dict[ir.Value, int] = {}
        self.values: list[ir.Value] = []
        self.steps: dict[ir.Value, ViewTransform] = {}
        self._known: Known = {}
        self.insertions: dict[int, list[ir.Operation]] = {}
        self._times = 1
        #: Groups of tensors that must share one layout because of loops.
        self._groups: dict[int, list[int]] = {}
        self.block = func.regions[0].blocks[0]
        for argument, attributes in zip(self.block.arguments, argument_attributes(func), strict=True):
            if sdsc.HOST not in attributes:
                number = argument.arg_number
                raise error_at(
                    func, f"argument {number} has no {sdsc.HOST}; run decompose-to-device-ops first"
                )
            host = attributes[sdsc.HOST]
            updated = sdsc.UPDATED in attributes
            pinned = stick.layout_of(argument.type, self.graph.target)
            # The host lays out indices and 8-bit tensors as their readers need them: no operation converts them.
            as_read = _computes_indices(argument) or element_of(argument) in ONE_BYTE
            kind, name = ir.StringAttr(host.kind).value, ir.StringAttr(host.label).value
            free = pinned is None and (kind not in ("input", "intermediate") or as_read)
            node = ArgumentNode(
                shape_of(argument), element_of(argument), pin=pinned, name=f"argument '{name}'", free=free
            )
            node.updated = updated and not free
            if self._by_price and kind == "input" and not free and pinned is None:
                size = StickLayout.for_tensor(self.graph.target, node.shape, node.dtype).bytes
                node.by_price = node.updated or size >= _LARGE
            self._add(argument, node)
        self._visit(self.block)
        returned = {self._computed(self.tensors[value]) for value in loops.terminator(self.block).operands}
        for number, node in enumerate(self.graph.nodes):
            if isinstance(node, Compute):
                node.may_stay = in_lx and number not in returned

    def _computed(self, tensor: int) -> int:
        """Return the tensor that a tensor is a view of."""
        while isinstance(node := self.graph.nodes[tensor], ViewNode):
            tensor = node.source
        return tensor

    @property
    def fixed(self) -> set[ir.Value]:
        """The arguments whose layout the caller has fixed: they do not get more padding than this layout has."""
        nodes = zip(self.values, self.graph.nodes, strict=True)
        return {value for value, node in nodes if isinstance(node, ArgumentNode) and node.pin is not None}

    def error(self, error: LayoutError) -> CompileError:
        """Return an error of the layout choice, located at the defining op of the tensor."""
        owner = self.values[error.node].owner
        op = owner.owner.operation if isinstance(owner, ir.Block) else owner.operation
        return error_at(op, f"{_tensor_text(self.graph.nodes[error.node], self.values[error.node])}: {error}")

    def _add(self, value: ir.Value, node: TensorNode) -> int:
        self.tensors[value] = self._add_unnamed(value, node)
        return self.tensors[value]

    def _add_unnamed(self, value: ir.Value, node: TensorNode) -> int:
        """Add a tensor that has no IR value; messages about it refer to ``value``."""
        node.times = self._times
        self.values.append(value)
        return self.graph.add(node)

    def _tensor(self, value: ir.Value, reader: ir.Operation) -> int:
        if value not in self.tensors:
            raise error_at(reader, f"'{reader.name}' reads an uninitialized tensor")
        return self.tensors[value]

    def _visit(self, block: ir.Block) -> None:
        """Add a node to the graph for each tensor that the ops of a block define, loops included."""
        for op in (item.operation for item in block.operations):
            if op.name == loops.LOOP:
                self._loop(op)
            if op.name in (loops.LOOP, "tensor.empty", "linalg.fill") or not op.results:
                continue
            result = op.results[0]
            if op.name in VIEWS:
                uses = [*result.uses] if op.name == "tensor.extract_slice" else []
                # A slice of a buffer may be only the destination of results, as tiling creates it.
                if uses and all(names_place(use.owner.operation, use.operand_number) for use in uses):
                    continue
                source, self.steps[result] = self._tensor(op.operands[0], op), step_of(op)
                self._add(result, ViewNode(*_type(result), source=source, step=self.steps[result]))
            elif op.name == "linalg.generic":
                self._device_op(op)
            elif op.name in ("sdsc.clone", "stick.restickify"):
                if op.name == "stick.restickify" and stick.TO not in op.attributes:
                    raise error_at(op, "a stick.restickify names the layout of its result in 'stick.to'")
                pin = _requested(op) if op.name == "stick.restickify" else None
                self._add(result, Copy(*_type(result), pin=pin, source=self._tensor(op.operands[0], op)))
            elif op.name == "tensor.insert_slice":
                self._insertion(op)
            elif op.name == "arith.constant" and isinstance(result.type, ir.RankedTensorType):
                self._add(result, ArgumentNode(*_type(result), free=True))
            elif op.name == "stick.pin":
                tensor = self._tensor(op.operands[0], op)
                self.pin(op, tensor, _requested(op))
                self.tensors[result] = tensor

    def _device_op(self, op: ir.Operation) -> None:
        generic = structured(op, self._known)
        if generic is None or not generic.opcode:
            raise error_at(op, "this linalg.generic has no device operation (sdsc.op)")
        if generic.reduced and not _is_fresh(generic.output):
            reason = "compute the partial result separately and combine the two with another operation"
            raise error_at(op, f"'{generic.opcode}' adds to the initial value of its output; {reason}")
        operands = tuple(self._tensor(value, op) for value in generic.inputs)
        read, result = [self.graph.nodes[tensor] for tensor in operands], _type(op.results[0])
        types = [*((node.shape, node.dtype) for node in read), result]
        shapes, dtypes = (tuple(column) for column in zip(*types, strict=True))
        windows = window_dims(windows_of(generic))
        target, opcode, maps = self.graph.target, generic.opcode, generic.maps
        constraints = signature(target, opcode, maps, shapes, dtypes, generic.reduced, windows)
        self._add(op.results[0], Compute(*result, signature=constraints, operands=operands))

    def _insertion(self, op: ir.Operation) -> None:
        """Add one node for a chain of insertions into a buffer, at the last insertion of the chain."""
        # All insertions of a chain share a buffer, and so its layout.
        if any(_fills(use.owner.operation, op) for use in op.results[0].uses):
            return
        chain = [op]
        while (before := defining_op(chain[-1].operands[1])) is not None and _fills(chain[-1], before):
            chain.append(before)
        chain.reverse()
        first, result = chain[0].operands[1], op.results[0]
        empty = defining_op(first)
        before = [] if empty is not None and empty.name == "tensor.empty" else [self._whole(first, chain[0])]
        copied, carried = False, any(use.owner.operation.name == loops.LOOP for use in result.uses)
        for part in before:
            source = self.graph.nodes[part.source]
            is_constant = isinstance(source, ArgumentNode) and not source.updated
            # The destination has to be copied before insertions write to it.
            copied |= part.out_of_place or is_constant or isinstance(source, ViewNode)
            carried |= isinstance(source, IterArg | LoopResult)
            carried |= isinstance(source, InsertSliceBuffer) and source.carried
        parts = [*before, *(self._part(insertion, chain, copied) for insertion in chain)]
        node = InsertSliceBuffer(shape_of(result), element_of(result), parts=tuple(parts), carried=carried)
        self._add(result, node)
        self.insertions[self.tensors[result]] = chain
        for insertion in chain:
            self.tensors[insertion.results[0]] = self.tensors[result]

    def _part(self, op: ir.Operation, chain: list[ir.Operation], copied: bool) -> InsertedSlice:
        """Return the slice that an insertion writes; out of place if the buffer is ``copied`` or still read later."""
        value, buffer = op.operands[0], chain[0].operands[1]
        tensor, place, producer = self._tensor(value, op), place_of(op), defining_op(value)
        # An argument, or a value from outside the loop, already has a buffer.
        if copied or producer is None or producer.block != op.block:
            return InsertedSlice(tensor, place, out_of_place=True)
        read = not _is_fresh(buffer) and is_read_from(
            buffer, producer, [*chain, *updated_slices(producer, op)]
        )
        # An earlier insertion may overwrite the region in which the result of the producer already is.
        overwritten = any(
            producer.is_before_in_block(before) and place.may_overlap(place_of(before))
            for before in chain[: chain.index(op)]
        )
        return InsertedSlice(tensor, place, read or overwritten)

    def _whole(self, value: ir.Value, writer: ir.Operation) -> InsertedSlice:
        """Return the destination of insertions or of a loop: in its own buffer if no later operation reads it."""
        out_of_place = loops.block_of(value) != writer.block or is_read_from(value, writer, [writer])
        tensor = self._tensor(value, writer)
        return InsertedSlice(tensor, whole(shape_of(value)), out_of_place, _is_partial(self.graph, tensor))

    # -- loops ----------------------------------------------------------------------------------------

    def _loop(self, op: ir.Operation) -> None:
        """Add the body once, weighted by the trip count, and the tensors of each iter_arg before, in and after it."""
        carried, outside, buffers, nodes = loops.carried_values(op), self._times, [], []
        for value in carried:
            parts = () if _is_fresh(value.initial) else (self._whole(value.initial, op),)
            buffer = InsertSliceBuffer(*_type(value.result), parts=parts, carried=True)
            buffers.append(self._add_unnamed(value.result, buffer))
        # A cost in the body counts once per iteration.
        self._times = outside * loops.trip_count(op)
        for value, buffer in zip(carried, buffers, strict=True):
            nodes.append(IterArg(*_type(value.result), initial=buffer))
            self._add(value.argument, nodes[-1])
        for value, buffer in zip(carried, buffers, strict=True):
            self._unite(op, buffer, self.tensors[value.argument])
        self._visit(loops.body_block(op))
        self._times = outside
        for value, node in zip(carried, nodes, strict=True):
            argument, node.yielded = self.tensors[value.argument], self._tensor(value.yielded, op)
            result = self._add(value.result, LoopResult(*_type(value.result), carried=argument))
            self._unite(op, argument, result)
            if isinstance(self.graph.nodes[node.yielded], InsertSliceBuffer | LoopResult):
                self._unite(op, argument, node.yielded)

    def _unite(self, op: ir.Operation, tensor: int, other: int) -> None:
        """Require that two tensors have the same layout: a pin of one is also a pin of the other."""
        groups = (self._groups.get(member, [member]) for member in (tensor, other))
        members = list(dict.fromkeys(itertools.chain.from_iterable(groups)))
        pins = [pin for member in members if (pin := self.graph.nodes[member].pin) is not None]
        self._groups |= dict.fromkeys(members, members)
        if pins:
            self.pin(op, tensor, pins[0])

    def pin(self, op: ir.Operation, tensor: int, layout: StickLayout) -> None:
        """Pin all tensors of a tensor's group, as ``op`` requests; ``CompileError`` for a second, different layout."""
        for member in self._groups.get(tensor, [tensor]):
            node = self.graph.nodes[member]
            if node.pin is not None and not node.pin.same_memory(layout):
                what = f"{_tensor_text(node, self.values[member])} is pinned to another layout already"
                raise error_at(op, f"{what}: {stick.affine_map(node.pin)}")
            node.pin = layout
            if isinstance(node, ArgumentNode):
                node.free = node.by_price = False


def _tensor_text(node: TensorNode, value: ir.Value) -> str:
    """Return the name of a tensor in messages."""
    if node.name or isinstance(value.owner, ir.Block):
        return node.name or f"an iter_arg of a loop, {value.type}"
    op = value.owner.operation
    return f"the result of '{sdsc.opcode_of(op) or op.name}', {value.type}"


def _requested(op: ir.Operation) -> StickLayout:
    """Return the layout that an op requests; padding between elements is an error: it is read but never written."""
    layout = stick.requested_layout(op)
    if reason := why_not_made(layout):
        raise error_at(op, f"the layout that it names {reason}")
    return layout


def _is_partial(graph: Graph, tensor: int) -> bool:
    """Return whether a tensor is a buffer with parts that may not be written yet."""
    node = graph.nodes[tensor]
    if isinstance(node, IterArg):
        return _is_partial(graph, node.initial)
    if not isinstance(node, InsertSliceBuffer):
        return False
    written = sum(math.prod(part.place.sizes) for part in node.parts)
    return written < math.prod(node.shape) or any(part.partial for part in node.parts)


def _computes_indices(value: ir.Value) -> bool:
    """Return whether a tensor is only used to compute indices of gathers: the host lays it out as its readers need.

    Operations on indices count negative ones from the end, and the device cannot restickify integers.
    """
    pending, visited = [value], {value}
    while pending:
        uses = list(pending.pop().uses)
        if not uses:
            return False
        for use in uses:
            user = use.owner.operation
            opcode = sdsc.opcode_of(user)
            if opcode in DEVICE_OPS and use.operand_number == DEVICE_OPS[opcode].index:
                continue
            if user.name not in VIEWS and (opcode not in KINDS or not KINDS[opcode].is_elementwise):
                return False
            if user.results[0] not in visited:
                visited.add(user.results[0])
                pending.append(user.results[0])
    return True


def _fills(user: ir.Operation, before: ir.Operation) -> bool:
    """Return whether an insertion writes to the buffer of a previous insertion that no other operation reads."""
    names = {user.name, before.name}
    return (
        names == {"tensor.insert_slice"}
        and user.operands[1] == before.results[0]
        and user.block == before.block
        and len(list(before.results[0].uses)) == 1
    )


def _is_fresh(value: ir.Value) -> bool:
    """Return whether a tensor is empty or filled with one number, and so may have any layout."""
    op = defining_op(value)
    return op is not None and op.name in ("tensor.empty", "linalg.fill")


def _type(value: ir.Value) -> tuple[tuple[int, ...], str]:
    return shape_of(value), element_of(value)
