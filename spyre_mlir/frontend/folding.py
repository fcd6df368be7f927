# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values computed when a model is imported: constants, casts of parameters, batch norms.

Nodes that do not depend on an input or a parameter become data. Attention masks, position ids and rotary tables are
computed once, by PyTorch, and reach MLIR as function arguments of kind ``constant`` (as ``aten.full`` if all elements
are equal), never as text. A tensor without elements is always known, whatever it depends on.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from spyre_mlir.frontend.assertions import CHECK, settle_assertions
from spyre_mlir.frontend.content_reads import note_read
from spyre_mlir.frontend.graph_edits import argument_key, dtype_of, metadata_for, operation_name
from spyre_mlir.frontend.normal_forms import is_empty
from spyre_mlir.frontend.operators import is_layout_operator
from spyre_mlir.frontend.signature import PARAMETER, Argument, without_repeats
from spyre_mlir.frontend.tile_loops import is_mark
from spyre_mlir.target.element_types import dtype_name, widening_block
from spyre_mlir.target.target import default_target

aten = torch.ops.aten

#: Larger results are computed by the program: computing them again is cheaper than storing them.
#: A mask of 8192 tokens is kept.
LARGEST_ELEMENTS = 1 << 26

#: Larger views of a buffer remain views: a copy of a weight is not worth the memory.
LARGEST_VIEW_ELEMENTS = 1 << 20

#: A larger value that is a function of few numbers, such as a distance of positions, is computed where it is read.
_LARGEST_TABLE = 1 << 16

#: Operations that the device computes in f32, whatever their operands are.
_ARITHMETIC = frozenset("add sub rsub mul neg abs minimum maximum clamp clamp_min clamp_max".split())

#: Integers up to these are exact in each type; the device computes fp16 with 10 bits of precision, and has no bf16.
_EXACT = {torch.float16: 1 << 10, torch.float32: 1 << 24}


def _is_foldable(node: Node, values: dict[Node, Any]) -> bool:
    """Return whether all operands of a node are known and PyTorch may compute the result now."""
    if node.op != "call_function" or node.target is CHECK:
        return False
    if not all(source in values for source in node.all_input_nodes):
        return False
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, OpOverload) or "empty" in node.target.name():
        return False
    # Random numbers differ between calls; a layout operator computes nothing but requests a layout.
    if torch.Tag.nondeterministic_seeded in node.target.tags or is_layout_operator(node) or is_mark(node):
        return False
    result = node.meta.get("val")
    # A matmul of tensors that are widened from fp8 reads the fp8 tensors directly.
    if _widens_fp8(node) and all(
        user.target is aten.mm.default and all(map(_widens_fp8, user.all_input_nodes)) for user in node.users
    ):
        return False
    if is_narrow_weight(node):
        return False
    return not isinstance(result, Tensor) or result.numel() <= LARGEST_ELEMENTS


def _widens_fp8(node: Node) -> bool:
    """Return whether a node converts an fp8 tensor to another type."""
    types = [dtype_of(operand) for operand in (*node.all_input_nodes, node)]
    return types[0] == torch.float8_e4m3fn and types[-1] != types[0]


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
        number_of = self._numbers.__getitem__
        for node in graph.nodes:
            # The key of a call is its operation and its arguments; a node of another kind is its own key.
            key: Hashable = node
            if node.op == "call_function":
                arguments = (argument_key(values, Node, number_of) for values in (node.args, node.kwargs))
                key = node.target, *arguments
            self._numbers[node] = number = numbers.setdefault(key, len(numbers))
            if number == len(self._calls):
                self._calls.append([])
                self._readers.append(0)
            self._calls[number].append(node)
            self._readers[number] += len(node.users)

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


def _memory(tensor: Tensor) -> int:
    """Address of the storage of a tensor."""
    return tensor.untyped_storage().data_ptr()


def _is_computed(node: Node, values: dict[Node, Any]) -> bool:
    """Return whether a node reads its operands when the program runs."""
    return node not in values and node.op != "output"


