# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles by itself what does not fit otherwise."""

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
from spyre_mlir.rewriting.groups import Tiling, default_bytes, group_module
from spyre_mlir.target.ops import COMBINE, DEVICE_OPS, Kind
from spyre_mlir.target.target import Target
from spyre_mlir.tiling.hint_tree import TiledLoop
from spyre_mlir.tiling.tiling_choice import TilingCandidate, TilingChoice, TilingProblem

#: Dims of an operation, each with its tiles, from the outer to the inner loop.
Tiles = tuple[tuple[int, DimTiles], ...]

#: Numbers of tiles that are tried along the same dims.
_MOST_COUNTS = 64

#: Cores that read the same columns of a weight.
_SHARING = 8

#: Operations of a run at most: one trial takes as long as compiling them.
_LONGEST = 64


@dataclass(frozen=True)
class AutoTiling(EvaluatingPass):
    """Tile operations that cannot reach their operands otherwise, and runs whose intermediates do not fit the LX.

    ``spans``: an operation with an operand so large that no division lets each core reach its part is tiled
    along the dim, or two where one is not enough, and into the number of tiles with the least time. ``spills``:
    where the intermediates that are alive at an operation need more than all scratchpads have, the run of
    operations around that shares a dim, which some may reduce, is tiled if that takes less time, alone and among its
    neighbours. Costs are those of the cost model after the rest of the pipeline. What hints tile is left as it is.
    ``tiling`` is the name of another choice (docs/writing-an-algorithm.md).
    ``bundle_operations``: a bundle has at most so many operations (0: any number), and a loop is never cut, so such a
    run has no more.

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
        """Yield the loops to choose from for each run of operations that a loop could tile, the coarsest first.

        They are those that are tried where intermediates do not fit, here around every operation.
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
            # Evaluated, not computed: layouts and divisions decide what a core reaches.
            if evaluator.cost(group_module([tiled_op.op], {})) is None:
                self._reach(tiled_op, evaluator)

    def _reach(self, tiled_op: Tiled, evaluator: Evaluator) -> None:
        """Tile an operation by the cheapest of the coarsest tilings, over one dim or two, that all cores can reach."""
        classes = dim_classes([tiled_op])
        # Two loops only where no dim alone is enough.
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
            return  # span-reduction says what is wrong
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
            # What a hint tiles is the user's decision.
            if live[index] <= lx_bytes or TILING in ops[index].op.attributes:
                index += 1
                continue
            # A run is tiled once: its operations are no candidates for a second loop.
            last = self._best_run(runs, index, evaluator, live[index], lx_bytes)
            if last is None:
                last = runs.tried_with(index, fewest_tiles)
            index = last + 1

    def _best_run(
        self, runs: _Runs, index: int, evaluator: Evaluator, live: int, lx_bytes: int
    ) -> int | None:
        """Tile the run around an operation along the dim that saves most time.

        Return the last index of the run; None if no run is tiled.
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
    """Return why a run is not tiled after all: with what stands around it, the tiles take more time; "" if they do not.

    Alone, a run has its operands and results in device memory and in the layouts that it likes best.
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
    """Costs of candidates by index, each evaluated when it is first asked for."""

    def __init__(self, evaluate: Callable[[int], ProgramCost | None]) -> None:
        super().__init__()
        self.evaluate = evaluate

    def __missing__(self, index: int) -> ProgramCost | None:
        self[index] = self.evaluate(index)
        return self[index]

    def ns(self, index: int) -> float | None:
        """Return the nanoseconds of a candidate; None if it is not possible."""
        cost = self[index]
        return None if cost is None else cost.nanoseconds


def _span_problem(tiled_op: Tiled, tilings: Sequence[Tiles], costs: _Costs) -> TilingProblem:
    """Return the problem of an operation out of reach, which nothing can be compared with."""
    candidates = tuple(TilingCandidate(1, tuple((dim, cut.tiles) for dim, cut in tiles)) for tiles in tilings)
    generic = tiled_op.generic
    extents = tuple(generic.extents)
    return TilingProblem(
        "span", generic.opcode, extents, 0, 0, candidates, costs.ns, lambda _: None, lambda _: True
    )


def _tiled_module(tiled_op: Tiled, chosen: Tiles) -> ir.Module:
    return group_module([tiled_op.op], _nested(tiled_op, chosen))


