# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recognition of attention in device operations: a softmax between two matmuls, through views."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.analysis.tile_nests import VIEWS
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.sdsc import RUNS, host_view_of
from spyre_mlir.dialects.structured import Structured, defining_op, element_of, runs_of, shape_of, structured
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DEVICE_OPS, Kind
from spyre_mlir.tiling.mask_tiles import MaskTiles, Predicate, Range, RunLengths

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
            exp = _device_op(producer_of(generic.inputs[0]), ("exp",))
            summed = _device_op(producer_of(generic.inputs[1]), _SUMS)
            if exp is None or summed is None or producer_of(summed.inputs[0]) != exp.op:
                return linear[::-1], None
            return linear[::-1], generic
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
        other = defining_op(generic.inputs[2])
        is_zero = other is not None and other.name == "arith.constant" and splat_of(other.results[0]) == 0
        return 1 if is_zero else None
    if generic.opcode not in ("mul", "identity") and _kind(generic) is not Kind.CAST:
        return None
    whole = [operand for operand, dims in enumerate(generic.maps[:-1]) if dims == generic.maps[-1]]
    computed = [operand for operand in whole if producer_of(generic.inputs[operand]) is not None]
    return computed[0] if computed else None


def _attention(matmul: Structured, side: int, weights: Sequence[Structured], div: Structured) -> Attention:
    """Return the attention; ``NotOnline`` if another operation reads a value that a loop computes tile by tile."""
    exp, total = (known(producer_of(value)) for value in div.inputs)
    # Only exponentials of scores less a maximum can be rescaled when a later tile raises the maximum.
    sub = _device_op(producer_of(exp.inputs[0]), ("sub",))
    maximum = None if sub is None else _device_op(producer_of(sub.inputs[1]), _MAXIMA)
    if sub is None or maximum is None or producer_of(maximum.inputs[0]) != producer_of(sub.inputs[0]):
        raise NotOnline("the operand of its exponential is not the scores minus their maximum")
    scores = _scores(sub.inputs[0])
    operands, after = tuple(_operands(scores[0])), tuple(weights)
    attention = Attention(operands, tuple(scores), maximum, sub, exp, total, div, after, matmul, side)
    # Another reader would read values relative to a maximum that later tiles may still change.
    allowed = {
        scores[-1].result: {maximum.result, sub.result},
        maximum.result: {sub.result},
        sub.result: {exp.result},
        exp.result: {total.result, div.result},
        total.result: {div.result},
    }
    # In these chains the next operation is the only reader of each result.
    for chain in (scores, (div, *after, matmul)):
        allowed |= {generic.result: {reader.result} for generic, reader in itertools.pairwise(chain)}
    for generic in attention.ops:
        others = readers(generic.result) - allowed.get(generic.result, readers(generic.result))
        # Reductions over the keys are complete after the loops, where a terminator reads them.
        if generic.reduced:
            others = {
                value for value in others if value != generic.result and not _is_after(value, matmul.op)
            }
        if others:
            raise NotOnline(f"other operations read the whole result of '{generic.opcode}'")
    return attention


def _is_after(value: ir.Value, op: ir.Operation) -> bool:
    """Return whether an operation of the block of ``op`` defines a value after it."""
    maker = defining_op(value)
    return maker is not None and maker.block == op.block and op.is_before_in_block(maker)


def _scores(value: ir.Value) -> list[Structured]:
    """Return the matmul from which a value is computed and the elementwise operations after the matmul."""
    after: list[Structured] = []
    while (op := producer_of(value)) is not None and (generic := structured(op)) is not None:
        after.append(generic)
        if generic.opcode == "batchmatmul":
            return after[::-1]
        whole = [value for value in _whole_inputs(generic) if _comes_of_matmul(value)]
        if not _kind(generic).is_elementwise or not whole:
            raise NotOnline(
                f"'{generic.opcode}' of the scores is not an elementwise operation on a matmul's result"
            )
        value = whole[0]
    raise NotOnline("its scores are not computed by a matmul")


def _whole_inputs(generic: Structured) -> list[ir.Value]:
    """Return the inputs that have the dims of the result, in their order."""
    operands = zip(generic.inputs, generic.maps, strict=False)
    return [value for value, dims in operands if dims == generic.maps[-1]]


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
            pending += _whole_inputs(generic)
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


