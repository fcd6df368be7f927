# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Factors of the dims of an attention: the finest dims that any of its operations, or the views between, have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spyre_mlir.analysis.attention_pattern import Attention, is_broadcast, producer_of
from spyre_mlir.analysis.tile_nests import VIEWS
from spyre_mlir.dialects.structured import Map, Structured, defining_op, maker_of, shape_of, structured
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.reshaping import (
    Cuts,
    Factors,
    FactorTable,
    Inexpressible,
    groups_of,
    merged_cuts,
    permutation_of,
    separate_cuts,
    sizes_of,
    source_factors,
    view_chain,
)


class AttentionFactors:
    """Iteration dims of all operations of an attention as products of common factors.

    ``whole_heads`` leaves keys and values repeated for each head, so that heads are one factor, as hints name them.
    ``by_result`` has those of each iteration dim. ``Inexpressible`` where there are no common ones.
    """

    def __init__(self, attention: Attention, *, whole_heads: bool) -> None:
        self.whole_heads = whole_heads
        self.ops = list({generic.result: generic for generic in attention.ops}.values())
        self.producers = {generic.result: generic for generic in self.ops}
        self.table = FactorTable()
        self.by_result: dict[ir.Value, list[list[int]]] = {}
        self._number(self._all_cuts())

    def is_internal(self, value: ir.Value) -> bool:
        """Return whether an operation of the attention computes a value, or the source of a view."""
        op = producer_of(value)
        return op is not None and op.results[0] in self.producers

    def space(self, generic: Structured) -> list[int]:
        """Return the factors that an operation iterates over, one dim for each."""
        return [factor for dim in self.by_result[generic.result] for factor in dim]

    def values(self, generic: Structured) -> Iterator[tuple[ir.Value, Factors]]:
        """Yield the operands and the result of an operation, with factors."""
        yield from self.reads(generic)
        dim_factors = self.by_result[generic.result]
        yield generic.result, [[] if dim is None else dim_factors[dim] for dim in generic.maps[-1]]

    def reads(self, generic: Structured) -> Iterator[tuple[ir.Value, Factors]]:
        """Yield the sources of the operands of an operation, with the factors of their dims there."""
        dim_factors = self.by_result[generic.result]
        for value, dims in zip(generic.inputs, generic.maps, strict=False):
            factors = [[] if dim is None else dim_factors[dim] for dim in dims]
            yield (value, factors) if self.is_internal(value) else self._source(value, factors)

    def _source(self, value: ir.Value, factors: Factors) -> tuple[ir.Value, Factors]:
        """Return a value from outside, or the one that it repeats, with the factors of its dims."""
        repeated = repeated_by(value)
        if repeated is not None:
            behind_it: Factors | None = factors
            for op in view_chain(value, VIEWS):
                behind_it = None if behind_it is None else source_factors(op, behind_it, self.table)
            if behind_it is not None:
                of_dim = dict(zip(repeated.maps[-1], behind_it, strict=True))
                inner = [[] if dim is None else of_dim[dim] for dim in repeated.maps[0]]
                return self._source(repeated.inputs[0], inner)
        op = defining_op(value)
        if op is not None and op.name == "tensor.collapse_shape" and any(len(dim) > 1 for dim in factors):
            separate = source_factors(op, factors, self.table)
            if separate is not None:
                return self._source(op.operands[0], separate)
        return value, factors

    def _all_cuts(self) -> dict[ir.Value, list[Cuts]]:
        """Return the cuts of iteration dims, refined until operands and readers have the same dims."""
        cuts: dict[ir.Value, list[Cuts]] = {
            generic.result: [set() for _ in generic.extents] for generic in self.ops
        }
        for generic in self.ops:
            for value, dims in zip(generic.inputs, generic.maps, strict=False):
                if not (self.whole_heads or self.is_internal(value)):
                    _add(cuts[generic.result], dims, _repetition_cuts(value))
        before = None
        while before != (before := sum(len(dim_cuts) for dims in cuts.values() for dim_cuts in dims)):
            for generic in self.ops:
                for value, dims in zip(generic.inputs, generic.maps, strict=False):
                    if self.is_internal(value):
                        self._exchange(cuts, generic, value, dims)
        return cuts

    def _exchange(
        self, cuts: dict[ir.Value, list[Cuts]], reader: Structured, value: ir.Value, dims: Map
    ) -> None:
        """Propagate cuts from the producer of a value to its reader, and back."""
        maker = self.producers[maker_of(root_of(value)).results[0]]
        result_cuts = [set() if dim is None else cuts[maker.result][dim] for dim in maker.maps[-1]]
        seen = result_cuts
        for op in reversed(view_chain(value, VIEWS)):
            seen = _forward(op, seen)
        _add(cuts[reader.result], dims, seen)
        read = [set() if dim is None else cuts[reader.result][dim] for dim in dims]
        for op in view_chain(value, VIEWS):
            read = _backward(op, read)
        _add(cuts[maker.result], maker.maps[-1], read)

    def _number(self, all_cuts: dict[ir.Value, list[Cuts]]) -> None:
        """Give each part of a cut dim a factor, and unite those of an operand with its producer's."""
        for generic in self.ops:
            dim_factors = self.by_result[generic.result] = [
                [self.table.add(part) for part in sizes_of(size, cuts)]
                for size, cuts in zip(generic.extents, all_cuts[generic.result], strict=True)
            ]
            for value, dims in zip(generic.inputs, generic.maps, strict=False):
                if not self.is_internal(value):
                    continue
                factors: Factors | None = [[] if dim is None else dim_factors[dim] for dim in dims]
                for op in view_chain(value, VIEWS):
                    factors = None if factors is None else source_factors(op, factors, self.table)
                if factors is None:
                    raise Inexpressible
                maker = self.producers[root_of(value)]
                for operand_factors, dim in zip(factors, maker.maps[-1], strict=True):
                    if dim is not None:
                        self.table.unite(operand_factors, self.by_result[maker.result][dim])
        self.by_result = {value: self.table.known(dims) for value, dims in self.by_result.items()}


