"""Rewrites attention so that it can run over tiles of keys, without the matrix of scores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.hints import TILING, tiling_attr, tiling_of
from spyre_mlir.dialects.structured import (
    Structured,
    defining_op,
    device_op,
    element_of,
    maker_of,
    rebuilt,
    shape_of,
    structured,
)
from spyre_mlir.division.slices import divisors
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.options import from_environment
from spyre_mlir.passes._dim_classes import DimClass, dim_classes
from spyre_mlir.passes._memory import functions, usable_lx_bytes
from spyre_mlir.passes._prices import Price
from spyre_mlir.passes._tile_nests import RESCALED, RUNNING, Nests, Tiled, check_running
from spyre_mlir.passes._trial import Trials, default_bytes
from spyre_mlir.passes.base import Pass
from spyre_mlir.target.device import device
from spyre_mlir.target.ops import DEVICE_OPS, Kind
from spyre_mlir.tiling.hints import TiledLoop

#: Times and bytes that are taken to be equal. The cost model errs by more (docs/cost.md, anchors).
_SAME_TIME, _SAME_BYTES = 1.05, 1.01

_MAXIMA, _SUMS = ("max", "maxnonstick"), ("sum", "sumnonstick")


@dataclass(frozen=True)
class Attention:
    """The operations of ``softmax(s) @ v``: s less its maximum, e = exp of that, its sum, e / sum, maybe masked.

    ``scores`` are the matmul that makes s and what else is done to s, in order.
    """

    scores: tuple[ir.Operation, ...]
    maximum: Structured
    sub: Structured
    exp: Structured
    sum: Structured
    div: Structured
    masked: Structured | None
    matmul: Structured

    @property
    def ops(self) -> list[ir.Operation]:
        """All of them in order."""
        parts = (self.maximum, self.sub, self.exp, self.sum, self.div, self.masked, self.matmul)
        return [*self.scores, *(each.op for each in parts if each is not None)]


@dataclass(frozen=True)
class OnlineSoftmax(Pass):
    """Run attention over tiles of keys where its matrix of scores does not fit the scratchpads and it pays.

    The division by the sum of a softmax comes after the matmul that takes its result: ``(e / l) @ v = (e @ v) / l``.
    Then e is all that the matmul waits for, and ``coarse-tiling`` can run both over tiles of keys: the maximum is the
    one so far, and the sums so far are corrected by ``exp(maximum before - maximum now)`` (Milakov and Gimelshein,
    "Online normalizer calculation for softmax", 2018). Loops over groups of heads, rows and keys are those with the
    least time by the cost model, after the real division and planning of LX (``_trial.py``); the loops that a hint
    asks for are taken as they are. Scores that any other operation reads are left alone.

    ``sencores`` is the number of cores, ``lx_frac_avail`` the part of LX that the backend keeps.

    Before, level *device-ops*:
        %m = max(%s); %e = exp(%s - %m); %l = sum(%e); %p = %e / %l; %o = %p @ %v
    After:
        %m = max(%s) {sdsc.running = "0"}; %e = exp(%s - %m); %l = sum(%e) {sdsc.rescaled = "0"}
        %q = %e @ %v {sdsc.rescaled = "0"}; %o = %q / %l
    """

    name: ClassVar[str] = "online-softmax"
    sencores: int = from_environment("SENCORES", device().cores)
    lx_frac_avail: float = from_environment("DXP_LX_FRAC_AVAIL", device().lx_backend_fraction)

    def run(self, module: ir.Operation) -> None:
        trials = Trials(self.sencores, self.lx_frac_avail)
        room = usable_lx_bytes(self.lx_frac_avail)
        for func in functions(module):
            number = 0
            for op in [each.operation for each in func.regions[0].blocks[0].operations]:
                found = attention_of(op)
                if found is not None and self._visit(found, str(number), trials, room):
                    number += 1

    def _visit(self, found: Attention, name: str, trials: Trials, room: int) -> bool:
        """Rewrites attention that hints tile along keys, or whose scores are too large for LX."""
        hinted = [op for op in found.ops if TILING in op.attributes]
        if hinted:
            keys = found.maximum.reduced[0]
            online = any(loop.dim == keys for loop in tiling_of(found.maximum.op))
            if online:
                self._keep_if_right(self._rewrite(found, name))
            return online
        scores = default_bytes(shape_of(found.exp.result), element_of(found.exp.result))
        if scores // self.sencores <= room // 2:
            return False
        ops = self._rewrite(found, name)
        self._tile(ops, name, trials, room)
        return True

    def _keep_if_right(self, ops: Sequence[ir.Operation]) -> None:
        """Lets the maximum be complete before it is read, in a loop of its own, if not all ops share the loops."""
        try:
            check_running(Nests(ops[0].block))
        except CompileError as error:
            for op in ops:
                for name in (RUNNING, RESCALED):
                    if name in op.attributes:
                        del op.attributes[name]
            self.remark(ops[-1], "no tiling", f"the maximum is taken over all keys first: {error.message}")

    def _rewrite(self, found: Attention, name: str) -> list[ir.Operation]:
        """Puts the division last; the ops of the attention in order."""
        op, mark = found.matmul.op, ir.StringAttr.get(name, found.matmul.op.context)
        with ir.InsertionPoint(op), op.location:
            weights, masked = found.exp.result, []
            if found.masked is not None:
                weights = _again(found.masked, found.div.result, weights)
                masked = [maker_of(weights)]
            made = _again(found.matmul, found.matmul.inputs[0], weights)
            dims = tuple(range(len(shape_of(made))))
            rows = tuple(found.matmul.maps[-1].index(dim) for dim in _row_dims(found))
            result = device_op(
                "realdiv",
                [made, found.sum.result],
                [dims, rows],
                shape_of(made),
                element_of(made),
                location=op.location,
            )
        sdsc.inherit(maker_of(result), found.div.op)
        sdsc.record(maker_of(result), "rewrite", self.name, "the division by the sum comes after the matmul")
        if loops := _without_keys(found):
            maker_of(result).attributes[TILING] = tiling_attr(loops)
        op.results[0].replace_all_uses_with(result)
        found.maximum.op.attributes[RUNNING] = mark
        for each in (found.sum.op, maker_of(made)):
            each.attributes[RESCALED] = mark
        for each in (found.matmul, found.masked, found.div):
            if each is not None:
                each.op.erase()
        own = [each.op for each in (found.maximum, found.sub, found.exp, found.sum)]
        return [*found.scores, *own, *masked, maker_of(made), maker_of(result)]

    def _tile(self, ops: list[ir.Operation], name: str, trials: Trials, room: int) -> None:
        """Gives the ops the loops with the least time; none where that is best."""
        group = [Tiled(op, _known(structured(op))) for op in ops]
        maximum = next(each for each in group if each.running is not None)
        matmul = next(each for each in reversed(group) if sdsc.opcode_of(each.op) == "batchmatmul")
        classes = dim_classes(group)
        rank = len(maximum.generic.extents)
        loops = [
            next(each for each in classes if dim in each.dims.get(maximum, ()))
            for dim in (*((0,) if rank > 2 else ()), rank - 2, rank - 1)
        ]
        untiled = trials.price(ops, {})
        tried = [("untiled", {}, untiled)]
        least = math.inf if untiled is None else untiled.nanoseconds
        for choices in _choices(loops, maximum, shape_of(matmul.result)[-1], self.sencores, room):
            before = least
            for tiles in choices:
                tiling = _tiling(group, loops, tiles, name)
                tried.append((" x ".join(map(str, tiles)), tiling, trials.price(ops, tiling)))
                least = min([least, *(price.nanoseconds for *_, price in tried[-1:] if price is not None)])
            if least == before < math.inf and len(tried) > 1 + len(choices):
                break  # more heads at once share less and less of what they read
        best = _best(tried)
        for op in ops:
            if best.get(op.results[0]):
                op.attributes[TILING] = tiling_attr(best[op.results[0]])
        text = "tiles of heads, rows and keys" if rank > 2 else "tiles of rows and keys"
        told = "; ".join(f"{what}: {price or 'not possible'}" for what, _, price in tried)
        self.remark(matmul.op, "tiling", f"attention in {text}; {told}")


def _best(tried: Sequence[tuple[str, dict[ir.Value, list[TiledLoop]], Price | None]]) -> dict:
    """The tiling with the least time; of times that the model cannot tell apart, the one that moves least."""
    possible = [(price, tiling) for _, tiling, price in tried if price is not None]
    if not possible:
        return {}
    least = min(price.nanoseconds for price, _ in possible)
    near = [each for each in possible if each[0].nanoseconds <= _SAME_TIME * least]
    fewest = min(price.bytes for price, _ in near)
    _, tiling = min(
        (each for each in near if each[0].bytes <= _SAME_BYTES * fewest), key=lambda each: each[0].nanoseconds
    )
    return tiling


def _choices(
    loops: Sequence[DimClass], maximum: Tiled, columns: int, cores: int, room: int
) -> Iterator[list[tuple[int, ...]]]:
    """Numbers of tiles of heads, rows and keys: for each number of head groups, many first, the fewest that may fit.

    Per core, rows of the operands and of the statistics take at most half of the room, scores of one tile a quarter;
    or, where that makes fewer tiles of rows, three quarters without statistics (they are dense if rows lie in the
    sticks), and a sixth.
    """
    *outer, keys = loops
    rows, sizes = outer[-1], shape_of(maximum.generic.inputs[0])
    grouped = len(outer) > 1
    dense = 3 * default_bytes((1, columns), "f16")
    for groups in reversed(divisors(sizes[0], sizes[0])) if grouped else (1,):
        if grouped and not outer[0].allows(groups):
            continue
        together = math.prod(sizes[:-1]) // groups
        found: dict[int, tuple[int, ...]] = {}
        for row_bytes, rows_room, scores_room in (
            (dense + 5 * device().stick_bytes, room // 2, room // 4),
            (dense, room * 3 // 4, room // 6),
        ):
            parts = _fewest(rows, sizes[-2], together * row_bytes // cores, rows_room)
            if parts is None or parts in found:
                continue
            scores = together // parts * default_bytes((1, sizes[-1]), "f16") // cores
            tiles = _fewest(keys, sizes[-1], scores, scores_room)
            if tiles is not None and max(groups, parts, tiles) > 1:
                found[parts] = (groups, parts, tiles) if grouped else (parts, tiles)
        if found:
            yield list(found.values())


def _fewest(along: DimClass, size: int, needed: int, room: int) -> int | None:
    """The fewest legal tiles of a dim with which ``needed`` bytes become at most ``room``."""
    return next(
        (tiles for tiles in divisors(size, size) if needed // tiles <= room and along.allows(tiles)), None
    )


def _tiling(
    group: Sequence[Tiled], loops: Sequence[DimClass], tiles: Sequence[int], name: str
) -> dict[ir.Value, list[TiledLoop]]:
    """The loops of each operation, those over keys inside."""
    labels = ("heads", "rows", "keys")[3 - len(loops) :]
    return {
        each.result: [
            TiledLoop(f"attention{name}.{label}", along.dims[each][0], count)
            for along, count, label in zip(loops, tiles, labels, strict=True)
            if count > 1 and each in along.dims
        ]
        for each in group
    }


def _without_keys(found: Attention) -> list[TiledLoop]:
    """The loops of the division after the matmul: those of the matmul over its rows and columns."""
    dims = found.matmul.maps[-1]
    loops = [loop for loop in tiling_of(found.matmul.op) if loop.dim in dims]
    return [replace(loop, dim=dims.index(loop.dim)) for loop in loops]


def _known(generic: Structured | None) -> Structured:
    assert generic is not None
    return generic


def _again(generic: Structured, old: ir.Value, new: ir.Value) -> ir.Value:
    """The same operation with another operand, in the same loops."""
    made = rebuilt(generic, [new if value == old else value for value in generic.inputs])
    if TILING in generic.op.attributes:
        maker_of(made).attributes[TILING] = generic.op.attributes[TILING]
    return made


def _row_dims(found: Attention) -> tuple[int, ...]:
    """The iteration dims of the matmul that the sum has: those of its first operand that are not reduced."""
    return tuple(dim for dim in found.matmul.maps[0] if dim is not None and dim not in found.matmul.reduced)


def attention_of(op: ir.Operation) -> Attention | None:
    """The softmax whose result a matmul contracts along the dim that it normalises; None for another op.

    Each value in between has no reader but the next ones, so none is seen before it is complete.
    """
    matmul = _device_op(op, ("batchmatmul",))
    if matmul is None:
        return None
    weights, masked = matmul.inputs[0], None
    mask = _made_by(weights, ("where3",))
    if mask is not None and _is_zero(mask.inputs[2]) and _only_reader(weights, matmul):
        weights, masked = mask.inputs[1], mask
    div = _made_by(weights, ("realdiv",))
    if div is None or not _only_reader(weights, masked or matmul):
        return None
    exp, total = _made_by(div.inputs[0], ("exp",)), _made_by(div.inputs[1], _SUMS)
    if exp is None or total is None or total.inputs[0] != exp.result:
        return None
    sub = _made_by(exp.inputs[0], ("sub",))
    maximum = None if sub is None else _made_by(sub.inputs[1], _MAXIMA)
    if sub is None or maximum is None or maximum.inputs[0] != sub.inputs[0]:
        return None
    scores = _scores(sub.inputs[0], [maximum.op, sub.op])
    if scores is None:
        return None
    found = Attention(scores, maximum, sub, exp, total, div, masked, matmul)
    return found if _is_softmax(found) else None


def _scores(value: ir.Value, readers: list[ir.Operation]) -> tuple[ir.Operation, ...] | None:
    """The matmul behind a value and the pointwise operations after it, which nobody else reads."""
    ops: list[ir.Operation] = []
    while True:
        op = defining_op(value)
        if op is None or sdsc.OP not in op.attributes:
            return None
        if any(use.owner.operation not in readers for use in value.uses):
            return None
        ops.append(op)
        readers = [op]
        if sdsc.opcode_of(op) == "batchmatmul":
            return (*_operands(op), *reversed(ops))
        whole = [each for each in op.operands if shape_of(each) == shape_of(value) and _is_compute(each)]
        if DEVICE_OPS[sdsc.opcode_of(op) or ""].kind is not Kind.POINTWISE or len(whole) != 1:
            return None
        value = whole[0]


def _operands(matmul: ir.Operation) -> Iterator[ir.Operation]:
    """Pointwise operations on the operands of a matmul, as that which scales the queries, if nobody else reads them."""
    for value in _known(structured(matmul)).inputs:
        op = defining_op(value)
        if (
            op is None
            or not _is_compute(value)
            or DEVICE_OPS[sdsc.opcode_of(op) or ""].kind is not Kind.POINTWISE
        ):
            continue
        if all(use.owner.operation == matmul for use in value.uses):
            yield op


def _is_compute(value: ir.Value) -> bool:
    op = defining_op(value)
    return op is not None and sdsc.OP in op.attributes


def _is_softmax(found: Attention) -> bool:
    """Whether maxima and sums are those of whole rows, which the matmul contracts, and nobody else reads the parts."""
    rank = len(found.exp.extents)
    whole, rows = tuple(range(rank)), tuple(range(rank - 1))
    alike = (
        found.maximum.maps == (whole, rows)
        and found.sum.maps == (whole, rows)
        and found.sub.maps == (whole, rows, whole)
        and found.div.maps == (whole, rows, whole)
        and (found.masked is None or found.masked.maps[1] == whole)
    )
    last = found.matmul.maps[0][-1]
    contracted = found.matmul.reduced == (last,)
    kept = all(dim in found.matmul.maps[-1] for dim in _row_dims(found))
    readers = {
        found.maximum.result: 1,
        found.sub.result: 1,
        found.exp.result: 2,
        found.sum.result: 1,
    }
    apart = all(len(list(value.uses)) == count for value, count in readers.items())
    ascending = [found.matmul.maps[-1].index(dim) for dim in _row_dims(found)] if kept else []
    return alike and contracted and kept and apart and ascending == list(range(rank - 1))


def _device_op(op: ir.Operation | None, opcodes: tuple[str, ...]) -> Structured | None:
    if op is None or sdsc.opcode_of(op) not in opcodes:
        return None
    return structured(op)


def _made_by(value: ir.Value, opcodes: tuple[str, ...]) -> Structured | None:
    return _device_op(defining_op(value), opcodes)


def _only_reader(value: ir.Value, reader: Structured) -> bool:
    return all(use.owner.operation == reader.op for use in value.uses)


def _is_zero(value: ir.Value) -> bool:
    op = defining_op(value)
    if op is None or op.name != "arith.constant":
        return False
    attr = op.attributes["value"]
    return attr.is_splat and ir.FloatAttr(attr.get_splat_value()).value == 0