class ConstantFolder:
    """Fold one graph. ``arguments`` contains the new placeholders with their data, ``values`` the known nodes.

    ``source_bytes`` is, for each new placeholder, the number of bytes of the model's data that it is computed from: 0
    for a mask of positions. Nodes that the graph returns are not replaced.
    """

    def __init__(self, graph: Graph, known: dict[Node, Tensor]) -> None:
        self.graph = graph
        self.values: dict[Node, Any] = {
            node: value for node, value in known.items()
            if value.device.type != "meta" and not isinstance(value, FakeTensor)
        }  # fmt: skip
        self.arguments: dict[Node, Tensor] = {}
        self.source_bytes: dict[Node, int] = {}
        self._by_content: dict[tuple, Node] = {}
        #: Keyed by the identity of a value, which equal calls share: whether all elements are equal; the placeholder.
        self._uniform: dict[int, bool] = {}
        self._placeholders: dict[int, Node] = {}

    def run(self) -> None:
        """Fold the graph, in place."""
        storages = {_memory(value) for value in self.values.values()}
        _evaluate(self.graph, self.values)
        settle_assertions(self.graph, self.values)
        for node in list(self.graph.nodes):
            value = self.values.get(node)
            if node.op != "call_function" or not isinstance(value, Tensor):
                continue
            strides = zip(value.shape, value.stride(), strict=True)
            elements = math.prod(size for size, stride in strides if stride)
            # A view of known data that is too large to be copied.
            if elements > LARGEST_VIEW_ELEMENTS and _memory(value) in storages:
                del self.values[node]
            elif any(_is_computed(user, self.values) for user in node.users):
                self._replace(node, value)
        # Known nodes without users, including nodes that Graph.eliminate_dead_code keeps.
        for node in reversed(self.graph.nodes):
            if node.op == "call_function" and node in self.values and not node.users:
                self.graph.erase_node(node)
        self.graph.eliminate_dead_code()

    def _replace(self, node: Node, value: Tensor) -> None:
        """Replace a known node by ``aten.full`` if its elements are equal, or by a placeholder of distinct elements."""
        with self.graph.inserting_before(node), unset_fake_temporarily():
            if id(value) not in self._uniform:
                self._uniform[id(value)] = value.numel() > 0 and bool((value == value.flatten()[0]).all())
            if self._uniform[id(value)]:
                number = value.flatten()[0].item()
                number = int(number) if isinstance(number, bool) else number
                options = {"dtype": value.dtype, "device": value.device, "pin_memory": False}
                replacement = self.graph.call_function(
                    aten.full.default, (list(value.shape), number), options
                )
                replacement.meta = dict(node.meta)
            else:
                replacement = self._computed(node, value) or self._given(node, value)
        node.replace_all_uses_with(
            # The output keeps its known nodes: split_outputs returns their values.
            replacement,
            lambda user: _is_computed(user, self.values),
            propagate_meta=False,
        )

    def _given(self, node: Node, value: Tensor) -> Node:
        """Return a placeholder of the distinct elements of a value, expanded to its shape."""
        placeholder = self._placeholder(node, value)
        if self.arguments[placeholder].shape == value.shape:
            return placeholder
        expanded = self.graph.call_function(aten.expand.default, (placeholder, list(value.shape)))
        expanded.meta = metadata_for(node, node.meta["val"].fake_mode.from_tensor(value, static_shapes=True))
        return expanded

    def _computed(self, node: Node, value: Tensor) -> Node | None:
        """Write a large value as arithmetic on few numbers, at the current insertion point; None if it is not.

        Integers become numbers of the narrowest type that is exact for them. A pointwise reader computes the value tile
        by tile, so that the program does not read it from memory.
        """
        readers = [user for user in node.users if _is_computed(user, self.values)]
        if not value.is_floating_point() or without_repeats(value).numel() < _LARGEST_TABLE:
            return None
        if not all(torch.Tag.pointwise in getattr(user.target, "tags", ()) for user in readers):
            return None
        for dtype in dict.fromkeys((value.dtype, torch.float32)):
            calls: dict[Node, tuple[Any, ...]] = {}
            found = self._arithmetic(node, dtype, calls) if dtype in _EXACT else None
            if found is not None and found.dtype == value.dtype and torch.equal(found, value):
                return self._written(node, calls)
        return None

    def _written(self, node: Node, calls: dict[Node, tuple[Any, ...]]) -> Node:
        """Write the calls of ``_arithmetic`` at the current insertion point; return the last one."""
        written: dict[Node, Node] = {}
        for source, (number, args, kwargs) in calls.items():
            if args is None:
                written[source] = self._given(source, number)
                continue
            args, kwargs = map_arg((args, kwargs), written.__getitem__)
            written[source] = self.graph.call_function(cast(Any, source.target), args, kwargs)
            fake = source.meta["val"].fake_mode.from_tensor(number, static_shapes=True)
            written[source].meta = metadata_for(node, fake)
        return written[node]

    def _arithmetic(
        self, node: Node, dtype: torch.dtype, calls: dict[Node, tuple[Any, ...]]
    ) -> Tensor | None:
        """Add the calls that compute a value to ``calls``, operands first: the value and its arguments, if it has any.

        Integers are computed in the type ``dtype``. Return the value; None if it is not arithmetic, or not exact.
        """
        if node in calls:
            return calls[node][0]
        value, target = self._value(node), node.target
        is_integer = not value.is_floating_point()
        if value.dtype == torch.bool or (is_integer and bool((value.abs() > _EXACT[dtype]).any())):
            return None
        if without_repeats(value).numel() < _LARGEST_TABLE:
            number = value.to(dtype) if is_integer else value
            calls[node] = number, None, None
            return number
        is_view = isinstance(target, OpOverload) and target.is_view
        is_cast = target in _CASTS
        if not (is_view or is_cast or operation_name(node) in _ARITHMETIC) or (is_cast and is_integer):
            return None
        operands = {source: self._arithmetic(source, dtype, calls) for source in node.all_input_nodes}
        if any(number is None for number in operands.values()):
            return None
        args, kwargs = map_arg((node.args, node.kwargs), operands.__getitem__)
        number = cast(Callable[..., Any], target)(*args, **kwargs)
        calls[node] = number, node.args, node.kwargs
        return number

    def _value(self, node: Node) -> Tensor:
        """Return the value of a known node, which is computed again if it was dropped after its last reader."""
        if self.values[node] is None:
            for source in node.all_input_nodes:
                self._value(source)
            self.values[node] = _call(node, self.values)
        return self.values[node]

    def _placeholder(self, node: Node, value: Tensor) -> Node:
        """Placeholder with the distinct elements of a value, before the first operation.

        Layers compute the same masks and tables: values with equal content share a placeholder.
        """
        if id(value) in self._placeholders:
            return self._placeholders[id(value)]
        # A mask is often expanded over heads: its distinct elements are enough.
        data = without_repeats(value).contiguous()
        # Hash the bits, because numpy does not support bfloat16 and fp8.
        bits = data.reshape(-1).view(torch.uint8).numpy()
        key = (data.dtype, data.shape, hashlib.sha256(bits.data).digest())
        if key not in self._by_content:
            first_operation = next(other for other in self.graph.nodes if other.op != "placeholder")
            with self.graph.inserting_before(first_operation):
                placeholder = self.graph.placeholder(f"constant_{node.name}")
            fake = node.meta["val"].fake_mode.from_tensor(data, static_shapes=True)
            placeholder.meta = metadata_for(node, fake)
            self.arguments[placeholder] = data
            self.source_bytes[placeholder] = self._bytes_behind(node)
            self._by_content[key] = placeholder
        self._placeholders[id(value)] = self._by_content[key]
        return self._placeholders[id(value)]

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

