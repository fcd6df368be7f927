# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites attention so that it can run over tiles of keys, without materializing the matrix of scores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from spyre_mlir.analysis import tile_nests
from spyre_mlir.analysis.attention_pattern import (
    Attention,
    KnownMask,
    NotOnline,
    around_softmax,
    attention_of,
    hiding_masks,
    producer_of,
)
from spyre_mlir.analysis.program_cost import ProgramCost
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.hint_attributes import TILING, tiling_attr, tiling_of
from spyre_mlir.dialects.structured import (
    Structured,
    device_op,
    element_of,
    maker_of,
    rebuilt,
    shape_of,
    structured,
)
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.division.slices import divisors
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import EvaluatingPass, Evaluator
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import Tiling, default_bytes, group_module
from spyre_mlir.target.ops import DEVICE_OPS
from spyre_mlir.target.target import Target
from spyre_mlir.tiling.mask_tiles import MaskTiles

#: Ratios of times and bytes that are considered equal. The error of the cost model is larger (docs/cost.md, anchors).
_SAME_TIME, _SAME_BYTES = 1.1, 1.01

#: After this number of head counts without improvement, larger head counts are not tried.
_PATIENCE = 2


@dataclass(frozen=True)
class OnlineSoftmax(EvaluatingPass):
    """Run attention over tiles of keys if its matrix of scores does not fit in the scratchpads and tiling pays.

    The division by the sum of a softmax is moved after the matmul that reads its result: ``(e / l) @ v = (e @ v) / l``.
    Then the matmul depends only on e, and ``coarse-tiling`` can run both over tiles of keys with a running maximum; the
    previous sums are rescaled by ``exp(previous maximum - new maximum)`` (Milakov and Gimelshein,
    "Online normalizer calculation for softmax", 2018). The loops over the outer dims (batch, groups, heads), rows and
    keys are chosen for the least time by the cost model, after the rest of the pipeline; loops that a hint requests are
    kept. A remark reports for each attention the chosen loops, or why it is not tiled, and the cost.

    If masks with known numbers hide keys, hidden tiles are not computed (``skip_masked_tiles``). The cost of a choice
    is then its time by the model, multiplied by the share of scores that remains. Tiles of rows are unrolled: each has
    a separate loop over its visible keys, and only tiles that a mask cuts through are masked, by small constants.

    Before, level *device-ops*:
        %m = max(%s); %e = exp(%s - %m); %l = sum(%e); %p = %e / %l; %o = %p @ %v
    After:
        %m = max(%s) {sdsc.running = "0"}; %e = exp(%s - %m); %l = sum(%e) {sdsc.rescaled = "0"}
        %q = %e @ %v {sdsc.rescaled = "0"}; %o = %q / %l
    """

    name: ClassVar[str] = "online-softmax"
    skip_masked_tiles: bool = True

    def decide_on(self, func: ir.Operation, evaluator: Evaluator) -> None:
        number = 0
        for op in [op_view.operation for op_view in func.regions[0].blocks[0].operations]:
            try:
                attention = attention_of(op)
                if attention is not None:
                    _check_dims(attention)
            except NotOnline as refusal:
                # The cost of the softmax and of the matmul that reads it.
                price = evaluator.cost(group_module(around_softmax(op), {})) or "not possible"
                text = f"attention is not tiled: {refusal}; untiled: {price}"
                self.remark(op, "no tiling", text)
                continue
            if attention is not None and self._visit(attention, str(number), evaluator):
                number += 1

    def _visit(self, attention: Attention, name: str, evaluator: Evaluator) -> bool:
        """Rewrite attention that hints tile along keys, or whose scores are too large for LX."""
        ops = [generic.op for generic in attention.ops]
        # Hints determine the loops; this pass only makes them possible.
        if any(TILING in op.attributes for op in ops):
            keys = attention.maximum.reduced[0]
            if not any(loop.dim == keys for loop in tiling_of(attention.maximum.op)):
                self.remark(attention.matmul.op, "no tiling", "hints tile this attention, but not its keys")
                return False
            ops = self._rewrite(attention, name)
            try:
                tile_nests.check_running(tile_nests.Nests(ops[0].block))
            except CompileError as error:
                # The marks are removed unless all ops share the loops: the maximum is not complete when it is read.
                marks = [
                    (op, mark) for op in ops for mark in (tile_nests.RUNNING, tile_nests.RESCALED, sdsc.HIDES)
                ]
                for op, mark in marks:
                    if mark in op.attributes:
                        del op.attributes[mark]
                self.remark(
                    ops[-1], "no tiling", f"the maximum is computed over all keys first: {error.message}"
                )
            return True
        target, exp = target_of(attention.matmul.op), attention.exp.result
        scores = default_bytes(target, shape_of(exp), element_of(exp)) // target.cores
        # Half of the scratchpad, because operands and results of the matmuls need the other half.
        if scores <= target.usable_lx_bytes // 2:
            text = f"the scores of a core, {scores:,} bytes, fit half of its scratchpad"
            price = evaluator.cost(group_module(ops, {})) or "not possible"
            self.remark(attention.matmul.op, "no tiling", f"{text}; untiled: {price}")
            return False
        columns, masks = attention.columns, [mask.tiles for _, mask in self._masks(attention) if mask.hides]
        ops = self._rewrite(attention, name)
        self._tile([*ops, *_on_statistics(attention, ops[-1])], name, columns, masks, evaluator)
        return True

    def _masks(self, attention: Attention) -> list[tuple[Structured, KnownMask]]:
        return hiding_masks(attention) if self.skip_masked_tiles else []

    def _rewrite(self, attention: Attention, name: str) -> list[ir.Operation]:
        """Move the division to the end, and return the ops of the attention in order."""
        op, mark = attention.matmul.op, ir.StringAttr.get(name, attention.matmul.op.context)
        masks = {generic.result for generic, _ in self._masks(attention)}
        with ir.InsertionPoint(op), op.location:
            weights, before, after = attention.exp.result, attention.div.result, []
            for generic in attention.weights:
                weights, before = _with_operand(generic, before, weights), generic.result
                after.append(maker_of(weights))
            product = _with_operand(attention.matmul, before, weights)
            sums = tile_nests.in_format(attention.sum.result, element_of(product))
            shape, columns = shape_of(product), attention.matmul.maps[-1]
            maps = [tuple(range(len(shape))), tuple(columns.index(dim) for dim in _row_dims(attention))]
            element, location = element_of(product), op.location
            result = device_op("realdiv", [product, sums], maps, shape, element, location=location)
        sdsc.inherit(maker_of(result), attention.div.op)
        sdsc.record(maker_of(result), "rewrite", self.name, "the division by the sum comes after the matmul")
        # The division has the loops of the matmul over its rows and columns, a cast the loops of the sum over its rows.
        moved = [(maker_of(result), attention.matmul)]
        cast = [maker_of(sums)] if sums != attention.sum.result else []
        for moved_op, source in (*moved, *((cast_op, attention.sum) for cast_op in cast)):
            loops = [loop for loop in tiling_of(source.op) if loop.dim not in source.reduced]
            loops = [replace(loop, dim=source.maps[-1].index(loop.dim)) for loop in loops]
            if loops:
                moved_op.attributes[TILING] = tiling_attr(loops)
        op.results[0].replace_all_uses_with(result)
        marked = zip(attention.weights, after, strict=True)
        for generic, current in (*((generic, generic.op) for generic in attention.scores), *marked):
            if generic.result in masks:
                current.attributes[sdsc.HIDES] = ir.UnitAttr.get(op.context)
        attention.maximum.op.attributes[tile_nests.RUNNING] = mark
        for rescaled in (attention.sum.op, maker_of(product)):
            rescaled.attributes[tile_nests.RESCALED] = mark
        for replaced in (attention.matmul, *reversed(attention.weights), attention.div):
            replaced.op.erase()
        softmax = (attention.maximum, attention.sub, attention.exp, attention.sum)
        first = [generic.op for generic in (*attention.operands, *attention.scores, *softmax)]
        return [*first, *after, maker_of(product), *cast, maker_of(result)]

    def _tile(
        self,
        ops: list[ir.Operation],
        name: str,
        columns: int,
        masks: Sequence[MaskTiles],
        evaluator: Evaluator,
    ) -> None:
        """Attach the loops with the least time to the ops; no loops if that is best."""
        group = [tile_nests.Tiled(op, generic) for op in ops if (generic := structured(op)) is not None]
        space = AttentionSpace(group, columns, target_of(ops[0]))
        search = _TileSearch(ops, space, masks, name, evaluator)
        search.run()
        best, bands = _best(search.attempts), None
        if best.share < 1:
            # Tiles whose rows are unrolled, without the tiles that masks hide.
            tiling = space.tiling(best.tiles, name, unrolled=("rows",))
            bands = _Attempt(best.tiles, tiling, evaluator.cost(group_module(ops, tiling)))
            whole = [replace(attempt, share=1.0) for attempt in search.attempts]
            # For a long program the layout search may find worse layouts, or none.
            is_worse = bands.nanoseconds >= min(attempt.nanoseconds for attempt in whole)
            best = _best(whole) if is_worse else bands
        for op in ops:
            if best.tiling.get(op.results[0]):
                op.attributes[TILING] = tiling_attr(best.tiling[op.results[0]])
        summary = "; ".join(map(str, search.attempts))
        if bands is not None:
            summary += f"; bands of {bands}, without the tiles that masks hide"
        kind = "tiling" if best.tiling else "no tiling"
        *labels, last = space.labels
        self.remark(space.matmul.op, kind, f"attention in tiles of {', '.join(labels)} and {last}; {summary}")


