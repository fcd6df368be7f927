# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Range analysis: bounds on the magnitude of the values of a block from its operations, for inputs of any magnitude.

``growth`` is an exponent, like a unit in physics: it is 1 for inputs, 2 for their squares, from 0 to 2 for the mean of
squares plus a constant, from -1 to 0 for its inverse root, and 0 for parameters. ``factor`` and ``least`` bound how
large and how near to 0 a value may be relative to this power of the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import Structured, defining_op, element_of, structured
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.target.expressions import SCALARS, applications_of
from spyre_mlir.target.ops import DEVICE_OPS, Kind, scalar_expression

Growth = tuple[float, float]

#: log2 of the smallest fp16 number with full precision (the smallest normal number).
SMALLEST = -14.0

#: log2 of the largest allowed ratio of a value to the largest input, and of the largest allowed value of growth 0.
HEADROOM, _LARGEST = 3.0, 15.0

#: log2 of the assumed maximum of an exponential: a larger value is an overflow, which a run reports.
_EXPONENTIAL = 14.0

MATMULS = frozenset(name for name, op in DEVICE_OPS.items() if op.kind in (Kind.MATMUL, Kind.CONVOLUTION))
CASTS = ("dl16tofp32", "fp32todl16")
SUMS = ("add", "sub", "revsub")
_TOTALS = ("sum", "sumnonstick", "mean", "meannonstick")
_MAXIMA = ("max", "maxnonstick")
_COMPARISONS = tuple(name for name, function in SCALARS.items() if function.predicate is not None)
_BOUNDED = frozenset(("log", "log1p", "erf", "sigmoid", "tanh", *_COMPARISONS))
#: Functions whose result is one of the operands or the negative of one.
_SELECTING = frozenset(("maximum", "minimum", "where3", "abs", "neg"))
#: Operations whose result is never negative; and operations whose result is not negative if no operand is negative.
_NONNEGATIVE = frozenset(
    (*"exp sigmoid sqrt rsqrt layernormscale abs relufwd relu6fwd exx2_zeromean absmax absmaxnonstick".split(),
     *_COMPARISONS)
)  # fmt: skip
_SIGN_KEEPING = frozenset(
    (*"add mul realdiv reciprocal maximum minimum where3 identity gather max min maxnonstick minnonstick prod".split(),
     *"tanh erf log1p".split(), *_TOTALS, *CASTS)
)  # fmt: skip


@dataclass(frozen=True)
class ValueFacts:
    """Bounds on the elements of a tensor.

    ``exact``: fp16 represents the elements exactly. ``growth``: the least and largest power of the inputs with which
    the tensor may grow. ``factor``: log2 of the largest multiple of this power; ``least``: log2 of the smallest one,
    unless it is 0 because the inputs are 0. ``nonnegative``: no element is below 0. ``sources``: a bit set of inputs on
    which the tensor depends; ``reduced``: a bit set of inputs on which it depends through a reduction.
    """

    exact: bool
    growth: Growth = (0.0, 0.0)
    factor: float = 0.0
    least: float = 0.0
    nonnegative: bool = False
    sources: int = 0
    reduced: int = 0

    def in_f16(self) -> ValueFacts:
        """Return the facts of the tensor after rounding to fp16."""
        low, high = self.growth
        growth = min(max(low, -1.0), 1.0), min(max(high, -1.0), 1.0)
        return replace(
            self, exact=True, growth=growth, factor=min(self.factor, 0.0 if high > 0 else _LARGEST)
        )

    @property
    def fits_f16(self) -> bool:
        """Return whether the tensor is in the range of fp16 if the inputs are."""
        low, high = self.growth
        return -1 <= low and high <= 1 and self.factor <= (HEADROOM if high > 0 else _LARGEST)

    @property
    def vanishes_in_f16(self) -> bool:
        """Return whether an element that is not 0 may be nearer to 0 than the normal numbers of fp16."""
        return not self.exact and self.least < SMALLEST


# -- transfer functions of facts ----------------------------------------------------------------------