def _tilings(tiled_op: Tiled, nest: Sequence[DimClass]) -> list[Tiles]:
    """Return tilings by nested loops along some dims, those with the fewest tiles first."""
    dims, target = [dim_class.dims[tiled_op][0] for dim_class in nest], target_of(tiled_op.op)
    cuts = (dim_class.cuts(2, target.loop_iterations, target.cores) for dim_class in nest)
    tilings = [tuple(zip(dims, tiles, strict=True)) for tiles in itertools.product(*cuts)]
    coarsest_first = sorted(tilings, key=lambda chosen: (math.prod(_counts(chosen)), _counts(chosen)))
    return coarsest_first[:_MOST_COUNTS]


class _RunChoice:
    """Runs around an operation with the cuts that may be enough for each, and what they cost."""

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
        """Return whether a candidate takes less time among its neighbours, too, and keep the reason if not."""
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
    """Return a few cuts, from the fewest tiles that may be enough."""
    return itertools.islice(dim_class.cuts(max(least, 2), target.loop_iterations, target.cores), 3)


def _may_be_out_of_reach(tiled_op: Tiled) -> bool:
    """Return whether an operand is larger than the span of a core: most operations need no evaluation."""
    values = (*tiled_op.generic.inputs, tiled_op.result)
    return any(_bytes(tiled_op, value) > target_of(tiled_op.op).span_bytes for value in values)


def _bytes(each: Tiled, value: ir.Value) -> int:
    return default_bytes(target_of(each.op), shape_of(value), element_of(value))


def _live_bytes(ops: Sequence[Tiled]) -> list[int]:
    """Return for each operation the bytes per core of the live intermediates, evenly spread: a trial tells the rest.

    What an operation reads is alive beside its result, which is not always computed in place, and so is what it has
    converted. Results of the program are not among them, nor what no later operation reads.
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
        # At the least: no layout or division spreads a value over more than all cores.
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
    """Return the bytes per core of a widened weight: cores that divide the rows of a matmul each read its columns.

    Twice the LX at most, for with few rows few do: two tiles are tried, too.
    """
    target = target_of(tiled_op.op)
    needed = _SHARING * _bytes(tiled_op, tiled_op.result) // target.cores
    return min(needed, 2 * target.usable_lx_bytes) if widens(tiled_op.op) else 0


def _converted_bytes(tiled_op: Tiled) -> int:
    """Return the bytes per core of a matmul's second operand, if no layout that it is written in has its columns.

    Sticks are written as a whole, so a dim along which single positions are written is in none of them.
    """
    generic = tiled_op.generic
    if DEVICE_OPS[generic.opcode].kind is not Kind.MATMUL:
        return 0
    kernel, dims = generic.inputs[1], generic.maps[1]
    columns = [position for position, dim in enumerate(dims) if dim not in generic.maps[0]]
    is_converted = any(is_written_at_an_index(kernel, position) for position in columns)
    return _bytes(tiled_op, kernel) // target_of(tiled_op.op).cores if is_converted else 0


class _Runs:
    """Operations of a function and the classes of their dims, as runs that a loop could tile together."""

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
        """Yield the longest runs around an operation in which all operations have a dim, each run once.

        Where an operation reduces the dim, its result is there when the loop has ended: none of the run reads it.
        Runs in which none does come first.
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
        """Return the last operation that needs no runs of its own after no tiling of the runs around another one pays.

        Each of these operations lies in the inner half of the runs around the first operation, or around the operation
        that follows them: neighbours share nearly all operations of their longest runs, and a run takes a second.
        """
        last, half = index, self.longest // 2
        if all(stop - start < half for start, stop, _ in self.around(index)):
            return last
        for following in range(index + 1, min(index + half, len(self.ops))):
            has_more = not self.present[following].keys() <= self.present[index].keys()
            # The cuts that are tried begin with the fewest tiles and go on to about twice as many.
            if has_more or fewest_tiles[following] > 2 * fewest_tiles[index]:
                break
            last = following
        return last

    def _reduces(self, position: int, class_index: int) -> bool:
        """Return whether an operation reduces the dim of a class."""
        return self.present[position].get(class_index) in self.ops[position].generic.reduced

    def _reach(self, first: int, last: int, class_index: int, step: int) -> int:
        """Return the last index in one direction up to which operations are not tiled and have a class of dims."""
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
        """Return whether an operation of a run reads what another one reduces along the dim of a class."""
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
