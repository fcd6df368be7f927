# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numbers of an operation as inputs of its program: their types there, and the comparison with constants.

A number that is a constant of a program is rounded where the program uses it. A number that is an input is rounded
earlier, to float32, or to the type of the 16-bit tensors that the operation computes with. ``number_types`` are the
candidates, in order of precision; the results of a program decide, by ``is_same`` and ``is_near``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from spyre_mlir.frontend.operations import Application

Number = int | float

_NARROW = (torch.float16, torch.bfloat16)


def number_types(applied: Application) -> list[torch.dtype]:
    """Candidate input types for the numbers of an operation, the most precise type first."""
    types = {getattr(torch, storage.dtype) for storage in applied.storages}
    if all(isinstance(applied.leaves[index], int) for index in applied.numbers) and not any(
        dtype.is_floating_point for dtype in types
    ):
        return [torch.int64]
    return [torch.float32, *(dtype for dtype in _NARROW if dtype in types)]


def number_inputs(numbers: Sequence[Number], dtype: torch.dtype) -> list[torch.Tensor] | None:
    """Inputs of a program for numbers; None if a number is out of the range of the type."""
    tensors = []
    for number in numbers:
        if isinstance(number, int) and abs(number) >= 2**63:
            return None
        exact = torch.tensor(number, dtype=torch.int64 if isinstance(number, int) else torch.float64)
        tensor = exact.to(dtype)
        if math.isfinite(number) and (not tensor.isfinite() or (number != 0) != bool(tensor)):
            return None
        # A rounded integer would be a different number.
        if isinstance(number, int) and dtype == torch.float32 and int(tensor) != number:
            return None
        tensors.append(tensor)
    return tensors


def are_exact(numbers: Sequence[Number], dtype: torch.dtype) -> bool:
    """Return whether a type represents all numbers exactly; a program with them does not show where it rounds."""
    return all(
        math.isnan(number) or float(torch.tensor(float(number), dtype=torch.float64).to(dtype)) == number
        for number in numbers
    )


def is_same(results: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> bool:
    """Return whether results have the same bits as expected."""
    return all(
        one.dtype == other.dtype and torch.equal(_bits(one), _bits(other))
        for one, other in zip(results, expected, strict=True)
    )


def is_near(results: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> bool:
    """Return whether results are 16-bit numbers that differ only by the rounding of a number."""
    for one, other in zip(results, expected, strict=True):
        if one.dtype not in _NARROW or one.dtype != other.dtype:
            return False
        error = 4 * torch.finfo(one.dtype).eps
        scale = float(other.float().nan_to_num(0, 0, 0).abs().max()) if other.numel() else 0.0
        if not torch.allclose(one.float(), other.float(), error, error * scale, equal_nan=True):
            return False
    return True


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


__all__ = ["Number", "are_exact", "is_near", "is_same", "number_inputs", "number_types"]
