# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The forms without windows of one op with windows, and the choice between them (pass ``unroll-windows``)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from spyre_mlir.analysis.windows import Window, Windowed, windowed
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.structured import (
    Map,
    element_of,
    filled,
    generic_without_body,
    iterators,
    maker_of,
    shape_of,
)
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.division.slices import divisors
from spyre_mlir.layout.host_transfer import HostView
from spyre_mlir.layout.stick_layout import ELEMENT_BITS, elements_per_stick
from spyre_mlir.layout.view_transforms import Collapse, Expand, Transpose
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import copied
from spyre_mlir.rewriting.tensor_builders import (
    collapsed,
    concatenated,
    constant,
    constant_pad,
    element_type,
    empty,
    expanded,
    extracted,
    generic_op,
    inserted,
    scalar_op,
    transposed,
    with_body,
)
from spyre_mlir.rewriting.window_unrolling import (
    MOST_ROWS,
    NativeWindows,
    Unrolling,
    im2col_of,
    iterated_by,
    native_windows,
    padded,
)
from spyre_mlir.target.element_types import ELEMENT_TYPES

# Halo tiling of convolutions: each core has a band of rows, with the rows around it, in its own scratchpad.

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


#: Maximum number of positions of a kernel that become operations; with thousands, compilation takes minutes.
_MOST_POSITIONS = 512

#: Maximum positions of a pooling for which bands are preferred to a reduction dim by dim: with 25 they halve the time.
_MOST_TILED_POSITIONS = 64


def chain_of(window: Windowed, native: bool) -> tuple[Callable[[], ir.Value], str]:
    """Return a builder of the ops without windows, and a description of the chosen form for the remark.

    ``native`` permits operations whose operands have windows.
    """
    element = element_of(window.inputs[window.source])
    if element not in ELEMENT_BITS:
        raise error_at(window.op, f"element type {element} is not supported by the device")
    sliding = native_windows(window) if native else None
    im2col = im2col_of(window, MOST_ROWS)
    if im2col is not None:
        how = "; the positions are adjacent, so one matmul computes all of them"
        return lambda: Unrolling(window).as_matmul(im2col), how
    if sliding is not None and not is_by_position(window):
        folded = SpaceToDepth(sliding)
        if folded.fits():
            return folded.run, "; over steps of pixels as channels"
        return sliding.run, f"; '{sliding.opcode}' slides it"
    # The gradient of a weight: its kernel is an image, and its result is small.
    if is_by_position(window):
        how = "; the result has fewer positions: a matmul for each of them"
        return lambda: ByPosition(window).run(), how
    by_dim, extents = is_separable(window), [window.extents[dim] for dim in window.kernel]
    count = sum(extents) if by_dim else math.prod(extents)
    if count > _MOST_POSITIONS:
        text = f"a window of {count} positions needs an operation for each; at most {_MOST_POSITIONS} are supported"
        raise error_at(window.op, text)
    few = not by_dim or math.prod(extents) <= _MOST_TILED_POSITIONS
    bands = bands_of(window) if few else None
    if bands is not None:
        how = f"; each image in {bands.count} bands of {bands.rows} rows, with halos"
        return lambda: HaloTiling(window, bands).run(), how
    if by_dim:
        return lambda: Separable(window).run(), "; its dims are reduced one by one"
    return lambda: Unrolling(window).run(), ""


# Poolings that are reduced dim by dim: one op per position of each dim, instead of one per position of the kernel.


