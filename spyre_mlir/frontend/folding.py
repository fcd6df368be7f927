# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Constant folding on the FX graph: nodes that do not depend on an input or a parameter become data.

Attention masks, position ids and rotary tables are computed once, by PyTorch, and reach MLIR as function arguments of
kind ``constant`` (as ``aten.full`` if all elements are equal), never as text. A tensor without elements is always
known, whatever it depends on.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from spyre_mlir.frontend.assertions import CHECK, settle_assertions
from spyre_mlir.frontend.graph_edits import argument_key, dtype_of, metadata_for
from spyre_mlir.frontend.loop_marks import is_mark
from spyre_mlir.frontend.normal_forms import is_empty
from spyre_mlir.frontend.operators import is_layout_operator
from spyre_mlir.target.element_types import widening_block
from spyre_mlir.target.target import default_target

#: Larger results are computed by the program: computing them again is cheaper than storing them.
#: A mask of 8192 tokens is kept.
LARGEST_ELEMENTS = 1 << 26

#: Larger views of a buffer remain views: a copy of a weight is not worth the memory.
LARGEST_VIEW_ELEMENTS = 1 << 20


def _is_foldable(node: Node, values: dict[Node, Any]) -> bool:
    """Return whether all operands of a node are known and PyTorch may compute the result now."""
    if node.op != "call_function" or node.target is CHECK:
        return False
    if not all(source in values for source in node.all_input_nodes):
        return False
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload) or "empty" in node.target.name():
        return False
    # Random numbers differ between calls; a layout operator computes nothing but requests a layout.
    if torch.Tag.nondeterministic_seeded in node.target.tags or is_layout_operator(node) or is_mark(node):
        return False
    result = node.meta.get("val")
    if _widens_fp8(node) and all(_multiplies_fp8(user) for user in node.users):
        # A matmul reads the fp8 tensor directly.
        return False
    if is_narrow_weight(node):
        return False
    return not isinstance(result, torch.Tensor) or result.numel() <= LARGEST_ELEMENTS


def _widens_fp8(node: Node) -> bool:
    """Return whether a node converts an fp8 tensor to another type."""
    types = [dtype_of(operand) for operand in (*node.all_input_nodes, node)]
    return types[0] == torch.float8_e4m3fn and types[-1] != types[0]


def _multiplies_fp8(node: Node) -> bool:
    """Return whether a node is a matmul of tensors that are widened from fp8."""
    return node.target is torch.ops.aten.mm.default and all(map(_widens_fp8, node.all_input_nodes))


def _evaluate(graph: Graph, values: dict[Node, Any]) -> None:
    """Add the value of every node that depends on known nodes alone, or has no elements.

    Equal calls are evaluated once. A value becomes None after its last reader. If PyTorch raises an error, such as a
    division by 0 or an index out of bounds, the operation is left to the run, which reports the error.
    """
    calls = _EqualCalls(graph)
    with unset_fake_temporarily(), torch.no_grad():
        for node in graph.nodes:
            if is_empty(node) and node not in values:
                values[node] = torch.empty(node.meta["val"].shape, dtype=node.meta["val"].dtype)
            elif _is_foldable(node, values):
                equal = next((call for call in calls.equal_to(node) if call in values), None)
                try:
                    values[node] = _call(node, values) if equal is None else values[equal]
                except (RuntimeError, IndexError, ValueError):
                    continue
                for call in calls.not_read_after(node):
                    values[call] = None


def _call(node: Node, values: Mapping[Node, Any]) -> Any:
    """Evaluate a call on known operands."""
    args, kwargs = map_arg((node.args, node.kwargs), lambda source: values[source])
    return cast(Callable[..., Any], node.target)(*args, **kwargs)


class _EqualCalls:
    """Calls of a graph grouped by equal results, and the number of their readers that are not evaluated yet."""

    def __init__(self, graph: Graph) -> None:
        self._numbers: dict[Node, int] = {}
        self._calls: list[list[Node]] = []
        self._readers: list[int] = []
        numbers: dict[Hashable, int] = {}
        for node in graph.nodes:
            key = self._key(node)
            self._numbers[node] = number = numbers.setdefault(key, len(numbers))
            if number == len(self._calls):
                self._calls.append([])
                self._readers.append(0)
            self._calls[number].append(node)
            self._readers[number] += len(node.users)

    def _key(self, node: Node) -> Hashable:
        """Key of a call: its operation and its arguments. A node of another kind is its own key."""
        if node.op != "call_function":
            return node
        number = self._numbers.__getitem__
        return node.target, argument_key(node.args, Node, number), argument_key(node.kwargs, Node, number)

    def equal_to(self, node: Node) -> Sequence[Node]:
        """Calls with the same result as a node, including the node."""
        return self._calls[self._numbers[node]]

    def not_read_after(self, node: Node) -> Iterator[Node]:
        """Evaluated operands of a call, and their equal calls, that no later node reads."""
        for source in node.all_input_nodes:
            number = self._numbers[source]
            self._readers[number] -= 1
            if source.op == "call_function" and not self._readers[number]:
                yield from self._calls[number]


