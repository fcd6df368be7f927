# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Automatic tiling of operations whose operands or intermediates do not fit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.dim_classes import DimClass, DimTiles, dim_classes
from spyre_mlir.analysis.program_cost import ProgramCost
from spyre_mlir.analysis.quantized_matmuls import widens
from spyre_mlir.analysis.tile_nests import Nests, Tiled, producers
from spyre_mlir.analysis.view_ops import is_written_at_an_index
from spyre_mlir.dialects.hint_attributes import TILING, tiling_attr, tiling_of
from spyre_mlir.dialects.structured import element_of, shape_of
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import EvaluatingPass, Evaluator
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import Tiling, default_bytes, group_module
from spyre_mlir.target.ops import COMBINE, DEVICE_OPS, Kind
from spyre_mlir.target.target import Target
from spyre_mlir.tiling.hint_tree import TiledLoop
from spyre_mlir.tiling.tiling_choice import TilingCandidate, TilingChoice, TilingProblem

#: Dims of an operation, each with its tiles, from the outer to the inner loop.
Tiles = tuple[tuple[int, DimTiles], ...]

#: The most tile counts that are tried along the same dims.
_MOST_COUNTS = 64

#: The assumed number of cores that read the same columns of a weight.
_SHARING = 8

#: The most operations of a run: one evaluation takes as long as compiling the run.
_LONGEST = 64


