# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Halo tiling of convolutions: each core has a band of rows, with the rows around it, in its own scratchpad."""

from __future__ import annotations

import math

from spyre_mlir.analysis.windows import Windowed
from spyre_mlir.dialects.structured import element_of, filled, maker_of, shape_of
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.division.slices import divisors
from spyre_mlir.layout.stick_layout import elements_per_stick
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.tensor_builders import (
    collapsed,
    concatenated,
    constant,
    constant_pad,
    element_type,
    empty,
    expanded,
    extracted,
    inserted,
    transposed,
)
from spyre_mlir.rewriting.window_unrolling import Unrolling, padded
from spyre_mlir.target.element_types import ELEMENT_TYPES

#: Bands may take at most this fraction of the time without bands: the estimate is rough.
_GAIN = 0.85

#: Weight of device memory traffic in the choice among bands: fewer bands read fewer rows twice.
_FEW_BYTES = 10

#: Number of operations that write bands, each of which waits for device memory.
_MAKING = 6

#: Number of tensors of the size of a band that a core holds at the same time: the source, partial sums, the result.
_ALIVE = 4


@dataclass(frozen=True)
class Bands:
    """A division of each image into ``count`` bands of ``rows`` rows, with halos of ``above`` and ``below`` rows."""

    count: int
    rows: int
    above: int
    below: int


