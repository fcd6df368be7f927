# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names of tensor dims: the mapping of declared dims to tensor dims, and its propagation through views and operations.

A dim of a tensor is a row-major run of *digits*, outermost first. A digit is the whole index of a declared dim, a part
of that index, or an index of an unnamed dim. ``x: tensor<16384xf16>`` over the dims M = 64 and K = 256 has
the single dim (M, K), and the view of ``x`` as 64 x 256 has the dims (M,) and (K,). The sizes of the digits multiply to
the size of the tensor dim, so dims of size 1 have no digits. If a view splits a name, the name is restored by another
view that merges its digits.

Source: working-set reduction, "Dimensions vs. named dimensions" and "View-Based Dimension Splitting".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from spyre_mlir.layout.view_transforms import Collapse, Expand, Slice, Slide, Transpose, ViewTransform
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class NamedDim:
    """A declared dim and its size in elements."""

    name: str
    size: int


@dataclass(frozen=True, eq=False)
class UnnamedDim:
    """A dim without a name, equal to itself only.

    ``reason`` is a clause that states why the dim has no name; it is empty if no user could have named the dim.
    ``lost`` are the names that the dim would have.
    """

    size: int
    reason: str = ""
    lost: frozenset[str] = frozenset()


@dataclass(frozen=True)
class DimDigits:
    """The positions ``(index // divisor) % size`` of the index of a dim."""

    dim: NamedDim | UnnamedDim
    size: int
    divisor: int = 1

    @property
    def name(self) -> str | None:
        """The name of the dim, if the digits are the whole index of the dim."""
        return self.dim.name if isinstance(self.dim, NamedDim) and self.size == self.dim.size else None

    @property
    def mentioned(self) -> frozenset[str]:
        """The names that the digits have, belong to, or would have."""
        return self.dim.lost if isinstance(self.dim, UnnamedDim) else frozenset({self.dim.name})


_CUT = "a view splits it or selects a part of it"

#: The digits of one dim, outermost first, and the digits of each dim of a tensor.
DigitRun = tuple[DimDigits, ...]
Names = tuple[DigitRun, ...]


def whole(dims: Iterable[NamedDim]) -> DigitRun:
    """Return the digits of declared dims that are given in memory order, outermost first."""
    return tuple(DimDigits(dim, dim.size) for dim in dims if dim.size > 1)


def unnamed(size: int, reason: str = "", lost: Iterable[str] = ()) -> DigitRun:
    """Return the digits of an unnamed dim of ``size`` elements."""
    return (DimDigits(UnnamedDim(size, reason, frozenset(lost)), size),) if size > 1 else ()


def labels(parts: DigitRun) -> tuple[str, ...]:
    """Return the names of a dim, outermost first, up to the first part without a name."""
    named = itertools.takewhile(lambda name: name is not None, (part.name for part in parts))
    return tuple(name for name in named if name is not None)


def mentioned(parts: DigitRun) -> frozenset[str]:
    """Return the names that the parts of a dim have, belong to, or would have."""
    return frozenset[str]().union(*(part.mentioned for part in parts))


# -- views --------------------------------------------------------------------------------------------


def covered(parts: DigitRun, size: int, stride: int = 1, offset: int = 0) -> DigitRun:
    """Return the digits of a row-major run that ``size`` positions, from ``offset`` on with ``stride``, count through.

    Parts are visited from the innermost one, and each contributes the digits of its index that the positions count.
    Positions that begin, end or wrap around between digits have no name.
    """
    end, reached, weight = size * stride, stride, 1
    run: list[DimDigits] = []
    # Weights are computed from the innermost digit outwards.
    for part in reversed(parts):
        above = weight * part.size
        first, last = max(weight, stride), min(above, end)
        if first < last:
            # Each bound must divide the next; otherwise positions begin or end between digits of this part.
            falls = not (first % weight or last % first or above % last or end % last)
            # An offset within these digits moves the first position into the middle of them.
            if not falls or offset % last >= first:
                break
            run.append(DimDigits(part.dim, last // first, part.divisor * (first // weight)))
            reached = last
        weight = above
    weights = [math.prod(part.size for part in parts[index + 1 :]) for index in range(len(parts))]
    crossed = [
        part
        for part, weight in zip(parts, weights, strict=True)
        if weight < end and reached < weight * part.size
    ]
    lost = mentioned(tuple(crossed))
    return unnamed(end // reached, _CUT if lost else "", lost) + tuple(reversed(run))


def split(parts: DigitRun, shape: Sequence[int]) -> Names:
    """Split a row-major run of parts into dims of ``shape``."""
    weights = (math.prod(shape[dim + 1 :]) for dim in range(len(shape)))
    return tuple(covered(parts, size, weight) for size, weight in zip(shape, weights, strict=True))


def merged(dims: Iterable[DigitRun]) -> DigitRun:
    """Merge adjacent dims into one; consecutive digits of the same index become one part again."""
    run: list[DimDigits] = []
    for part in itertools.chain.from_iterable(dims):
        last = run[-1] if run else None
        if last is not None and last.dim == part.dim and last.divisor == part.divisor * part.size:
            run[-1] = DimDigits(part.dim, last.size * part.size, part.divisor)
        else:
            run.append(part)
    return tuple(run)


def viewed(step: ViewTransform, names: Names) -> Names:
    """Return the names of a view's dims. A dim that a slice reads in part keeps the names inside the part."""
    if isinstance(step, Transpose):
        return tuple(names[dim] for dim in step.permutation)
    if isinstance(step, Expand):
        expanded: dict[int, DigitRun] = {}
        for parts, group in zip(names, step.groups, strict=False):  # rank 0 has no groups
            expanded.update(zip(group, split(parts, [step.shape[dim] for dim in group]), strict=True))
        return tuple(expanded.get(dim, ()) for dim in range(len(step.shape)))
    if isinstance(step, Collapse):
        return tuple(merged(names[dim] for dim in group) for group in step.groups)
    if isinstance(step, Slide):
        slid: list[DigitRun] = []
        for dim, parts in enumerate(names):
            if dim not in step.dims:
                slid.append(parts)
                continue
            # Windows overlap, so neither dim counts through the named dim.
            sizes = step.sizes[step.dims.index(dim)]
            slid += [unnamed(size, "windows slide over it", mentioned(parts)) for size in sizes]
        return tuple(slid)
    assert isinstance(step, Slice)
    sliced, moving = [], {dim for dim, _ in step.moves}
    for dim, parts in enumerate(names):
        if dim in step.dropped:
            continue
        if dim in moving:
            sliced.append(unnamed(step.sizes[dim], "a slice of it moves with a loop", mentioned(parts)))
        else:
            sliced.append(covered(parts, step.sizes[dim], step.steps[dim], step.offsets[dim]))
    return tuple(sliced)


# -- operations ---------------------------------------------------------------------------------------


def best(candidates: Sequence[DigitRun]) -> DigitRun:
    """Return the best name of an iteration dim: the first with names for all of it, for some of it, or the first."""
    # ``min`` takes the first of equals.
    return min(candidates, key=_unknown)


def _unknown(parts: DigitRun) -> int:
    names = [part.name for part in parts]
    return 0 if None not in names else 1 if any(names) else 2


def contradict(first: DigitRun, second: DigitRun) -> bool:
    """Return whether two operands name a dim differently; a dim without any name is compatible with all names."""
    if _unknown(first) == 2 or _unknown(second) == 2:
        return False
    if [part.size for part in first] != [part.size for part in second]:
        return True
    pairs = ((one.name, other.name) for one, other in zip(first, second, strict=True))
    return any(one is not None and other is not None and one != other for one, other in pairs)
