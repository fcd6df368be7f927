# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views of a dense host array: the part of the array that an argument reads, as the host transfer addresses it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from spyre_mlir.errors import CompileError
from spyre_mlir.layout.view_transforms import Collapse, Expand, Slice, Transpose, ViewTransform
from spyre_mlir.records import dataclass

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
