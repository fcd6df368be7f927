"""Stick layouts: the algebra of tiled device memory. Pure Python and numpy, no IR."""

from spyre_mlir.layout.stick_layout import Digit, StickLayout
from spyre_mlir.layout.view import Axis, BufferView, ViewError

__all__ = ["Axis", "BufferView", "Digit", "StickLayout", "ViewError"]
