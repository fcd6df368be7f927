# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Range check: numbers that leave the range of the 16-bit format, although the program's types can represent them.

An operation computes in float32 and rounds its result to 16 bits: a number may become an infinity (in DL16 the largest
number) or 0. If the program's type there can represent the number (float32 or bfloat16), an overflow is an error;
otherwise the program's own fp16 overflows as well, and the run reports this once. A number that rounds to 0 counts if
it is more than a thousandth of the largest number of the result, and in a program without bfloat16 only if DL16 could
represent it. Infinities and numbers at the end of their format, from which masks are made, do not count.

Scores before an exponential stay in range but lose digits: the rounding error becomes a relative error of
the weights. The run reports this where it may matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.model import KernelArgument, Manifest
from spyre_mlir.records import dataclass
from spyre_mlir.simulator.plan import Plan, compute
from spyre_mlir.simulator.run_outcome import IntegerRangeError, SimulationError
from spyre_mlir.target.formats import BFLOAT16_MAX, BIT_TRUE, FP16_MAX, IEEE, TOLERANCE, Numerics
from spyre_mlir.target.ops import DL16, FP32, Kind

#: Advice for a number that IEEE fp16 cannot represent.
ADVICE = f"the numerics '{BIT_TRUE}' have the device's range, the precision 'strict' the range of the program's types"


#: The error of an exponential by rounding that is not reported: for numbers of fp16, and for numbers of
#: bfloat16, which has an eighth of the precision.
_AMPLIFIED_ERROR, _AMPLIFIED_BFLOAT_ERROR = 0.003, 0.02


@dataclass
class RangeLoss:
    """Numbers of a run that were not represented correctly: ``what`` they are, their count, and the first of them."""

    what: str
    elements: int
    first: str
    advice: str = ""


def described(losses: Iterable[RangeLoss]) -> list[str]:
    """Return the losses of several runs, one sentence for each kind of loss."""
    total: dict[str, RangeLoss] = {}
    for loss in losses:
        first = total.setdefault(loss.what, replace(loss, elements=0))
        first.elements += loss.elements
    return [
        f"{loss.what}: {loss.elements}, the first in {loss.first}{loss.advice}." for loss in total.values()
    ]