def after(generic: Structured, inputs: Sequence[ValueFacts]) -> ValueFacts:
    """Return the facts of the result of a device operation, given the facts of its inputs."""
    opcode = generic.opcode
    facts = joined(inputs)
    if opcode in DEVICE_OPS and DEVICE_OPS[opcode].kind.combines:
        facts = replace(facts, reduced=facts.sources)
    if opcode in CASTS:
        return facts.in_f16() if opcode == "fp32todl16" else facts
    facts = replace(facts, least=_least(generic, inputs), nonnegative=_is_nonnegative(generic, inputs))
    bounds = _growth(generic, inputs)
    if bounds is not None:
        facts = replace(facts, growth=bounds[0], factor=bounds[1])
    exact = selects(opcode) and all(operand.exact for operand in inputs)
    if opcode in MATMULS or element_of(generic.result) != "f32":
        return facts.in_f16()  # the device returns at most 16 bits
    return replace(facts, exact=exact)


def joined(inputs: Sequence[ValueFacts]) -> ValueFacts:
    """Return the facts of a tensor whose elements may be elements of any input."""
    sources = reduced = 0
    for facts in inputs:
        sources |= facts.sources
        reduced |= facts.reduced
    growth = min(facts.growth[0] for facts in inputs), max(facts.growth[1] for facts in inputs)
    factor, least = max(facts.factor for facts in inputs), min(facts.least for facts in inputs)
    exact, nonnegative = all(facts.exact for facts in inputs), all(facts.nonnegative for facts in inputs)
    return ValueFacts(exact, growth, factor, least, nonnegative, sources, reduced)


def of_constant(op: ir.Operation) -> ValueFacts:
    """Return the facts of a constant."""
    attr = op.attributes["value"]
    if not isinstance(attr, ir.DenseElementsAttr) or element_of(op.results[0]) not in ("f16", "f32"):
        return ValueFacts(exact=True)
    elements = numbers(attr)
    size = np.abs(elements)
    finite = size[np.isfinite(size) & (size > 0)]
    with np.errstate(over="ignore"):
        exact = bool(np.all(finite.astype(np.float16).astype(np.float64) == finite))
    ends = (finite.min(), finite.max()) if finite.size else (2.0**-_LARGEST, 2.0**-_LARGEST)
    least, factor = (math.log2(end) for end in ends)
    return ValueFacts(exact, factor=factor, least=least, nonnegative=bool((elements >= 0).all()))


def numbers(attr: ir.DenseElementsAttr) -> np.ndarray:
    """Return the elements of a constant, or the one element of a splat, in float64."""
    if not attr.is_splat:
        return np.array(attr, np.float64)
    number = attr.get_splat_value()
    return np.array([number.value], np.float64)


def _scaled(growth: Growth, power: float) -> Growth:
    ends = growth[0] * power, growth[1] * power
    return min(ends), max(ends)


#: The exponent of each operation that is a power of its operand, or of its operand plus a constant.
_POWERS = {"reciprocal": -1.0, "sqrt": 0.5, "rsqrt": -0.5, "layernormscale": -0.5}


def _growth(generic: Structured, inputs: Sequence[ValueFacts]) -> tuple[Growth, float] | None:
    """Return the growth and the factor of a result; None if the result has the bounds of its inputs together."""
    opcode, facts = generic.opcode, inputs[0]
    low, high = facts.growth
    if opcode in _BOUNDED:
        return (0.0, 0.0), 0.0
    if opcode in SUMS:
        first, second = (operand.factor for operand in inputs)
        # Terms that grow with different powers are not comparable, so their factors do not add up.
        is_equal = inputs[0].growth[1] == inputs[1].growth[1]
        return joined(inputs).growth, float(np.logaddexp2(first, second)) if is_equal else max(first, second)
    if opcode == "mul":
        other_low, other_high = inputs[1].growth
        return (low + other_low, high + other_high), facts.factor + inputs[1].factor
    if opcode == "realdiv":
        divisor = inputs[1]
        growth = low - divisor.growth[1], high - divisor.growth[0]
        return growth, min(facts.factor, _LARGEST) if divisor.sources else facts.factor - divisor.factor
    if opcode == "exp":
        shift = _shift_of(generic)
        return (0.0, 0.0), _EXPONENTIAL if shift is None or shift.maximum is None else 0.0
    if opcode in _POWERS:
        exponent = _POWERS[opcode]
        growth = (min(low, 0.0), max(high, 0.0)) if opcode == "layernormscale" else facts.growth
        return _scaled(growth, exponent), max(facts.factor * exponent, 0.0) if exponent > 0 else 0.0
    terms = math.prod(generic.extents[dim] for dim in generic.reduced)
    if opcode == "prod":
        return _scaled(facts.growth, terms), facts.factor * terms
    if opcode not in (*_TOTALS, "exx2_zeromean"):
        return None
    power, scale = 1.0, 1.0
    if opcode == "exx2_zeromean":
        power, scale = 2.0, abs(sdsc.constants_of(generic.op)["exx2scale"])
    elif opcode.startswith("mean"):
        scale = abs(sdsc.constants_of(generic.op)["scaling_factor"])
    # The lower limit is for a constant of 0, which does not have a logarithm.
    factor = facts.factor * power + math.log2(max(terms * scale, 2.0**-_LARGEST))
    return _scaled(facts.growth, power), factor