class Separable(Unrolling):
    """Builder of the chains of a pooling, one chain per dim that the windows slide along, last dim first.

        y[i, j] = sum over p of (sum over q of x[s*i + d*p, s*j + d*q])
    ->  r[h, j] = sum over q of x[h, s*j + d*q],  y[i, j] = sum over p of r[s*i + d*p, j]

    Maxima and minima are exact in any order. Sums over two dims have the same terms in the same order as tap by tap.
    """

    def run(self) -> ir.Value:
        value = self._source()
        for window in reversed(self.windowed.windows):
            value = self._reduced_along(window, value, maps_elements=window is self.windowed.windows[-1])
        return self._finished(self._restored(value))

    def _reduced_along(self, window: Window, source: ir.Value, maps_elements: bool) -> ir.Value:
        """Reduce one dim; the first reduction also applies the elementwise function of the pooling."""
        axis = self.order.index(self.windowed.indices.index(window))
        sizes = list(shape_of(source))
        offsets, strides = [0] * len(sizes), [1] * len(sizes)
        sizes[axis], strides[axis] = self.windowed.extents[window.output], self._stride(self.order[axis])
        every, result = tuple(range(len(sizes))), self._neutral(sizes)
        for position in range(self.windowed.extents[window.kernel]):
            offsets[axis] = window.dilation * position
            part = extracted(source, offsets, sizes, strides)
            tap = generic_op([part], result, [every, every], len(sizes), 0)
            if maps_elements:
                # The body arguments of a tap: the element and the accumulator.
                arguments = list(self.body.arguments)
                self._write(tap, [arguments[self.windowed.source], arguments[-1]], alone=position == 0)
            else:
                # The first tap has no value to combine with.
                name = self.combine.name if position else ""
                with_body(tap, lambda args, name=name: scalar_op(name, args[::-1]) if name else args[0])
            result = tap.results[0]
        return result


def is_separable(windowed: Windowed) -> bool:
    """Return whether an op is a pooling that is cheaper to reduce dim by dim than tap by tap."""
    arguments = list(windowed.op.regions[0].blocks[0].arguments)
    others = [argument for index, argument in enumerate(arguments[:-1]) if index != windowed.source]
    if len(windowed.windows) < 2 or windowed.reduced or any(True for other in others for _ in other.uses):
        return False
    # The elements of each source dim from the first to the last one that a window reads.
    sizes: dict[int | Window, int] = {}
    for index in windowed.indices:
        if index is not None:
            sizes[index] = windowed.extents[iterated_by(index)]
        if isinstance(index, Window):
            read = index.stride * (sizes[index] - 1) + index.dilation * (windowed.extents[index.kernel] - 1)
            sizes[index] = read + 1
    # The elements that all taps compute, dim by dim, last dim first.
    count = 0
    for window in reversed(windowed.windows):
        sizes[window] = windowed.extents[window.output]
        count += windowed.extents[window.kernel] * math.prod(sizes.values())
    return count < math.prod(windowed.extents)


# Convolutions whose kernel has more positions than their result: a matmul per position of the result.

#: Maximum kernel positions for which there is always a matmul per kernel position: usual convolutions have fewer.
_MANY = 64


