# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Windows that slide over an operand: from the positions in memory to a view that has each window."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.core_slices import slice_sizes
from spyre_mlir.simulator.access import Access
from spyre_mlir.simulator.plan import Plan


def slid(plan: Plan, access: Access, numbers: NDArray[Any]) -> NDArray[Any]:
    """Return what a core reads of an operand by windows, an axis for each dim of the design; a view of a copy.

    ``numbers`` has the positions that are in memory; those of padding hold the neutral number of the operation.
    """
    design, operand = plan.design, plan.design.operands[access.operand]
    labels, counts = list(design.sizes), slice_sizes(design, access.core)
    padding = [(0, 0)] * numbers.ndim
    for label, window in operand.windows.items():
        axis = labels.index(label)
        first = design.core_slices[access.core][label] * design.shares[label] * window.stride - window.before
        before = access.box.origin[axis] - first
        reached = (counts[label] - 1) * window.stride + window.reach
        padding[axis] = (before, max(reached - before - numbers.shape[axis], 0))
    if any(amount != (0, 0) for amount in padding):
        numbers = np.pad(numbers, padding, constant_values=plan.neutral[0])
    shape, strides = list(numbers.shape), list(numbers.strides)
    for label, window in operand.windows.items():
        axis, kernel = labels.index(label), labels.index(window.kernel)
        step = strides[axis]
        shape[axis], strides[axis] = counts[label], step * window.stride
        shape[kernel], strides[kernel] = window.extent, step * window.dilation
    return np.lib.stride_tricks.as_strided(numbers, shape, strides, writeable=False)
