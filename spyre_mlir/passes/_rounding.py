"""Which f32 values of a function must not be rounded to fp16 between two operations.

An operation computes in f32 and rounds its result. That costs half a unit in the last place, which is harmless unless

* the result leaves the range of fp16: powers of the inputs other than the first, sums of many of them;
* what follows subtracts it from something nearly equal: a mean from the values that it is the mean of, or a sum of
  weights times values, where the weights were divided by their sum;
* it is a partial sum, to which more is added, operation by operation;
* a constant beside it is smaller than fp16 has exact numbers.

All of this is read off the graph. ``growth`` follows units as in physics: inputs have the unit 1, their squares 2, the
mean of squares plus a constant something from 0 to 2, its inverse root from -1 to 0. Parameters have none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import Structured, defining_op, element_of, shape_of, structured
from spyre_mlir.mlir import ir
from spyre_mlir.target.ops import DEVICE_OPS, Kind

#: Numbers in fp16 of less size than this have fewer bits than others.
_SMALLEST_NORMAL = 2.0**-14

#: The smallest number that a constant of an operation, which is in DL16, may be to have all bits.
_SMALLEST_CONSTANT = 2.0**-30

#: How many times the largest input a value may be, and what a value without unit may be; both as powers of two.
_HEADROOM, _LARGEST = 3.0, 15.0

_REDUCTIONS = (Kind.REDUCE_STICK, Kind.REDUCE_OTHER, Kind.MATMUL)
MATMULS = frozenset(name for name, op in DEVICE_OPS.items() if op.kind is Kind.MATMUL)
_CASTS = ("dl16tofp32", "fp32todl16")
_SUMS = ("add", "sub", "revsub")
_SCALINGS = ("mul", "realdiv")
_BOUNDED = frozenset(
    "exp log log1p erf sigmoid tanh equal notequal greaterequal lesserequal greaterthan lesserthan".split()
)
#: Whose result is one of the operands, or its negative.
_SELECTIONS = frozenset(
    "identity abs neg relufwd maximum minimum where3 clip relu6fwd max maxnonstick min minnonstick absmax"
    " absmaxnonstick gather".split()
)

#: Operations whose result differs by as much as an operand does, or by a multiple: an exponential of it follows.
_TRANSPARENT = frozenset(
    "add sub revsub mul where3 identity maximum minimum clip dl16tofp32 fp32todl16".split()
)

Growth = tuple[float, float]


@dataclass(frozen=True)
class Facts:
    """What is known of a tensor.

    ``exact``: fp16 holds its elements as they are. ``growth``: the least and largest power of the inputs that it may
    grow with. ``factor``: log2 of how many times that power it may be. ``sources``: bits of the inputs that it depends
    on, ``reduced`` of those that it depends on by way of a reduction.
    """

    exact: bool
    growth: Growth = (0.0, 0.0)
    factor: float = 0.0
    sources: int = 0
    reduced: int = 0

    def in_f16(self) -> Facts:
        """The same tensor after it was rounded to fp16."""
        low, high = self.growth
        growth = min(max(low, -1.0), 1.0), min(max(high, -1.0), 1.0)
        return replace(
            self, exact=True, growth=growth, factor=min(self.factor, 0.0 if high > 0 else _LARGEST)
        )

    @property
    def fits_f16(self) -> bool:
        """Whether fp16 has the range for it, as it has for the inputs."""
        low, high = self.growth
        return -1 <= low and high <= 1 and self.factor <= (_HEADROOM if high > 0 else _LARGEST)


def unrounded(block: ir.Block, parameters: frozenset[int]) -> set[ir.Value]:
    """The f32 values of a function's block that rounding would spoil; ``parameters`` are numbers of arguments."""
    analysis = _Rounding(block, parameters)
    for op in block.operations:
        analysis.visit(op.operation)
    for op in reversed([op.operation for op in block.operations]):
        analysis.keep_views(op)
    return analysis.kept


