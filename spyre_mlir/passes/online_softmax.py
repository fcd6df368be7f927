"""Rewrites attention so that it can run over tiles of keys, without the matrix of scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import (
    Structured,
    defining_op,
    device_op,
    element_of,
    maker_of,
    shape_of,
    structured,
)
from spyre_mlir.mlir import ir
from spyre_mlir.passes._memory import functions
from spyre_mlir.passes._tile_nests import RESCALED, RUNNING
from spyre_mlir.passes.base import Pass

_MAXIMA, _SUMS = ("max", "maxnonstick"), ("sum", "sumnonstick")


@dataclass(frozen=True)
class Attention:
    """The operations of ``softmax(s) @ v``: s less its maximum, e = exp of that, its sum, e / sum, maybe masked."""

    maximum: Structured
    sub: Structured
    exp: Structured
    sum: Structured
    div: Structured
    masked: Structured | None
    matmul: Structured


@dataclass(frozen=True)
class OnlineSoftmax(Pass):
    """Divide by the sum of a softmax after the matmul that takes its result, where that can be done.

    ``(e / l) @ v = (e @ v) / l``: fewer divisions, and e is all that the matmul waits for. The maximum, the sum and
    the matmul are marked so that ``coarse-tiling`` runs them over tiles of keys: the maximum is the one so far, and
    the sums so far are corrected by ``exp(maximum before - maximum now)`` (Milakov and Gimelshein, "Online normalizer
    calculation for softmax", 2018). Nothing is marked that has another reader.

    Before, level *device-ops*:
        %m = max(%s); %e = exp(%s - %m); %l = sum(%e); %p = %e / %l; %o = %p @ %v
    After:
        %m = max(%s) {sdsc.running = "0"}; %e = exp(%s - %m); %l = sum(%e) {sdsc.rescaled = "0"}
        %q = %e @ %v {sdsc.rescaled = "0"}; %o = %q / %l
    """

    name: ClassVar[str] = "online-softmax"

    def run(self, module: ir.Operation) -> None:
        for func in functions(module):
            number = 0
            for op in [each.operation for each in func.regions[0].blocks[0].operations]:
                found = attention_of(op)
                if found is not None:
                    self._rewrite(found, str(number))
                    number += 1

    def _rewrite(self, found: Attention, name: str) -> None:
        op, mark = found.matmul.op, ir.StringAttr.get(name, found.matmul.op.context)
        with ir.InsertionPoint(op), op.location:
            weights = found.exp.result
            if found.masked is not None:
                weights = _again(found.masked, found.div.result, weights)
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
        sdsc.record(maker_of(result), "rewrite", self.name, "the division by the sum comes after the matmul")
        op.results[0].replace_all_uses_with(result)
        found.maximum.op.attributes[RUNNING] = mark
        for each in (found.sum.op, maker_of(made)):
            each.attributes[RESCALED] = mark
        for each in (found.matmul, found.masked, found.div):
            if each is not None:
                each.op.erase()
        self.remark(maker_of(made), "rewrite", "attention can run over tiles of keys")


def _again(generic: Structured, old: ir.Value, new: ir.Value) -> ir.Value:
    """The same operation with another operand."""
    made = device_op(
        generic.opcode,
        [new if value == old else value for value in generic.inputs],
        generic.maps[:-1],
        generic.extents,
        element_of(generic.result),
        location=generic.op.location,
        reduced=generic.reduced,
        result_map=generic.maps[-1],
        constants=sdsc.constants_of(generic.op),
    )
    sdsc.inherit(maker_of(made), generic.op)
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
    found = Attention(maximum, sub, exp, total, div, masked, matmul)
    return found if _is_softmax(found) else None


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