def _memory(tensor: torch.Tensor) -> int:
    """Address of the storage of a tensor."""
    return tensor.untyped_storage().data_ptr()


def _is_uniform(tensor: torch.Tensor) -> bool:
    """Return whether all elements of a tensor are equal."""
    return tensor.numel() > 0 and bool((tensor == tensor.flatten()[0]).all())


def _without_broadcast(tensor: torch.Tensor) -> torch.Tensor:
    """Dense copy of a tensor with expanded dims (stride 0) shrunk to 1."""
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor.contiguous()


def _is_computed(node: Node, values: dict[Node, Any]) -> bool:
    """Return whether a node reads its operands when the program runs."""
    return node not in values and node.op != "output"


class ConstantFolder:
    """Fold one graph. ``arguments`` contains the new placeholders with their data, ``values`` the known nodes.

    ``source_bytes`` is, for each new placeholder, the number of bytes of the model's data that it is computed from: 0
    for a mask of positions. Nodes that the graph returns are not replaced.
    """

    def __init__(self, graph: Graph, known: dict[Node, torch.Tensor]) -> None:
        self.graph = graph
        self.values: dict[Node, Any] = {
            node: value for node, value in known.items()
            if value.device.type != "meta" and not isinstance(value, FakeTensor)
        }  # fmt: skip
        self.arguments: dict[Node, torch.Tensor] = {}
        self.source_bytes: dict[Node, int] = {}
        self._by_content: dict[tuple, Node] = {}
        #: By identity of a value, which equal calls share: whether its elements are equal, and its placeholder.
        self._uniform: dict[int, bool] = {}
        self._placeholders: dict[int, Node] = {}

    def run(self) -> None:
        """Fold the graph, in place."""
        storages = {_memory(value) for value in self.values.values()}
        _evaluate(self.graph, self.values)
        settle_assertions(self.graph, self.values)
        for node in list(self.graph.nodes):
            if node.op == "call_function" and isinstance(self.values.get(node), torch.Tensor):
                if self._is_large_view(self.values[node], storages):
                    del self.values[node]
                elif any(_is_computed(user, self.values) for user in node.users):
                    self._replace(node, self.values[node])
        self._erase_unused()

    def _is_large_view(self, value: torch.Tensor, storages: set[int]) -> bool:
        """Return whether a value is a view of known data that is too large to be copied."""
        strides = zip(value.shape, value.stride(), strict=True)
        elements = math.prod(size for size, stride in strides if stride)
        return elements > LARGEST_VIEW_ELEMENTS and _memory(value) in storages

    def _erase_unused(self) -> None:
        """Erase known nodes without users, including nodes that Graph.eliminate_dead_code keeps."""
        for node in reversed(self.graph.nodes):
            if node.op == "call_function" and node in self.values and not node.users:
                self.graph.erase_node(node)
        self.graph.eliminate_dead_code()

    def _replace(self, node: Node, value: torch.Tensor) -> None:
        """Replace a known node by ``aten.full`` or by a new placeholder with its data."""
        with self.graph.inserting_before(node), unset_fake_temporarily():
            if id(value) not in self._uniform:
                self._uniform[id(value)] = _is_uniform(value)
            if self._uniform[id(value)]:
                replacement = self._full(node, value)
            else:
                replacement = self._placeholder(node, value)
        node.replace_all_uses_with(
            # The output keeps its known nodes: split_outputs returns their values.
            replacement,
            lambda user: _is_computed(user, self.values),
            propagate_meta=False,
        )

    def _full(self, node: Node, value: torch.Tensor) -> Node:
        number = value.flatten()[0].item()
        number = int(number) if isinstance(number, bool) else number
        full = self.graph.call_function(
            torch.ops.aten.full.default,
            (list(value.shape), number),
            {"dtype": value.dtype, "device": value.device, "pin_memory": False},
        )
        full.meta = dict(node.meta)
        return full

    def _placeholder(self, node: Node, value: torch.Tensor) -> Node:
        """Node with this value: a placeholder of its distinct elements, expanded to its shape."""
        if id(value) not in self._placeholders:
            self._placeholders[id(value)] = self._with_content(node, value)
        source = self._placeholders[id(value)]
        if self.arguments[source].shape == value.shape:
            return source
        expanded = self.graph.call_function(torch.ops.aten.expand.default, (source, list(value.shape)))
        expanded.meta = dict(node.meta)
        return expanded

    def _with_content(self, node: Node, value: torch.Tensor) -> Node:
        """Placeholder with the distinct elements of a value; values with equal elements share a placeholder."""
        # A mask is often expanded over heads: its distinct elements are enough.
        data = _without_broadcast(value)
        # By bits, because numpy does not support bfloat16 and fp8.
        bits = data.reshape(-1).view(torch.uint8).numpy()
        # Layers compute the same masks and tables: data with equal content is one argument.
        key = (data.dtype, data.shape, hashlib.sha256(bits.data).digest())
        if key not in self._by_content:
            self._by_content[key] = self._new_placeholder(node, data)
        return self._by_content[key]

    def _new_placeholder(self, node: Node, data: torch.Tensor) -> Node:
        """Add a placeholder for data before the first operation."""
        first_operation = next(other for other in self.graph.nodes if other.op != "placeholder")
        with self.graph.inserting_before(first_operation):
            placeholder = self.graph.placeholder(f"constant_{node.name}")
        value = node.meta["val"].fake_mode.from_tensor(data, static_shapes=True)
        placeholder.meta = metadata_for(node, value)
        self.arguments[placeholder] = data
        self.source_bytes[placeholder] = self._bytes_behind(node)
        return placeholder

    def _bytes_behind(self, node: Node) -> int:
        """Count the bytes of the known placeholders that a folded node is computed from."""
        reached, pending = {node}, [node]
        while pending:
            new = [source for source in pending.pop().all_input_nodes if source not in reached]
            reached.update(new)
            pending += new
        return sum(
            self.values[each].nbytes for each in reached if each.op == "placeholder" and each in self.values
        )


