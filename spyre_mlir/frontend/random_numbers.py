# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random numbers as program inputs, which each call draws from PyTorch's generator as the model would."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx import Graph, Node

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.graph_edits import metadata_for

aten = torch.ops.aten


class UndrawnError(CompileError):
    """Raised for an operation whose random numbers depend on the data of its operands."""


#: Operations that draw numbers of the shape and type of their first operand, and ignore its data.
_LIKE = (
    aten.bernoulli.p, aten.uniform.default, aten.normal_functional.default, aten.rand_like.default,
    aten.randn_like.default, aten.randint_like.default, aten.randint_like.low_dtype, aten.exponential.default,
    aten.cauchy.default, aten.geometric.default, aten.log_normal.default, aten.random.default, aten.random.to,
    getattr(aten.random, "from"),
)  # fmt: skip


def dropout(x: Tensor, p: float, train: bool | None = None) -> tuple[Tensor, Tensor]:
    """``native_dropout``: x * mask / (1 - p), and the mask, which is 1 with the probability 1 - p."""
    if not train or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    # PyTorch draws the mask in the memory order of x.
    strides = torch.empty_like(x).stride()
    order = sorted(range(x.ndim), key=lambda dim: -strides[dim])
    mask = torch.bernoulli(x.permute(order), 1 - p)
    mask = mask.permute([order.index(dim) for dim in range(x.ndim)])
    # Avoid dividing by 0 if everything is dropped.
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return x * mask * scale, mask != 0


def normal(mean: Tensor | float, std: Tensor | float = 1.0, generator: Any = None) -> Tensor:
    """``normal`` with tensor parameters: numbers around 0, in the order of the elements, scaled and shifted."""
    operands = [operand for operand in (mean, std) if isinstance(operand, Tensor)]
    place = operands[0].new_empty(torch.broadcast_shapes(*(operand.shape for operand in operands)))
    drawn = aten.normal_functional.default(place, 0.0, 1.0 if isinstance(std, Tensor) else std)
    return (drawn * std if isinstance(std, Tensor) else drawn) + mean


def rrelu(x: Tensor, lower=1 / 8, upper=1 / 3, training: bool = False, generator: Any = None) -> Tensor:
    """``rrelu`` of a model in evaluation, which draws nothing: ``leaky_relu`` with the mean of both slopes."""
    return NotImplemented if training else aten.leaky_relu(x, (lower + upper) / 2)


def random_forms() -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    """Decompositions into random numbers that are drawn as eager PyTorch draws them."""
    return {
        aten.native_dropout.default: dropout,
        aten.rrelu.default: rrelu,
        aten.bernoulli.p: lambda *_, **__: NotImplemented,
        aten.normal.Tensor_float: normal,
        aten.normal.float_Tensor: normal,
        aten.normal.Tensor_Tensor: normal,
    }


def is_random(node: Node) -> bool:
    """Return whether a node draws random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def draw_of(node: Node) -> Callable[[], Tensor] | None:
    """Function that draws the numbers of a random operation; None if they depend on computed tensors."""
    operation = cast(Callable[..., Tensor], node.target)
    if not node.all_input_nodes:
        return partial(operation, *node.args, **node.kwargs)
    if node.target not in _LIKE or len(node.all_input_nodes) != 1:
        return None
    like = node.all_input_nodes[0].meta["val"]
    layout = like.shape, like.stride(), like.dtype
    return partial(_drawn_like, operation, layout, node.args[1:], node.kwargs)


def _drawn_like(operation: Callable[..., Any], layout: tuple, args: Any, kwargs: Any) -> Tensor:
    """Draw random numbers with an operation that reads only shape, strides and type of its first operand.

    The numbers are drawn in memory order, so a transposed tensor has them in another order.
    """
    shape, strides, dtype = layout
    return operation(torch.empty_strided(shape, strides, dtype=dtype), *args, **kwargs)


def draw_outside(graph: Graph) -> dict[Node, Callable[[], Tensor]]:
    """Replace random operations by placeholders; return the function that draws each placeholder, in order."""
    random_nodes = [node for node in graph.nodes if is_random(node)]
    # Placeholders precede all operations.
    first = next(node for node in graph.nodes if node.op != "placeholder")
    drawn: dict[Node, Callable[[], Tensor]] = {}
    for node in random_nodes:
        draw = draw_of(node)
        assert draw is not None, "Others are refused before."
        with graph.inserting_before(first):
            placeholder = graph.placeholder(f"random_{node.name}")
        placeholder.meta = metadata_for(node, node.meta["val"])
        node.replace_all_uses_with(placeholder, propagate_meta=False)
        drawn[placeholder] = draw
    for node in reversed(random_nodes):
        graph.erase_node(node)
    return drawn
