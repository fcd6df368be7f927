# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recognition of attention in device operations: a softmax between two matmuls, through views."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from spyre_mlir.analysis.tile_nests import VIEWS
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import Structured, defining_op, structured
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DEVICE_OPS, Kind

_MAXIMA, _SUMS = ("max", "maxnonstick"), ("sum", "sumnonstick")


class NotOnline(Exception):
    """A softmax before a matmul cannot be computed over tiles of its keys; the text is the reason."""


@dataclass(frozen=True)
class Attention:
    """The operations of ``softmax(s) @ v``: e = exp(s - max(s)), sum(e), e / sum(e), possibly scaled.

    ``scores`` are the matmul that computes s and the later operations on s, ``operands`` the operations on the operands
    of this matmul. ``weights`` are operations linear in e / sum(e): masks, products, casts. ``side`` is the number of
    the operand of the last matmul that contains the weights.
    """

    operands: tuple[Structured, ...]
    scores: tuple[Structured, ...]
    maximum: Structured
    sub: Structured
    exp: Structured
    sum: Structured
    div: Structured
    weights: tuple[Structured, ...]
    matmul: Structured
    side: int

    @property
    def columns(self) -> int:
        """The number of columns of the values v."""
        weights = self.matmul.maps[self.side]
        return math.prod(size for dim, size in enumerate(self.matmul.extents) if dim not in weights)

    @property
    def ops(self) -> list[Structured]:
        """All operations of the attention in order."""
        softmax = (self.maximum, self.sub, self.exp, self.sum, self.div)
        return [*self.operands, *self.scores, *softmax, *self.weights, self.matmul]


def attention_of(op: ir.Operation) -> Attention | None:
    """Return the attention that ends in matmul ``op``; None for another op; ``NotOnline`` if it needs all keys at once.

    Only the next operations of the pattern read each intermediate value, so no incomplete value is visible outside.
    """
    matmul = _device_op(op, ("batchmatmul",))
    if matmul is None:
        return None
    # Either operand may be the weights: a program may compute the transpose.
    for side in (0, 1):
        weights, div = _divided(matmul.inputs[side])
        if div is not None:
            return _attention(matmul, side, weights, div)
    return None


def _divided(value: ir.Value) -> tuple[list[Structured], Structured | None]:
    """Return the operations linear in the result of a softmax that compute a value, in order, and its division."""
    linear: list[Structured] = []
    while (op := producer_of(value)) is not None and (generic := structured(op)) is not None:
        if generic.opcode == "realdiv":
            return linear[::-1], generic if _is_normalisation(generic) else None
        operand = _linear_operand(generic)
        if operand is None:
            break
        linear.append(generic)
        value = generic.inputs[operand]
    return [], None


def _linear_operand(generic: Structured) -> int | None:
    """Return the operand of the result's shape in which an operation is linear; None for another operation."""
    if generic.opcode == "where3":
        # where(mask, x, 0) is linear in x: masked elements add 0 to a sum.
        return 1 if _is_zero(generic.inputs[2]) else None
    if generic.opcode not in ("mul", "identity") and _kind(generic) is not Kind.CAST:
        return None
    whole = [operand for operand, dims in enumerate(generic.maps[:-1]) if dims == generic.maps[-1]]
    computed = [operand for operand in whole if producer_of(generic.inputs[operand]) is not None]
    return computed[0] if computed else None


def _is_normalisation(div: Structured) -> bool:
    """Return whether a division divides exponentials by their sum."""
    exp, total = (producer_of(value) for value in div.inputs)
    if exp is None or total is None:
        return False
    summed = _device_op(total, _SUMS)
    return sdsc.opcode_of(exp) == "exp" and summed is not None and producer_of(summed.inputs[0]) == exp


def _attention(matmul: Structured, side: int, weights: Sequence[Structured], div: Structured) -> Attention:
    exp, total = (_known(producer_of(value)) for value in div.inputs)
    # Only exponentials of scores less a maximum can be rescaled when a later tile raises the maximum.
    sub = _device_op(producer_of(exp.inputs[0]), ("sub",))
    maximum = None if sub is None else _device_op(producer_of(sub.inputs[1]), _MAXIMA)
    if sub is None or maximum is None or producer_of(maximum.inputs[0]) != producer_of(sub.inputs[0]):
        raise NotOnline("its exponentials are not those of scores less their maximum")
    scores = _scores(sub.inputs[0])
    attention = Attention(
        tuple(_operands(scores[0])),
        tuple(scores),
        maximum,
        sub,
        exp,
        total,
        div,
        tuple(weights),
        matmul,
        side,
    )
    _check_readers(attention)
    return attention


def _scores(value: ir.Value) -> list[Structured]:
    """Return the matmul from which a value is computed and the elementwise operations after the matmul."""
    after: list[Structured] = []
    while (op := producer_of(value)) is not None and (generic := structured(op)) is not None:
        after.append(generic)
        if generic.opcode == "batchmatmul":
            return after[::-1]
        whole = [
            value
            for value, dims in zip(generic.inputs, generic.maps, strict=False)
            if dims == generic.maps[-1] and _comes_of_matmul(value)
        ]
        if not _kind(generic).is_elementwise or not whole:
            raise NotOnline(
                f"'{generic.opcode}' of the scores is no elementwise operation on a matmul's result"
            )
        value = whole[0]
    raise NotOnline("its scores are not made by a matmul")