@dataclass(frozen=True)
class AutoTiling(EvaluatingPass):
    """Tile operations whose operands are out of a core's reach, and runs whose intermediates do not fit in LX.

    ``spans``: if an operand is so large that no division lets each core address its part, the operation is tiled along
    the dim, or two dims if one is not enough, and into the number of tiles with the least time. ``spills``: if the
    intermediates that are live at an operation exceed the capacity of all scratchpads, the run of operations around it
    that share a dim (which some may reduce) is tiled, provided that this saves time for the run alone and together with
    its neighbours. Costs come from the cost model after the rest of the pipeline. Operations that hints tile are left
    unchanged. ``tiling`` is the name of another algorithm (docs/writing-an-algorithm.md). ``bundle_operations`` is the
    most operations of a bundle (0: any number); it also limits a run, because a loop is never cut.

    Before, level *device-ops*, and after: some operations have ``sdsc.tiling``.
    """

    name: ClassVar[str] = "auto-tiling"
    spans: bool = True
    spills: bool = True
    bundle_operations: int = 0
    tiling: str = "least-time"

    def decide(self, module: ir.Operation, evaluator: Evaluator) -> None:
        """Rewrite ``module`` in place."""
        lx_bytes = target_of(module).usable_lx_bytes
        for func in functions(module):
            ops = list(Nests(func.regions[0].blocks[0]).tiled.values())
            if self.spans:
                self._for_spans(ops, evaluator)
            if self.spills and lx_bytes:
                self._for_lx(ops, evaluator, lx_bytes)

    def candidates(self, func: ir.Operation) -> Iterator[list[Tiling]]:
        """Yield the candidate tilings of each run of operations that a loop could tile, the coarsest first.

        These are the candidates tried where intermediates do not fit, but here around every operation.
        """
        ops = list(Nests(func.regions[0].blocks[0]).tiled.values())
        runs, yielded = _Runs(ops, min(self.bundle_operations or _LONGEST, _LONGEST)), set()
        for index, tiled_op in enumerate(ops):
            for first, last, dim_class in runs.around(index):
                run = ops[first : last + 1]
                key = first, last, *(dim_class.dims[member][0] for member in run)
                if key not in yielded:
                    yielded.add(key)
                    cuts = _enough(dim_class, 2, target_of(tiled_op.op))
                    yield [_together(run, dim_class, cut, index) for cut in cuts]

    # -- spans ----------------------------------------------------------------------------------------

    def _for_spans(self, ops: Sequence[Tiled], evaluator: Evaluator) -> None:
        for tiled_op in ops:
            if TILING in tiled_op.op.attributes or not _may_be_out_of_reach(tiled_op):
                continue
            # This is evaluated because layouts and divisions determine the memory that a core addresses.
            if evaluator.cost(group_module([tiled_op.op], {})) is None:
                self._reach(tiled_op, evaluator)

    def _reach(self, tiled_op: Tiled, evaluator: Evaluator) -> None:
        """Tile an operation over one dim or two by the cheapest of the coarsest tilings that all cores can address."""
        classes = dim_classes([tiled_op])
        # Two loops are tried only if no single dim is enough.
        for depth in (1, 2):
            tilings = [
                tiling
                for nest in itertools.combinations(classes, depth)
                for tiling in _tilings(tiled_op, nest)
            ]
            costs = _Costs(lambda index, of=tilings: evaluator.cost(_tiled_module(tiled_op, of[index])))
            index = self._choice(_span_problem(tiled_op, tilings, costs))
            if index is not None:
                break
        else:
            return  # span-reduction reports the error
        chosen, price = tilings[index], costs[index]
        assert price is not None
        tiled_op.op.attributes[TILING] = tiling_attr(_nested(tiled_op, chosen)[tiled_op.result])
        attempts = [(cost, tilings[other]) for other, cost in costs.items() if cost is not None]
        others = "; ".join(f"{_tiles_text(tiles)}: {cost}" for cost, tiles in attempts)
        text = f"'{tiled_op.generic.opcode}' in {_tiles_text(chosen)}, which no division brings into reach; {others}"
        self.remark(tiled_op.op, "tiling", text, after=price.nanoseconds)

    def _choice(self, problem: TilingProblem) -> int | None:
        return TilingChoice.registry.make(self.tiling).index(problem) if problem.candidates else None

    # -- spills ---------------------------------------------------------------------------------------

    def _for_lx(self, ops: Sequence[Tiled], evaluator: Evaluator, lx_bytes: int) -> None:
        live, runs = _live_bytes(ops), _Runs(ops, min(self.bundle_operations or _LONGEST, _LONGEST))
        fewest_tiles = [math.ceil(size / lx_bytes) for size in live]
        index = 0
        while index < len(ops):
            # The tiling of a hint is the user's decision.
            if live[index] <= lx_bytes or TILING in ops[index].op.attributes:
                index += 1
                continue
            # A run is tiled once: its operations are not candidates for a second loop.
            last = self._best_run(runs, index, evaluator, live[index], lx_bytes)
            if last is None:
                last = runs.tried_with(index, fewest_tiles)
            index = last + 1

    def _best_run(
        self, runs: _Runs, index: int, evaluator: Evaluator, live: int, lx_bytes: int
    ) -> int | None:
        """Tile the run around an operation along the dim that saves most time.

        Returns the last index of the run, or None if no run is tiled.
        """
        choice = _RunChoice(runs, index, evaluator)
        number = self._choice(choice.problem(live, lx_bytes))
        attempts = "; ".join(dict.fromkeys(choice.attempts))
        if number is None:
            if attempts:
                reasons = [*choice.reasons, attempts]
                self.remark(runs.ops[index].op, "no tiling", "; ".join(reasons))
            return None
        run, _, cut = choice.candidates[number]
        tiling, price, untiled = choice.tiling(number), choice.tiled[number], choice.untiled(number)
        assert price is not None and untiled is not None
        for result, loops in tiling.items():
            next(tiled_op for tiled_op in run if tiled_op.result == result).op.attributes[TILING] = (
                tiling_attr(loops)
            )
        what = f"{len(run)} operations in {cut}, whose intermediates then fit the scratchpads"
        before, after = round(untiled.nanoseconds), round(price.nanoseconds)
        self.remark(run[0].op, "tiling", f"{what}; {attempts}", before=before, after=after)
        return max(runs.ops.index(run[-1]), index)


def _why_not_among_neighbours(
    ops: Sequence[Tiled], run: Sequence[Tiled], tiling: Tiling, evaluator: Evaluator
) -> str:
    """Return why a run is not tiled: together with its neighbours the tiles take more time; "" if they do not.

    A run that is evaluated alone has its operands and results in device memory, in the layouts that are best for it.
    """
    margin, first = (_LONGEST - len(run)) // 2, ops.index(run[0])
    window = ops[max(first - margin, 0) : first + len(run) + margin]
    if len(window) == len(run):
        return ""
    others = {each.result: tiling_of(each.op) for each in window if TILING in each.op.attributes}
    chosen = [tiled_op.op for tiled_op in window]
    untiled, tiled = (evaluator.cost(group_module(chosen, loops)) for loops in (others, {**others, **tiling}))
    if untiled is None or (tiled is not None and tiled.nanoseconds < untiled.nanoseconds):
        return ""
    return f"with {len(window) - len(run)} neighbours {tiled or 'not possible'}, untiled {untiled}"


