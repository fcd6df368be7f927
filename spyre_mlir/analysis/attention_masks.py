# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention masks with known elements: their effect on tiles of scores and weights."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.analysis.attention_pattern import Attention
from spyre_mlir.analysis.tile_nests import VIEWS
from spyre_mlir.dialects.constant_runs import runs_of
from spyre_mlir.dialects.sdsc import RUNS, host_view_of
from spyre_mlir.dialects.structured import Structured, defining_op, element_of, shape_of
from spyre_mlir.layout.host_view import HostView
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DEVICE_OPS, Kind
from spyre_mlir.tiling.mask_tiles import MaskTiles, Predicate, Range, RunLengths

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
        return (
            self.hides
            and bool((self.tiles.runs.values < FINITE_LOW).any())
            and not self.tiles.hides_row.any()
        )

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
    if runs is None or scores not in masked or not _is_over_rows_and_keys(generic, mask):
        return None
    rows, keys = whole[-2:]
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
    while (op := defining_op(value)) is not None and op.name in (
        "tensor.expand_shape",
        "tensor.collapse_shape",
    ):
        value = op.operands[0]
    shape = shape_of(value)
    if op is not None:
        return _runs_of_constant(op.attributes["value"], shape) if op.name == "arith.constant" else None
    func = value.owner.owner.operation
    attributes = list(func.attributes["arg_attrs"]) if "arg_attrs" in func.attributes else []
    number = ir.BlockArgument(value).arg_number
    if number >= len(attributes) or RUNS not in attributes[number]:
        return None
    # The attribute has the runs of the whole host array, in the order of the array.
    view = host_view_of(attributes[number], shape)
    array = view.array_shape
    if view.offset or math.prod(array) != math.prod(shape) or not _is_row_major(view):
        return None
    return runs_of(attributes[number][RUNS], shape)


def _is_row_major(view: HostView) -> bool:
    pieces = [piece for dim in view.dims for piece in dim if piece[0] > 1]
    strides = [math.prod(size for size, _ in pieces[index + 1 :]) for index in range(len(pieces))]
    return [stride for _, stride in pieces] == strides


def _runs_of_constant(attr: ir.Attribute, shape: tuple[int, ...]) -> RunLengths | None:
    if not isinstance(attr, ir.DenseElementsAttr) or attr.is_splat or not shape:
        return None
    return RunLengths.of(np.ascontiguousarray(np.array(attr)), _MOST_RUNS * math.prod(shape[:-1]))


#: Operands of mask and scores, predicates of mask elements that hide or keep a score, and whether it hides scores.
_Form = tuple[int, int, Predicate, Predicate, bool]


def _form(generic: Structured) -> _Form | None:
    """Return how an operation masks one operand with another; None if it does not."""
    if generic.opcode in ("add", "mul"):
        known = [operand for operand, value in enumerate(generic.inputs) if known_runs(value) is not None]
        if len(known) != 1:
            return None
        if generic.opcode == "add":
            return known[0], 1 - known[0], _is_low, _is_zero, True
        return known[0], 1 - known[0], _is_zero, _is_one, False
    if generic.opcode != "where3":
        return None
    for masked, other in ((1, 2), (2, 1)):
        number = splat_of(generic.inputs[other])
        if number is None or not (number <= _HIDDEN_SCORE or number == 0):
            continue
        predicates = (_is_zero, _is_not_zero) if masked == 1 else (_is_not_zero, _is_zero)
        return 0, masked, *predicates, number != 0
    return None


def _is_over_rows_and_keys(generic: Structured, mask: int) -> bool:
    """Return whether a mask has a number for each row and key, the same for all heads."""
    dims = [
        dim
        for dim, size in zip(generic.maps[mask], shape_of(generic.inputs[mask]), strict=True)
        if dim is not None and size > 1
    ]
    rank = len(generic.extents)
    return dims == [rank - 2, rank - 1]


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
    return (
        float(attr.get_splat_value().value)
        if isinstance(attr, ir.DenseElementsAttr) and attr.is_splat
        else None
    )


def _is_low(values: NDArray[np.float32]) -> NDArray[np.bool_]:
    return values <= _HIDDEN_SCORE


def _is_zero(values: NDArray[np.float32]) -> NDArray[np.bool_]:
    return values == 0


def _is_not_zero(values: NDArray[np.float32]) -> NDArray[np.bool_]:
    return values != 0


def _is_one(values: NDArray[np.float32]) -> NDArray[np.bool_]:
    return values == 1
