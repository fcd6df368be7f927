"""Dims as products of factors: how one operation's merged dim is the several dims of another, through views."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from spyre_mlir.dialects.structured import defining_op, shape_of
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.tensor_builders import collapsed, expanded

#: For each dim of a value its factors, outermost first, by number; a dim of one element has none.
Factors = list[list[int]]


class Inexpressible(Exception):
    """Dims that cannot be written as products of common factors."""


class FactorTable:
    """Factors by number with their sizes, and which are known to be one."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._parent: list[int] = []

    def add(self, size: int) -> int:
        """A new factor."""
        self.sizes.append(size)
        self._parent.append(len(self._parent))
        return len(self._parent) - 1

    def find(self, factor: int) -> int:
        """The number that stands for a factor and all that are one with it."""
        while self._parent[factor] != factor:
            factor = self._parent[factor]
        return factor

    def unite(self, left: Sequence[int], right: Sequence[int]) -> None:
        """Says that two dims are one."""
        if [self.sizes[each] for each in left] != [self.sizes[each] for each in right]:
            raise Inexpressible
        for one, other in zip(left, right, strict=True):
            self._parent[self.find(one)] = self.find(other)

    def known(self, factors: Factors) -> Factors:
        return [[self.find(each) for each in dim] for dim in factors]

    def size(self, factors: Iterable[int]) -> int:
        return math.prod(self.sizes[each] for each in factors)


def groups_of(op: ir.Operation) -> list[list[int]]:
    """The reassociation of a reshape."""
    return [[ir.IntegerAttr(entry).value for entry in group] for group in op.attributes["reassociation"]]


def permutation_of(op: ir.Operation) -> list[int]:
    """Dim ``k`` of a transpose's result is dim ``permutation[k]`` of its source."""
    return list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))


def source_factors(op: ir.Operation, factors: Factors, table: FactorTable) -> Factors | None:
    """The factors of a view's source from those of its result; None if a factor would lie in two dims of it."""
    if op.name == "linalg.transpose":
        order = permutation_of(op)
        return [factors[order.index(dim)] for dim in range(len(order))]
    if op.name == "tensor.expand_shape":
        return [[each for dim in group for each in factors[dim]] for group in groups_of(op)]
    shape = shape_of(op.operands[0])
    dims: Factors = []
    for group, merged in zip(groups_of(op), factors, strict=True):
        rest = list(merged)
        for dim in group:
            own: list[int] = []
            while table.size(own) < shape[dim] and rest:
                own.append(rest.pop(0))
            if table.size(own) != shape[dim]:
                return None
            dims.append(own)
        if rest:
            return None
    return dims


def reshaped(value: ir.Value, before: Factors, after: Factors, table: FactorTable) -> ir.Value:
    """A value whose dims have the factors ``before`` with those of ``after``, the same in the same order."""
    if before == after:
        return value
    flat = [each for dim in before for each in dim]
    assert flat == [each for dim in after for each in dim]
    if any(not dim for dim in before):
        value = collapsed(value, _with_unit_dims(before))
        before = [dim for dim in before if dim]
    if any(len(dim) != 1 for dim in before):
        sizes = [table.sizes[each] for each in flat]
        value = expanded(value, list(_consecutive(before)), sizes)
    sized = [dim for dim in after if dim]
    if any(len(dim) != 1 for dim in sized):
        value = collapsed(value, list(_consecutive(sized)))
    if len(sized) < len(after):
        value = expanded(value, _with_unit_dims(after), [table.size(dim) for dim in after])
    return value


def _with_unit_dims(factors: Factors) -> list[list[int]]:
    """The dims in groups of one that has factors and those of one element behind it, or before the first."""
    groups: list[list[int]] = []
    for at, dim in enumerate(factors):
        if not groups or (dim and any(factors[other] for other in groups[-1])):
            groups.append([])
        groups[-1].append(at)
    return groups


def _consecutive(factors: Factors) -> Iterator[list[int]]:
    at = 0
    for dim in factors:
        yield list(range(at, at + len(dim)))
        at += len(dim)


# -- cuts ---------------------------------------------------------------------------------------------

#: Where the factors of a dim end: products of the inner ones.
Cuts = set[int]


def merged_cuts(shape: Sequence[int], cuts: Sequence[Cuts]) -> Cuts:
    """The cuts of several dims as one."""
    found: Cuts = set()
    inner = math.prod(shape)
    whole = inner
    for size, own in zip(shape, cuts, strict=True):
        inner //= size
        found |= {inner * cut for cut in own} | {inner}
    return {cut for cut in found if 1 < cut < whole}


def separate_cuts(shape: Sequence[int], cuts: Cuts) -> list[Cuts]:
    """The cuts of each of several dims from those of them as one; ``Inexpressible`` where one is in no dim."""
    found: list[Cuts] = []
    inner = math.prod(shape)
    for size in shape:
        outer, inner = inner, inner // size
        own = {cut for cut in cuts if inner < cut < outer}
        if any(cut % inner or outer % cut for cut in own):
            raise Inexpressible
        found.append({cut // inner for cut in own})
    return found


def sizes_of(size: int, cuts: Cuts) -> list[int]:
    """The factors of a dim that is cut, outermost first; none of a dim of one element."""
    if size == 1:
        return []
    ends = [1, *sorted(cuts), size]
    if any(outer % inner for inner, outer in itertools.pairwise(ends)):
        raise Inexpressible
    return [outer // inner for inner, outer in itertools.pairwise(ends)][::-1]


def view_chain(value: ir.Value, views: Sequence[str]) -> list[ir.Operation]:
    """The view ops behind a value, the last one first."""
    found = []
    while (op := defining_op(value)) is not None and op.name in views:
        found.append(op)
        value = op.operands[0]
    return found
