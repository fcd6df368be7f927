# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stick layouts: the algebra of tiled device memory. No IR.

A ``StickLayout`` (``stick_layout.py``) maps logical indices to device coordinates by ``Digit``s;
a ``BufferView`` (``view.py``) is a view of a buffer, the result of view transforms (``view_transforms.py``);
a ``Space`` (``space.py``) is the iteration space of an operation over views of its operands.
"""

from spyre_mlir.layout.stick_layout import Digit, StickLayout
from spyre_mlir.layout.view import Axis, BufferView, ViewError

__all__ = ["Axis", "BufferView", "Digit", "StickLayout", "ViewError"]