class _TileSearch:
    """The search for the tiles of an attention; ``attempts`` are the evaluated choices, the first one untiled.

    A choice is a number of tiles for each outer dim (batch, groups, heads), for the rows and for the keys; its cost is
    the time of the rest of the pipeline on the attention alone (``Evaluator``), multiplied by the share of scores that
    masks leave. An evaluation is expensive, so the search does not enumerate all choices:

    1. For each number of groups of heads, from one head at a time upwards, evaluate the fewest tiles that may fit in LX
       (``AttentionSpace.choices``), and denser alternatives. Stop after ``_PATIENCE`` groups without an improvement:
       more heads at once share a smaller part of the data.
    2. From each of the fastest ``_PATIENCE`` choices, evaluate finer tiles as long as each is faster than all before.
    3. With masks, make the bands of rows narrower as long as that is faster, since narrow bands read fewer hidden keys.

    The fastest choice is never slower than untiled attention, because the untiled program is the first attempt.
    """

    def __init__(
        self,
        ops: Sequence[ir.Operation],
        space: AttentionSpace,
        masks: Sequence[MaskTiles],
        name: str,
        evaluator: Evaluator,
    ) -> None:
        self.ops, self.space, self.masks, self.name, self.evaluator = ops, space, masks, name, evaluator
        self.attempts = [_Attempt((), {}, evaluator.cost(group_module(ops, {})))]

    def run(self) -> None:
        """Evaluate the fewest tiles that may fit, and finer tiles as long as they take less time."""
        worse, worse_dense = 0, 0
        for first, *dense in self.space.choices():
            is_any_better = self._is_better(first)
            # Fewer rows with more tiles of keys: if that was worse for some heads, it is also worse for more heads.
            for tiles in dense if worse_dense < _PATIENCE else ():
                price = self.attempts[-1].nanoseconds
                is_any_better |= self._is_better(tiles)
                worse_dense = worse_dense + 1 if self.attempts[-1].nanoseconds > price else 0
            worse = 0 if is_any_better or self.fastest.nanoseconds == math.inf else worse + 1
            if worse == _PATIENCE and not self.masks:
                # The more heads run at once, the smaller is the share of data that they read in common.
                break
        tiled = [attempt for attempt in self.attempts if attempt.tiles]
        for start in sorted(tiled, key=lambda attempt: attempt.nanoseconds)[:_PATIENCE]:
            for tiles in self.space.finer(start.tiles):
                if not self._is_better(tiles):
                    break
        # Smaller bands of rows read fewer keys that masks hide.
        while self.masks and (finer := self.space.narrower(self.fastest.tiles)) is not None:
            if not self._is_better(finer):
                break

    def _is_better(self, tiles: Tiles) -> bool:
        """Evaluate tiles, and return whether they are faster than all earlier attempts."""
        least = self.fastest.nanoseconds
        tiling = self.space.tiling(tiles, self.name)
        price = self.evaluator.cost(group_module(self.ops, tiling))
        self.attempts.append(_Attempt(tiles, tiling, price, self.space.share(tiles, self.masks)))
        return self.fastest.nanoseconds < least

    @property
    def fastest(self) -> _Attempt:
        return _fastest(self.attempts)