def _least(generic: Structured, inputs: Sequence[ValueFacts]) -> float:
    """Return ``least`` of a result: the lower bound of its magnitude, relative to the inputs."""
    opcode, facts = generic.opcode, inputs[0]
    # Of an operation that maps fp16 numbers to numbers in the range of fp16.
    unless_exact = 0.0 if all(operand.exact for operand in inputs) else -math.inf
    if opcode in ("exp", "sigmoid", "silu", "reciprocal", "rsqrt", "layernormscale", "prod"):
        return -math.inf
    if opcode in ("log", "log1p", "sub", "revsub"):
        return unless_exact
    if opcode in _COMPARISONS:
        return 0.0
    if _contains_one(generic):
        return 0.0 if opcode == "add" else _mean_scale(generic)
    if opcode == "add":
        # Numbers that are not negative do not cancel.
        cancels = not all(operand.nonnegative for operand in inputs)
        return unless_exact if cancels else max(operand.least for operand in inputs)
    if opcode in _TOTALS:
        scale = _mean_scale(generic)
        return facts.least + scale if facts.nonnegative and not facts.exact else unless_exact
    if opcode == "maximum":
        bounds = [operand.least for operand in inputs if operand.nonnegative]
        return max(bounds) if bounds else min(operand.least for operand in inputs)
    if opcode == "clip":
        low = sdsc.constants_of(generic.op).get("clipMin", 0.0)
        return math.log2(low) if low > 0 else facts.least
    if opcode == "mul":
        return facts.least + inputs[1].least
    if opcode == "realdiv":
        return -math.inf if inputs[1].sources else facts.least - inputs[1].factor
    if opcode == "sqrt":
        return facts.least / 2
    return 2 * facts.least if opcode == "exx2_zeromean" else min(operand.least for operand in inputs)


def selects(opcode: str) -> bool:
    """Return whether an operation returns only its operands, their negatives or constants."""
    op = DEVICE_OPS.get(opcode)
    if op is None or op.expression is None:
        return op is not None and op.kind.moves_bits
    combines = op.combine is None or op.combine in _SELECTING
    functions = {function for function, *_ in applications_of(scalar_expression(op.expression))}
    return combines and functions <= _SELECTING


def is_nonnegative(value: ir.Value) -> bool:
    """Return whether no element of a value is below 0, according to the device operations that compute it."""
    waiting, seen = [value], {value}
    while waiting:
        op = defining_op(waiting.pop())
        generic = structured(op) if op is not None and sdsc.OP in op.attributes else None
        if generic is None:
            if op is None or op.name != "arith.constant" or not of_constant(op).nonnegative:
                return False
        elif not _is_nonnegative(generic, []):
            return False
        elif generic.opcode in _SIGN_KEEPING and not _is_square(generic):
            waiting += [operand for operand in generic.inputs if operand not in seen]
            seen.update(generic.inputs)
    return True


def _is_square(generic: Structured) -> bool:
    return generic.opcode == "mul" and generic.inputs[0] == generic.inputs[1]


def _is_nonnegative(generic: Structured, inputs: Sequence[ValueFacts]) -> bool:
    opcode = generic.opcode
    if opcode in _NONNEGATIVE or _is_square(generic):
        return True
    if opcode == "maximum":
        return any(facts.nonnegative for facts in inputs)
    return opcode in _SIGN_KEEPING and all(facts.nonnegative for facts in inputs)


def _mean_scale(generic: Structured) -> float:
    """Return log2 of the factor of a mean; 0 for a sum."""
    if not generic.opcode.startswith("mean"):
        return 0.0
    return math.log2(max(abs(sdsc.constants_of(generic.op)["scaling_factor"]), 2.0**-100))


#: A value that is nowhere above another one: its origin, and the dim of the other for each of its dims; None: reduced.
_Below = tuple[ir.Value, tuple[int | None, ...]]


