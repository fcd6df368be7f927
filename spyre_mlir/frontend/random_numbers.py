"""Random numbers are inputs of a program that each call draws from PyTorch's generator, as the model would."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx import Graph, Node

aten = torch.ops.aten

#: Random numbers of the shape and type of their first operand, whose own numbers do not matter.
_LIKE = (
    aten.bernoulli.p, aten.uniform.default, aten.normal_functional.default, aten.rand_like.default,
    aten.randn_like.default,
)  # fmt: skip


def dropout(x: Tensor, p: float, train: bool | None = None) -> tuple[Tensor, Tensor]:
    """x * kept / (1 - p), and what was kept, each with the probability 1 - p."""
    if not train or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    kept = torch.bernoulli(x, 1 - p)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return x * kept * scale, kept != 0


def random_forms() -> dict[torch._ops.OpOverload, Callable]:
    """Dropout by random numbers that are drawn as eager PyTorch draws them."""
    return {aten.native_dropout.default: dropout, aten.bernoulli.p: lambda *_, **__: NotImplemented}


def is_random(node: Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def draw_of(node: Node) -> Callable[[], Tensor] | None:
    """What draws the numbers of a random operation; None if they depend on others that the program computes."""
    operation = cast(Callable[..., Tensor], node.target)
    if not node.all_input_nodes:
        return partial(operation, *node.args, **node.kwargs)
    if node.target not in _LIKE or len(node.all_input_nodes) != 1:
        return None
    return partial(
        _drawn_like, operation, node.meta["val"].shape, node.meta["val"].dtype, node.args[1:], node.kwargs
    )


def _drawn_like(operation: Callable, shape: torch.Size, dtype: torch.dtype, args: Any, kwargs: Any) -> Tensor:
    return operation(torch.empty(shape, dtype=dtype), *args, **kwargs)


def draw_outside(graph: Graph) -> dict[Node, Callable[[], Tensor]]:
    """Puts placeholders in the place of random operations; what draws the numbers of each, in their order."""
    found = [node for node in graph.nodes if is_random(node)]
    first = next(node for node in graph.nodes if node.op != "placeholder")
    drawn: dict[Node, Callable[[], Tensor]] = {}
    for node in found:
        draw = draw_of(node)
        assert draw is not None, "Others are refused before."
        with graph.inserting_before(first):
            placeholder = graph.placeholder(f"random_{node.name}")
        placeholder.meta = {key: value for key, value in node.meta.items() if key != "tensor_meta"}
        node.replace_all_uses_with(placeholder, propagate_meta=False)
        drawn[placeholder] = draw
    for node in reversed(found):
        graph.erase_node(node)
    return drawn