@dataclass(frozen=True)
class _Attempt:
    """An evaluated choice of tiles (none: untiled) with its cost; None if the remaining passes refuse it."""

    tiles: Tiles
    tiling: Tiling
    price: ProgramCost | None
    share: float = 1.0  # of the scores in tiles that masks do not hide completely

    @property
    def nanoseconds(self) -> float:
        return math.inf if self.price is None else self.price.nanoseconds * self.share

    @property
    def bytes(self) -> float:
        return math.inf if self.price is None else self.price.bytes * self.share

    def __str__(self) -> str:
        counts = (f"{cut.tiles}{'' if cut.is_even else ' with a smaller'}" for cut in self.tiles)
        what = " x ".join(counts) or "untiled"
        share = "" if self.share == 1 else f", of which masks leave {self.share:.0%}"
        return f"{what}: {self.price or 'not possible'}{share}"


def _fastest(attempts: Sequence[_Attempt]) -> _Attempt:
    return min(attempts, key=lambda attempt: attempt.nanoseconds)


def _best(attempts: Sequence[_Attempt]) -> _Attempt:
    """Return the fastest attempt; of attempts whose times the model cannot distinguish, the one that moves least."""
    possible = [attempt for attempt in attempts if attempt.price is not None]
    if not possible:
        return _Attempt((), {}, None)
    least = _fastest(possible).nanoseconds
    near = [attempt for attempt in possible if attempt.nanoseconds <= _SAME_TIME * least]
    fewest = min(attempt.bytes for attempt in near)
    return _fastest([attempt for attempt in near if attempt.bytes <= _SAME_BYTES * fewest])