class HaloTiling(Unrolling):
    """The chain of an op that slides over rows and columns by single steps, and whose result has as many rows.

    The source becomes a tensor of bands ``[band, row, column, channels]``. A band contains the rows that its windows
    read: its own rows, and a halo of copies of neighbouring rows or of padding. Rows and columns of a band then become
    one dim, and a tap is one slice of this dim, at the same offset in each band:

        y[band, m] = sum over p, q of x[band, m + d*p*columns + d*q] * w[p, q],  m = row * columns + column

    So with one band per core, each core reads only its own LX, at the same address. Positions after the last column do
    not belong to a window and are not read; one more row of padding keeps the last of them inside the tensor.
    """

    def __init__(self, windowed: Windowed, bands: Bands) -> None:
        # Set before the constructor of the base class, which reads the order and the extents of dims.
        self.bands = bands
        self.rows, self.columns = windowed.windows
        images = math.prod(windowed.extents[dim] for dim in windowed.images)
        self.lead = tuple(count for count in (images, bands.count) if count > 1)
        self.columns_padded = shape_of(windowed.inputs[windowed.source])[windowed.indices.index(self.columns)]
        super().__init__(windowed)

    def _merged(self) -> tuple[int, ...]:
        """Return the merged dims: the rows of bands and the images."""
        return (self.rows.output, *self.windowed.images)

    def _order(self) -> tuple[int, ...]:
        indices = self.windowed.indices
        images = [indices.index(dim) for dim in self.windowed.images]
        first = [*images, indices.index(self.rows), indices.index(self.columns)]
        return (*first, *(dim for dim in range(len(indices)) if dim not in first))

    def _extent(self, dim: int) -> int:
        if dim == self.rows.output:
            return math.prod(self.lead)
        width = self.columns_padded
        return self.bands.rows * width if dim == self.columns.output else self.windowed.extents[dim]

    def _source(self) -> ir.Value:
        """Return the bands, ``[band, row * column, channels]``."""
        value = self.windowed.inputs[self.windowed.source]
        pad = padded(value)
        if pad is None:
            zero = maker_of(constant(ir.FloatAttr.get(element_type(value), 0.0)))
            pad = value, zero, ([0] * len(self.order), [0] * len(self.order))
        inner, number, (low, high) = pad
        position = self.windowed.indices.index(self.columns)
        unpadded = self._split_rows(inner)
        rows, rank = len(self.lead), len(shape_of(unpadded))
        whole = self._padded(unpadded, number, low[position], high[position])
        above, below, height = self.bands.above, self.bands.below, self.bands.rows
        # The halo before a band is the last rows of the previous band, the halo after it the first rows of the next.
        halo = [(0, height - above, above, True), (above + height, 0, below, False)]
        for row, first, count, before in halo if self.bands.count > 1 else []:
            if count:
                part = self._shifted(unpadded, number, first, count, before)
                whole = inserted(part, whole, [*([0] * rows), row, low[position], *([0] * (rank - rows - 2))])
        return collapsed(whole, [range(rows), [rows, rows + 1], *([dim] for dim in range(rows + 2, rank))])

    def _split_rows(self, value: ir.Value) -> ir.Value:
        """Return the bands without halos, ``[image, band, row, column, channels]``; dims of size 1 are omitted."""
        value, images = transposed(value, self.order), len(self.windowed.images)
        shape = shape_of(value)
        rest = shape[images + 1 :]
        value = collapsed(value, [range(images + 1), *([images + 1 + dim] for dim in range(len(rest)))])
        rows = len(self.lead)
        groups = [range(rows + 1), *([rows + 1 + dim] for dim in range(len(rest)))]
        return expanded(value, groups, (*self.lead, self.bands.rows, *rest))

    def _padded(self, value: ir.Value, number: ir.Operation, left_pad: int, right_pad: int) -> ir.Value:
        """Return the bands padded to all positions that their windows read."""
        spare = 1 if self.windowed.extents[self.columns.kernel] > 1 else 0
        shape, rows = shape_of(value), len(self.lead)
        low, high = [0] * len(shape), [0] * len(shape)
        low[rows : rows + 2] = self.bands.above, left_pad
        high[rows : rows + 2] = self.bands.below + spare, right_pad
        sizes = [before + size + after for before, size, after in zip(low, shape, high, strict=True)]
        return constant_pad(value, number, low, high, sizes)

    def _shifted(
        self, value: ir.Value, number: ir.Operation, first: int, count: int, before: bool
    ) -> ir.Value:
        """Return for each band ``count`` rows of the previous (``before``) or next band; padding at the ends."""
        shape, rows = list(shape_of(value)), len(self.lead)
        offsets, sizes, steps = [0] * len(shape), list(shape), [1] * len(shape)
        offsets[rows], sizes[rows] = first, count
        part = extracted(value, offsets, sizes, steps)
        end_shape = [*self.lead[:-1], 1, *sizes[rows:]]
        end = filled(number.clone().operation.results[0], empty(end_shape, element_type(value)))
        # The first band has no previous band and the last no next band: padding replaces the missing rows.
        together = concatenated([end, part] if before else [part, end], rows - 1)
        offsets = [0] * len(shape)
        offsets[rows - 1] = 0 if before else 1
        return extracted(together, offsets, sizes, steps)

    def _slice(self, source: ir.Value, tap: dict[int, int]) -> ir.Value:
        rows, columns = (window.dilation * tap[window.kernel] for window in (self.rows, self.columns))
        shape = list(shape_of(source))
        offsets = [0, rows * self.columns_padded + columns, *([0] * (len(shape) - 2))]
        sizes = [shape[0], self._extent(self.columns.output), *shape[2:]]
        return extracted(source, offsets, sizes)

    def _restored(self, result: ir.Value) -> ir.Value:
        """Return the result in the dims and order of the op, without the positions after the last column."""
        windowed = self.windowed
        (bands, _, *rest), rows = shape_of(result), self.bands.rows
        channels = [[dim] for dim in range(3, 3 + len(rest))]
        result = expanded(result, [[0], [1, 2], *channels], (bands, rows, self.columns_padded, *rest))
        sizes = (bands, rows, windowed.extents[self.columns.output], *rest)
        result = extracted(result, [0] * len(sizes), sizes)
        result = collapsed(result, [[0, 1], *([dim] for dim in range(2, len(sizes)))])
        outputs = [*windowed.images, *(dim for dim in self.tap_dims if dim in windowed.result)]
        images = len(windowed.images)
        if images:
            groups = [list(range(images + 1)), *([dim] for dim in range(images + 1, len(outputs)))]
            result = expanded(result, groups, [windowed.extents[dim] for dim in outputs])
        return transposed(result, [outputs.index(dim) for dim in windowed.result if dim is not None])


