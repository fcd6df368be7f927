# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views of values in their buffers while layouts are written, computed on demand from layouts and view ops."""

from __future__ import annotations

from collections.abc import Mapping

from spyre_mlir.analysis.view_ops import VIEWS, step_of
from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.layout import BufferView, StickLayout
from spyre_mlir.layout.view_transforms import ViewTransform, applied
from spyre_mlir.mlir import ir


class Views(dict[ir.Value, BufferView]):
    """The view of each value: all of its buffer by ``layouts``, or the view op applied to the view of its source.

    ``steps`` are the transforms of view ops that are known already, by result; the dictionary is a cache.
    """

    def __init__(
        self, layouts: Mapping[ir.Value, StickLayout], steps: Mapping[ir.Value, ViewTransform]
    ) -> None:
        super().__init__()
        self._layouts = layouts
        self._steps = steps

    def __missing__(self, value: ir.Value) -> BufferView:
        op = defining_op(value)
        if op is not None and op.name in VIEWS:
            self[value] = self.after(op, self[op.operands[0]])
        else:
            self[value] = BufferView.of(self._layouts[value])
        return self[value]

    def after(self, op: ir.Operation, source: BufferView) -> BufferView:
        """Apply a view op to a view; ``ViewError`` if the result is no view."""
        return applied(self._steps.get(op.results[0]) or step_of(op), source)