class _Costs(dict[int, "ProgramCost | None"]):
    """Costs of candidates by index. Each candidate is evaluated on first access."""

    def __init__(self, evaluate: Callable[[int], ProgramCost | None]) -> None:
        super().__init__()
        self.evaluate = evaluate

    def __missing__(self, index: int) -> ProgramCost | None:
        self[index] = self.evaluate(index)
        return self[index]

    def ns(self, index: int) -> float | None:
        """Return the nanoseconds of a candidate; None if the candidate is not possible."""
        cost = self[index]
        return None if cost is None else cost.nanoseconds


def _span_problem(tiled_op: Tiled, tilings: Sequence[Tiles], costs: _Costs) -> TilingProblem:
    """Return the problem of an operation with unaddressable operands, which has no untiled cost to compare with."""
    candidates = tuple(TilingCandidate(1, tuple((dim, cut.tiles) for dim, cut in tiles)) for tiles in tilings)
    generic = tiled_op.generic
    extents = tuple(generic.extents)
    return TilingProblem(
        "span", generic.opcode, extents, 0, 0, candidates, costs.ns, lambda _: None, lambda _: True
    )


def _tiled_module(tiled_op: Tiled, chosen: Tiles) -> ir.Module:
    return group_module([tiled_op.op], _nested(tiled_op, chosen))


def _tilings(tiled_op: Tiled, nest: Sequence[DimClass]) -> list[Tiles]:
    """Return tilings by nested loops along some dims, the coarsest tilings first."""
    dims, target = [dim_class.dims[tiled_op][0] for dim_class in nest], target_of(tiled_op.op)
    cuts = (dim_class.cuts(2, target.loop_iterations, target.cores) for dim_class in nest)
    tilings = [tuple(zip(dims, tiles, strict=True)) for tiles in itertools.product(*cuts)]
    coarsest_first = sorted(tilings, key=lambda chosen: (math.prod(_counts(chosen)), _counts(chosen)))
    return coarsest_first[:_MOST_COUNTS]


class _RunChoice:
    """Runs around an operation, with the tile counts that may be enough for each run, and their costs."""

    def __init__(self, runs: _Runs, index: int, evaluator: Evaluator) -> None:
        self.ops, self.op_index, self.evaluator = runs.ops, index, evaluator
        self.around = list(runs.around(index))
        self.candidates: list[tuple[Sequence[Tiled], DimClass, DimTiles]] = []
        self.tiled = _Costs(self._tiled)
        self.untiled_runs: dict[int, ProgramCost | None] = {}
        self.attempts: list[str] = []
        self.reasons: list[str] = []

    def problem(self, live: int, lx_bytes: int) -> TilingProblem:
        """Return the choice as plain data."""
        tiled_op = self.ops[self.op_index]
        candidates = []
        for first, last, dim_class in self.around:
            run = self.ops[first : last + 1]
            for cut in _enough(dim_class, math.ceil(live / lx_bytes), target_of(tiled_op.op)):
                self.candidates.append((run, dim_class, cut))
                candidates.append(TilingCandidate(len(run), ((dim_class.dims[tiled_op][0], cut.tiles),)))
        generic = tiled_op.generic
        return TilingProblem(
            "lx", generic.opcode, tuple(generic.extents), live, lx_bytes, tuple(candidates),
            self.tiled.ns, self._untiled_ns, self._pays,
        )  # fmt: skip

    def tiling(self, number: int) -> dict[ir.Value, list[TiledLoop]]:
        """Return the loops of a candidate."""
        return _together(*self.candidates[number], self.op_index)

    def untiled(self, number: int) -> ProgramCost | None:
        """Return the cost of the run of a candidate without tiles."""
        run = self.candidates[number][0]
        key = id(run)
        if key not in self.untiled_runs:
            self.untiled_runs[key] = self.evaluator.cost(group_module([tiled_op.op for tiled_op in run], {}))
        return self.untiled_runs[key]

    def _untiled_ns(self, number: int) -> float | None:
        cost = self.untiled(number)
        return None if cost is None else cost.nanoseconds

    def _tiled(self, number: int) -> ProgramCost | None:
        run, _, cut = self.candidates[number]
        chosen = [tiled_op.op for tiled_op in run]
        untiled = self.untiled(number)
        if untiled is None:
            return None
        price = self.evaluator.cost(group_module(chosen, self.tiling(number)))
        self.attempts.append(f"{len(run)} operations in {cut}: {price or 'not possible'}, untiled {untiled}")
        return price

    def _pays(self, number: int) -> bool:
        """Return whether a candidate also saves time together with its neighbours, and keep the reason if not."""
        run = self.candidates[number][0]
        reason = _why_not_among_neighbours(self.ops, run, self.tiling(number), self.evaluator)
        self.reasons += [reason] if reason else []
        return not reason