# 8-bit weights that the program itself widens: reading them from memory takes half the time of 16 bits.
#
# Values computed from known data are folded, except a large int8 or fp8 tensor that is cast, scaled and then read by
# matmuls alone. The device widens such a tensor in its scratchpads each time the program runs.

#: Smaller weights are widened ahead of time: the operation takes longer than reading the saved bytes.
SMALLEST_ELEMENTS = 1 << 16

_ATEN = torch.ops.aten

_PRODUCTS = {
    _ATEN.mm.default, _ATEN.bmm.default, _ATEN.addmm.default, _ATEN.baddbmm.default, _ATEN.linear.default,
    _ATEN.matmul.default,
}  # fmt: skip

#: Operations between a stored weight and the matmul: scales, offsets, casts, shape changes.
_DEQUANTISING = {
    _ATEN.mul.Tensor, _ATEN.mul.Scalar, _ATEN.div.Tensor, _ATEN.sub.Tensor, _ATEN.sub.Scalar, _ATEN.add.Tensor,
    _ATEN._to_copy.default, _ATEN.to.dtype, _ATEN.t.default, _ATEN.transpose.int, _ATEN.permute.default,
    _ATEN.view.default, _ATEN.reshape.default, _ATEN._unsafe_view.default, _ATEN.expand.default,
    _ATEN.unsqueeze.default, _ATEN.squeeze.dim, _ATEN.squeeze.default, _ATEN.clone.default,
    torch.ops.prims.convert_element_type.default,
}  # fmt: skip


def is_narrow_weight(node: Node) -> bool:
    """Return whether a node widens a large 8-bit tensor that only matmuls read."""
    if len(node.all_input_nodes) != 1 or dtype_of(node.all_input_nodes[0]) not in (
        torch.int8,
        torch.float8_e4m3fn,
    ):
        return False
    value, source = node.meta.get("val"), node.all_input_nodes[0].meta["val"]
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.itemsize == 1:
        return False
    if value.numel() < SMALLEST_ELEMENTS or not _is_multiplied(node):
        return False
    return (
        source.dtype != torch.int8 or widening_block(source.shape, default_target().stick_bytes) is not None
    )


def _is_multiplied(node: Node) -> bool:
    """Return whether a node, after scaling and shape changes, is read by matmuls alone."""
    waiting, seen = [node], {node}
    while waiting:
        for user in waiting.pop().users:
            if user.target in _PRODUCTS or user in seen:
                continue
            if user.target not in _DEQUANTISING:
                return False
            seen.add(user)
            waiting.append(user)
    return len(node.users) > 0