def amplified(block: ir.Block) -> Iterator[ir.Operation]:
    """The matmuls with a 16-bit result of which an exponential is taken: rounding by e changes that by the factor e^e.

    Sums, masks and scales may come between, and views; a maximum that is subtracted is no other way.
    """
    reaches: set[ir.Value] = set()
    for op in reversed([op.operation for op in block.operations]):
        opcode = sdsc.opcode_of(op)
        if opcode in MATMULS:
            if op.results[0] in reaches and element_of(op.results[0]) == "f16":
                yield op
        elif opcode == "exp" or (
            (opcode is None or opcode in _TRANSPARENT) and any(result in reaches for result in op.results)
        ):
            reaches.update(op.operands)


class _Rounding:
    """Facts of the values of a block, in its order, and what must stay f32 because of them."""

    def __init__(self, block: ir.Block, parameters: frozenset[int]) -> None:
        self.facts: dict[ir.Value, Facts] = {}
        self.kept: set[ir.Value] = set()
        self.sources = 0
        for number, argument in enumerate(block.arguments):
            self._source(argument, has_unit=number not in parameters)

    def _source(self, value: ir.Value, has_unit: bool) -> None:
        unit = 1.0 if has_unit else 0.0
        self.facts[value] = Facts(element_of(value) != "f32", (unit, unit), 0.0, 1 << self.sources)
        self.sources += 1

    def visit(self, op: ir.Operation) -> None:
        if op.name in ("tensor.empty", "linalg.fill", "func.return"):
            return
        if op.name == "arith.constant":
            self.facts[op.results[0]] = _of_constant(op)
            return
        generic = structured(op) if sdsc.OP in op.attributes else None
        if generic is not None:
            self._device_op(generic)
            return
        known = [self.facts[operand] for operand in op.operands if operand in self.facts]
        for result in op.results:
            if known:
                self.facts[result] = _joined(known)
            else:
                self._source(result, has_unit=True)

    def _device_op(self, generic: Structured) -> None:
        inputs = [self.facts[value] for value in generic.inputs if value in self.facts]
        if len(inputs) < len(generic.inputs) or not inputs:
            self._source(generic.result, has_unit=True)
            return
        facts = _after(generic, inputs)
        self.facts[generic.result] = facts
        if element_of(generic.result) != "f32" or generic.opcode in (*_CASTS, *MATMULS):
            return
        if (not facts.fits_f16 and not is_rounded_at_once(generic.result)) or _has_small_constant(generic):
            self.kept.add(generic.result)
        if generic.opcode in _SUMS:
            self._sum(*generic.inputs[:2])

    def _sum(self, left: ir.Value, right: ir.Value) -> None:
        """What a sum of two must not find rounded."""
        one, other = self.facts[left], self.facts[right]
        correlated = one.reduced & other.sources or other.reduced & one.sources
        for value in (left, right):
            if correlated:
                self._keep(value)
            elif _is_partial_sum(value):
                self._keep(value, history=False)

    def _keep(self, value: ir.Value, history: bool = True) -> None:
        """Keeps a value and, with its history, what it was computed from, up to what fp16 holds exactly."""
        waiting = [value]
        while waiting:
            value = waiting.pop()
            op = defining_op(value)
            if value in self.kept or op is None or element_of(value) != "f32":
                continue
            if self.facts[value].exact:
                self._keep_scale(value)
                continue
            self.kept.add(value)
            if history:
                waiting.extend(operand for operand in op.operands if operand in self.facts)

    def _keep_scale(self, value: ir.Value) -> None:
        """Keeps by what the numbers of fp16 were divided, once for many: its error is one that they have in common."""
        op = defining_op(value)
        while op is not None and sdsc.opcode_of(op) in _CASTS:
            value, op = op.operands[0], defining_op(op.operands[0])
        generic = structured(op) if op is not None and sdsc.opcode_of(op) in _SCALINGS else None
        if generic is None or element_of(generic.result) != "f32":
            return
        for scale, dims in zip(generic.inputs, generic.maps, strict=False):
            if len(dims) < len(generic.extents) and scale in self.facts and self.facts[scale].reduced:
                self.kept.update((scale, generic.result))

    def keep_views(self, op: ir.Operation) -> None:
        """Keeps what operations in f32 alone read and no operation computes: one cast instead of one each."""
        if len(op.results) != 1 or element_of(op.results[0]) != "f32":
            return
        moves = sdsc.opcode_of(op) in (None, "dl16tofp32", "identity")
        if not moves or op.name in ("arith.constant", "tensor.empty", "linalg.fill"):
            return
        readers = [use.owner.operation for use in op.results[0].uses]
        if readers and all(self._runs_in_f32(reader) for reader in readers):
            self.kept.add(op.results[0])

    def _runs_in_f32(self, op: ir.Operation) -> bool:
        if sdsc.opcode_of(op) in (*_CASTS, *MATMULS):
            return False
        values = op.results if sdsc.opcode_of(op) is None else (*op.operands, *op.results)
        return any(value in self.kept for value in values)