def around_softmax(matmul: ir.Operation) -> list[ir.Operation]:
    """Return a matmul and the elementwise operations and reductions before it, back to the matmul of the scores."""
    pending, inside = [matmul], {matmul.results[0]}
    while pending:
        for value in known(pending.pop()).inputs:
            op = producer_of(value)
            if op is None or op.results[0] in inside or structured(op) is None:
                continue
            inside.add(op.results[0])
            kind = _kind(known(op))
            if kind.is_elementwise or (kind.combines and not kind.on_array):
                pending.append(op)
            # The matmul of the scores belongs to the group, its operands do not.
            elif sdsc.opcode_of(op) != "batchmatmul":
                inside.remove(op.results[0])
    ops = (op.operation for op in matmul.block.operations)
    return [op for op in ops if op.results and op.results[0] in inside]


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
    dims = [dim for dim in generic.maps[0] if dim is not None]
    is_permuted = sorted(map(str, generic.maps[-1])) == sorted(map(str, range(len(generic.extents))))
    return generic.opcode == "identity" and is_permuted and len(dims) < len(generic.extents)


def producer_of(value: ir.Value) -> ir.Operation | None:
    """Return the device operation that defines a value, through views; None if there is none."""
    op = defining_op(value)
    while op is not None and op.name in VIEWS:
        op = defining_op(op.operands[0])
    return op if op is not None and sdsc.OP in op.attributes else None


def _kind(generic: Structured) -> Kind:
    return DEVICE_OPS[generic.opcode].kind


def known(op: ir.Operation | None) -> Structured:
    """Return the structured view of a device operation."""
    generic = None if op is None else structured(op)
    assert generic is not None
    return generic


def _device_op(op: ir.Operation | None, opcodes: tuple[str, ...]) -> Structured | None:
    if op is None or sdsc.opcode_of(op) not in opcodes:
        return None
    return structured(op)


#: A score that a mask makes at most this large is hidden: its weight is 0 unless all scores of the row are as low.
_HIDDEN_SCORE = -1e4

#: A finite number that hides a score in fp16: half of the lowest number, so that a score added to it stays finite.
FINITE_LOW = -32752.0

#: Maximum number of runs of equal elements in a row of a constant mask; a mask with more runs does not hide tiles.
_MOST_RUNS = 8


@dataclass(frozen=True)
class KnownMask:
    """An operation that masks scores or weights with known numbers.

    ``mask`` and ``masked`` are operands; ``hides``: a masked score has weight 0. ``rows`` and ``keys`` are iteration
    dims. ``infinite`` is an operand that is -infinity and becomes a masked score.
    """

    tiles: MaskTiles
    mask: int
    masked: int
    hides: bool
    rows: int
    keys: int
    infinite: int | None = None

    @property
    def is_infinite(self) -> bool:
        """Whether the mask contains -infinity and no row hides all keys."""
        is_low = bool((self.tiles.runs.values < FINITE_LOW).any())
        return self.hides and is_low and not self.tiles.hides_row.any()

    def part(self, rows: Range, keys: Range) -> NDArray[np.float32]:
        """Return the mask for some rows and keys, with finite numbers in rows that do not hide all keys.

        A row may see no key of a tile. With -infinity its maximum would be -infinity, and score - maximum NaN.
        """
        numbers = self.tiles.tile(rows, keys)
        if not self.hides:
            return numbers
        is_low = (numbers < FINITE_LOW) & ~self.tiles.hides_row[slice(*rows), None]
        return np.where(is_low, np.float32(FINITE_LOW), numbers)


def hiding_masks(attention: Attention) -> list[tuple[Structured, KnownMask]]:
    """Return the operations of an attention whose known masks determine the tiles of keys that can be skipped.

    Masks of weights are included only if a mask of scores hides scores; without such a mask the list is empty.
    """
    masks: list[tuple[Structured, KnownMask]] = []
    for generic in attention.scores[1:]:
        mask = known_mask(generic)
        if mask is not None and mask.hides:
            masks.append((generic, mask))
        elif masks and not _keeps_hidden(generic):
            return []
    if not masks:
        return []
    weights = ((generic, known_mask(generic)) for generic in attention.weights)
    return [*masks, *((generic, mask) for generic, mask in weights if mask is not None)]