def _comes_of_matmul(value: ir.Value) -> bool:
    """Return whether a value is computed from a matmul by elementwise operations and views only."""
    pending = [value]
    while pending:
        op = producer_of(pending.pop())
        if op is None or (generic := structured(op)) is None:
            continue
        if generic.opcode == "batchmatmul":
            return True
        if _kind(generic).is_elementwise:
            pending += [
                value
                for value, dims in zip(generic.inputs, generic.maps, strict=False)
                if dims == generic.maps[-1]
            ]
    return False


def _operands(matmul: Structured) -> Iterator[Structured]:
    """Yield elementwise operations on the operands of a matmul that only the matmul reads, e.g. the scaling of queries.

    Broadcasts are excluded: in a loop over tiles a broadcast would be computed once per tile.
    """
    for value in dict.fromkeys(matmul.inputs):
        op = producer_of(value)
        generic = None if op is None else structured(op)
        if generic is None or not _kind(generic).is_elementwise or is_broadcast(generic):
            continue
        if readers(generic.result) == {matmul.result}:
            yield generic


def _check_readers(attention: Attention) -> None:
    """Raise ``NotOnline`` if another operation reads a value of which a loop computes one tile at a time."""
    # The operations after the division form a chain: the next operation is the only reader of each result.
    readers_in_order = [*attention.weights, attention.matmul]
    # Another reader would read values relative to a maximum that later tiles may still change.
    allowed = {
        attention.maximum.result: {attention.sub.result},
        attention.sub.result: {attention.exp.result},
        attention.exp.result: {attention.sum.result, attention.div.result},
        attention.sum.result: {attention.div.result},
    }
    for generic, reader in zip((attention.div, *attention.weights), readers_in_order, strict=True):
        allowed[generic.result] = {reader.result}
    for generic, reader in zip(attention.scores, attention.scores[1:], strict=False):
        allowed[generic.result] = {reader.result}
    allowed[attention.scores[-1].result] = {attention.maximum.result, attention.sub.result}
    for generic in attention.ops:
        if generic.result in allowed and readers(generic.result) - allowed[generic.result]:
            raise NotOnline(f"the result of '{generic.opcode}' is read by others, too, who need all of it")


def around_softmax(matmul: ir.Operation) -> list[ir.Operation]:
    """Return a matmul and the elementwise operations and reductions before it, back to the matmul of the scores."""
    pending, inside = [matmul], {matmul.results[0]}
    while pending:
        for value in _known(pending.pop()).inputs:
            op = producer_of(value)
            if op is None or op.results[0] in inside or structured(op) is None:
                continue
            inside.add(op.results[0])
            kind = _kind(_known(op))
            if kind.is_elementwise or (kind.combines and not kind.on_array):
                pending.append(op)
            # The matmul of the scores belongs to the group, its operands do not.
            elif sdsc.opcode_of(op) != "batchmatmul":
                inside.remove(op.results[0])
    return [
        op.operation
        for op in matmul.block.operations
        if op.operation.results and op.operation.results[0] in inside
    ]


def readers(value: ir.Value) -> set[ir.Value]:
    """Return the results of the operations that read a value through views; the value itself for a terminator."""
    results: set[ir.Value] = set()
    pending = [value]
    while pending:
        for use in (current := pending.pop()).uses:
            user = use.owner.operation
            if user.name in VIEWS and user.operands[0] == current:
                pending.append(user.results[0])
            else:
                results.add(user.results[0] if user.results else value)
    return results


def is_broadcast(generic: Structured) -> bool:
    """Return whether an operation only repeats a tensor along new dims."""
    if generic.opcode != "identity" or sorted(map(str, generic.maps[-1])) != sorted(
        map(str, range(len(generic.extents)))
    ):
        return False
    dims = [dim for dim in generic.maps[0] if dim is not None]
    return len(dims) < len(generic.extents)


def producer_of(value: ir.Value) -> ir.Operation | None:
    """Return the device operation that defines a value, through views; None if there is none."""
    op = defining_op(value)
    while op is not None and op.name in VIEWS:
        op = defining_op(op.operands[0])
    return op if op is not None and sdsc.OP in op.attributes else None


def _kind(generic: Structured) -> Kind:
    return DEVICE_OPS[generic.opcode].kind


def _known(op: ir.Operation | None) -> Structured:
    generic = None if op is None else structured(op)
    assert generic is not None
    return generic


def _device_op(op: ir.Operation | None, opcodes: tuple[str, ...]) -> Structured | None:
    if op is None or sdsc.opcode_of(op) not in opcodes:
        return None
    return structured(op)


def _is_zero(value: ir.Value) -> bool:
    op = defining_op(value)
    if op is None or op.name != "arith.constant":
        return False
    attr = op.attributes["value"]
    return attr.is_splat and ir.FloatAttr(attr.get_splat_value()).value == 0
