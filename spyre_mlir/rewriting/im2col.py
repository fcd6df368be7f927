# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""im2col: a convolution with adjacent windows becomes one matmul of an argument that the host reorders."""

from __future__ import annotations

from spyre_mlir.analysis.windows import Window, Windowed
from spyre_mlir.dialects import stick
from spyre_mlir.dialects.structured import shape_of
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.layout.host_transfer import HostView
from spyre_mlir.layout.stick_layout import elements_per_stick
from spyre_mlir.layout.view_transforms import Collapse, Expand, Transpose
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.tensor_builders import collapsed, consecutive, expanded, transposed


@dataclass(frozen=True)
class Im2Col:
    """A convolution as ``y[rows, f] = sum over k of x[rows, k] * w[f, k]``.

    ``rows`` are the result's iteration dims that the source has, in groups that become one dim each; ``feature`` is the
    result's dim that the weight has. ``contracted`` are all other dims, which become one dim in the weight's order.
    """

    windowed: Windowed
    rows: tuple[tuple[int, ...], ...]
    feature: int
    contracted: tuple[int, ...]

    def source(self) -> ir.Value:
        """Return the matrix of windows, ``[rows, contracted]``: a view of the source."""
        value = self.windowed.inputs[self.windowed.source]
        expand, order, collapse = self._steps()
        value = expanded(value, expand.groups, expand.shape)
        return collapsed(transposed(value, order.permutation), collapse.groups)

    def weight(self) -> ir.Value:
        """Return the weight, features first."""
        pairs = zip(self.windowed.inputs, self.windowed.others, strict=True)
        ((value, dims),) = ((value, dims) for value, dims in pairs if dims is not None)
        order = [dims.index(dim) for dim in (self.feature, *self.contracted)]
        return collapsed(transposed(value, order), [[0], range(1, len(order))])

    def restored(self, result: ir.Value) -> ir.Value:
        """Return the result in the dims and order of the op."""
        dims = [*(dim for group in self.rows for dim in group), self.feature]
        shape = [self.windowed.extents[dim] for dim in dims]
        result = expanded(result, consecutive(map(len, [*self.rows, (self.feature,)])), shape)
        return transposed(result, [dims.index(dim) for dim in self.windowed.result if dim is not None])

    def fit(self) -> bool:
        """Return whether the source is an argument that the host can write as the matrix of windows."""
        value = self.windowed.inputs[self.windowed.source]
        if not isinstance(value.owner, ir.Block) or stick.has_layout(value.type):
            return False
        view: HostView | None = HostView.whole(shape_of(value))
        for step in self._steps():
            view = view and view.after(step)
        element = str(ir.RankedTensorType(value.type).element_type)
        # The host transfers whole sticks: a window must not begin inside a stick.
        return view is not None and view.gathers_sticks(
            elements_per_stick(target_of(self.windowed.op), element)
        )

    def _steps(self) -> tuple[Expand, Transpose, Collapse]:
        """Return the view operations: split windows, move rows before contracted dims, merge the dims of each group."""
        extents = self.windowed.extents
        indices = (index for index in self.windowed.indices if index is not None)
        split = [(index.output, index.kernel) if isinstance(index, Window) else (index,) for index in indices]
        dims = [dim for group in split for dim in group]
        groups = [*self.rows, self.contracted]
        order = tuple(dims.index(dim) for group in groups for dim in group)
        shape = tuple(extents[dim] for dim in dims)
        merged = Collapse(consecutive(map(len, groups)))
        return Expand(consecutive(map(len, split)), shape), Transpose(order), merged


def im2col_of(windowed: Windowed, most_rows: int) -> Im2Col | None:
    """Match a convolution; None if its windows overlap or leave gaps, or the host cannot write the matrix."""
    weights = [dims for dims in windowed.others if dims is not None]
    if len(weights) != 1:
        return None
    shape = shape_of(windowed.inputs[windowed.source])
    for window in windowed.windows:
        # Each element of a dim is in exactly one window.
        size, kernel = shape[windowed.indices.index(window)], windowed.extents[window.kernel]
        is_adjacent = window.dilation == 1 and window.stride == kernel
        if not is_adjacent or size != windowed.extents[window.output] * kernel:
            return None
    (weight,) = weights
    outputs = {window.output for window in windowed.windows}
    channels = {index for index in windowed.indices if isinstance(index, int)}
    rows = tuple(dim for dim in windowed.result if dim in outputs or dim in channels - set(weight))
    features = [dim for dim in windowed.result if dim not in rows and dim is not None]
    contracted = tuple(dim for dim in weight if dim not in windowed.result and dim is not None)
    shared = set(contracted) == {*windowed.kernel, *windowed.reduced} and not channels & set(features)
    if None in weight or not shared or len(features) != 1:
        return None
    # A matmul of the device accepts few row dims: if there are more, they are merged into one.
    fits = sum(windowed.extents[dim] > 1 for dim in rows) <= most_rows
    groups = tuple((dim,) for dim in rows) if fits else (rows,)
    candidate = Im2Col(windowed, groups, features[0], contracted)
    return candidate if candidate.fit() else None
