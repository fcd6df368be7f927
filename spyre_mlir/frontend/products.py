# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of matrix products with a sum; ``FORMS`` is added to the table."""

from __future__ import annotations

import torch
from torch import Tensor

aten = torch.ops.aten


def matrix_vector(matrix: Tensor, vector: Tensor) -> Tensor:
    """``mv``: a matmul with one column."""
    return torch.mm(matrix, vector.unsqueeze(1)).squeeze(1)


def dot(x: Tensor, y: Tensor) -> Tensor:
    """``dot``: a matmul with one row and one column."""
    return torch.mm(x.unsqueeze(0), y.unsqueeze(1)).reshape(())


def _sum(added: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """beta * added + alpha * product in the type of the product; with beta = 0 ``added`` is ignored, even NaN."""
    if not product.is_floating_point():
        # A float factor would make the product a float.
        beta, alpha = int(beta), int(alpha)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return product + (added if beta == 1 else added * beta)


def scaled_products(added: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``baddbmm``: beta * added + alpha * (x @ y), in the type of the factors."""
    return _sum(added, torch.bmm(x, y), beta, alpha)


def scaled_product(added: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``addmm`` in the cases that torch-mlir does not lower: integers, no elements, or beta = 0."""
    if x.is_floating_point() and x.numel() and y.numel() and beta != 0:
        return NotImplemented
    # torch-mlir lowers all other calls itself.
    return _sum(added, torch.mm(x, y), beta, alpha)


def scaled_matrix_vector(
    added: Tensor, matrix: Tensor, vector: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """``addmv``: beta * added + alpha * (matrix @ vector)."""
    return _sum(added, matrix_vector(matrix, vector), beta, alpha)


def scaled_sum_of_products(
    added: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """``addbmm``: beta * added + alpha * the sum of the products of a batch, as one product of longer rows."""
    rows, columns = x.shape[1], y.shape[2]
    product = torch.mm(x.transpose(0, 1).reshape(rows, -1), y.reshape(-1, columns))
    return _sum(added, product, beta, alpha)


FORMS = {
    aten.baddbmm.default: scaled_products,
    aten.addmm.default: scaled_product,
    aten.addmv.default: scaled_matrix_vector,
    aten.addbmm.default: scaled_sum_of_products,
    aten.mv.default: matrix_vector,
    aten.dot.default: dot,
}
