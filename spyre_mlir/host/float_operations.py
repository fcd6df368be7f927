# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Floating-point work of a linalg function, to compare the host's part with the device's."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from spyre_mlir.dialects.torch_call import TORCH_CALL
from spyre_mlir.mlir import indexing_maps, ir

#: Scalar operations on floating-point numbers that compute: no casts, no selection.
_COMPUTES = re.compile(
    r"arith\.(addf|subf|mulf|divf|remf|negf|cmpf|maximumf|minimumf|maxnumf|minnumf)"
    r"|math\.(?!absi|ctlz|cttz|ctpop|ipowi)"
)

_FLOATS = ir.FloatType | ir.F16Type | ir.BF16Type | ir.F32Type | ir.F64Type


def float_operations(func: ir.Operation) -> int:
    """Number of scalar floating-point operations of a call, loops of linalg multiplied out."""
    return sum(_of_block(block) for region in func.regions for block in region.blocks)


def _of_block(block: ir.Block) -> int:
    return sum(_of(op.operation) for op in block.operations)


def _of(op: ir.Operation) -> int:
    if _COMPUTES.match(op.name):
        return int(_is_float(op.operands[0]))
    if op.name == TORCH_CALL:
        # What a kernel does is not known; it is at least that.
        return _elements([value for value in (*op.operands, *op.results) if _is_float_tensor(value)])
    inner = sum(_of_block(block) for region in op.regions for block in region.blocks)
    if not inner:
        return 0
    if op.name == "scf.for":
        return inner * _trips(op)
    # Ops of other dialects, as a scan, have no maps: their body runs once per element.
    return inner * (
        _iterations(op) if op.name.startswith("linalg.") else max(_elements([*op.operands, *op.results]), 1)
    )


def _trips(loop: ir.Operation) -> int:
    """Trip count of a loop whose bounds are constants; 1 for another loop."""
    makers = [bound.owner for bound in list(loop.operands)[:3]]
    if any(isinstance(maker, ir.Block) or maker.name != "arith.constant" for maker in makers):
        return 1
    return len(range(*(ir.IntegerAttr(maker.attributes["value"]).value for maker in makers)))


def _iterations(op: ir.Operation) -> int:
    """Product of the extents of a structured op's loops.

    The size of a dim that is no dim of one operand (the output of a window that slides) comes from the others.
    """
    maps = indexing_maps(op)
    extents: dict[int, int] = {}
    for value, map_ in zip(op.operands, maps, strict=True):
        if not isinstance(value.type, ir.RankedTensorType):
            continue
        for result, size in zip(map_.results, ir.RankedTensorType(value.type).shape, strict=True):
            if isinstance(result, ir.AffineDimExpr):
                extents[result.position] = size
    return math.prod(extents.values())


def _elements(values: Sequence[ir.Value]) -> int:
    """Elements of the largest tensor among values; 0 without one."""
    tensors = [
        ir.RankedTensorType(value.type) for value in values if isinstance(value.type, ir.RankedTensorType)
    ]
    return max((math.prod(tensor.shape) for tensor in tensors), default=0)


def _is_float_tensor(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and isinstance(
        ir.RankedTensorType(value.type).element_type, _FLOATS
    )


def _is_float(value: ir.Value) -> bool:
    return isinstance(value.type, _FLOATS)
