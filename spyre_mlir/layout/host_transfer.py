# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Host transfer of a layout: the three tuples of RFC 0047, with bounds for padded dims."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from spyre_mlir.errors import CompileError
from spyre_mlir.layout.stick_layout import Digit, StickLayout
from spyre_mlir.layout.view import ViewError
from spyre_mlir.layout.view_transforms import Collapse, Expand, Slice, Transpose, ViewTransform
from spyre_mlir.records import dataclass
from spyre_mlir.target.target import Target

# Views of a dense host array: the part of the array that an argument reads, as the host transfer addresses it.

#: A dim of a view: one or more pieces, outermost first, each as (positions, stride in elements of the host array).
Pieces = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class HostView:
    """A tensor inside a host array of ``array_shape``.

    Position ``i`` of a dim is a mixed-radix number with one digit per piece, the last piece fastest. With the digits
    ``d_k`` of all dims the element is at ``offset + sum(d_k * stride_k)``. Most dims have one piece and so one stride.
    """

    array_shape: tuple[int, ...]
    dims: tuple[Pieces, ...]
    offset: int = 0

    @classmethod
    def whole(cls, shape: Sequence[int]) -> HostView:
        """Return the view of a whole dense row-major array."""
        dims = (_canonical([(size, math.prod(shape[dim + 1 :]))]) for dim, size in enumerate(shape))
        return cls(tuple(shape), tuple(dims))

    @classmethod
    def of_pieces(
        cls, array_shape: Sequence[int], shape: Sequence[int], pieces: Sequence[tuple[int, int]], offset: int
    ) -> HostView:
        """Return the view of ``shape`` with these pieces, from dim 0 on; ``CompileError`` if they do not fit."""
        rest, dims = list(pieces), []
        for size in shape:
            # The count starts at 0, not 1, so that a dim of one position takes its piece, too.
            dim_pieces, count = [], 0
            while rest and count < size:
                dim_pieces.append(rest.pop(0))
                count = math.prod(length for length, _ in dim_pieces)
            dims.append(tuple(dim_pieces))
        view = cls(tuple(array_shape), tuple(dims), offset)
        if rest or view.shape != tuple(shape):
            raise CompileError(
                f"The pieces {list(pieces)} of a host array do not make up the shape {list(shape)}."
            )
        return view

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of positions of each dim."""
        return tuple(math.prod(size for size, _ in dim) for dim in self.dims)

    @property
    def last(self) -> int:
        """The index of the last element of the view in the host array."""
        return self.offset + sum((size - 1) * stride for dim in self.dims for size, stride in dim)

    @property
    def in_pieces(self) -> bool:
        """True if a dim has more than one stride."""
        return any(len(dim) > 1 for dim in self.dims)

    def falls_on(self, dim: int, stick_elements: int) -> bool:
        """Return whether each stick of ``stick_elements`` along a dim consists of whole pieces or lies in one piece."""
        inner = inner_counts(self.dims[dim])[:-1]
        return all(count % stick_elements == 0 or stick_elements % count == 0 for count in inner)

    def gathers_sticks(self, stick_elements: int) -> bool:
        """Return whether a stick of the last dim has several whole pieces, so that no layout of the array has it."""
        last = len(self.dims) - 1
        return self.falls_on(last, stick_elements) and any(
            count % stick_elements for count in inner_counts(self.dims[last])[:-1]
        )

    def after(self, step: ViewTransform) -> HostView | None:
        """Return the view after a view operation; None if the operation cuts a dim that lies in pieces."""
        dims, offset = list[Pieces](), self.offset
        if isinstance(step, Transpose):
            dims = [self.dims[dim] for dim in step.permutation]
        elif isinstance(step, Collapse):
            groups = ([self.dims[dim] for dim in group] for group in step.groups)
            dims = [_canonical([*itertools.chain.from_iterable(group)]) for group in groups]
        elif isinstance(step, Slice):
            for dim, pieces in enumerate(self.dims):
                first, size, stride = step.offsets[dim], step.sizes[dim], step.steps[dim]
                if len(pieces) == 1:
                    offset += first * pieces[0][1]
                    pieces = _canonical([(size, stride * pieces[0][1])])
                elif (first, size, stride) != (0, self.shape[dim], 1):
                    return None
                if dim not in step.dropped:
                    dims.append(pieces)
        elif isinstance(step, Expand):
            dims.extend([((1, 1),)] * len(step.shape))
            for source, group in enumerate(step.groups):
                rest = list(self.dims[source])
                end = rest[0][0] * rest[0][1]
                # Positions are split off the inner end of the pieces, so the innermost dim comes first.
                for dim in reversed(group):
                    # A dim of one position has a stride as well: the stride that it has in a dense array.
                    one = (1, rest[-1][1] if rest else end)
                    inner = _split_off(rest, step.shape[dim])
                    if inner is None:
                        return None
                    dims[dim] = _canonical([one, *inner])
        else:
            return None
        return HostView(self.array_shape, tuple(dims), offset)


def inner_counts(pieces: Pieces) -> tuple[int, ...]:
    """Return for each piece, the last one first, the number of positions in this piece and all pieces inside it."""
    counts, count = [], 1
    for size, _ in reversed(pieces):
        count *= size
        counts.append(count)
    return tuple(counts)


def _split_off(pieces: list[tuple[int, int]], size: int) -> list[tuple[int, int]] | None:
    """Pop the ``size`` innermost positions off pieces and return them; None if they do not align with the pieces."""
    inner: list[tuple[int, int]] = []
    while size > 1:
        if not pieces:
            return None
        count, stride = pieces.pop()
        if size % count == 0:
            inner.insert(0, (count, stride))
            size //= count
        elif count % size == 0:
            pieces.append((count // size, stride * size))
            inner.insert(0, (size, stride))
            size = 1
        else:
            return None
    return inner


def _canonical(pieces: Sequence[tuple[int, int]]) -> Pieces:
    """Merge pieces through which one stride leads, and drop pieces of one position, but keep at least one piece."""
    merged: list[tuple[int, int]] = []
    for size, stride in pieces:
        if size == 1:
            continue
        if merged and merged[-1][1] == stride * size:
            size *= merged.pop()[0]
        merged.append((size, stride))
    return tuple(merged) or (pieces[-1],)


@dataclass(frozen=True)
class DmaTuples:
    """Loop ranges, host strides and device strides in elements, outermost device dim first.

    ``bounds`` contains ``(loops, weights, size)`` for each host dim whose loops run past the end of the dim:
    a position is padding unless ``sum(i_loop * weight) < size``.
    """

    ranges: tuple[int, ...]
    host_strides: tuple[int, ...]
    device_strides: tuple[int, ...]
    bounds: tuple[tuple[tuple[int, ...], tuple[int, ...], int], ...]

    def stick_outermost(self) -> DmaTuples:
        """Return the loops in reverse order, as in the example of RFC 0047, whose outer loop is in the stick."""
        last = len(self.ranges) - 1
        bounds = (
            (tuple(last - loop for loop in loops), weights, size) for loops, weights, size in self.bounds
        )
        return DmaTuples(self.ranges[::-1], self.host_strides[::-1], self.device_strides[::-1], tuple(bounds))


def dma_tuples(layout: StickLayout, view: HostView | None = None) -> DmaTuples:
    """Return the loop nest that moves a view of a host array into the device array of a layout.

    Args:
        layout: The layout.
        view: The view of the host array. By default the array is dense and row-major.

    Raises:
        ViewError: The pieces of the view do not align with the pieces of the layout.
    """
    shape = layout.shape
    dims = (view or HostView.whole(shape)).dims
    ranges, host_strides, device_strides = [], [], []
    loops: dict[int, list[tuple[int, int]]] = {dim: [] for dim in range(len(shape))}
    for digit, stride in zip(layout.digits, layout.device_strides, strict=True):
        size, divisor = digit.size(shape), digit.divisor
        if digit.dim is None:
            ranges.append(size)
            host_strides.append(0)
            device_strides.append(stride)
            continue
        pieces, whole = dims[digit.dim], divisor * size
        # The last count is the size of the whole dim: it is the end of the dim, not a cut.
        cuts = [count for count in inner_counts(pieces)[:-1] if divisor < count < whole]
        begins = [divisor, *cuts]
        if any(high % low for low, high in itertools.pairwise(begins)) or whole % begins[-1]:
            text = f"pieces of {cuts} positions of the host do not fall on {size} steps of {divisor}"
            raise ViewError(text)
        # A digit has one loop between two cuts, outermost first.
        for begin, end in reversed([*zip(begins, [*cuts, whole], strict=True)]):
            loops[digit.dim].append((len(ranges), begin))
            ranges.append(end // begin)
            host_strides.append(_stride(pieces, begin))
            device_strides.append(stride * (begin // divisor))
    bounds = []
    for dim, size in enumerate(shape):
        reach = 1 + sum((ranges[loop] - 1) * weight for loop, weight in loops[dim])
        # Only loops that run past the end of a dim reach padding; the other loops need no bound.
        if reach > size:
            bounds.append((*zip(*loops[dim], strict=True), size))
    return DmaTuples(tuple(ranges), tuple(host_strides), tuple(device_strides), tuple(bounds))


def _stride(pieces: Pieces, step: int) -> int:
    """Return the distance on the host between two positions of one piece that are ``step`` positions apart."""
    *outer, (inner, stride) = pieces
    if not outer or step < inner:
        return step * stride
    if step % inner:
        raise ViewError(f"steps of {step} positions do not fall on pieces of {inner} of the host")
    return _stride(tuple(outer), step // inner)


def layout_of_tuples(target: Target, tuples: DmaTuples, shape: Sequence[int], dtype: str) -> StickLayout:
    """Return the layout whose transfer from a dense host array has these loops: the inverse of ``dma_tuples``.

    Raise ``ValueError`` if no layout has these loops.
    """
    bounded: dict[int, tuple[int, int]] = {}
    for index, (loops, weights, _) in enumerate(tuples.bounds):
        bounded |= {loop: (index, weight) for loop, weight in zip(loops, weights, strict=True)}
    units = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    digits: list[Digit] = []
    last = len(tuples.ranges) - 1
    for loop, (count, stride) in enumerate(zip(tuples.ranges, tuples.host_strides, strict=True)):
        if loop in bounded:
            index, divisor = bounded[loop]
            size = tuples.bounds[index][2]
            unit = stride // divisor
            dims = [dim for dim in range(len(shape)) if (units[dim], shape[dim]) == (unit, size)]
            dim = dims[0] if dims else None
        else:
            # Units decrease from dim to dim: the loop counts the first dim whose unit is at most the stride.
            dims = [dim for dim, unit in enumerate(units) if count > 1 and unit <= stride and shape[dim] > 1]
            dim = dims[0] if dims else None
            divisor = stride // units[dim] if dim is not None else 1
        if dim is None:
            digits.append(Digit(None))
            continue
        whole = Digit(dim, divisor)
        digits.append(whole if loop != last and whole.size(shape) == count else Digit(dim, divisor, count))
    layout = StickLayout(target, tuple(shape), dtype, tuple(digits))
    inverse = replace(dma_tuples(layout), host_strides=tuples.host_strides)
    if inverse != tuples:
        raise ValueError(f"no layout of {list(shape)} {dtype} has the loops {tuples}")
    return layout