class RangeCheck:
    """Check of each result of one run before it is rounded; ``losses`` has the losses so far."""

    def __init__(self, manifest: Manifest, numerics: Numerics) -> None:
        self._losses: dict[str, RangeLoss] = {}
        self._numerics, self._range = numerics, numerics.range
        self._demoted, self._amplified = frozenset(manifest.demoted), frozenset(manifest.amplified)
        self._has_bfloat = manifest.numerics == BIT_TRUE
        # A loss that DL16 has too is not reported for IEEE fp16.
        coarse = numerics.mode == IEEE and not self._has_bfloat
        self._too_small = Numerics(BIT_TRUE).range.underflow if coarse else 0.0
        self._small = self._range.underflow / TOLERANCE
        self._coarse = (
            _AMPLIFIED_BFLOAT_ERROR if self._has_bfloat else _AMPLIFIED_ERROR
        ) / self._range.rounding
        # Codes rise with the numbers: strictly between these two codes, not all numbers are small and none overflowed.
        ends = np.array([self._small, self._range.overflow if numerics.mode == IEEE else self._range.largest])
        self._plain_codes = tuple(int(code) for code in numerics.store(ends.astype(np.float32), DL16))
        self._suspects: list[NDArray[Any]] = []
        self._is_small = True

    def reset(self) -> None:
        """Begin a new run."""
        self._losses = {}

    @property
    def losses(self) -> tuple[RangeLoss, ...]:
        """The losses of the run so far."""
        return tuple(self._losses.values())

    def begin(self) -> None:
        """Begin a new execution: whether all numbers are small is decided over all cores together."""
        self._suspects, self._is_small = [], True

    def is_plain(self, index: int, result: NDArray[Any]) -> bool:
        """Return whether ``stored`` would only find that not all numbers of a float32 result are small."""
        largest = max(float(np.maximum.reduce(result, None)), -float(np.minimum.reduce(result, None)))
        if not math.isfinite(largest):
            largest = float(np.max(np.abs(result), where=np.isfinite(result), initial=0))
        return self.is_plain_size(index, largest)

    def is_plain_size(self, index: int, largest: float) -> bool:
        """Return ``is_plain`` for a result whose largest finite magnitude is given."""
        if index in self._amplified and largest > self._coarse:
            return False
        return self._small < largest < self._range.overflow

    def are_plain(self, index: int, codes: NDArray[np.uint16]) -> bool:
        """Return whether ``is_plain`` holds for all numbers that round to these codes."""
        if index in self._amplified:
            return False
        first, last = self._plain_codes
        return first < int(np.maximum.reduce(codes & np.uint16(0x7FFF), None)) < last

    def has_last(self, codes: NDArray[np.uint16]) -> bool:
        """Return whether codes contain the number that represents infinity in DL16."""
        if self._numerics.mode != BIT_TRUE:
            return False
        return bool(((codes & np.uint16(0x7FFF)) == self._plain_codes[1]).any())

    def note_plain(self, is_plain: bool) -> None:
        """Record whether some results of the execution were plain, so that not all its numbers are small."""
        self._is_small = self._is_small and not is_plain

    def stored(self, plan: Plan, index: int, result: NDArray[Any], operands: list[NDArray[Any]]) -> None:
        """Check the float32 result of a core before rounding to 16 bits; ``operands`` if elementwise."""
        if index in self._amplified:
            self._score(plan, result)
        largest = max(float(result.max()), -float(result.min()))
        # Almost every result returns here: no overflow, and not all numbers are small.
        if self._small < largest < self._range.overflow:
            self._is_small = False
            return
        size = np.abs(result)
        beyond = np.isfinite(size) & (size >= self._range.overflow)
        if beyond.any() and (position := _first(beyond & ~_masks(plan, result.shape, operands))) is not None:
            wrong = int(np.count_nonzero(beyond))
            self._overflow(plan, index, wrong, float(result[position]))
        if np.max(size, where=np.isfinite(size), initial=0) > self._small:
            self._is_small = False
        elif self._is_small:
            # Decided in ``finish``: another core may have larger numbers than the small numbers of this core.
            self._suspects.append(size[np.isfinite(size)])

    def finish(self, plan: Plan) -> None:
        """Report the numbers that became 0 in the results of all cores."""
        if not self._is_small or not self._suspects:
            return
        sizes = np.concatenate(self._suspects)
        floor = max(TOLERANCE * float(sizes.max(initial=0)), self._too_small)
        lost = sizes[(sizes > floor) & (sizes <= self._range.underflow)]
        if not lost.size:
            return
        if self._has_bfloat:
            text = f"{lost[0]:g} is outside the range of {self._range.name} and would become 0, but bfloat16 holds it"
            raise SimulationError("range", f"{text}; {self._way_out}", design=plan.design)
        self._note(plan, lost.size, float(lost[0]), "0")

    def _score(self, plan: Plan, result: NDArray[Any]) -> None:
        """Check float32 scores that are rounded to 16 bits before an exponential."""
        size = np.where(np.isfinite(result), np.abs(result), 0)
        error = _AMPLIFIED_BFLOAT_ERROR if self._has_bfloat else _AMPLIFIED_ERROR
        coarse = (size > error / self._range.rounding) & (size < _LAST[1])
        if coarse.any():
            largest = float(size.max(where=coarse, initial=0))
            error = min(1.0, math.expm1(min(1.0, largest * self._range.rounding)))
            text = f"{_place(plan)}: rounding {largest:g} may change its exponential by {100 * error:.2g} %"
            advice = "; the precision 'strict' subtracts the largest score before it rounds"
            self._add(f"Scores that {self._range.name} rounds", int(coarse.sum()), text, advice)

    def _overflow(self, plan: Plan, index: int, count: int, value: float) -> None:
        is_ieee = self._numerics.mode == IEEE
        became = (
            f"{np.copysign(np.inf, value):g}" if is_ieee else f"{np.copysign(self._range.largest, value):.0f}"
        )
        if not self._has_bfloat and index not in self._demoted:
            self._note(plan, count, value, became)
            return
        wider = "bfloat16" if self._has_bfloat else "float32"
        text = f"{value:g} is outside the range of {self._range.name} and would become {became}"
        text = f"{text}, but the program has it in {wider}; {self._way_out}"
        raise SimulationError("range", text, design=plan.design)

    @property
    def _way_out(self) -> str:
        if self._has_bfloat:
            return "compute this in float32 (.float())."
        return f"{ADVICE}."

    def _note(self, plan: Plan, count: int, value: float, became: str) -> None:
        what, first = f"Numbers that left the range of {self._range.name}", f"{value:g} became {became}"
        self._add(what, count, f"{_place(plan)}: {first}", f"; {ADVICE}")

    def _add(self, what: str, count: int, first: str, advice: str = "") -> None:
        loss = self._losses.setdefault(what, RangeLoss(what, 0, first, advice))
        loss.elements += count

    def reads_infinities(self, plan: Plan, operands: list[NDArray[Any]]) -> bool:
        """Return whether an operation computes with infinities of DL16."""
        if self._numerics.mode != BIT_TRUE or plan.op.is_copy or plan.op.kind is Kind.CAST:
            return False
        forms = [operand.data_format for operand in plan.design.operands]
        last = self._range.largest
        return any(
            form in (DL16, FP32) and (np.abs(x) == last).any()
            for form, x in zip(forms, operands, strict=False)
        )

    def computed(self, plan: Plan, operands: list[NDArray[Any]], result: NDArray[Any]) -> None:
        """Check the results of some cores from infinities, which DL16 represents by its largest number.

        Such a result differs from the result of a true infinity, unless both are infinite in the program's type. A
        float32 number that equals the largest number of DL16 was an infinity before a cast.
        """
        last = self._range.largest
        if not self.reads_infinities(plan, operands):
            return
        # Compute again with true infinities, to check whether the result would differ.
        infinite = [np.where(np.abs(x) == last, np.copysign(np.inf, x).astype(x.dtype), x) for x in operands]
        expected = compute(plan.op.name, infinite, plan.work)
        end = last if self._has_bfloat else FP16_MAX
        is_end = np.isinf(expected) & (np.sign(expected) == np.sign(result)) & (np.abs(result) >= end)
        stored, proper = (self._numerics.store(x, DL16) for x in (result, expected))
        wrong = (stored != proper) & ~is_end
        if wrong.any():
            first = _first(wrong)
            text = f"{_place(plan)}: {result[first]:g} in the place of {expected[first]:g}"
            self._add("Results of infinities, which DL16 does not have", int(wrong.sum()), text)

    def read(self, argument: KernelArgument, array: NDArray[Any]) -> None:
        """Check a float32 result, which cannot represent an infinity of DL16 as such."""
        if self._numerics.mode != BIT_TRUE or argument.data_format != FP32:
            return
        wrong = int(np.count_nonzero(np.abs(array) == self._range.largest))
        if wrong:
            what = "Results of infinities, which DL16 does not have"
            self._add(what, wrong, f"'{argument.name}': {self._range.largest:.0f} in the place of inf")


