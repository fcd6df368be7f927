# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gives the operations of an attention one iteration space, with a dim each for batch, groups, heads, rows and keys."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from spyre_mlir.analysis import attention_pattern
from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.tile_nests import VIEWS
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.hint_attributes import TILING, hints_in
from spyre_mlir.dialects.structured import (
    Map,
    Structured,
    defining_op,
    device_op,
    element_of,
    maker_of,
    shape_of,
    structured,
    use_empty,
)
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.layout.rules import RULES, Iteration
from spyre_mlir.mlir import clean, ir
from spyre_mlir.passes.base import EvaluatingPass, Evaluator
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import default_bytes, group_module
from spyre_mlir.rewriting.tensor_builders import collapsed, consecutive, expanded
from spyre_mlir.target.ops import Kind


@dataclass(frozen=True)
class ExpandAttention(EvaluatingPass):
    """Write attention without views between its operations, and all matmuls without repeated operands.

    In the input, matmuls have all batch dims merged into one, while softmax has separate dims, and the keys and values
    of grouped heads are repeated for each head of their group. The pass gives all operations the dims that any of them
    distinguishes, so that loops and divisions are the same for all and a matmul reads the keys and values of a group in
    place. Other matmuls read repeated operands in place, too. If a matmul has more dims than the device supports,
    adjacent dims that no operand separates are merged.

    Scores that fit in half of the scratchpads are not tiled. Such an attention is rewritten only if that takes less
    time by the cost model after the rest of the pipeline, or if a hint requests loops; the heads of groups then stay
    one dim, as the hint names them.

    Before, level *device-ops*, and after, for q of 2x8x64x64 and k of 2x2x64x64:
        %r = identity(%k) : 2x2x64x64 -> 2x2x4x64x64     %x = expand_shape %q : 2x8x64x64 -> 2x2x4x64x64
        %c = collapse_shape %r : -> 16x64x64             %s = batchmatmul(%x, %k) : 2x2x4x64x64
        %s = batchmatmul(collapse_shape %q, %c)          %m = max(%s)
        %m = max(expand_shape %s : -> 2x8x64x64)
    """

    name: ClassVar[str] = "expand-attention"

    def decide(self, module: ir.Operation, evaluator: Evaluator) -> None:
        """Rewrite ``module`` in place."""
        changed = False
        for func in functions(module):
            block = func.regions[0].blocks[0]
            # The operations of a later group may read the results of an earlier one, which its rewrite replaces.
            for op in _matmuls(block):
                attention = _attention(op)
                if isinstance(attention, attention_pattern.Attention) and _is_spread(attention.ops):
                    changed |= self._expand(attention.ops, evaluator)
            for op in _other_matmuls(block):
                if _is_spread(ops := [attention_pattern.known(op)]):
                    changed |= self._expand(ops, evaluator)
        if changed:
            clean(module)

    def _expand(self, ops: Sequence[Structured], evaluator: Evaluator) -> bool:
        """Rewrite operations with one dim per factor; return whether they changed, and report why not."""
        matmul = ops[-1].op
        is_hinted = any(hints_in(generic.op.location) is not None for generic in ops)
        try:
            expansion = _Expansion(ops, whole_heads=is_hinted)
        except Inexpressible:
            self.remark(matmul, "no rewrite", "the dims of its operations are not products of common factors")
            return False
        problem = expansion.problem()
        if problem is not None:
            self.remark(matmul, "no rewrite", f"with a dim for each of batch, groups and heads {problem}")
            return False
        sizes = " x ".join(str(expansion.size(factor)) for factor in expansion.unmerged(expansion.largest))
        text = f"all its operations over {sizes}, without views between them"
        target = target_of(matmul)
        most = max(
            default_bytes(target, shape_of(generic.result), element_of(generic.result)) for generic in ops
        )
        # Large values, for which later passes search for tiles.
        is_free = is_hinted or (len(ops) > 1 and most // target.cores > target.usable_lx_bytes // 2)
        before = None if is_free else evaluator.cost(group_module(expansion.old, {}))
        result = expansion.write()
        matmul.results[0].replace_all_uses_with(result)
        after = None if is_free else evaluator.cost(group_module(expansion.new, {}))
        # Equal times keep the new form, because without views loops and divisions can be the same for all.
        if before is not None and (after is None or after.nanoseconds > before.nanoseconds):
            result.replace_all_uses_with(matmul.results[0])
            _erase([*map(maker_of, (result, *expansion.others.values())), *reversed(expansion.new)])
            self.remark(matmul, "no rewrite", f"{text}: {after or 'not possible'}, unchanged {before}")
            return False
        prices = "" if before is None else f": {after}, before {before}"
        self.remark(expansion.new[-1], "rewrite", text + prices)
        expansion.replace_others()
        _erase(list(reversed(expansion.old)))
        return True


def _matmuls(block: ir.Block) -> list[ir.Operation]:
    ops = [op_view.operation for op_view in block.operations]
    return [op for op in ops if sdsc.opcode_of(op) == "batchmatmul"]


def _attention(op: ir.Operation) -> attention_pattern.Attention | attention_pattern.NotOnline | None:
    """Return the attention that ends in a matmul, or why it needs all keys at once; online-softmax reports that."""
    try:
        return attention_pattern.attention_of(op)
    except attention_pattern.NotOnline as refusal:
        return refusal


def _other_matmuls(block: ir.Block) -> list[ir.Operation]:
    """Return the matmuls that are not part of an attention."""
    inside, matmuls = set[ir.Operation](), _matmuls(block)
    for op in matmuls:
        attention = _attention(op)
        if isinstance(attention, attention_pattern.NotOnline):
            inside.update(attention_pattern.around_softmax(op))
        elif attention is not None:
            inside.update(generic.op for generic in attention.ops)
    return [op for op in matmuls if op not in inside]


def _is_spread(ops: Sequence[Structured]) -> bool:
    """Return whether views separate operations or a matmul reads repeated data; False if they already have loops."""
    if any(TILING in generic.op.attributes for generic in ops):
        return False
    results = {generic.result for generic in ops}
    for generic in ops:
        for value in generic.inputs:
            op = attention_pattern.producer_of(value)
            if op is None:
                continue
            if op.results[0] in results and value != op.results[0]:
                return True
            if repeated_by(value) is not None:
                return True
    return False


class _Expansion:
    """Operations with one dim per factor, or with several factors merged into one dim; the last one has the result."""

    def __init__(self, ops: Sequence[Structured], *, whole_heads: bool) -> None:
        self.factors = CommonFactors(ops, whole_heads=whole_heads)
        self.ops = self.factors.ops
        self.table = self.factors.table
        self.new: list[ir.Operation] = []
        self.others: dict[ir.Value, ir.Value] = {}  # maps results with later readers to their new values
        self.merged: dict[int, int] = {}  # maps a factor to the outer factor that it is merged into

    # -- factors --------------------------------------------------------------------------------------

    def size(self, factor: int) -> int:
        """Return the size of a factor including the factors that are merged into it."""
        inner = [other for other, outer in self.merged.items() if outer == factor]
        return self.table.sizes[factor] * self.table.size(inner)

    @property
    def largest(self) -> list[int]:
        """The factors of the largest result in order, also factors that are merged."""
        generic = max(self.ops, key=lambda generic: math.prod(shape_of(generic.result)))
        return [factor for dim in list(self.factors.values(generic))[-1][1] for factor in dim]

    def unmerged(self, factors: Sequence[int]) -> list[int]:
        return [factor for factor in factors if factor not in self.merged]

    def _result_factors(self, generic: Structured) -> list[int]:
        """Return the factors of the dims of a result, in order."""
        by_dim = self.factors.by_result[generic.result]
        return self.unmerged(
            [factor for dim in generic.maps[-1] if dim is not None for factor in by_dim[dim]]
        )

    # -- limits ---------------------------------------------------------------------------------------

    def problem(self) -> str | None:
        """Merge as few adjacent dims as possible; return why a matmul is unsupported, or None if all are supported."""
        while True:
            matmuls = [self._iteration(generic) for generic in self.ops if generic.opcode == "batchmatmul"]
            limits = RULES[Kind.MATMUL].dim_counts
            problems = (limit.problem(matmul) for matmul in matmuls for limit in limits)
            problem = next((problem for problem in problems if problem is not None), None)
            if problem is None:
                return None
            pair = next(self._mergeable(), None)
            if pair is None:
                return f"a matmul would not be a device operation: {problem}"
            outer, inner = pair
            # The outermost factor of a chain represents the whole chain, so that its size is one product.
            self.merged[inner] = self.merged.get(outer, outer)

    def _iteration(self, generic: Structured) -> Iteration:
        space = self.unmerged(self.factors.space(generic))
        present = [
            frozenset(space.index(factor) for dim in factors for factor in self.unmerged(dim))
            for _, factors in self.factors.reads(generic)
        ]
        result_dims = frozenset(map(space.index, self._result_factors(generic)))
        reduced = frozenset(range(len(space))) - result_dims
        sizes = tuple(self.size(factor) for factor in space)
        dtypes = tuple(element_of(value) for value in (*generic.inputs, generic.result))
        return Iteration(target_of(generic.op), sizes, (*present, result_dims), reduced, dtypes)

    def _mergeable(self) -> Iterator[tuple[int, int]]:
        """Yield pairs of factors that are adjacent in, or both absent from, every operand; the outermost first."""
        orders = [
            [factor for dim in factors for factor in dim]
            for generic in self.ops
            for _, factors in self.factors.values(generic)
        ]
        for outer, inner in itertools.pairwise(self.largest):
            if inner in self.merged:
                continue
            present = [order for order in orders if outer in order or inner in order]
            if all((outer, inner) in itertools.pairwise(order) for order in present):
                yield outer, inner

    # -- operations -----------------------------------------------------------------------------------

    def write(self) -> ir.Value:
        """Write the operations over their factors, and return the result with the dims of the old one."""
        written: dict[ir.Value, tuple[ir.Value, Factors]] = {}
        matmul = self.ops[-1]
        with ir.InsertionPoint(matmul.op):
            for generic in self.ops:
                with generic.op.location:
                    written[generic.result] = self._rewritten(generic, written)
            self.new = [maker_of(value) for value, _ in written.values()]
            result = self._with_old_dims(matmul, *written[matmul.result])
            for generic in self.ops[:-1]:
                # Reductions of an attention have readers after it, which read the new value as well.
                if any(map(self._is_after, generic.result.uses)):
                    self.others[generic.result] = self._with_old_dims(generic, *written[generic.result])
        return result

    def replace_others(self) -> None:
        """Let the operations after the last one read the new values of the operations before it."""
        for old, new in self.others.items():
            for use in [use for use in old.uses if self._is_after(use)]:
                use.owner.operation.operands[use.operand_number] = new

    def _is_after(self, use: ir.OpOperand) -> bool:
        """Return whether an operation after the last one reads a value in its block."""
        last, user = self.ops[-1].op, use.owner.operation
        return user.block == last.block and last.is_before_in_block(user)

    def _with_old_dims(self, generic: Structured, value: ir.Value, factors: Factors) -> ir.Value:
        """Return a written value with the dims that the readers of the old result expect."""
        by_dim = self.factors.by_result[generic.result]
        old = [[] if dim is None else by_dim[dim] for dim in generic.maps[-1]]
        whole = [
            [factor, *(inner for inner, outer in self.merged.items() if outer == factor)]
            for (factor,) in factors
        ]
        with generic.op.location:
            return reshaped(value, whole, old, self.table)

    @property
    def old(self) -> list[ir.Operation]:
        """The operations that are rewritten, and the operations that repeat a tensor for them."""
        repeated = (
            repeated_by(value)
            for generic in self.ops
            for value in generic.inputs
            if not self.factors.is_internal(value)
        )
        results = {
            generic.result
            for generic in (*self.ops, *(generic for generic in repeated if generic is not None))
        }
        block = self.ops[-1].op.block
        ops = [op.operation for op in block.operations if op.operation.results]
        return [op for op in ops if op.results[0] in results]

    def _rewritten(
        self, generic: Structured, written: dict[ir.Value, tuple[ir.Value, Factors]]
    ) -> tuple[ir.Value, Factors]:
        """Write one operation over the new dims; return its value and the factors of each dim of the value."""
        space = self.unmerged(self.factors.space(generic))
        inputs, maps = [], []
        for value, factors in self.factors.reads(generic):
            if self.factors.is_internal(value):
                source, single = written[root_of(value)]
            else:
                source, single = self._one_per_dim(value, factors)
            inputs.append(source)
            maps.append(tuple(space.index(dim[0]) if dim else None for dim in single))
        result_factors = self._result_factors(generic)
        value = device_op(
            generic.opcode,
            inputs,
            maps,
            [self.size(factor) for factor in space],
            element_of(generic.result),
            location=generic.op.location,
            reduced=[dim for dim, factor in enumerate(space) if factor not in result_factors],
            result_map=tuple(map(space.index, result_factors)),
            constants=sdsc.constants_of(generic.op),
        )
        sdsc.inherit(maker_of(value), generic.op)
        return value, [[factor] for factor in result_factors]

    def _one_per_dim(self, value: ir.Value, factors: Factors) -> tuple[ir.Value, Factors]:
        """Return a value from outside with one dim per factor, where merged factors are one dim."""
        if not any(len(dim) > 1 for dim in factors) and not any(
            factor in self.merged for dim in factors for factor in dim
        ):
            return value, factors
        single = [[factor] for dim in factors for factor in dim]
        value = reshaped(value, factors, single, self.table)
        together: Factors = []
        for (factor,) in single:
            if factor in self.merged:
                together[-1].append(factor)
            else:
                together.append([factor])
        return reshaped(value, single, together, self.table), [[dim[0]] for dim in together]


def _erase(ops: Sequence[ir.Operation]) -> None:
    """Erase operations without readers, the last one first, together with the views that they read."""
    # The last operation may occur twice: as the op of the result, and as one of the written ops.
    pending = list(dict.fromkeys(ops))
    while pending:
        op = pending.pop(0)
        if not use_empty(op.results[0]):
            continue
        sources = [source for value in op.operands if (source := defining_op(value)) is not None]
        op.erase()
        # Views are erased before the other operations, which then have no reader left.
        views = [source for source in sources if source.name in VIEWS and source not in pending]
        pending = [*dict.fromkeys(views), *pending]


# Factors of the dims of operations: the finest dims that any of them, or the views between them, have.


class CommonFactors:
    """Iteration dims of operations as products of common factors.

    ``whole_heads`` leaves keys and values repeated for each head, so that heads are one factor, as hints name them.
    ``by_result`` has the factors of each iteration dim, by result. ``Inexpressible`` without common factors.
    """

    def __init__(self, ops: Sequence[Structured], *, whole_heads: bool) -> None:
        self.whole_heads = whole_heads
        self.ops = list({generic.result: generic for generic in ops}.values())
        self.producers = {generic.result: generic for generic in self.ops}
        self.table = FactorTable()
        self.by_result: dict[ir.Value, list[list[int]]] = {}
        # The cuts of iteration dims, refined until operands and readers have the same dims.
        cuts: dict[ir.Value, list[Cuts]] = {
            generic.result: [set() for _ in generic.extents] for generic in self.ops
        }
        for generic in self.ops:
            for value, dims in zip(generic.inputs, generic.maps, strict=False):
                repeated = None if self.whole_heads or self.is_internal(value) else repeated_by(value)
                if repeated is not None:
                    # The dims along which a value is repeated are separate from the others.
                    separate: list[Cuts] = [set() for _ in shape_of(repeated.result)]
                    for op in reversed(view_chain(value)):
                        separate = _through(op, separate, forward=True)
                    _add(cuts[generic.result], dims, separate)
        before = None
        while before != (before := sum(len(dim_cuts) for dims in cuts.values() for dim_cuts in dims)):
            for generic in self.ops:
                for value, dims in zip(generic.inputs, generic.maps, strict=False):
                    if self.is_internal(value):
                        self._exchange(cuts, generic, value, dims)
        self._number(cuts)

    def is_internal(self, value: ir.Value) -> bool:
        """Return whether one of the operations computes a value, or the source of it through views."""
        op = attention_pattern.producer_of(value)
        return op is not None and op.results[0] in self.producers

    def space(self, generic: Structured) -> list[int]:
        """Return the factors that an operation iterates over, with one dim per factor."""
        return [factor for dim in self.by_result[generic.result] for factor in dim]

    def values(self, generic: Structured) -> Iterator[tuple[ir.Value, Factors]]:
        """Yield the operands and the result of an operation, with the factors of their dims."""
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
        """Return a value from outside, or the value that it repeats, with the factors of its dims."""
        repeated = repeated_by(value)
        if repeated is not None:
            behind_it: Factors | None = factors
            for op in view_chain(value):
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

    def _exchange(
        self, cuts: dict[ir.Value, list[Cuts]], reader: Structured, value: ir.Value, dims: Map
    ) -> None:
        """Propagate cuts from the producer of a value to its reader, and back."""
        maker = self.producers[maker_of(root_of(value)).results[0]]
        result_cuts = [set() if dim is None else cuts[maker.result][dim] for dim in maker.maps[-1]]
        seen = result_cuts
        for op in reversed(view_chain(value)):
            seen = _through(op, seen, forward=True)
        _add(cuts[reader.result], dims, seen)
        read = [set() if dim is None else cuts[reader.result][dim] for dim in dims]
        for op in view_chain(value):
            read = _through(op, read, forward=False)
        _add(cuts[maker.result], maker.maps[-1], read)

    def _number(self, all_cuts: dict[ir.Value, list[Cuts]]) -> None:
        """Give each part of a cut dim a factor, and unite the factors of an operand with its producer's factors."""
        for generic in self.ops:
            dim_factors = self.by_result[generic.result] = [
                [self.table.add(part) for part in sizes_of(size, cuts)]
                for size, cuts in zip(generic.extents, all_cuts[generic.result], strict=True)
            ]
            for value, dims in zip(generic.inputs, generic.maps, strict=False):
                if not self.is_internal(value):
                    continue
                factors: Factors | None = [[] if dim is None else dim_factors[dim] for dim in dims]
                for op in view_chain(value):
                    factors = None if factors is None else source_factors(op, factors, self.table)
                if factors is None:
                    raise Inexpressible
                maker = self.producers[root_of(value)]
                for operand_factors, dim in zip(factors, maker.maps[-1], strict=True):
                    if dim is not None:
                        self.table.unite(operand_factors, self.by_result[maker.result][dim])
        self.by_result = {value: self.table.known(dims) for value, dims in self.by_result.items()}


def repeated_by(value: ir.Value) -> Structured | None:
    """Return the broadcast that computes a value or the source of a view; None if the value is not a broadcast."""
    op = attention_pattern.producer_of(value)
    generic = None if op is None else structured(op)
    return generic if generic is not None and attention_pattern.is_broadcast(generic) else None


def root_of(value: ir.Value) -> ir.Value:
    """Return the source of the views that end in a value."""
    chain = view_chain(value)
    return chain[-1].operands[0] if chain else value


def _add(cuts: list[Cuts], dims: Map, more: Sequence[Cuts]) -> None:
    for dim, dim_cuts in zip(dims, more, strict=True):
        if dim is not None:
            cuts[dim] |= dim_cuts


def _through(op: ir.Operation, cuts: Sequence[Cuts], *, forward: bool) -> list[Cuts]:
    """Return the cuts of a view's result, given the cuts of its source (``forward``), or the reverse."""
    if op.name == "linalg.transpose":
        order = permutation_of(op)
        return [cuts[dim] for dim in (order if forward else map(order.index, range(len(order))))]
    source, result = shape_of(op.operands[0]), shape_of(op.results[0])
    if (op.name == "tensor.collapse_shape") == forward:
        shape = source if forward else result
        return [
            merged_cuts([shape[dim] for dim in group], [cuts[dim] for dim in group])
            for group in groups_of(op)
        ]
    shape, separate = result if forward else source, list[Cuts]()
    for group, dim_cuts in zip(groups_of(op), cuts, strict=True):
        separate += separate_cuts([shape[dim] for dim in group], dim_cuts)
    return separate


# Dims as products of factors, to match the merged dim of one operation with the dims of another through views.

#: The factor numbers of each dim of a value, outermost first; a dim of one element has no factors.
Factors = list[list[int]]


class Inexpressible(Exception):
    """Dims that cannot be written as products of common factors."""


class FactorTable:
    """Numbered factors with their sizes, and a union-find of equal factors."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._parent: list[int] = []

    def add(self, size: int) -> int:
        """Add a factor and return its number."""
        self.sizes.append(size)
        self._parent.append(len(self._parent))
        return len(self._parent) - 1

    def find(self, factor: int) -> int:
        """Return the number that represents a factor and all factors united with it."""
        while self._parent[factor] != factor:
            factor = self._parent[factor]
        return factor

    def unite(self, first: Sequence[int], second: Sequence[int]) -> None:
        """Unite the factors of two dims that are the same; ``Inexpressible`` if their sizes differ."""
        if [self.sizes[factor] for factor in first] != [self.sizes[factor] for factor in second]:
            raise Inexpressible
        for factor, other in zip(first, second, strict=True):
            self._parent[self.find(factor)] = self.find(other)

    def known(self, factors: Factors) -> Factors:
        return [[self.find(factor) for factor in dim] for dim in factors]

    def size(self, factors: Iterable[int]) -> int:
        return math.prod(self.sizes[factor] for factor in factors)


def groups_of(op: ir.Operation) -> list[list[int]]:
    """Return the reassociation of a reshape."""
    return [[ir.IntegerAttr(entry).value for entry in group] for group in op.attributes["reassociation"]]


def permutation_of(op: ir.Operation) -> list[int]:
    """Return the permutation of a transpose: dim ``k`` of the result is dim ``permutation[k]`` of the source."""
    return list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))


def source_factors(op: ir.Operation, factors: Factors, table: FactorTable) -> Factors | None:
    """Return the factors of a view's source, given the factors of its result; None if a factor would span two dims."""
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
    """Reshape a value from dims with the factors ``before`` to dims with ``after``, the same factors in order."""
    if before == after:
        return value
    flat = [factor for dim in before for factor in dim]
    assert flat == [factor for dim in after for factor in dim]
    # Dims of one element have no factor to expand by, so they are first merged into adjacent dims.
    if any(not dim for dim in before):
        value = collapsed(value, _with_unit_dims(before))
        before = [dim for dim in before if dim]
    if any(len(dim) != 1 for dim in before):
        sizes = [table.sizes[factor] for factor in flat]
        value = expanded(value, consecutive(map(len, before)), sizes)
    sized = [dim for dim in after if dim]
    if any(len(dim) != 1 for dim in sized):
        value = collapsed(value, consecutive(map(len, sized)))
    if len(sized) < len(after):
        value = expanded(value, _with_unit_dims(after), [table.size(dim) for dim in after])
    return value


def _with_unit_dims(factors: Factors) -> list[list[int]]:
    """Group each dim that has factors with the one-element dims after it; the first group also has those before."""
    groups: list[list[int]] = []
    for position, dim in enumerate(factors):
        if not groups or (dim and any(factors[other] for other in groups[-1])):
            groups.append([])
        groups[-1].append(position)
    return groups


# -- cuts ---------------------------------------------------------------------------------------------

#: Boundaries of the factors of a dim: products of the inner ones.
Cuts = set[int]


def merged_cuts(shape: Sequence[int], cuts: Sequence[Cuts]) -> Cuts:
    """Return the cuts of several dims merged into one."""
    merged: Cuts = set()
    inner = math.prod(shape)
    whole = inner
    for size, dim_cuts in zip(shape, cuts, strict=True):
        inner //= size
        merged |= {inner * cut for cut in dim_cuts} | {inner}
    return {cut for cut in merged if 1 < cut < whole}


def separate_cuts(shape: Sequence[int], cuts: Cuts) -> list[Cuts]:
    """Return the cuts of each dim, given the cuts of the merged dim; ``Inexpressible`` if a cut fits no dim."""
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
    """Return the sizes of the factors of a dim with cuts, outermost first; none for a dim of one element."""
    if size == 1:
        return []
    ends = [1, *sorted(cuts), size]
    if any(outer % inner for inner, outer in itertools.pairwise(ends)):
        raise Inexpressible
    return [outer // inner for inner, outer in itertools.pairwise(ends)][::-1]


def view_chain(value: ir.Value) -> list[ir.Operation]:
    """Return the chain of view ops that ends in a value, the last op first."""
    chain = []
    while (op := defining_op(value)) is not None and op.name in VIEWS:
        chain.append(op)
        value = op.operands[0]
    return chain
