# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batch norms folded into the convolutions before them.

A batch norm in evaluation is a scale and a shift per channel, computed from parameters alone:

    (conv(x, w) + b - mean) * scale + shift  =  conv(x, w * scale) + (b - mean) * scale + shift

The same holds for every chain of sums and products of a convolution with numbers per channel. The products of
parameters are computed in f32 at import and rounded once. Parameters that each call gives do not change.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from spyre_mlir.frontend.content_reads import note_read
from spyre_mlir.frontend.graph_edits import dtype_of
from spyre_mlir.frontend.signature import Argument

aten = torch.ops.aten
_CHAIN: dict[Any, Callable[..., Any]] = {
    aten.add.Tensor: operator.add, aten.sub.Tensor: operator.sub,
    aten.mul.Tensor: operator.mul, aten.div.Tensor: operator.truediv,
}  # fmt: skip
_CAST = torch.ops.prims.convert_element_type.default


def fold_batch_norms(graph: Graph, arguments: dict[Node, Argument]) -> None:
    """Fold every chain of per-channel sums and products after a convolution into its weight and bias, in place.

    New arguments are ``<weight>.folded`` and ``<weight>.folded_bias``; the old arguments stay, without a use.
    """
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is aten.convolution.default and not node.args[6]:
            _Folding(graph, arguments, node).run()


class _Folding:
    """One convolution and the chain after it."""

    def __init__(self, graph: Graph, arguments: dict[Node, Argument], convolution: Node) -> None:
        self.graph = graph
        self.arguments = arguments
        self.convolution = convolution
        self.channels = convolution.meta["val"].shape[1]
        self.values: dict[Node, Any] = {}

    def run(self) -> None:
        """Replace the convolution and the chain by one convolution with folded parameters, if all are known."""
        _, weight, bias = self.convolution.args[:3]
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
            if last is not self.convolution:
                self._replace(last, weight, *folded)

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
            if user.target is _CAST:
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
            if operand is not node or not isinstance(factor, Node) or not self._is_per_channel(factor):
                return
            yield user, self._number(factor)
            node = user

    def _is_per_channel(self, node: Node) -> bool:
        """Return whether a node is known and has one number for each output channel of the convolution."""
        rank, shape = self.convolution.meta["val"].ndim, node.meta["val"].shape
        # Broadcasting aligns shapes at their last dim.
        padded = (1,) * (rank - len(shape)) + tuple(shape)
        return padded == (1, self.channels, *(1,) * (rank - 2)) and self._is_known(node)

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
        if not isinstance(node.target, torch._ops.OpOverload) or not all(
            map(self._is_known, node.all_input_nodes)
        ):
            return False
        with unset_fake_temporarily(), torch.no_grad():
            args, kwargs = map_arg((node.args, node.kwargs), lambda source: self.values[source])
            self.values[node] = node.target(*args, **kwargs)
        return True

    def _number(self, node: Node) -> Tensor:
        return self.values[node].float().reshape(self.channels)

    def _replace(self, last: Node, weight: Node, scale: Tensor, shift: Tensor) -> None:
        # Weights of small groups are computed from the parameter (``convolutions.py``), the first input that they read.
        root = weight
        while root not in self.arguments and root.all_input_nodes:
            root = root.all_input_nodes[0]
        value, name = (
            self.values[weight],
            self.arguments[root].name if root in self.arguments else weight.name,
        )
        folded = value.float() * scale.reshape(-1, *(1,) * (value.ndim - 1))
        source, _, _, *rest = self.convolution.args
        new = [
            self._argument(f"{name}.folded", folded.to(value.dtype)),
            self._argument(f"{name}.folded_bias", shift.to(value.dtype)),
        ]
        self.convolution.args = (source, *new, *rest)
        last.replace_all_uses_with(self.convolution)

    def _argument(self, name: str, data: Tensor) -> Node:
        """New parameter of the program, after the existing placeholders."""
        last = [node for node in self.graph.nodes if node.op == "placeholder"][-1]
        with self.graph.inserting_after(last):
            placeholder = self.graph.placeholder("folded_" + name.replace(".", "_"))
        mode = self.convolution.meta["val"].fake_mode
        placeholder.meta["val"] = mode.from_tensor(data, static_shapes=True)
        self.arguments[placeholder] = Argument(name, "parameter", data)
        return placeholder