def _with_operand(generic: Structured, old: ir.Value, new: ir.Value) -> ir.Value:
    """Rebuild an operation with another operand, in the same loops."""
    copy = rebuilt(generic, [new if value == old else value for value in generic.inputs])
    if TILING in generic.op.attributes:
        maker_of(copy).attributes[TILING] = generic.op.attributes[TILING]
    return copy


def _on_statistics(attention: Attention, last: ir.Operation) -> Iterator[ir.Operation]:
    """Yield the elementwise operations on the maxima and sums directly after an attention, up to its scaled result.

    In the same loops over rows, their operands stay in LX.
    """
    statistics, rows = {attention.maximum.result, attention.sum.result}, math.prod(attention.exp.extents[:-1])
    ops = [op.operation for op in last.block.operations]
    for op in ops[ops.index(last) + 1 :]:
        generic = structured(op)
        if sdsc.OP not in op.attributes or generic is None:
            continue
        read = {maker.results[0] for value in generic.inputs if (maker := producer_of(value)) is not None}
        if not DEVICE_OPS[generic.opcode].kind.is_elementwise or statistics.isdisjoint(read):
            return
        yield op
        if math.prod(generic.extents) == rows:
            statistics.add(generic.result)


def _row_dims(attention: Attention) -> tuple[int, ...]:
    """Return the iteration dims of the matmul that the sum also has: the dims of its weights that are not reduced."""
    dims = attention.matmul.maps[attention.side]
    return tuple(dim for dim in dims if dim is not None and dim not in attention.matmul.reduced)