def bands_of(windowed: Windowed) -> Bands | None:
    """Return the bands of an op; None if it cannot have bands or would not be clearly faster with them.

    The choice uses a rough estimate of time, in which bytes have a larger weight than their time.
    """
    source, extents, target = windowed.inputs[windowed.source], windowed.extents, target_of(windowed.op)
    # The halos of the first and of the last band are filled with a float constant.
    if not ELEMENT_TYPES[element_of(source)].is_float:
        return None
    above = below = 0
    if (pad := padded(source)) is not None:
        _, _, (low, high) = pad
        slid = [windowed.indices.index(window) for window in windowed.windows]
        if any((low[dim], high[dim]) != (0, 0) for dim in range(len(low)) if dim not in slid):
            return None
        above, below = low[slid[0]], high[slid[0]]
    if len(windowed.windows) != 2 or max(extents[dim] for dim in windowed.kernel) == 1:
        return None
    outputs = {window.output for window in windowed.windows}
    if any(window.stride != 1 and extents[window.output] != 1 for window in windowed.windows):
        return None
    if any(dims is not None and outputs & set(dims) for dims in windowed.others):
        return None
    rows = windowed.windows[0]
    # The distance from the first to the last row that a window reads. With other padding the result does not have as
    # many rows as the image, and bands do not line up.
    reach = rows.dilation * (extents[rows.kernel] - 1)
    if above + below != reach:
        return None
    height, images = extents[rows.output], math.prod(extents[dim] for dim in windowed.images)
    row_bytes, one_core_ns = _row_bytes(windowed), _one_core_ns(windowed)
    # Without bands, each tap reads its slice from device memory.
    taps = math.prod(extents[dim] for dim in windowed.kernel)
    moved = images * height * row_bytes / target.one_way_bytes_per_ns
    untiled_ns = one_core_ns / target.cores + taps * (moved + target.hbm_access_ns)

    def tiled_ns(bands: Bands, few_bytes: int = 1) -> float:
        """Time to write the bands, and to copy the rows of halos, weighted by ``few_bytes``."""
        count = images * bands.count
        halo_rows = count * (bands.above + bands.below) if bands.count > 1 else 0
        copied = 2 * halo_rows * row_bytes / target.one_way_bytes_per_ns
        return one_core_ns / count + few_bytes * copied + _MAKING * target.hbm_access_ns

    eligible = []
    for count in divisors(height, max(1, target.cores // images)):
        bands = Bands(count, height // count, above, below)
        # A halo comes from one neighbouring band, so a band must have at least as many rows as a halo.
        is_in_lx = (bands.rows + reach + 1) * row_bytes * _ALIVE <= target.usable_lx_bytes
        fits = bands.rows >= max(above, below) and is_in_lx
        if images * count > 1 and fits and tiled_ns(bands) < _GAIN * untiled_ns:
            eligible.append(bands)
    return min(eligible, key=lambda bands: tiled_ns(bands, _FEW_BYTES), default=None)


# -- estimates ------------------------------------------------------------------------------------------


def _row_bytes(windowed: Windowed) -> int:
    """Return the bytes of a row of one image in device memory, without padding: sticks of channels."""
    shape = shape_of(windowed.inputs[windowed.source])
    slid = {*windowed.images, *(windowed.windows)}
    channels = math.prod(
        size for size, index in zip(shape, windowed.indices, strict=True) if index not in slid
    )
    target = target_of(windowed.op)
    stick_elements = elements_per_stick(target, element_of(windowed.inputs[windowed.source]))
    return windowed.extents[windowed.windows[1].output] * -(-channels // stick_elements) * target.stick_bytes


def _one_core_ns(windowed: Windowed) -> float:
    """Return the nanoseconds of all taps on one core."""
    positions, target = math.prod(windowed.extents), target_of(windowed.op)
    if any(windowed.extents[dim] > 1 for dim in windowed.reduced):
        return positions / target.array.multiply_adds_per_ns
    stick_elements = elements_per_stick(target, element_of(windowed.inputs[windowed.source]))
    return positions / stick_elements / target.vector_sticks_per_ns
