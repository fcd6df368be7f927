# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights of 8 bits that the program itself widens: memory gives them in half the time of 16 bits.

What is computed of known data is data, but for a large tensor of int8 or fp8 that is cast, scaled and then read by
matmuls alone. The device widens that in its scratchpads, each time the program runs.
"""

from __future__ import annotations

import torch
from torch.fx import Node

from spyre_mlir.frontend.graph_edits import dtype_of
from spyre_mlir.target.element_types import widening_block
from spyre_mlir.target.target import default_target

#: Smaller weights are widened ahead of time: an operation takes longer than the bytes that it saves.
SMALLEST_ELEMENTS = 1 << 16

_ATEN = torch.ops.aten

_PRODUCTS = {
    _ATEN.mm.default, _ATEN.bmm.default, _ATEN.addmm.default, _ATEN.baddbmm.default, _ATEN.linear.default,
    _ATEN.matmul.default,
}  # fmt: skip

#: What stands between a weight as it is stored and the matmul: scales, offsets, casts, other shapes.
_DEQUANTISING = {
    _ATEN.mul.Tensor, _ATEN.mul.Scalar, _ATEN.div.Tensor, _ATEN.sub.Tensor, _ATEN.sub.Scalar, _ATEN.add.Tensor,
    _ATEN._to_copy.default, _ATEN.to.dtype, _ATEN.t.default, _ATEN.transpose.int, _ATEN.permute.default,
    _ATEN.view.default, _ATEN.reshape.default, _ATEN._unsafe_view.default, _ATEN.expand.default,
    _ATEN.unsqueeze.default, _ATEN.squeeze.dim, _ATEN.squeeze.default, _ATEN.clone.default,
    torch.ops.prims.convert_element_type.default,
}  # fmt: skip


def is_narrow_weight(node: Node) -> bool:
    """Return whether a node widens a large tensor of 8 bits that nothing but matmuls reads."""
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
    """Return whether all that is computed of a node by scaling and other shapes goes into matmuls."""
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