# -- how facts follow from facts ----------------------------------------------------------------------


def _after(generic: Structured, inputs: Sequence[Facts]) -> Facts:
    """The facts of the result of a device operation."""
    opcode = generic.opcode
    facts = _joined(inputs)
    if opcode in DEVICE_OPS and DEVICE_OPS[opcode].kind in _REDUCTIONS:
        facts = replace(facts, reduced=facts.sources)
    if opcode in _CASTS:
        return facts.in_f16() if opcode == "fp32todl16" else facts
    if opcode in _BOUNDED:
        facts = replace(facts, growth=(0.0, 0.0), factor=0.0)
    elif opcode in _GROWTH:
        growth, factor = _GROWTH[opcode](generic, inputs)
        facts = replace(facts, growth=growth, factor=factor)
    exact = opcode in _SELECTIONS and all(each.exact for each in inputs)
    if opcode in MATMULS or element_of(generic.result) != "f32":
        return facts.in_f16()  # in more than 16 bits the device does not give it
    return replace(facts, exact=exact)


def _joined(inputs: Sequence[Facts]) -> Facts:
    """What may be any of the inputs, element by element."""
    sources = reduced = 0
    for each in inputs:
        sources |= each.sources
        reduced |= each.reduced
    growth = min(each.growth[0] for each in inputs), max(each.growth[1] for each in inputs)
    factor = max(each.factor for each in inputs)
    return Facts(all(each.exact for each in inputs), growth, factor, sources, reduced)


def _of_constant(op: ir.Operation) -> Facts:
    attr = op.attributes["value"]
    if not isinstance(attr, ir.DenseElementsAttr) or element_of(op.results[0]) not in ("f16", "f32"):
        return Facts(exact=True)
    numbers = np.abs(_numbers(attr))
    finite = numbers[np.isfinite(numbers) & (numbers > 0)]
    with np.errstate(over="ignore"):
        exact = bool(np.all(finite.astype(np.float16).astype(np.float64) == finite))
    return Facts(exact, factor=math.log2(finite.max()) if finite.size else -_LARGEST)


def _numbers(attr: ir.DenseElementsAttr) -> np.ndarray:
    if not attr.is_splat:
        return np.array(attr, np.float64)
    number = attr.get_splat_value()
    return np.array([number.value], np.float64)


def _scaled(growth: Growth, power: float) -> Growth:
    ends = growth[0] * power, growth[1] * power
    return min(ends), max(ends)


_Rule = Callable[[Structured, Sequence[Facts]], tuple[Growth, float]]


def _added(generic: Structured, inputs: Sequence[Facts]) -> tuple[Growth, float]:
    left, right = (each.factor for each in inputs)
    alike = inputs[0].growth[1] == inputs[1].growth[1]
    growth = _joined(inputs).growth
    return growth, float(np.logaddexp2(left, right)) if alike else max(left, right)


