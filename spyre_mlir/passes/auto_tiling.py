# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Automatic tiling of operations whose operands or intermediates do not fit."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, NamedTuple

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.program_cost import ProgramCost
from spyre_mlir.analysis.quantized_matmuls import widens
from spyre_mlir.analysis.tile_nests import VIEWS, DimClass, DimTiles, Nests, Tiled, dim_classes, producers
from spyre_mlir.analysis.view_ops import is_written_at_an_index
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.hint_attributes import TILING, tiling_attr, tiling_of
from spyre_mlir.dialects.structured import defining_op, element_of, maker_of, shape_of
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import EvaluatingPass, Evaluator
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import (
    Tiling,
    block_order,
    default_bytes,
    group_module,
    read_by,
    user_in_block,
)
from spyre_mlir.target.ops import COMBINE, DEVICE_OPS, Kind
from spyre_mlir.target.target import Target
from spyre_mlir.tiling.hint_tree import TiledLoop
from spyre_mlir.tiling.tiling_choice import TilingCandidate, TilingChoice, TilingProblem

#: Dims of an operation, each with its tiles, from the outer to the inner loop.
Tiles = tuple[tuple[int, DimTiles], ...]

#: Classes of dims that the operations of a run have in common, each with its tiles, from the outer to the inner loop.
RunTiles = tuple[tuple[DimClass, DimTiles], ...]

#: Maximum number of tile counts that are tried along the same dims.
_MOST_COUNTS = 64

#: The assumed number of cores that read the same columns of a weight.
_SHARING = 8

#: Maximum number of operations of a run: one evaluation takes as long as compiling the run.
_LONGEST = 64