def _check_dims(attention: Attention) -> None:
    """Raise ``NotOnline`` unless maxima and sums are over whole rows, which the matmul contracts."""
    rank = len(attention.exp.extents)
    whole, rows = tuple(range(rank)), tuple(range(rank - 1))
    if attention.exp.maps != (whole, whole) or attention.sub.maps != (whole, rows, whole):
        raise NotOnline("its exponentials are not over the dims of the scores in order")
    reductions = (attention.maximum.maps, attention.sum.maps)
    if reductions != ((whole, rows),) * 2 or attention.div.maps != (whole, rows, whole):
        raise NotOnline("its maxima and sums are not over the last dim of the scores")
    if any(weight.maps[-1] != whole or whole not in weight.maps[:-1] for weight in attention.weights):
        raise NotOnline("its weights have other dims than the scores")
    direct = [attention.maximum.inputs[0], attention.sum.inputs[0], attention.matmul.inputs[attention.side]]
    following = (attention.scores[-1], attention.exp, (attention.div, *attention.weights)[-1])
    if direct != [generic.result for generic in following]:
        raise NotOnline("views between its operations merge or split dims")
    last = attention.matmul.maps[attention.side][-1]
    if attention.matmul.reduced != (last,):
        raise NotOnline("the matmul does not contract the dim that the softmax normalises")
    row_dims = [dim for dim in _row_dims(attention) if dim in attention.matmul.maps[-1]]
    if [attention.matmul.maps[-1].index(dim) for dim in row_dims] != list(rows):
        raise NotOnline("the rows of the softmax are not the first dims of the matmul's result, in order")


# Dims of an attention that loops may tile, and the tile counts that are worth evaluating.

#: Maximum number of tiles of rows that are unrolled, each with the keys that a mask leaves visible.
_MOST_BANDS = 16

#: Tiles of the outer dims, of rows and of keys.
Tiles = tuple[tile_nests.DimTiles, ...]