class ByPosition(Unrolling):
    """Builder of a convolution with a large kernel, as the gradient of a weight, whose kernel is as large as an image.

        y[f, n, i, j] = sum over k of w[f, k] * x_ij[k, n],  k for all of p, q, c

    ``x_ij`` is the slice of the source that one position reads.
    """

    def run(self) -> ir.Value:
        """Build a matmul per position of the result and concatenate them."""
        windowed = self.windowed
        source, weight = self._source(), self._weight()
        # Per window the offset of the first element that each position of the result reads.
        outputs, strides = zip(*((window.output, window.stride) for window in windowed.windows), strict=True)
        steps = (range(0, windowed.extents[dim] * by, by) for dim, by in zip(outputs, strides, strict=True))
        parts = [self._part(source, weight, offsets) for offsets in itertools.product(*steps)]
        order = [*outputs, *self._features, *self._columns]
        whole = concatenated(parts, 0) if len(parts) > 1 else parts[0]
        ends = [len(outputs), len(outputs) + len(self._features), len(order)]
        groups = [list(range(begin, end)) for begin, end in itertools.pairwise([0, *ends])]
        whole = expanded(whole, groups, [windowed.extents[dim] for dim in order])
        return self._finished(
            transposed(whole, [order.index(dim) for dim in windowed.result if dim is not None])
        )

    @property
    def _weight_dims(self) -> Map:
        return next(dims for dims in self.windowed.others if dims is not None)

    @property
    def _columns(self) -> list[int]:
        """The dims of the result that the source has in addition to the windows."""
        return [dim for dim in self.windowed.result if dim in self.windowed.indices and dim is not None]

    @property
    def _features(self) -> list[int]:
        return [dim for dim in self.windowed.result if dim in self._weight_dims and dim is not None]

    @property
    def _contracted(self) -> list[int]:
        return [*self.windowed.kernel, *self.windowed.reduced]

    def _merged(self) -> tuple[int, ...]:
        return ()

    def _order(self) -> tuple[int, ...]:
        """Return the dims of the source in the order of its transpose: windows, contracted dims, columns."""
        indices = self.windowed.indices
        windows = [dim for dim, index in enumerate(indices) if isinstance(index, Window)]
        reduced = [dim for dim, index in enumerate(indices) if index in self.windowed.reduced]
        return (*windows, *reduced, *(indices.index(dim) for dim in self._columns))

    def _source(self) -> ir.Value:
        value = self.windowed.inputs[self.windowed.source]
        pad = padded(value)
        if pad is None:
            return transposed(value, self.order)
        inner, number, amounts = pad
        low, high = ([amount[dim] for dim in self.order] for amount in amounts)
        shape = [ir.RankedTensorType(value.type).shape[dim] for dim in self.order]
        return constant_pad(transposed(inner, self.order), number, low, high, shape)

    def _weight(self) -> ir.Value:
        """Return the weight as [features, contracted], with all contracted dims merged."""
        dims, windowed = self._weight_dims, self.windowed
        value = windowed.inputs[windowed.others.index(dims)]
        order = [dims.index(dim) for dim in (*self._features, *self._contracted)]
        split = len(self._features)
        if math.prod(windowed.extents[dim] for dim in self._contracted) % elements_per_stick(
            target_of(windowed.op), element_of(value)
        ):
            # A transfer can bound single dims of the host, but not several dims that end together within a stick.
            value = sdsc.clone(value, windowed.op.location)
        return collapsed(transposed(value, order), [range(split), range(split, len(order))])

    def _part(self, source: ir.Value, weight: ir.Value, offsets: tuple[int, ...]) -> ir.Value:
        """Build the result at one position: [1, features, columns]."""
        windowed = self.windowed
        indices = [windowed.indices[dim] for dim in self.order]
        read = [index.kernel if isinstance(index, Window) else iterated_by(index) for index in indices]
        sizes = [windowed.extents[dim] for dim in read]
        strides = [index.dilation if isinstance(index, Window) else 1 for index in indices]
        begins = [*offsets, *([0] * (len(indices) - len(offsets)))]
        part = sdsc.clone(extracted(source, begins, sizes, strides), windowed.op.location)
        split = len(self._contracted)
        part = collapsed(part, [range(split), range(split, len(sizes))])
        rows, columns = (
            math.prod(windowed.extents[dim] for dim in dims) for dims in (self._features, self._columns)
        )
        operands = {True: (part, (2, 1)), False: (weight, (0, 2))}
        inputs = [operands[dims is None] for dims in windowed.others]
        maps = [*(dims for _, dims in inputs), (0, 1)]
        matmul = generic_op([value for value, _ in inputs], self._neutral([rows, columns]), maps, 3, 1)
        self._write(matmul, list(self.body.arguments), alone=False)
        return expanded(matmul.results[0], [[0, 1], [2]], [1, rows, columns])


def is_by_position(windowed: Windowed) -> bool:
    """Return whether an op is a convolution with many kernel positions, and fewer result positions."""
    weights = [dims for dims in windowed.others if dims is not None]
    kernel, outputs = (
        math.prod(windowed.extents[dim] for dim in dims)
        for dims in (windowed.kernel, [window.output for window in windowed.windows])
    )
    if len(weights) != 1 or kernel <= max(outputs, _MANY):
        return False
    (weight,) = weights
    columns = [index for index in windowed.indices if isinstance(index, int) and index in windowed.result]
    contracted = {*windowed.kernel, *windowed.reduced}
    return (
        None not in weight
        and contracted <= set(weight)
        and all(
            index in columns or index in windowed.reduced
            for index in windowed.indices
            if isinstance(index, int)
        )
        and set(windowed.reduced) <= set(windowed.indices)
        and bool(columns)
        and not set(columns) & set(weight)
        and bool(set(windowed.result) & set(weight))
    )