@dataclass(frozen=True)
class _Shift:
    """The operand x - m of an exponential, where m is computed from maxima.

    ``term`` is the origin of x, ``is_whole``: with the dims of the operand; ``maximum`` is how m bounds x, None if it
    does not; ``bounds`` are all values below m, which is ``subtracted``.
    """

    term: ir.Value
    is_whole: bool
    maximum: _Below | None
    bounds: tuple[_Below, ...]
    subtracted: ir.Value


def _shift_of(generic: Structured) -> _Shift | None:
    """Return the shift of an exponential; None if nothing is subtracted from its operand."""
    op = defining_op(generic.inputs[0])
    difference = structured(op) if op is not None and sdsc.opcode_of(op) == "sub" else None
    if difference is None or not _has_result_dims(generic, 0):
        return None
    term, maximum = (_origin(value) for value in difference.inputs)
    bounds, (own, other) = tuple(_below(maximum)), difference.maps[:2]

    def is_bound(below: _Below) -> bool:
        pairs = zip(own, below[1], strict=True)
        return below[0] == term and all(at is None or other[at] == dim for dim, at in pairs)

    is_whole = _has_result_dims(difference, 0)
    return _Shift(term, is_whole, next(filter(is_bound, bounds), None), bounds, maximum)


def _below(value: ir.Value) -> Iterator[_Below]:
    """Yield the values that a value computed from maxima bounds, apart from elements replaced by another number."""
    op = defining_op(value)
    generic = None if op is None else structured(op)
    if generic is None or generic.opcode not in (*_MAXIMA, *CASTS, "identity", "where3", "maximum"):
        return
    whole = {dim: position for position, dim in enumerate(generic.maps[-1])}
    first = 1 if generic.opcode == "where3" else 0
    for operand, dims in list(zip(generic.inputs, generic.maps, strict=False))[first:]:
        source = _origin(operand)
        places = [whole.get(dim) for dim in dims]
        inner = [] if generic.opcode in _MAXIMA else list(_below(source))
        if not inner and generic.opcode in (*_MAXIMA, "maximum"):
            yield source, tuple(places)
        for origin, at in inner:
            yield origin, tuple(None if dim is None else places[dim] for dim in at)


def _contains_one(generic: Structured) -> bool:
    """Return whether a sum of exponentials of x - m has a term of 1, because m is the maximum of all x."""
    if generic.opcode not in ("add", *_TOTALS):
        return False
    first: _Shift | None = None
    bounds: set[_Below] = set()
    for term, reduced in _terms(generic, frozenset()):
        shift = None if term is None else _shift_of(term)
        if shift is None or shift.maximum is None:
            return False
        first = first or shift
        # A sum over fewer dims than the maximum may not contain the largest term.
        axes = {axis for axis, dim in enumerate(shift.maximum[1]) if dim is None}
        if shift.subtracted != first.subtracted or not (axes <= reduced and (shift.is_whole or not reduced)):
            return False
        bounds.add(shift.maximum)
    return first is not None and bounds == set(first.bounds)


def _terms(
    generic: Structured, reduced: frozenset[int]
) -> Iterator[tuple[Structured | None, frozenset[int]]]:
    """Yield the exponentials that a sum adds, each with the dims over which it adds them; None for another term."""
    if generic.opcode == "exp":
        yield generic, reduced
        return
    is_total = generic.opcode in _TOTALS
    if is_total is (generic.opcode == "add") or (is_total and reduced):
        yield None, reduced
        return
    for operand in generic.inputs[: 1 if is_total else 2]:
        op = defining_op(_origin(operand))
        term = None if op is None else structured(op)
        if term is None:
            yield None, reduced
        else:
            yield from _terms(term, _reduced_axes(generic) if is_total else reduced)


def _origin(value: ir.Value) -> ir.Value:
    """Return the source of a value through casts and copies that keep its dims in place."""
    op = defining_op(value)
    generic = structured(op) if op is not None and sdsc.opcode_of(op) in (*CASTS, "identity") else None
    return value if generic is None or not _has_result_dims(generic, 0) else _origin(generic.inputs[0])


def _has_result_dims(generic: Structured, number: int) -> bool:
    """Return whether an operand has the dims of the result, in their order."""
    return generic.maps[number] == generic.maps[-1]


def _reduced_axes(generic: Structured) -> frozenset[int]:
    """Return the dims of the operand that a reduction reduces."""
    return frozenset(axis for axis, dim in enumerate(generic.maps[0]) if dim in generic.reduced)
