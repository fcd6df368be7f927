# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs for the cost model: compiled programs, and products divided by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from spyre_mlir.calibration.fit import Orders, matmul_space
from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.cost.work import OperationWork
from spyre_mlir.division import Division
from spyre_mlir.target.target import default_target
from spyre_mlir.timeline import Timeline


def matmul(
    sizes: Sequence[int], splits: Sequence[int], orders: Orders, fraction: float | None = None
) -> OperationWork:
    """Return a product of batch, rows, columns and depth, in slices of each; dims that ``orders`` omit are outermost.

    ``fraction`` is the fraction of LX that the back end reserves; None selects the default of the device.
    """
    space = matmul_space(default_target().with_options(None, fraction), sizes, orders)
    return operation_work("batchmatmul", space, Division.of(splits, space.units, space.reduced))


def compiled(function: Callable, *shapes: Sequence[int], **options: Any) -> Timeline:
    """Return the predicted time of a function of tensors."""
    import torch

    import spyre_mlir

    inputs = tuple(torch.zeros(*shape, dtype=torch.float16) for shape in shapes)
    return spyre_mlir.compile(function, inputs, **options).timeline()
