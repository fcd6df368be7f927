# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dims as products of factors, to match the merged dim of one operation with the dims of another through views."""

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
    """Factors by number with their sizes, and a union-find of those that are equal."""

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

    def unite(self, first: Sequence[int], second: Sequence[int]) -> None:
        """Unite the factors of two dims that are one; ``Inexpressible`` if their sizes differ."""
        if [self.sizes[factor] for factor in first] != [self.sizes[factor] for factor in second]:
            raise Inexpressible
        for factor, other in zip(first, second, strict=True):
            self._parent[self.find(factor)] = self.find(other)

    def known(self, factors: Factors) -> Factors:
        return [[self.find(factor) for factor in dim] for dim in factors]

    def size(self, factors: Iterable[int]) -> int:
        return math.prod(self.sizes[factor] for factor in factors)


def groups_of(op: ir.Operation) -> list[list[int]]:
    """The reassociation of a reshape."""
    return [[ir.IntegerAttr(entry).value for entry in group] for group in op.attributes["reassociation"]]


def permutation_of(op: ir.Operation) -> list[int]:
    """The permutation of a transpose: dim ``k`` of the result is dim ``permutation[k]`` of the source."""
    return list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))


def source_factors(op: ir.Operation, factors: Factors, table: FactorTable) -> Factors | None:
    """The factors of a view's source from those of its result; None if a factor would lie in two dims of it."""
    if op.name == "linalg.transpose":
        order = permutation_of(op)
        return [factors[order.index(dim)] for dim in range(len(order))]
    if op.name == "tensor.expand_shape":
        return [[factor for dim in group for factor in factors[dim]] for group in groups_of(op)]
    shape = shape_of(op.operands[0])
    dims: Factors = []
    for group, merged in zip(groups_of(op), factors, strict=True):
        rest = list(merged)
        for dim in group:
            dim_factors: list[int] = []
            while table.size(dim_factors) < shape[dim] and rest:
                dim_factors.append(rest.pop(0))
            if table.size(dim_factors) != shape[dim]:
                return None
            dims.append(dim_factors)
        if rest:
            return None
    return dims


def reshaped(value: ir.Value, before: Factors, after: Factors, table: FactorTable) -> ir.Value:
    """A value whose dims have the factors ``before`` with those of ``after``, the same in the same order."""
    if before == after:
        return value
    flat = [factor for dim in before for factor in dim]
    assert flat == [factor for dim in after for factor in dim]
    # Dims of one element have no factor to expand by: they are merged into their neighbours first.
    if any(not dim for dim in before):
        value = collapsed(value, _with_unit_dims(before))
        before = [dim for dim in before if dim]
    if any(len(dim) != 1 for dim in before):
        sizes = [table.sizes[factor] for factor in flat]
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
    for position, dim in enumerate(factors):
        if not groups or (dim and any(factors[other] for other in groups[-1])):
            groups.append([])
        groups[-1].append(position)
    return groups


def _consecutive(factors: Factors) -> Iterator[list[int]]:
    begin = 0
    for dim in factors:
        yield list(range(begin, begin + len(dim)))
        begin += len(dim)


# -- cuts ---------------------------------------------------------------------------------------------

#: Boundaries of the factors of a dim: products of the inner ones.
Cuts = set[int]


def merged_cuts(shape: Sequence[int], cuts: Sequence[Cuts]) -> Cuts:
    """The cuts of several dims as one."""
    merged: Cuts = set()
    inner = math.prod(shape)
    whole = inner
    for size, dim_cuts in zip(shape, cuts, strict=True):
        inner //= size
        merged |= {inner * cut for cut in dim_cuts} | {inner}
    return {cut for cut in merged if 1 < cut < whole}


def separate_cuts(shape: Sequence[int], cuts: Cuts) -> list[Cuts]:
    """The cuts of each of several dims from those of them as one; ``Inexpressible`` where one is in no dim."""
    separate: list[Cuts] = []
    inner = math.prod(shape)
    for size in shape:
        outer, inner = inner, inner // size
        dim_cuts = {cut for cut in cuts if inner < cut < outer}
        if any(cut % inner or outer % cut for cut in dim_cuts):
            raise Inexpressible
        separate.append({cut // inner for cut in dim_cuts})
    return separate


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
    chain = []
    while (op := defining_op(value)) is not None and op.name in views:
        chain.append(op)
        value = op.operands[0]
    return chain