def known_mask(generic: Structured) -> KnownMask | None:
    """Return the mask that an elementwise operation applies; None for another operation, or an unknown mask."""
    whole = tuple(range(len(generic.extents)))
    masked = [operand for operand, dims in enumerate(generic.maps[:-1]) if dims == whole]
    form = _form(generic)
    if form is None or generic.maps[-1] != whole or len(whole) < 2:
        return None
    mask, scores, is_hidden, is_neutral, hides = form
    runs = known_runs(generic.inputs[mask])
    # The mask has a number for each row and key, the same for all heads.
    shape = zip(generic.maps[mask], shape_of(generic.inputs[mask]), strict=True)
    dims = tuple(dim for dim, size in shape if dim is not None and size > 1)
    if runs is None or scores not in masked or dims != whole[-2:]:
        return None
    rows, keys = dims
    flat = RunLengths((generic.extents[rows], generic.extents[keys]), runs.ends, runs.values)
    tiles = MaskTiles(flat, is_hidden, is_neutral)
    infinite = next(
        (operand for operand, value in enumerate(generic.inputs) if splat_of(value) == -math.inf), None
    )
    if infinite is not None and tiles.hides_row.any():
        return None  # one number cannot be finite for some rows and infinite for rows that are NaN in the program
    return KnownMask(tiles, mask, scores, hides, rows, keys, infinite)


def known_runs(value: ir.Value) -> RunLengths | None:
    """Return a constant as runs of equal elements; None for another value, or for a constant of many runs."""
    reshapes = ("tensor.expand_shape", "tensor.collapse_shape")
    while (op := defining_op(value)) is not None and op.name in reshapes:
        value = op.operands[0]
    shape = shape_of(value)
    if op is not None:
        attr = op.attributes["value"] if op.name == "arith.constant" else None
        if not isinstance(attr, ir.DenseElementsAttr) or attr.is_splat or not shape:
            return None
        return RunLengths.of(np.ascontiguousarray(np.array(attr)), _MOST_RUNS * math.prod(shape[:-1]))
    func = value.owner.owner.operation
    attributes = list(func.attributes["arg_attrs"]) if "arg_attrs" in func.attributes else []
    number = ir.BlockArgument(value).arg_number
    if number >= len(attributes) or RUNS not in attributes[number]:
        return None
    # The attribute has the runs of the whole host array, in the order of the array.
    view = host_view_of(attributes[number], shape)
    pieces = [piece for dim in view.dims for piece in dim if piece[0] > 1]
    row_major = [math.prod(size for size, _ in pieces[index + 1 :]) for index in range(len(pieces))]
    is_whole = not view.offset and math.prod(view.array_shape) == math.prod(shape)
    if not is_whole or [stride for _, stride in pieces] != row_major:
        return None
    return runs_of(attributes[number][RUNS], shape)


#: Predicates of mask elements.
_IS_LOW: Predicate = functools.partial(operator.ge, _HIDDEN_SCORE)
_IS_ZERO: Predicate = functools.partial(operator.eq, 0)
_IS_ONE: Predicate = functools.partial(operator.eq, 1)
_IS_NOT_ZERO: Predicate = functools.partial(operator.ne, 0)

#: Operands of mask and scores, predicates of mask elements that hide or keep a score, and whether it hides scores.
_Form = tuple[int, int, Predicate, Predicate, bool]


def _form(generic: Structured) -> _Form | None:
    """Return how an operation masks one operand with another; None if it does not."""
    if generic.opcode in ("add", "mul"):
        known = [operand for operand, value in enumerate(generic.inputs) if known_runs(value) is not None]
        if len(known) != 1:
            return None
        if generic.opcode == "add":
            return known[0], 1 - known[0], _IS_LOW, _IS_ZERO, True
        return known[0], 1 - known[0], _IS_ZERO, _IS_ONE, False
    if generic.opcode != "where3":
        return None
    for masked, other in ((1, 2), (2, 1)):
        number = splat_of(generic.inputs[other])
        if number is None or not (number <= _HIDDEN_SCORE or number == 0):
            continue
        hides, keeps = (_IS_ZERO, _IS_NOT_ZERO) if masked == 1 else (_IS_NOT_ZERO, _IS_ZERO)
        return 0, masked, hides, keeps, number != 0
    return None


def _keeps_hidden(generic: Structured) -> bool:
    """Return whether an operation on scores keeps hidden scores hidden."""
    if generic.opcode in ("add", "sub", "where3", "identity") or DEVICE_OPS[generic.opcode].kind is Kind.CAST:
        return True
    if generic.opcode == "maximum":
        return any(
            (number := splat_of(value)) is not None and number <= _HIDDEN_SCORE for value in generic.inputs
        )
    return False


def splat_of(value: ir.Value) -> float | None:
    """Return the number that all elements of a constant are equal to; None for another value."""
    op = defining_op(value)
    while op is not None and op.name in VIEWS:
        op = defining_op(op.operands[0])
    if op is None or op.name != "arith.constant" or element_of(value) not in ("f16", "f32", "bf16"):
        return None
    attr = op.attributes["value"]
    is_splat = isinstance(attr, ir.DenseElementsAttr) and attr.is_splat
    return float(attr.get_splat_value().value) if is_splat else None