def _nested(tiled_op: Tiled, chosen: Tiles) -> dict[ir.Value, list[TiledLoop]]:
    extents = tiled_op.generic.extents
    loops = [cut.loop(f"span{depth or ''}", dim, extents[dim]) for depth, (dim, cut) in enumerate(chosen)]
    return {tiled_op.result: loops}


def _counts(chosen: Tiles) -> tuple[int, ...]:
    return tuple(cut.tiles for _, cut in chosen)


def _tiles_text(chosen: Tiles) -> str:
    return ", ".join(
        f"{cut.tiles} tiles of d{dim}{str(cut).removeprefix(f'{cut.tiles} tiles')}" for dim, cut in chosen
    )


def _together(
    run: Sequence[Tiled], dim_class: DimClass, cut: DimTiles, class_index: int
) -> dict[ir.Value, list[TiledLoop]]:
    dims = {tiled_op: dim_class.dims[tiled_op][0] for tiled_op in run}
    return {
        tiled_op.result: [cut.loop(f"lx{class_index}", dim, tiled_op.generic.extents[dim])]
        for tiled_op, dim in dims.items()
    }


def _enough(dim_class: DimClass, least: int, target: Target) -> Iterator[DimTiles]:
    """Return a few cuts of a dim, beginning with the fewest tiles that may be enough."""
    return itertools.islice(dim_class.cuts(max(least, 2), target.loop_iterations, target.cores), 3)


def _may_be_out_of_reach(tiled_op: Tiled) -> bool:
    """Return whether a tensor of the operation is larger than the span of a core. If not, no evaluation is needed."""
    values = (*tiled_op.generic.inputs, tiled_op.result)
    return any(_bytes(tiled_op, value) > target_of(tiled_op.op).span_bytes for value in values)


def _bytes(each: Tiled, value: ir.Value) -> int:
    return default_bytes(target_of(each.op), shape_of(value), element_of(value))


def _live_bytes(ops: Sequence[Tiled]) -> list[int]:
    """Return for each operation the bytes per core of the live intermediates, assuming that they are evenly spread.

    This is an estimate; an evaluation decides. The operands of an operation and their converted copies are live with
    its result, which is not always computed in place. Results of the program and unread values are not counted.
    """
    position = {tiled_op.result: index for index, tiled_op in enumerate(ops)}
    tiled = {tiled_op.result: tiled_op for tiled_op in ops}
    last: dict[ir.Value, int] = {}
    for index, tiled_op in enumerate(ops):
        for value in tiled_op.generic.inputs:
            for maker in producers(value, tiled):
                last[maker.result] = index
    change = [0] * (len(ops) + 1)
    for value, end in last.items():
        maker = tiled[value]
        # This is a lower bound: no layout or division spreads a value over more than all cores.
        size = _bytes(maker, value) // target_of(maker.op).cores
        change[position[value]] += size
        change[end + 1] -= size
    live, total = [], 0
    for delta in change[:-1]:
        total += delta
        live.append(total)
    return [
        max(size + _converted_bytes(tiled_op), _shared_bytes(tiled_op))
        for size, tiled_op in zip(live, ops, strict=True)
    ]


def _shared_bytes(tiled_op: Tiled) -> int:
    """Return the bytes per core of a widened weight: the cores that divide the rows of a matmul each read its columns.

    At most twice the LX capacity is returned, so that two tiles are also tried: with few rows, few cores share columns.
    """
    target = target_of(tiled_op.op)
    needed = _SHARING * _bytes(tiled_op, tiled_op.result) // target.cores
    return min(needed, 2 * target.usable_lx_bytes) if widens(tiled_op.op) else 0


