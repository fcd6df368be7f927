"""Stick layouts: the algebra of tiled device memory. No IR.

A ``StickLayout`` maps logical indices to device coordinates by ``Digit``s (``stick_layout.py``); a ``BufferView`` is
what view transforms (``view_transforms.py``) make of a buffer (``view.py``); a ``Space`` is the iteration of an
operation over views of its operands (``space.py``).
"""

from spyre_mlir.layout.stick_layout import Digit, StickLayout
from spyre_mlir.layout.view import Axis, BufferView, ViewError

__all__ = ["Axis", "BufferView", "Digit", "StickLayout", "ViewError"]