# Space to depth: a strided convolution over few channels as a convolution with stride 1, with pixels as channels.


@dataclass(frozen=True)
class SpaceToDepth:
    """Rewrite of a convolution of an image whose few channels fill only a small part of a stick.

        y[i, j, f] = sum over c, p, q of x[c, s*i + p - b, s*j + q - b] * w[f, c, p, q]
    ->  y[i, j, f] = sum over k, p, q of x'[i + p - b', j + q - b', k] * w'[f, p, q, k],  k for c and s x s pixels

    The host writes an argument in this form: ``x'`` has the same elements with ``s * s`` pixels adjacent. The kernel is
    padded at its beginning to the begin of a step, and at its end to whole steps.
    """

    native: NativeWindows

    def run(self) -> ir.Value:
        """Build the convolution with stride 1: one device operation, or a matmul if a step covers the kernel."""
        old, windows, value = self.native.windowed, self.native.windows, self.native.pad.value
        before = [self.native.pad.before[old.indices.index(window)] for window in windows]
        steps = [-(-amount // window.stride) for amount, window in zip(before, windows, strict=True)]
        expand, order, collapse = self._steps()
        source = expanded(value, expand.groups, expand.shape)
        source = collapsed(transposed(source, order.permutation), collapse.groups)
        weight = self._weight(before, steps)
        # The padding of the windows, which the device operation folds into itself again.
        shape = list(shape_of(source))
        images = len(shape) - 1 - len(windows)
        low, high = [0] * len(shape), [0] * len(shape)
        for number, (window, size) in enumerate(zip(windows, shape_of(weight)[1:], strict=False)):
            low[images + number] = steps[number]
            needed = old.extents[window.output] + size - 1
            high[images + number] = max(needed - steps[number] - shape[images + number], 0)
        if any((*low, *high)):
            source = self._zero_padded(source, low, high)
        window = windowed(self._op([source if dims is None else weight for dims in old.others]))
        assert window is not None
        native = native_windows(window)
        result = Unrolling(window).run() if native is None else native.run()
        window.op.erase()
        return result

    def fits(self) -> bool:
        """Return whether the host can write the image in this form, and the image then has fewer bytes."""
        value, old, windows = self.native.pad.value, self.native.windowed, self.native.windows
        # Groups of channels are not supported: they are not images, and each group has separate features.
        if self.native.opcode != "conv2d" or set(self._images()) & set(self._weight_dims()):
            return False
        if not isinstance(value.owner, ir.Block) or stick.has_layout(value.type):
            return False
        sizes = [shape_of(value)[old.indices.index(window)] for window in windows]
        is_whole = (size % window.stride == 0 for size, window in zip(sizes, windows, strict=True))
        if len(windows) != len(old.windows) or not all(is_whole) or any(w.dilation > 1 for w in windows):
            return False
        view: HostView | None = HostView.whole(shape_of(value))
        for step in self._steps():
            view = view and view.after(step)
        lanes = elements_per_stick(target_of(old.op), "f16")
        area = math.prod(window.stride for window in windows)
        channels = old.extents[self._channel()]
        fewer = -(-channels * area // lanes) < area * -(-channels // lanes)
        return view is not None and fewer and view.gathers_sticks(lanes)

    def _channel(self) -> int:
        return self.native.windowed.reduced[0]

    def _images(self) -> list[int]:
        """Return the iteration dims of the source except windows and channels."""
        indices = self.native.windowed.indices
        return [index for index in indices if isinstance(index, int) and index != self._channel()]

    def _weight_dims(self) -> Map:
        return next(dims for dims in self.native.windowed.others if dims is not None)

    def _steps(self) -> tuple[Expand, Transpose, Collapse]:
        """Return the view transforms to images, steps of rows and columns, and channels and pixels of a step merged."""
        old, value = self.native.windowed, self.native.pad.value
        groups, shape, place = [], [], {}
        for dim, index in enumerate(old.indices):
            size, first = shape_of(value)[dim], len(shape)
            place[dim] = first
            stride = index.stride if isinstance(index, Window) else 1
            parts = [size // stride, stride] if isinstance(index, Window) else [size]
            groups.append(tuple(range(first, first + len(parts))))
            shape += parts
        slid = [dim for dim, index in enumerate(old.indices) if isinstance(index, Window)]
        channel = old.indices.index(self._channel())
        images = [dim for dim in range(len(old.indices)) if dim not in slid and dim != channel]
        # Channels come before pixels: a stick then begins with whole rows of pixels, which the host can gather.
        order = [place[dim] for dim in (*images, *slid, channel)] + [place[dim] + 1 for dim in slid]
        rank = len(images) + len(slid)
        merged = (*((dim,) for dim in range(rank)), tuple(range(rank, len(order))))
        return Expand(tuple(groups), tuple(shape)), Transpose(tuple(order)), Collapse(merged)

    def _weight(self, before: list[int], steps: list[int]) -> ir.Value:
        """Return the weight as [features, windows.., channels and pixels of a step]."""
        old, windows = self.native.windowed, self.native.windows
        dims = self._weight_dims()
        value = old.inputs[old.others.index(dims)]
        (feature,) = [dim for dim in dims if dim in old.result]
        order = [feature, self._channel(), *(window.kernel for window in windows)]
        value = transposed(value, [dims.index(dim) for dim in order])
        low, high, shape = [0, 0], [0, 0], list(shape_of(value))
        for number, window in enumerate(windows):
            front = steps[number] * window.stride - before[number]
            low.append(front)
            high.append(-(front + shape[2 + number]) % window.stride)
        value = self._zero_padded(value, low, high)
        padded = shape_of(value)
        parts = [
            size
            for number, window in enumerate(windows)
            for size in (padded[2 + number] // window.stride, window.stride)
        ]
        groups = [[0], [1], *([2 + 2 * number, 3 + 2 * number] for number in range(len(windows)))]
        value = expanded(value, groups, [*padded[:2], *parts])
        taps, pixels = ([2 + 2 * number + part for number in range(len(windows))] for part in (0, 1))
        value = transposed(value, [0, *taps, 1, *pixels])
        rank = 1 + len(windows)
        return collapsed(value, [*([dim] for dim in range(rank)), range(rank, len(shape_of(value)))])

    def _zero_padded(self, value: ir.Value, low: list[int], high: list[int]) -> ir.Value:
        shape = [first + size + last for first, size, last in zip(low, shape_of(value), high, strict=True)]
        zero = constant(ir.FloatAttr.get(ir.Type.parse(element_of(value)), 0.0))
        return constant_pad(value, maker_of(zero), low, high, shape)

    # -- the op ---------------------------------------------------------------------------------------

    def _op(self, inputs: list[ir.Value]) -> ir.Operation:
        """Build the op with the same result and body, over images, windows, features, kernels, contracted dims."""
        old, windows = self.native.windowed, self.native.windows
        outputs = [window.output for window in windows]
        images = self._images()
        (feature,) = [dim for dim in self._weight_dims() if dim in old.result]
        order = [*images, *outputs, feature]
        rank, count = len(order) + len(windows) + 1, len(windows)
        d = [ir.AffineDimExpr.get(number) for number in range(rank)]
        kernels, contracted = d[len(order) : -1], d[-1]
        rows = d[len(images) : len(images) + count]
        slid = [row + kernel for row, kernel in zip(rows, kernels, strict=True)]
        source = ir.AffineMap.get(rank, 0, [*d[: len(images)], *slid, contracted])
        weight = ir.AffineMap.get(rank, 0, [d[len(order) - 1], *kernels, contracted])
        result = ir.AffineMap.get(rank, 0, [d[order.index(dim)] for dim in old.result if dim is not None])
        maps = [*(source if dims is None else weight for dims in old.others), result]
        destination = list(old.op.operands)[-1]
        op = generic_without_body(
            [*inputs, destination],
            [old.op.results[0].type],
            [ir.AffineMapAttr.get(map_) for map_ in maps],
            iterators(rank, frozenset(range(len(order), rank))),
        )
        body = old.op.regions[0].blocks[0]
        block = ir.Block.create_at_start(op.regions[0], [argument.type for argument in body.arguments])
        values = dict(zip(body.arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            for scalar in [item.operation for item in body.operations]:
                copied(scalar, values)
        return op