def _multiplied(generic: Structured, inputs: Sequence[Facts]) -> tuple[Growth, float]:
    (low, high), (other_low, other_high) = (each.growth for each in inputs)
    return (low + other_low, high + other_high), inputs[0].factor + inputs[1].factor


def _divided(generic: Structured, inputs: Sequence[Facts]) -> tuple[Growth, float]:
    dividend, divisor = inputs
    growth = dividend.growth[0] - divisor.growth[1], dividend.growth[1] - divisor.growth[0]
    is_number = not divisor.sources
    return growth, dividend.factor - divisor.factor if is_number else min(dividend.factor, _LARGEST)


def _power(exponent: float, has_shift: bool = False) -> _Rule:
    """The rule of ``x ** exponent``, or of ``(x + constant) ** exponent``."""

    def rule(generic: Structured, inputs: Sequence[Facts]) -> tuple[Growth, float]:
        (facts,) = inputs
        low, high = facts.growth
        growth = (min(low, 0.0), max(high, 0.0)) if has_shift else facts.growth
        return _scaled(growth, exponent), max(facts.factor * exponent, 0.0) if exponent > 0 else 0.0

    return rule


def _reduced(power: float, constant: str = "") -> _Rule:
    """The rule of a sum of powers, times a constant of the operation."""

    def rule(generic: Structured, inputs: Sequence[Facts]) -> tuple[Growth, float]:
        (facts,) = inputs
        terms = math.prod(generic.extents[dim] for dim in generic.reduced)
        scale = abs(sdsc.constants_of(generic.op)[constant]) if constant else 1.0
        factor = facts.factor * power + math.log2(max(terms * scale, 2.0**-_LARGEST))
        return _scaled(facts.growth, power), factor

    return rule


def _product(generic: Structured, inputs: Sequence[Facts]) -> tuple[Growth, float]:
    terms = math.prod(generic.extents[dim] for dim in generic.reduced)
    return _scaled(inputs[0].growth, terms), inputs[0].factor * terms


_GROWTH: dict[str, _Rule] = {
    **dict.fromkeys(_SUMS, _added),
    "mul": _multiplied,
    "realdiv": _divided,
    "reciprocal": _power(-1.0),
    "sqrt": _power(0.5),
    "rsqrt": _power(-0.5),
    "layernormscale": _power(-0.5, has_shift=True),
    **dict.fromkeys(("sum", "sumnonstick"), _reduced(1.0)),
    **dict.fromkeys(("mean", "meannonstick"), _reduced(1.0, "scaling_factor")),
    "exx2_zeromean": _reduced(2.0, "exx2scale"),
    "prod": _product,
}


# -- questions about operations -----------------------------------------------------------------------


def is_rounded_at_once(value: ir.Value) -> bool:
    """Whether the program itself has nothing of a value but what fp16 holds of it."""
    return all(sdsc.opcode_of(use.owner.operation) == "fp32todl16" for use in value.uses)


def _is_partial_sum(value: ir.Value) -> bool:
    op = defining_op(value)
    return op is not None and sdsc.opcode_of(op) in _SUMS


def _has_small_constant(generic: Structured) -> bool:
    """Whether an operation in fp16 would have another constant than the program, or none."""
    if any(0 < abs(number) < _SMALLEST_CONSTANT for number in sdsc.constants_of(generic.op).values()):
        return True
    return any(_is_small(value) for value in generic.inputs)


def _is_small(value: ir.Value) -> bool:
    op = defining_op(value)
    if op is None or op.name != "arith.constant" or element_of(value) != "f32" or shape_of(value):
        return False
    attr = op.attributes["value"]
    numbers = np.abs(_numbers(attr) if isinstance(attr, ir.DenseElementsAttr) else ir.FloatAttr(attr).value)
    return bool(np.any((numbers > 0) & (numbers < _SMALLEST_NORMAL)))