_PRODUCTS = {
    aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default, aten.linear.default,
    aten.matmul.default,
}  # fmt: skip

#: Operations between a stored weight and the matmul: scales, offsets, casts, shape changes.
_DEQUANTISING = {
    aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.sub.Tensor, aten.sub.Scalar, aten.add.Tensor,
    aten._to_copy.default, aten.to.dtype, aten.t.default, aten.transpose.int, aten.permute.default,
    aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.expand.default,
    aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.default, aten.clone.default,
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
    if not isinstance(value, Tensor) or not value.is_floating_point() or value.itemsize == 1:
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


# Casts of parameters to a shorter type, computed once when the model is imported, not in each call.
#
#     mm(x, permute(convert(w: f32, f16)))  ->  mm(x, permute(w16)),  w16 = w.to(f16)
#
# A parameter that the program reads in both types becomes two arguments. Parameters that each call gives are unchanged.


_CASTS = (torch.ops.prims.convert_element_type.default, aten._to_copy.default)


def cast_parameters(graph: Graph, arguments: dict[Node, Argument]) -> None:
    """Replace every cast of a parameter to a shorter float type by a parameter of that type."""
    shorter: dict[tuple[Node, torch.dtype], Node] = {}
    for node in list(graph.nodes):
        dtype = _shorter_type(node)
        if dtype is None:
            continue
        # The views between the cast and their base, the last view first.
        views, source = [], node.all_input_nodes[0]
        while (
            isinstance(source.target, OpOverload)
            and source.target.is_view
            and len(source.all_input_nodes) == 1
        ):
            views.append(source)
            source = source.all_input_nodes[0]
        argument = arguments.get(source)
        if argument is None or argument.kind != PARAMETER or argument.leaf is not None:
            continue
        if (source, dtype) not in shorter:
            assert argument.tensor is not None
            suffix = dtype_name(dtype)
            with graph.inserting_after(source):
                placeholder = shorter[source, dtype] = graph.placeholder(f"{source.name}_{suffix}")
            with unset_fake_temporarily(), torch.no_grad():
                data = argument.tensor.detach().to(dtype)
            with source.meta["val"].fake_mode:
                placeholder.meta = metadata_for(source, source.meta["val"].to(dtype))
            arguments[placeholder] = argument._replace(
                name=f"{argument.name}.{suffix}", tensor=data, cast_from=argument.name
            )
        _replace_cast(node, views, shorter[source, dtype])
    # A parameter that the program reads only in one other type has the model's name.
    types = Counter(source for source, _ in shorter)
    for (source, _), placeholder in shorter.items():
        if types[source] == 1 and not source.users:
            arguments[placeholder] = arguments[placeholder]._replace(name=arguments[source].name)


def _shorter_type(node: Node) -> torch.dtype | None:
    """16-bit type to which a node casts wider floats; None if the node is not such a cast."""
    if node.target not in _CASTS or set(node.kwargs) - {"dtype"}:
        return None
    source, target = dtype_of(node.all_input_nodes[0]), dtype_of(node)
    if source is None or target is None or not source.is_floating_point or not target.is_floating_point:
        return None
    return target if source.itemsize > target.itemsize == 2 else None


def _replace_cast(node: Node, views: list[Node], source: Node) -> None:
    """Replace the cast of a chain of views by the same views of a cast tensor."""
    graph = node.graph
    with graph.inserting_before(node):
        for view in reversed(views):
            copy = graph.node_copy(view, lambda _, source=source: source)
            with source.meta["val"].fake_mode:
                value = cast(Callable[..., Any], view.target)(
                    source.meta["val"], *view.args[1:], **view.kwargs
                )
            copy.meta = metadata_for(view, value)
            source = copy
    node.replace_all_uses_with(source, propagate_meta=False)
    graph.erase_node(node)
    for view in views:
        if not view.users:
            graph.erase_node(view)


# Batch norms folded into the convolutions before them.
#
# A batch norm in evaluation is a scale and a shift per channel, computed from parameters alone:
#
#     (conv(x, w) + b - mean) * scale + shift  =  conv(x, w * scale) + (b - mean) * scale + shift
#
# The same holds for every chain of sums and products of a convolution with numbers per channel. The products of
# parameters are computed in f32 at import and rounded once. Parameters that each call gives do not change.


_CHAIN: dict[Any, Callable[..., Any]] = {
    aten.add.Tensor: operator.add, aten.sub.Tensor: operator.sub,
    aten.mul.Tensor: operator.mul, aten.div.Tensor: operator.truediv,
}  # fmt: skip
_CONVERT = torch.ops.prims.convert_element_type.default


def fold_batch_norms(graph: Graph, arguments: dict[Node, Argument]) -> None:
    """Fold every chain of per-channel sums and products after a convolution into its weight and bias, in place.

    New arguments are ``<weight>.folded`` and ``<weight>.folded_bias``; the old arguments stay, without a use.
    """
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is aten.convolution.default and not node.args[6]:
            _BatchNormFolding(graph, arguments, node).run()


class _BatchNormFolding:
    """One convolution and the chain after it."""

    def __init__(self, graph: Graph, arguments: dict[Node, Argument], convolution: Node) -> None:
        self.graph = graph
        self.arguments = arguments
        self.convolution = convolution
        self.channels = convolution.meta["val"].shape[1]
        self.values: dict[Node, Any] = {}

    def run(self) -> None:
        """Replace the convolution and the chain by one convolution with folded parameters, if all are known."""
        source, weight, bias, *rest = self.convolution.args
        if not isinstance(weight, Node) or not self._is_known(weight):
            return
        if isinstance(bias, Node) and not self._is_known(bias):
            return
        last, dtype = self.convolution, self.convolution.meta["val"].dtype
        with unset_fake_temporarily(), torch.no_grad():
            scale = torch.ones(self.channels)
            shift = self._number(bias) if isinstance(bias, Node) else torch.zeros(self.channels)
            folded = scale, shift
            for node, operand in self._chain():
                if operand is not None:
                    step = _CHAIN[node.target]
                    shift = step(shift, operand)
                    scale = step(scale, operand) if step in (operator.mul, operator.truediv) else scale
                # Only a node of the convolution's type can be replaced, not a node between wider operations.
                if node.meta["val"].dtype == dtype:
                    last, folded = node, (scale, shift)
            if last is self.convolution:
                return
            # Weights of small groups are computed from the parameter (``convolutions.py``), their first input.
            root = weight
            while root not in self.arguments and root.all_input_nodes:
                root = root.all_input_nodes[0]
            name = self.arguments[root].name if root in self.arguments else weight.name
            (scale, shift), value = folded, self.values[weight]
            product = value.float() * scale.reshape(-1, *(1,) * (value.ndim - 1))
            new = [
                self._argument(f"{name}.folded", product.to(value.dtype)),
                self._argument(f"{name}.folded_bias", shift.to(value.dtype)),
            ]
            self.convolution.args = (source, *new, *rest)
            last.replace_all_uses_with(self.convolution)

    def _chain(self) -> Iterator[tuple[Node, Tensor | None]]:
        """Operations after the convolution, each the only reader of the previous one, with their factor per channel.

        They may be wider than the convolution, as parameters are under autocast; a cast does not have a factor.
        """
        node = self.convolution
        while len(node.users) == 1:
            (user,) = node.users
            # A narrower type would round between operations; an operation with several results has no type.
            if dtype_of(user) not in (self.convolution.meta["val"].dtype, torch.float32):
                return
            if user.target is _CONVERT:
                yield user, None
                node = user
                continue
            # An alpha is a keyword argument.
            if user.target not in _CHAIN or user.kwargs:
                return
            operand, factor = user.args
            # Sums and products may have the convolution on either side, differences and quotients only on the left.
            if factor is node and user.target in (aten.add.Tensor, aten.mul.Tensor):
                operand, factor = factor, operand
            if operand is not node or not isinstance(factor, Node):
                return
            # Broadcasting aligns shapes at their last dim.
            rank, shape = self.convolution.meta["val"].ndim, factor.meta["val"].shape
            padded = (1,) * (rank - len(shape)) + tuple(shape)
            if padded != (1, self.channels, *(1,) * (rank - 2)) or not self._is_known(factor):
                return
            yield user, self._number(factor)
            node = user

    def _is_known(self, node: Node) -> bool:
        """Return whether a node has the same value in every call. If so, store the value in ``values``."""
        if node in self.values:
            return True
        if node.op == "placeholder":
            argument = self.arguments.get(node)
            data = argument.tensor if argument is not None and argument.kind != "input" else None
            # Each call gives the value of a leaf, and a model on the device "meta" does not have numbers.
            if argument is None or argument.leaf is not None or data is None or data.device.type == "meta":
                return False
            note_read(argument.cast_from or argument.name)
            self.values[node] = data
            return True
        if not isinstance(node.target, OpOverload) or not all(map(self._is_known, node.all_input_nodes)):
            return False
        with unset_fake_temporarily(), torch.no_grad():
            args, kwargs = map_arg((node.args, node.kwargs), lambda source: self.values[source])
            self.values[node] = node.target(*args, **kwargs)
        return True

    def _number(self, node: Node) -> Tensor:
        return self.values[node].float().reshape(self.channels)

    def _argument(self, name: str, data: Tensor) -> Node:
        """New parameter of the program, after the existing placeholders."""
        last = [node for node in self.graph.nodes if node.op == "placeholder"][-1]
        with self.graph.inserting_after(last):
            placeholder = self.graph.placeholder("folded_" + name.replace(".", "_"))
        mode = self.convolution.meta["val"].fake_mode
        placeholder.meta["val"] = mode.from_tensor(data, static_shapes=True)
        self.arguments[placeholder] = Argument(name, "parameter", data)
        return placeholder