class AttentionSpace:
    """Dims of an attention that loops may tile: outer dims, rows and keys. The values have ``columns`` columns."""

    def __init__(self, group: Sequence[tile_nests.Tiled], columns: int, target: Target) -> None:
        self.group, self.columns, self.target = group, columns, target
        self.maximum = next(tiled_op for tiled_op in group if tiled_op.running is not None)
        self.matmul = next(
            tiled_op for tiled_op in reversed(group) if sdsc.opcode_of(tiled_op.op) == "batchmatmul"
        )
        self.sizes = self.maximum.generic.extents
        classes = tile_nests.dim_classes(group, by_sources=False)
        self.loops = [
            next(dim_class for dim_class in classes if dim in dim_class.dims.get(self.maximum, ()))
            for dim in range(len(self.sizes))
        ]

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the dims. The innermost of the outer dims is called heads."""
        outer = len(self.sizes) - 2
        heads = ("heads",) if outer else ()
        return (*(f"outer{index}" for index in range(outer - 1)), *heads, "rows", "keys")

    def choices(self) -> Iterator[list[Tiles]]:
        """Yield tile counts: for each number of groups of heads, many groups first, the fewest tiles that may fit.

        Per core, rows of the operands and of the statistics use at most half of the capacity, and the scores of a tile
        a quarter. An alternative with fewer tiles of rows uses three quarters without statistics, which are dense if
        rows lie in the sticks, and a sixth for scores.
        """
        tiles_by_groups = [(groups, self._inner(groups)) for groups in self._groups()]
        untiled = (tile_nests.DimTiles.equal(1), tile_nests.DimTiles.equal(1))
        whole = [groups for groups, inner in tiles_by_groups if untiled in inner]
        for groups, inner in tiles_by_groups:
            if groups in whole[:-1]:
                # All rows and keys of a larger group of heads also fit.
                continue
            choices = [(*map(tile_nests.DimTiles.equal, groups), *tiles) for tiles in inner]
            choices = [tiles for tiles in choices if any(cut.tiles > 1 for cut in tiles)]
            if choices:
                yield choices

    def _groups(self) -> Iterator[tuple[int, ...]]:
        """Yield tiles of the outer dims: one head at a time, then more of the innermost dim, then of the next dim.

        The outermost dim is not tiled if there are other outer dims, because the default layout of such tensors has it
        between rows and sticks.
        """
        *outer, _, _ = self.sizes
        if not outer:
            yield ()
            return
        first = 1 if len(outer) > 1 else outer[0]
        if first < outer[0]:
            yield tuple(outer)
        for dim in reversed(range(min(1, len(outer) - 1), len(outer))):
            for tiles in reversed(divisors(outer[dim], outer[dim])):
                if tiles > 1 or dim == min(1, len(outer) - 1):
                    yield (*(first, *outer[1:])[:dim], tiles, *(1 for _ in outer[dim + 1 :]))

    def _inner(self, groups: tuple[int, ...]) -> list[Tiles]:
        """Return the tiles of rows and keys for a number of groups."""
        *outer, rows, keys = self.sizes
        if not all(loop.allows(tiles) for loop, tiles in zip(self.loops, groups, strict=False)):
            return []
        together = math.prod(outer) * rows // math.prod(groups)
        target, lx_bytes = self.target, self.target.usable_lx_bytes
        dense = 3 * default_bytes(target, (1, self.columns), "f16")
        options: dict[tile_nests.DimTiles, Tiles] = {}
        for row_bytes, row_capacity, score_capacity in (
            (dense + 5 * target.stick_bytes, lx_bytes // 2, lx_bytes // 4),
            (dense, lx_bytes * 3 // 4, lx_bytes // 6),
        ):
            parts = self._fewest(self.loops[-2], together * row_bytes // target.cores, row_capacity)
            if parts is None or parts in options:
                continue
            scores = int(together * parts.part) * default_bytes(target, (1, keys), "f16") // target.cores
            tiles = self._fewest(self.loops[-1], scores, score_capacity)
            if tiles is not None:
                options[parts] = (parts, tiles)
        return list(options.values())

    def finer(self, tiles: Tiles) -> Iterator[Tiles]:
        """Yield choices with increasingly more tiles of keys than ``tiles``, and the other tiles unchanged."""
        *outer, keys = tiles
        for more in self.loops[-1].cuts(keys.tiles + 1, self.target.loop_iterations, self.target.cores):
            yield (*outer, more)

    def _fewest(
        self, dim_class: tile_nests.DimClass, needed: int, lx_bytes: int
    ) -> tile_nests.DimTiles | None:
        """Return the coarsest legal tiles of a dim with which ``needed`` bytes become at most ``lx_bytes``."""
        return next(
            dim_class.cuts(needed // (lx_bytes + 1) + 1, self.target.loop_iterations, self.target.cores), None
        )

    def narrower(self, tiles: Tiles) -> Tiles | None:
        """Return a choice with twice as many tiles of rows as ``tiles``; None if these are too many to be unrolled."""
        if not tiles:
            return None
        *outer, rows, keys = tiles
        more = next(self.loops[-2].cuts(2 * rows.tiles, _MOST_BANDS, self.target.cores), None)
        return None if more is None else (*outer, more, keys)

    def share(self, tiles: Tiles, masks: Sequence[MaskTiles]) -> float:
        """Return the share of the scores that are in tiles that no mask hides completely."""
        rows, keys = (
            [(extent * tile, min(extent * (tile + 1), size)) for tile in range(cut.tiles)]
            for size, cut in zip(self.sizes[-2:], tiles[-2:], strict=True)
            for extent in [int(size * cut.part)]
        )
        return min((mask.share(rows, keys) for mask in masks if len(rows) <= _MOST_BANDS), default=1.0)

    def tiling(self, tiles: Tiles, name: str, unrolled: Sequence[str] = ()) -> Tiling:
        """Return the loops of each operation, with loops over keys innermost; loops in ``unrolled`` are unrolled."""
        return {
            tiled_op.result: [
                replace(
                    cut.loop(f"attention{name}.{label}", dims[0], tiled_op.generic.extents[dims[0]]),
                    unrolled=label in unrolled or None,
                )
                for dim_class, cut, label in zip(self.loops, tiles, self.labels, strict=True)
                if cut.tiles > 1 and (dims := dim_class.dims.get(tiled_op))
            ]
            for tiled_op in self.group
        }
