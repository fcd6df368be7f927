"""Convolutions whose windows lie side by side: one matmul of patches, which the host cuts out of an argument."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spyre_mlir.dialects import stick
from spyre_mlir.dialects.structured import shape_of
from spyre_mlir.layout.host_view import HostView
from spyre_mlir.layout.steps import Collapse, Expand, Step, Transpose
from spyre_mlir.layout.stick_layout import elements_per_stick
from spyre_mlir.mlir import ir
from spyre_mlir.passes._tensor_ops import collapsed, expanded, transposed
from spyre_mlir.passes._windows import Window, Windowed


@dataclass(frozen=True)
class Patches:
    """A convolution as ``y[rows, f] = sum over k of x[rows, k] * w[f, k]``.

    ``rows`` are the iteration dims of the result that the source has, ``features`` those that the weight has, and
    ``contracted`` all others, which are one dim in the order of the weight.
    """

    found: Windowed
    rows: tuple[int, ...]
    features: tuple[int, ...]
    contracted: tuple[int, ...]

    def source(self) -> ir.Value:
        """The patches: a view of the source."""
        value = self.found.inputs[self.found.source]
        apart, order, together = self._steps()
        value = expanded(value, apart.groups, apart.shape)
        return collapsed(transposed(value, order.permutation), together.groups)

    def weight(self) -> ir.Value:
        """The weight, features first."""
        ((value, dims),) = self._weights()
        order = [dims.index(dim) for dim in (*self.features, *self.contracted)]
        first = len(self.features)
        groups = [*([dim] for dim in range(first)), list(range(first, len(order)))]
        return collapsed(transposed(value, order), groups)

    def fit(self) -> bool:
        """Whether the host can cut the patches out of an argument."""
        value = self.found.inputs[self.found.source]
        if not isinstance(value.owner, ir.Block) or stick.layout_of(value.type) is not None:
            return False
        view: HostView | None = HostView.whole(shape_of(value))
        for step in self._steps():
            view = view and view.after(step)
        element = str(ir.RankedTensorType(value.type).element_type)
        return view is not None and view.falls_on(elements_per_stick(element))

    def _weights(self) -> list[tuple[ir.Value, tuple[int, ...]]]:
        pairs = zip(self.found.inputs, self.found.others, strict=True)
        return [(value, tuple(dim for dim in dims if dim is not None)) for value, dims in pairs if dims is not None]

    def _steps(self) -> tuple[Expand, Transpose, Collapse]:
        """The view operations: windows apart, rows before what is contracted, that together."""
        extents = self.found.extents
        apart: list[int] = []
        groups = []
        for index in self.found.indices:
            own = [index.output, index.kernel] if isinstance(index, Window) else [index or 0]
            groups.append(tuple(range(len(apart), len(apart) + len(own))))
            apart += own
        order = [apart.index(dim) for dim in (*self.rows, *self.contracted)]
        first = len(self.rows)
        together = (*((dim,) for dim in range(first)), tuple(range(first, len(order))))
        shape = tuple(extents[dim] for dim in apart)
        return Expand(tuple(groups), shape), Transpose(tuple(order)), Collapse(together)


def patches_of(found: Windowed, most_rows: int) -> Patches | None:
    """Takes a convolution apart; None if its windows overlap or leave gaps, or the host cannot cut its patches."""
    weights = [dims for dims in found.others if dims is not None]
    if len(weights) != 1 or not all(_side_by_side(found, window) for window in found.windows):
        return None
    (weight,) = weights
    outputs = {window.output for window in found.windows}
    channels = {index for index in found.indices if isinstance(index, int)}
    rows = tuple(dim for dim in found.result if dim in outputs or dim in channels - set(weight))
    features = tuple(dim for dim in found.result if dim not in rows)
    contracted = tuple(dim for dim in weight if dim not in found.result)
    shared = set(contracted) == {*found.kernel, *found.reduced} and not channels & set(features)
    sized = [dim for dim in rows if found.extents[dim] > 1]
    if None in weight or not shared or len(features) != 1 or len(sized) > most_rows:
        return None
    made = Patches(found, rows, features, contracted)
    return made if made.fit() else None


def _side_by_side(found: Windowed, window: Window) -> bool:
    """Whether each element of a dim is in exactly one window."""
    at = found.indices.index(window)
    size = shape_of(found.inputs[found.source])[at]
    kernel, count = found.extents[window.kernel], found.extents[window.output]
    return window.dilation == 1 and window.stride == kernel and size == count * kernel