def repeated_by(value: ir.Value) -> Structured | None:
    """Return the broadcast that a value is, or is a view of; None if it repeats nothing."""
    op = producer_of(value)
    generic = None if op is None else structured(op)
    return generic if generic is not None and is_broadcast(generic) else None


def root_of(value: ir.Value) -> ir.Value:
    """Return the source of the views that end in a value."""
    chain = view_chain(value, VIEWS)
    return chain[-1].operands[0] if chain else value


def _add(cuts: list[Cuts], dims: Map, more: Sequence[Cuts]) -> None:
    for dim, dim_cuts in zip(dims, more, strict=True):
        if dim is not None:
            cuts[dim] |= dim_cuts


def _forward(op: ir.Operation, cuts: Sequence[Cuts]) -> list[Cuts]:
    """Return the cuts of a view's result from those of its source."""
    if op.name == "linalg.transpose":
        return [cuts[dim] for dim in permutation_of(op)]
    shapes = shape_of(op.operands[0]), shape_of(op.results[0])
    if op.name == "tensor.collapse_shape":
        return [
            merged_cuts([shapes[0][dim] for dim in group], [cuts[dim] for dim in group])
            for group in groups_of(op)
        ]
    return [
        part
        for group, dim_cuts in zip(groups_of(op), cuts, strict=True)
        for part in separate_cuts([shapes[1][dim] for dim in group], dim_cuts)
    ]


def _backward(op: ir.Operation, cuts: Sequence[Cuts]) -> list[Cuts]:
    """Return the cuts of a view's source from those of its result."""
    shapes = shape_of(op.operands[0]), shape_of(op.results[0])
    if op.name == "linalg.transpose":
        order = permutation_of(op)
        return [cuts[order.index(dim)] for dim in range(len(order))]
    if op.name == "tensor.expand_shape":
        return [
            merged_cuts([shapes[1][dim] for dim in group], [cuts[dim] for dim in group])
            for group in groups_of(op)
        ]
    return [
        part
        for group, dim_cuts in zip(groups_of(op), cuts, strict=True)
        for part in separate_cuts([shapes[0][dim] for dim in group], dim_cuts)
    ]


def _repetition_cuts(value: ir.Value) -> list[Cuts]:
    """Return the cuts that separate the dims along which a value is repeated from the others."""
    repeated = repeated_by(value)
    cuts: list[Cuts] = [set() for _ in shape_of(value)]
    if repeated is None:
        return cuts
    cuts = [set() for _ in shape_of(repeated.result)]
    for op in reversed(view_chain(value, VIEWS)):
        cuts = _forward(op, cuts)
    return cuts
