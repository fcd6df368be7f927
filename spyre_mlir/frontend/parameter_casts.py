# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Casts of parameters to a shorter type, computed once when the model is imported, not in each call.

    mm(x, permute(convert(w: f32, f16)))  ->  mm(x, permute(w16)),  w16 = w.to(f16)

A parameter that the program reads in both types becomes two arguments. Parameters that each call gives are unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import Graph, Node

from spyre_mlir.frontend.graph_edits import dtype_of, metadata_for
from spyre_mlir.frontend.signature import PARAMETER, Argument

_CASTS = (torch.ops.prims.convert_element_type.default, torch.ops.aten._to_copy.default)


def cast_parameters(graph: Graph, arguments: dict[Node, Argument]) -> None:
    """Replace every cast of a parameter to a shorter float type by a parameter of that type."""
    shorter: dict[tuple[Node, torch.dtype], Node] = {}
    for node in list(graph.nodes):
        dtype = _shorter_type(node)
        if dtype is None:
            continue
        views = _views_behind(node)
        source = views[-1].all_input_nodes[0] if views else node.all_input_nodes[0]
        argument = arguments.get(source)
        if argument is None or argument.kind != PARAMETER or argument.leaf is not None:
            continue
        key = source, dtype
        if key not in shorter:
            shorter[key] = _argument(graph, arguments, source, argument, dtype)
        _replace(node, views, shorter[key])
    _keep_names(arguments, shorter)


def _keep_names(arguments: dict[Node, Argument], shorter: dict[tuple[Node, torch.dtype], Node]) -> None:
    """Restore the model's name of a parameter that the program reads only in one other type."""
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


def _views_behind(node: Node) -> list[Node]:
    """Views between a cast and the base of these views, the last view first."""
    views: list[Node] = []
    source = node.all_input_nodes[0]
    while (
        isinstance(source.target, OpOverload) and source.target.is_view and len(source.all_input_nodes) == 1
    ):
        views.append(source)
        source = source.all_input_nodes[0]
    return views


def _argument(
    graph: Graph, arguments: dict[Node, Argument], source: Node, argument: Argument, dtype: Any
) -> Node:
    """New placeholder after the placeholder of a parameter, for the same parameter in another type."""
    assert argument.tensor is not None
    suffix = str(dtype).removeprefix("torch.")
    with graph.inserting_after(source):
        placeholder = graph.placeholder(f"{source.name}_{suffix}")
    with unset_fake_temporarily(), torch.no_grad():
        data = argument.tensor.detach().to(dtype)
    with source.meta["val"].fake_mode:
        placeholder.meta = metadata_for(source, source.meta["val"].to(dtype))
    arguments[placeholder] = argument._replace(
        name=f"{argument.name}.{suffix}", tensor=data, cast_from=argument.name
    )
    return placeholder


def _replace(node: Node, views: list[Node], source: Node) -> None:
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