@dataclass(frozen=True)
class AutoTiling(EvaluatingPass):
    """Tile operations whose operands exceed the span of a core, and runs whose intermediates do not fit in LX.

    ``spans``: if an operand is so large that no division lets each core address its part, the operation is tiled along
    the dim, or two dims if one is not enough, and into the number of tiles with the least time. ``spills``: if the
    intermediates that are live at an operation exceed the capacity of all scratchpads, the run of operations around it
    that share a dim (which some may reduce) is tiled, provided that this saves time for the run alone and together with
    its neighbours. Costs come from the cost model after the rest of the pipeline. Operations that hints tile are left
    unchanged. ``tiling`` is the name of another algorithm (docs/writing-an-algorithm.md). ``bundle_operations`` is the
    maximum number of operations of a bundle (0: no limit); it also limits a run, because a loop is never cut.

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
            block = func.regions[0].blocks[0]
            if self.spills and lx_bytes:
                _gather_large_values(block, lx_bytes)
            ops = list(Nests(block).tiled.values())
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
            for first, last, nest in runs.around(index):
                run = ops[first : last + 1]
                key = (
                    first,
                    last,
                    *(dim for each in nest.dims for member in run for dim in each.dims.get(member, ())[:1]),
                )
                if key not in yielded:
                    yielded.add(key)
                    yield [_together(run, tiles, index) for tiles in _enough(nest, 2, target_of(tiled_op.op))]

    # -- spans ----------------------------------------------------------------------------------------

    def _for_spans(self, ops: Sequence[Tiled], evaluator: Evaluator) -> None:
        for tiled_op in ops:
            values = (*tiled_op.generic.inputs, tiled_op.result)
            span_bytes = target_of(tiled_op.op).span_bytes
            # If no tensor is larger than the span of a core, no evaluation is needed.
            is_large = any(_bytes(tiled_op, value) > span_bytes for value in values)
            if TILING in tiled_op.op.attributes or not is_large:
                continue
            # This is evaluated because layouts and divisions determine the memory that a core addresses.
            if evaluator.cost(group_module([tiled_op.op], {})) is None:
                self._reach(tiled_op, evaluator)

    def _reach(self, tiled_op: Tiled, evaluator: Evaluator) -> None:
        """Tile an operation over one dim or two by the cheapest of the coarsest tilings that all cores can address."""
        classes, generic, target = dim_classes([tiled_op]), tiled_op.generic, target_of(tiled_op.op)

        def loops(tiles: Tiles) -> list[TiledLoop]:
            return [
                cut.loop(f"span{depth or ''}", dim, generic.extents[dim])
                for depth, (dim, cut) in enumerate(tiles)
            ]

        def fineness(tiles: Tiles) -> tuple[int, tuple[int, ...]]:
            counts = tuple(cut.tiles for _, cut in tiles)
            return math.prod(counts), counts

        # Two loops are tried only if no single dim is enough.
        for depth in (1, 2):
            tilings: list[Tiles] = []
            for nest in itertools.combinations(classes, depth):
                dims = [dim_class.dims[tiled_op][0] for dim_class in nest]
                cuts = (dim_class.cuts(2, target.loop_iterations, target.cores) for dim_class in nest)
                nested = [tuple(zip(dims, tiles, strict=True)) for tiles in itertools.product(*cuts)]
                tilings += sorted(nested, key=fineness)[:_MOST_COUNTS]

            def evaluate(index: int, tilings: Sequence[Tiles] = tilings) -> ProgramCost | None:
                return evaluator.cost(group_module([tiled_op.op], {tiled_op.result: loops(tilings[index])}))

            costs = _Costs(evaluate)
            candidates = tuple(
                TilingCandidate(1, tuple((dim, cut.tiles) for dim, cut in tiles)) for tiles in tilings
            )
            # The operation cannot run untiled, so tilings are not compared with an untiled cost.
            index = self._choice(
                TilingProblem(
                    "span", generic.opcode, tuple(generic.extents), 0, 0, candidates,
                    costs.ns, lambda _: None, lambda _: True, costs.ns,
                )
            )  # fmt: skip
            if index is not None:
                break
        else:
            return  # span-reduction reports the error
        chosen, price = tilings[index], costs[index]
        assert price is not None
        tiled_op.op.attributes[TILING] = tiling_attr(loops(chosen))
        attempts = [(cost, tilings[other]) for other, cost in costs.items() if cost is not None]
        others = "; ".join(f"{_tiles_text(tiles)}: {cost}" for cost, tiles in attempts)
        text = f"'{generic.opcode}' in {_tiles_text(chosen)}, as no division fits the span limit; {others}"
        self.remark(tiled_op.op, "tiling", text, after=price.nanoseconds)

    def _choice(self, problem: TilingProblem) -> int | None:
        return TilingChoice.registry.make(self.tiling).index(problem) if problem.candidates else None

    # -- spills ---------------------------------------------------------------------------------------

    def _for_lx(self, ops: Sequence[Tiled], evaluator: Evaluator, lx_bytes: int) -> None:
        live, runs = _live_bytes(ops), _Runs(ops, min(self.bundle_operations or _LONGEST, _LONGEST))
        fewest_tiles = [math.ceil(size / lx_bytes) for size in live]
        index, earlier = 0, list[_RunChoice]()
        while index < len(ops):
            # The tiling of a hint is the user's decision.
            if live[index] <= lx_bytes or TILING in ops[index].op.attributes:
                index += 1
                continue
            # An operation before the one with the most live bytes, such as a mask, may lack its best dim.
            reached = max((last for _, last, _ in runs.around(index)), default=index)
            most = max(range(index, reached + 1), key=live.__getitem__)
            starts = (most, index) if runs.present[index].keys() < runs.present[most].keys() else (index,)
            run = None
            for start in starts:
                # A run is tiled once: its operations are not candidates for a second loop.
                choice = _RunChoice(runs, start, evaluator, fewest_tiles, earlier)
                run = self._best_run(choice, live[start], lx_bytes)
                if run is not None:
                    break
            if run is None:
                index = runs.tried_with(index, fewest_tiles) + 1
            elif run.start <= index:
                index = max(run.stop, index + 1)
            # Else the operations before the run are next.

    def _best_run(self, choice: _RunChoice, live: int, lx_bytes: int) -> range | None:
        """Tile the run around an operation along the dim that saves most time.

        Returns the indices of the run, or None if no run is tiled.
        """
        ops, index = choice.ops, choice.op_index
        generic = ops[index].generic
        candidates = tuple(
            TilingCandidate(len(run), tuple((each.dims[ops[index]][0], cut.tiles) for each, cut in tiles))
            for run, tiles in choice.candidates
        )
        number = self._choice(
            TilingProblem(
                "lx", generic.opcode, tuple(generic.extents), live, lx_bytes, candidates,
                choice.tiled.ns, choice.untiled.ns, choice.pays, choice.together_ns,
            )
        )  # fmt: skip
        attempts = "; ".join(dict.fromkeys(choice.attempts))
        if number is None:
            if attempts:
                self.remark(ops[index].op, "no tiling", "; ".join([*choice.reasons, attempts]))
            return None
        run, tiles = choice.candidates[number]
        price, untiled = choice.tiled[number], choice.untiled[number]
        assert price is not None
        if choice.revision is not None:
            other, revised = choice.revision
            other.apply(revised)
            text = (
                f"now in {_run_text(other.candidates[revised][1])}, "
                f"with which the next {len(run)} operations save time"
            )
            self.remark(other.candidates[revised][0][0].op, "tiling", text)
        choice.apply(number)
        what = f"{len(run)} operations in {_run_text(tiles)}, whose intermediates then fit the scratchpads"
        before, after = None if untiled is None else round(untiled.nanoseconds), round(price.nanoseconds)
        self.remark(run[0].op, "tiling", f"{what}; {attempts}", before=before, after=after)
        return range(ops.index(run[0]), ops.index(run[-1]) + 1)


#: Values of at most this part of a scratchpad per core are computed before the runs of large values.
_SMALL = 1 / 256


def _gather_large_values(block: ir.Block, lx_bytes: int) -> None:
    """Make operations on values that do not fit in half of all scratchpads consecutive, because runs are consecutive.

    Such a value is computed directly before its first reader, and small values directly after their operands. Else an
    operation that lacks a dim of the run, such as a mask that has no heads or a factor per head, would end it. An
    operation on a tensor into which parts are inserted stays, because the insertion may be in place.
    """
    ops = [op_view.operation for op_view in block.operations]
    written = {_assembled(op.operands[1]) for op in ops if op.name == _INSERT}
    moved = (*VIEWS, "tensor.empty", "linalg.fill")
    ops = [
        op
        for op in ops
        if ((sdsc.OP in op.attributes and TILING not in op.attributes) or op.name in moved)
        and not any(_assembled(value) in written for value in (*op.operands, op.results[0]))
    ]

    def part(op: ir.Operation) -> float:
        target, result = target_of(op), op.results[0]
        return default_bytes(target, shape_of(result), element_of(result)) / target.cores / lx_bytes

    parts = {op: part(op) for op in ops}
    if not any(size > 1 / 2 for size in parts.values()):
        return
    order = functools.cmp_to_key(block_order)
    for op in ops:
        makers = [maker for value in read_by(op) if (maker := defining_op(value)) is not None]
        roots = (defining_op(_assembled(value)) for value in read_by(op))
        is_tiled = any(root is not None and TILING in root.attributes for root in roots)
        # Between operations that have loops already, it would cut these loops in two.
        if parts[op] > _SMALL or is_tiled:
            continue
        if makers:
            op.move_after(max(makers, key=order))
        else:
            op.move_before(block.operations[0])
    for op in reversed(ops):
        readers = [user_in_block(use, op) for use in op.results[0].uses]
        if parts[op] > 1 / 2 and readers:
            op.move_before(min(readers, key=order))


_INSERT = "tensor.insert_slice"


def _assembled(value: ir.Value) -> ir.Value:
    """Return the tensor that a value is, or is a view of, before parts were inserted into it."""
    while (op := defining_op(value)) is not None and op.name in (*VIEWS, "tensor.extract_slice", _INSERT):
        value = op.operands[1 if op.name == _INSERT else 0]
    return value


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


class _RunChoice:
    """Runs around an operation, with the tile counts that may be enough for each run, and their costs.

    ``fewest_tiles`` are the least tiles with which the live bytes of each operation fit. ``earlier`` are the choices of
    the runs that are already tiled; ``revision`` is one of them with another candidate, if the run saves time only with
    that candidate.
    """

    def __init__(
        self,
        runs: _Runs,
        index: int,
        evaluator: Evaluator,
        fewest_tiles: Sequence[int],
        earlier: list[_RunChoice],
    ) -> None:
        self.ops, self.op_index, self.evaluator, self.earlier = runs.ops, index, evaluator, earlier
        self.chosen = -1
        self.revision: tuple[_RunChoice, int] | None = None
        self.candidates: list[tuple[Sequence[Tiled], RunTiles]] = []
        for first, last, nest in runs.around(index):
            run = self.ops[first : last + 1]
            least, target = max(fewest_tiles[first : last + 1]), target_of(self.ops[index].op)
            # Half of the tiles that fit all live values of the run is enough if operations are computed in place.
            coarse = itertools.islice(_enough(nest, least // 2, target), 2)
            choices = (*coarse, *_enough(nest, least, target))
            distinct = {tuple(cut for _, cut in tiles): tiles for tiles in choices}
            self.candidates += [(run, tiles) for tiles in distinct.values()]
        self.tiled, self.untiled = _Costs(self._tiled), _Costs(self._untiled)
        self.attempts: list[str] = []
        self.reasons: list[str] = []

    def tiling(self, number: int) -> Tiling:
        """Return the loops of a candidate."""
        return _together(*self.candidates[number], self.op_index)

    def apply(self, number: int) -> None:
        """Tile the run of a candidate, and add the choice to the earlier ones."""
        if self.chosen < 0:
            self.earlier.append(self)
        self.chosen = number
        for result, loops in self.tiling(number).items():
            maker_of(result).attributes[TILING] = tiling_attr(loops)

    def together_ns(self, number: int) -> float | None:
        """Return the nanoseconds of the runs of all candidates together, with the tiles of one of them."""
        found = {self.ops.index(tiled_op) for run, _ in self.candidates for tiled_op in run}
        whole = [each.op for each in self.ops[min(found) : max(found) + 1]]
        price = self.evaluator.cost(group_module(whole, self.tiling(number)))
        return None if price is None else price.nanoseconds

    def alternatives(self) -> Iterator[int]:
        """Yield the other candidates for the chosen run that also save time alone."""
        run = self.candidates[self.chosen][0]
        for number, (other, _) in enumerate(self.candidates):
            tiled, untiled = self.tiled[number], self.untiled[number]
            if number != self.chosen and other == run and tiled is not None:
                if untiled is None or tiled.nanoseconds < untiled.nanoseconds:
                    yield number

    def _untiled(self, number: int) -> ProgramCost | None:
        """Return the cost of the run of a candidate without tiles; candidates of one run share it."""
        run = self.candidates[number][0]
        known = next((other for other in self.untiled if self.candidates[other][0] == run), None)
        if known is not None:
            return self.untiled[known]
        return self.evaluator.cost(group_module([tiled_op.op for tiled_op in run], {}))

    def _tiled(self, number: int) -> ProgramCost | None:
        run, tiles = self.candidates[number]
        untiled = self.untiled[number]
        price = self.evaluator.cost(group_module([tiled_op.op for tiled_op in run], self.tiling(number)))
        self.attempts.append(
            f"{len(run)} operations in {_run_text(tiles)}: {price or 'not possible'}, "
            f"untiled {untiled or 'not possible'}"
        )
        return price

    def pays(self, number: int) -> bool:
        """Return whether a candidate also saves time together with its neighbours, and keep the reason if not.

        A run that is evaluated alone has its operands and results in device memory, in the layouts that are best for
        it.
        """
        self.revision = None
        run = self.candidates[number][0]
        margin, first = (_LONGEST - len(run)) // 2, self.ops.index(run[0])
        window = self.ops[max(first - margin, 0) : first + len(run) + margin]
        if len(window) == len(run):
            return True
        others = {each.result: tiling_of(each.op) for each in window if TILING in each.op.attributes}

        def cost(*tilings: Tiling) -> ProgramCost | None:
            loops = {result: each for tiling in tilings for result, each in tiling.items()}
            return self.evaluator.cost(group_module([tiled_op.op for tiled_op in window], loops))

        untiled, tiled = cost(others), cost(others, self.tiling(number))
        if untiled is None or (tiled is not None and tiled.nanoseconds < untiled.nanoseconds):
            return True
        # A run that was tiled for itself may be in the way of this one.
        least = untiled.nanoseconds
        for choice in self.earlier:
            if set(choice.candidates[choice.chosen][0]) <= set(window):
                for other in choice.alternatives():
                    both = cost(others, choice.tiling(other), self.tiling(number))
                    if both is not None and both.nanoseconds < least:
                        least, self.revision = both.nanoseconds, (choice, other)
        if self.revision is not None:
            return True
        neighbours = len(window) - len(run)
        self.reasons.append(f"with {neighbours} neighbours {tiled or 'not possible'}, untiled {untiled}")
        return False


def _tiles_text(chosen: Tiles) -> str:
    return ", ".join(cut.text(dim) for dim, cut in chosen)


def _run_text(tiles: RunTiles) -> str:
    return " of ".join(cut.text() for _, cut in tiles)


def _together(run: Sequence[Tiled], tiles: RunTiles, number: int) -> Tiling:
    return {
        tiled_op.result: [
            cut.loop(f"lx{number}{f'.{depth}' if depth else ''}", dim, tiled_op.generic.extents[dim])
            for depth, (dim_class, cut) in enumerate(tiles)
            for dim in dim_class.dims.get(tiled_op, ())[:1]
        ]
        for tiled_op in run
    }


class _Loops(NamedTuple):
    """The dims that the loops around a run tile, outermost first.

    ``keeps``: the run reads large tensors that do not have the inner dim, so a tile of them is loaded once for all
    iterations of the inner loop.
    """

    dims: tuple[DimClass, ...]
    keeps: bool = False


def _enough(nest: _Loops, least: int, target: Target) -> Iterator[RunTiles]:
    """Yield a few cuts of the dims of a nest, beginning with the fewest tiles that may be enough.

    The outer of two dims is cut into at most twice as many tiles as may be enough. The inner dim is cut as little as
    may be enough, so that few iterations read again what only the outer loop moves. In a nest that keeps tensors over
    the inner loop, the inner dim has the most tiles.
    """
    limit, cores = target.loop_iterations, target.cores
    if len(nest.dims) == 1:
        (dim_class,) = nest.dims
        cuts = itertools.islice(dim_class.cuts(max(least, 2), limit, cores), 3)
        yield from (((dim_class, cut),) for cut in cuts)
        return
    outer, inner = nest.dims
    if nest.keeps:
        for cut in list(inner.cuts(2, min(least, limit), cores))[-2:]:
            enough = max(-(-least // cut.tiles), 2)
            fewest = itertools.islice(outer.cuts(enough, limit // cut.tiles, cores), 2)
            yield from (((outer, fewer), (inner, cut)) for fewer in fewest)
        return
    for cut in list(outer.cuts(2, min(2 * least, limit), cores))[-2:]:
        enough = max(-(-least // cut.tiles), 2)
        yield from (
            ((outer, cut), (inner, fewer))
            for fewer in itertools.islice(inner.cuts(enough, limit // cut.tiles, cores), 2)
        )


def _bytes(tiled_op: Tiled, value: ir.Value) -> int:
    return default_bytes(target_of(tiled_op.op), shape_of(value), element_of(value))


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
    change = [0] * len(ops)
    for value, end in last.items():
        maker = tiled[value]
        # This is a lower bound: no layout or division spreads a value over more than all cores.
        size = _bytes(maker, value) // target_of(maker.op).cores
        change[position[value]] += size
        if end + 1 < len(ops):
            change[end + 1] -= size
    live = []
    for tiled_op, needed in zip(ops, itertools.accumulate(change), strict=True):
        generic, target = tiled_op.generic, target_of(tiled_op.op)
        if DEVICE_OPS[generic.opcode].kind is Kind.MATMUL:
            kernel, dims = generic.inputs[1], generic.maps[1]
            columns = [index for index, dim in enumerate(dims) if dim not in generic.maps[0]]
            # Sticks are written as a whole, so a dim along which single positions are written cannot be the stick dim:
            # the operand must be converted before its columns are read.
            if any(is_written_at_an_index(kernel, index) for index in columns):
                needed += _bytes(tiled_op, kernel) // target.cores
        if widens(tiled_op.op):
            # The cores that divide the rows of a matmul each read the columns of a widened weight. At most twice the LX
            # capacity is counted, so that two tiles are also tried: with few rows, few cores share columns.
            shared = _SHARING * _bytes(tiled_op, tiled_op.result) // target.cores
            needed = max(needed, min(shared, 2 * target.usable_lx_bytes))
        live.append(needed)
    return live


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
                generic = tiled_op.generic
                if len(dims) == 1 and (dims[0] not in generic.reduced or generic.opcode in COMBINE):
                    self.present[position[tiled_op]][class_index] = dims[0]

    def around(self, index: int) -> Iterator[tuple[int, int, _Loops]]:
        """Yield the longest runs around an operation with a loop over a common dim, or with a loop in that loop.

        The result of an operation that reduces the dim exists only after the loop, so no operation of the run reads it.
        The first and last operations of a run with two loops may lack the dim of the inner loop, such as a mask that is
        the same for all heads. Runs without reductions over a loop come first, and one loop before two. The leading dim
        is the outer one; it is also the inner one if a large operand of the run lacks it.
        """
        runs = []
        present = self.present[index]
        for classes in (*((each,) for each in present), *itertools.permutations(present, 2)):
            last = self._reach(index, index, classes, 1)
            first = self._reach(index, last, classes, -1)
            # A run of one operation keeps nothing in LX between operations.
            if first == last:
                continue
            positions = range(first, last + 1)
            reduces = [any(self._reduces(position, each) for position in positions) for each in classes]
            is_full = all(classes[-1] in self.present[position] for position in positions)
            run = self.ops[first : last + 1]
            keeps = len(classes) == 2 and not any(reduces) and self._lacks(positions, classes[1])
            is_swapped = is_full and not any(reduces) and list(classes) != sorted(classes)
            # Loops over reduced dims are inside of the others.
            if len(classes) == 2 and (reduces[0] or (is_swapped and not keeps)):
                continue
            found = dim_classes(run)
            nest = tuple(
                next(each for each in found if present[number] in each.dims.get(self.ops[index], ()))
                for number in classes
            )
            is_common = all(
                (number in self.present[position]) == (self.ops[position] in dim_class.dims)
                for number, dim_class in zip(classes, nest, strict=True)
                for position in positions
            )
            if is_common and len(set(map(id, nest))) == len(nest):
                runs.append((len(classes), any(reduces), (first, last, _Loops(nest, keeps))))
        yield from (run for *_, run in sorted(runs, key=lambda found: found[:2]))

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

    def _lacks(self, positions: range, class_index: int) -> bool:
        """Return whether pointwise operations with a dim read a tensor that lacks it and is large for the LX."""
        for position in positions:
            tiled_op, dim = self.ops[position], self.present[position].get(class_index)
            if dim is None or DEVICE_OPS[tiled_op.generic.opcode].kind is Kind.MATMUL:
                continue
            large = target_of(tiled_op.op).usable_lx_bytes * target_of(tiled_op.op).cores / 4
            operands = zip(tiled_op.generic.inputs, tiled_op.generic.maps, strict=False)
            if any(dim not in dims and _bytes(tiled_op, value) > large for value, dims in operands):
                return True
        return False

    def _reduces(self, position: int, class_index: int) -> bool:
        """Return whether an operation reduces the dim of a class."""
        return self.present[position].get(class_index) in self.ops[position].generic.reduced

    def _reach(self, first: int, last: int, classes: Sequence[int], step: int) -> int:
        """Return the last index in one direction up to which operations are untiled and have the dim of a class.

        An operation without the dim of the inner loop is followed in this direction only by such operations.
        """
        position, (outer, *inner) = (last if step > 0 else first), classes
        is_inside = True
        for _ in range(self.longest // 2):
            following = position + step
            if not 0 <= following < len(self.ops) or last - first + 1 == self.longest:
                break
            present = self.present[following]
            has_inner = all(each in present for each in inner)
            if outer not in present or (has_inner and not is_inside):
                break
            if TILING in self.ops[following].op.attributes:
                break
            is_inside = has_inner
            begin, end = min(first, following), max(last, following)
            # No operation of a run reads the result of another one that reduces the dim.
            run = self.ops[begin : end + 1]
            sums = {
                self.ops[i].result: self.ops[i]
                for i in range(begin, end + 1)
                if any(self._reduces(i, each) for each in classes)
            }
            inputs = (value for tiled_op in run if sums for value in tiled_op.generic.inputs)
            if any(True for value in inputs for _ in producers(value, sums)):
                break
            position, first, last = following, begin, end
        return position
