# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of poolings: torch-mlir's passes expect a batch, and floating-point numbers in three dims.

torch-mlir aborts on some other poolings. ``FORMS`` is added to the decomposition table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from spyre_mlir.errors import CompileError

aten = torch.ops.aten


def of_a_batch(
    pool: torch._ops.OpOverload, dims: int, batched: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Form of a pooling over ``dims`` dims: an image becomes a batch of one; ``batched`` is the form for a batch."""

    def form(x: Tensor, *arguments, **options):
        """Apply the pooling to an image or a batch."""
        if x.ndim == dims + 1:
            results = pool(x.unsqueeze(0), *arguments, **options)
            return pytree.tree_map(lambda result: result.squeeze(0), results)
        return batched(x, *arguments, **options) if batched else NotImplemented

    return form


def largest_of_a_volume(x: Tensor, *arguments, **options) -> tuple[Tensor, Tensor]:
    """Reject ``max_pool3d_with_indices`` of integers with a ``CompileError``."""
    if not x.is_floating_point():
        raise CompileError("A max_pool3d of integers is not supported; give it as a float.")
    return NotImplemented


#: The average poolings, keyed by their number of dims.
AVERAGES = {1: aten.avg_pool1d.default, 2: aten.avg_pool2d.default, 3: aten.avg_pool3d.default}

FORMS = {
    aten.max_pool2d_with_indices.default: of_a_batch(aten.max_pool2d_with_indices.default, 2),
    aten.max_pool3d_with_indices.default: of_a_batch(
        aten.max_pool3d_with_indices.default, 3, largest_of_a_volume
    ),
}