def _converted_bytes(tiled_op: Tiled) -> int:
    """Return the bytes per core of a matmul's second operand if it must be converted before its columns are read.

    Sticks are written as a whole, so a dim along which single positions are written cannot be the stick dim.
    """
    generic = tiled_op.generic
    if DEVICE_OPS[generic.opcode].kind is not Kind.MATMUL:
        return 0
    kernel, dims = generic.inputs[1], generic.maps[1]
    columns = [position for position, dim in enumerate(dims) if dim not in generic.maps[0]]
    is_converted = any(is_written_at_an_index(kernel, position) for position in columns)
    return _bytes(tiled_op, kernel) // target_of(tiled_op.op).cores if is_converted else 0


class _Runs:
    """Runs of operations of a function that a loop could tile together, determined by the classes of their dims."""

    def __init__(self, ops: Sequence[Tiled], longest: int) -> None:
        self.ops, self.longest = ops, longest
        self.classes: dict[tuple[Tiled, int], int] = {}
        self.present: list[dict[int, int]] = [{} for _ in ops]
        position = {tiled_op: index for index, tiled_op in enumerate(ops)}
        for class_index, dim_class in enumerate(dim_classes(ops)):
            for tiled_op, dims in dim_class.dims.items():
                self.classes.update({(tiled_op, dim): class_index for dim in dims})
                if len(dims) == 1 and (
                    dims[0] not in tiled_op.generic.reduced or tiled_op.generic.opcode in COMBINE
                ):
                    self.present[position[tiled_op]][class_index] = dims[0]

    def around(self, index: int) -> Iterator[tuple[int, int, DimClass]]:
        """Yield the longest runs around an operation whose operations all have a common dim, each run once.

        The result of an operation that reduces the dim exists only after the loop, so no operation of the run reads it.
        Runs without such reductions come first.
        """
        runs = []
        for class_index, dim in self.present[index].items():
            last = self._reach(index, index, class_index, 1)
            first = self._reach(index, last, class_index, -1)
            # A run of one operation keeps nothing in LX between operations.
            if first == last:
                continue
            run = self.ops[first : last + 1]
            dim_class = next(
                dim_class for dim_class in dim_classes(run) if dim in dim_class.dims.get(self.ops[index], ())
            )
            if all(tiled_op in dim_class.dims for tiled_op in run):
                reduces = any(self._reduces(position, class_index) for position in range(first, last + 1))
                runs.append((reduces, (first, last, dim_class)))
        yield from (run for _, run in sorted(runs, key=lambda pair: pair[0]))

    def tried_with(self, index: int, fewest_tiles: Sequence[int]) -> int:
        """Return the last operation to skip after no tiling of the runs around operation ``index`` pays.

        The skipped operations lie in the inner half of the runs around operation ``index`` or around the operation
        after them. Neighbours share nearly all operations of their longest runs, and an evaluation takes a second.
        """
        last, half = index, self.longest // 2
        if all(stop - start < half for start, stop, _ in self.around(index)):
            return last
        for following in range(index + 1, min(index + half, len(self.ops))):
            has_more = not self.present[following].keys() <= self.present[index].keys()
            # The tile counts that are tried range from the fewest tiles to about twice that number.
            if has_more or fewest_tiles[following] > 2 * fewest_tiles[index]:
                break
            last = following
        return last

    def _reduces(self, position: int, class_index: int) -> bool:
        """Return whether an operation reduces the dim of a class."""
        return self.present[position].get(class_index) in self.ops[position].generic.reduced

    def _reach(self, first: int, last: int, class_index: int, step: int) -> int:
        """Return the last index in one direction up to which operations are untiled and have a dim of a class."""
        position = last if step > 0 else first
        for _ in range(self.longest // 2):
            following = position + step
            if not 0 <= following < len(self.ops) or last - first + 1 == self.longest:
                break
            if class_index not in self.present[following] or TILING in self.ops[following].op.attributes:
                break
            if self._needs_a_sum(min(first, following), max(last, following), class_index):
                break
            position = following
            first, last = min(first, position), max(last, position)
        return position

    def _needs_a_sum(self, first: int, last: int, class_index: int) -> bool:
        """Return whether an operation of a run reads the result of another one that reduces the dim of a class."""
        sums = {
            self.ops[position].result: self.ops[position]
            for position in range(first, last + 1)
            if self._reduces(position, class_index)
        }
        if not sums:
            return False
        run = self.ops[first : last + 1]
        return any(
            any(True for _ in producers(value, sums)) for tiled_op in run for value in tiled_op.generic.inputs
        )
