# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``sdsc.runs``: a constant argument as runs of equal elements."""

from __future__ import annotations

import numpy as np

from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.tiling.mask_tiles import RunLengths


def runs_attr(runs: RunLengths) -> ir.DictAttr:
    """Build the attribute. Needs a current context."""
    return ir.DictAttr.get(
        {"ends": ir.DenseElementsAttr.get(runs.ends), "values": ir.DenseElementsAttr.get(runs.values)}
    )


def runs_of(attr: ir.Attribute, shape: tuple[int, ...]) -> RunLengths:
    """Parse the attribute of an argument of a shape; ``CompileError`` for a malformed attribute."""
    try:
        entries = ir.DictAttr(attr)
        ends, values = (np.array(ir.DenseElementsAttr(entries[name])) for name in ("ends", "values"))
    except (KeyError, ValueError, TypeError) as error:
        raise CompileError("'sdsc.runs' must have 'ends' and 'values', tensors of numbers") from error
    is_increasing = len(ends) and ends[0] > 0 and bool((np.diff(ends) > 0).all())
    if not is_increasing or len(ends) != len(values) or ends[-1] != np.prod(shape):
        raise CompileError("'sdsc.runs' must have ends that increase up to the size of the argument")
    return RunLengths(shape, ends.astype(np.int32), values.astype(np.float32))