def _place(plan: Plan) -> str:
    design = plan.design
    source = design.source.rpartition("/")[2]
    return f"{design.filename} ({', '.join(text for text in (design.opcode, source) if text)})"


def check_integers(plan: Plan, core: int, numbers: NDArray[Any]) -> None:
    """Check that numbers fit 32-bit integers; 2^31 fits, because float32 rounds the largest integer to it."""
    wrong = ~(np.abs(numbers) <= 2.0**31)
    if wrong.any():
        infinite = wrong & ~np.isfinite(numbers)
        value = numbers[_first(infinite if infinite.any() else wrong)]
        text = (
            f"{value:g} is not a 32-bit integer: it comes from an integer division by zero, or is too large."
        )
        kind = SimulationError if infinite.any() else IntegerRangeError
        raise kind("range", text, design=plan.design, core=core)


def check_bytes(plan: Plan, core: int, numbers: NDArray[Any]) -> None:
    """Check that numbers are 8-bit integers: a cast of others would wrap, saturate or round unlike the program."""
    wrong = ~((numbers == np.rint(numbers)) & (np.abs(numbers + 0.5) < 128))
    if wrong.any():
        text = f"{numbers[_first(wrong)]:g} is not an 8-bit integer; clamp to -128 .. 127 before the cast to int8."
        raise SimulationError("range", text, design=plan.design, core=core)


def check_sum(plan: Plan, core: int, total: NDArray[Any]) -> None:
    """Check sums of 8-bit products that are scaled afterwards: DL16 can represent them, IEEE fp16 may not."""
    largest = float(np.abs(total[np.isfinite(total)]).max(initial=0))
    if largest > FP16_MAX:
        text = f"a sum of {largest:.0f} exceeds the range of IEEE fp16; run with the numerics '{BIT_TRUE}'."
        raise SimulationError("range", text, design=plan.design, core=core)


def _masks(plan: Plan, shape: tuple[int, ...], operands: list[NDArray[Any]]) -> NDArray[Any] | bool:
    """Return a mask of positions at which an operand of an elementwise operation is infinite or its format's last."""
    if not plan.elementwise:
        return False
    masks = np.zeros(shape, bool)
    for operand, numbers in zip(plan.design.operands, operands, strict=False):
        size = np.abs(numbers)
        last = size >= BFLOAT16_MAX if operand.data_format == FP32 else np.isin(size, _LAST)
        masks |= np.broadcast_to(last | ~np.isfinite(numbers), shape)
    return masks


#: The last numbers of IEEE fp16, exact and rounded to DL16, and the last number of DL16.
_LAST = [65504.0, 65472.0, Numerics(BIT_TRUE).range.largest]


def _first(where: NDArray[Any]) -> tuple[int, ...] | None:
    positions = np.argwhere(where)
    return tuple(int(i) for i in positions[0]) if len(positions) else None
