# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators ``torch.ops.spyre.*`` by which a model specifies the layout of a tensor on the device.

``restickify(x, stick_dims, dim_order=None)`` converts ``x`` to another stick at this point of the program. ``pin(x,
stick_dims, dim_order=None)`` moves no data: ``x`` is produced in this layout. Both return the data of ``x``, so a model
that uses them also runs eagerly. Only their results have the layout. Importing ``spyre_mlir.frontend`` registers them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from spyre_mlir.dialects import stick
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.graph_edits import operands_of
from spyre_mlir.frontend.locations import source_of
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.padding import why_not_made
from spyre_mlir.layout.requests import LayoutRequest
from spyre_mlir.mlir import ir
from spyre_mlir.target.element_types import ELEMENT_TYPES
from spyre_mlir.target.target import default_target

_ELEMENT_TYPES = {
    getattr(torch, element.host): name
    for name, element in ELEMENT_TYPES.items()
    if element.storage is not None
}

#: Function that builds an op on a tensor that does not have a layout yet.
Builder = Callable[[ir.Value, StickLayout, ir.Location], ir.Value]


@torch.library.custom_op(
    "spyre::restickify",
    mutates_args=(),
    schema="(Tensor x, int[]? stick_dims=None, int[]? dim_order=None, bool stick_outermost=False) -> Tensor",
)
def restickify(
    x: Tensor,
    stick_dims: Sequence[int] | None = None,
    dim_order: Sequence[int] | None = None,
    stick_outermost: bool = False,
) -> Tensor:
    """Return a copy of ``x``; in a compiled program, the copy has these stick dims."""
    return x.clone()


@torch.library.custom_op(
    "spyre::pin", mutates_args=(), schema="(Tensor x, int[] stick_dims, int[]? dim_order=None) -> Tensor"
)
def pin(x: Tensor, stick_dims: Sequence[int], dim_order: Sequence[int] | None = None) -> Tensor:
    """Return a copy of ``x``, because an operator may not return its input. Compiled, ``x`` has these stick dims."""
    return x.clone()


@restickify.register_fake
def _(
    x: Tensor,
    stick_dims: Sequence[int] | None = None,
    dim_order: Sequence[int] | None = None,
    stick_outermost: bool = False,
) -> Tensor:
    return torch.empty_like(x)


@pin.register_fake
def _(x: Tensor, stick_dims: Sequence[int], dim_order: Sequence[int] | None = None) -> Tensor:
    return torch.empty_like(x)


_BUILDERS: dict[Any, Builder] = {
    torch.ops.spyre.restickify.default: stick.requested_restickify,
    torch.ops.spyre.pin.default: stick.pin,
}


def is_layout_operator(node: Node) -> bool:
    """Return whether a node is one of the layout operators."""
    return node.target in _BUILDERS


def layout_operation(node: Node) -> tuple[Builder, Node, StickLayout]:
    """Builder of the ``stick`` op of a node, its operand and its layout."""
    operands = operands_of(node)
    source = operands.pop("x")
    tensor, description = source.meta["val"], f"'{source.name}'"
    element = _ELEMENT_TYPES[tensor.dtype]
    try:
        layout = LayoutRequest.of_mapping(operands, description).layout(
            default_target(), tensor.shape, element, description
        )
    except CompileError as error:
        # The request does not know the line of the model.
        raise CompileError(error.message, source_of(node)) from None
    if reason := why_not_made(layout):
        raise CompileError(f"The layout of {description} {reason}.", source_of(node))
    return _BUILDERS[node.target], source, layout
