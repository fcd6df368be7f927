# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The device operations as one table: name, kind, computation, formats, constants.

All levels use the table. The expression of an entry determines its body in the IR, its simulator function,
its constant folding and its fusion pattern; the kind determines the stick rules, the division and the cost.
``define`` checks an entry and adds it; the key is the ``opFuncName`` of the SuperDSC specification.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any

from spyre_mlir.errors import CompileError, counted
from spyre_mlir.records import dataclass
from spyre_mlir.target.expressions import (
    ANY,
    SCALARS,
    Expression,
    Pattern,
    agree,
    applications_of,
    evaluate,
    names_of,
    ordered,
    points,
    require_distinct,
    substitute,
)

# Kinds of device operations, by their use of the iteration space.


class Kind(enum.Enum):
    """Class of an operation by its use of the iteration space; determines stick rules and lowering.

    Attributes:
        POINTWISE: Each element of the result is computed from the elements at its position.
        CAST: A change of the number format.
        REDUCE_STICK: A reduction over the stick dim.
        REDUCE_OTHER: A reduction over other dims.
        MATMUL: A product of matrices.
        CONVOLUTION: A convolution, whose windows the device slides.
        NORMALISE: A normalisation.
        POOLING: A pooling, whose windows the device slides.
        TOP_K: The largest elements.
        RESTICKIFY: A copy to another stick.
        RELAYOUT: A relayout over the ring.
        GATHER: An indirect access.
    """

    POINTWISE = "pointwise"
    CAST = "cast"
    REDUCE_STICK = "reduction over the stick dim"
    REDUCE_OTHER = "reduction over other dims"
    MATMUL = "matmul"
    CONVOLUTION = "convolution"
    NORMALISE = "normalisation"
    POOLING = "pooling"
    TOP_K = "top-k"
    RESTICKIFY = "restickify"
    RELAYOUT = "relayout over the ring"
    GATHER = "indirect access"

    @property
    def is_elementwise(self) -> bool:
        """Return whether a result is computed element by element, from the operands at its position."""
        return self in (Kind.POINTWISE, Kind.CAST)

    @property
    def combines(self) -> bool:
        """Return whether elements are combined into one, from a neutral element on, as in reductions and matmuls."""
        return self in (Kind.REDUCE_STICK, Kind.REDUCE_OTHER, Kind.MATMUL, Kind.CONVOLUTION, Kind.POOLING)

    @property
    def slides(self) -> bool:
        """Return whether windows slide over the first input."""
        return self in (Kind.CONVOLUTION, Kind.POOLING)

    @property
    def is_divided_by_cost(self) -> bool:
        """Return whether the division is chosen by cost: cores share operands, or windows overlap."""
        return self is Kind.MATMUL or self.slides

    @property
    def reduces(self) -> bool:
        """Return whether the result lacks dims of the iteration space, such as the rows of the table of a gather."""
        return self.combines or self is Kind.GATHER

    @property
    def moves_bits(self) -> bool:
        """Return whether elements move unchanged."""
        return self in (Kind.RESTICKIFY, Kind.RELAYOUT, Kind.GATHER)

    @property
    def takes_sticks_apart(self) -> bool:
        """Return whether several cores read parts of sticks that others hold: possible in device memory, not in LX."""
        return self is Kind.RESTICKIFY

    @property
    def on_array(self) -> bool:
        """Return whether the operation runs on the array of multiply-adds and not on the vector unit."""
        return self in (Kind.MATMUL, Kind.CONVOLUTION)


DL16 = "SEN169_FP16"
"""The format of 16-bit numbers on the device, one of the ``formats`` of a ``DeviceOp``."""

FP32, INT32 = "IEEE_FP32", "IEEE_INT32"
INT8, FP8 = "SENINT8", "SEN143_FP8"
_BOTH = (DL16, FP32)


@dataclass(frozen=True, eq=False)
class DeviceOp:
    """One device operation.

    Attributes:
        name: Its name, which is the ``opFuncName`` of the interface unless ``function`` gives another.
        kind: Its class.
        operands: The names of its inputs.
        expression: The computation of an element from the operands: nested tuples of a function and its arguments.
        formats: The formats of its inputs.
        result: The format of the result, if it differs.
        constants: The names of its constants.
        combine: The scalar function by which a reduction combines the elements of ``expression``.
        neutral: The input of a reduction that does not change the result.
        written: Other expressions of programs that the operation replaces, each with the constants that it does not
            name.
        unit: The unit that computes it.
        index: The index of an INT32 input whose numbers are positions in the next input.
        function: The ``opFuncName`` of the interface, if it differs from the name.
        whole_sums: True if the contracted dim is never split over cores.
    """

    name: str
    kind: Kind
    operands: tuple[str, ...] = ("x",)
    expression: Expression | None = None
    formats: tuple[str, ...] = _BOTH
    result: str | None = None
    constants: tuple[str, ...] = ()
    combine: str | None = None
    neutral: float | None = None
    written: tuple[tuple[tuple[Any, ...], Mapping[str, float]], ...] = ()
    unit: str = "sfp"
    index: int | None = None
    function: str = ""
    whole_sums: bool = False

    @property
    def arity(self) -> int:
        """The number of inputs."""
        return len(self.operands)

    @property
    def is_copy(self) -> bool:
        """Return whether the result has the bits of an input."""
        return self.kind.moves_bits or (self.kind is Kind.POINTWISE and isinstance(self.expression, str))

    @property
    def table(self) -> int | None:
        """The index of the input that is read indirectly, at the positions from the index input."""
        return None if self.index is None else self.index + 1

    @property
    def indirect(self) -> frozenset[int]:
        """The indices of both inputs of an indirect access.

        Both are in device memory, where the address span of the table is not limited.
        """
        return frozenset() if self.index is None else frozenset({self.index, self.index + 1})

    @property
    def multiplies_bytes(self) -> bool:
        """Return whether it multiplies 8-bit elements."""
        return self.kind.on_array and self.formats[0] in (INT8, FP8)

    @property
    def first_data(self) -> int:
        """The index of the first input that is not an index input."""
        return 1 if self.index == 0 else 0

    def formats_of(self, number: int, first: str) -> tuple[str, ...]:
        """Return the formats allowed for an input; all but an index have ``first``, the first data input's format."""
        if number == self.index:
            return (INT32,)
        return self.formats if number == self.first_data else (first,)

    def result_format(self, input_format: str) -> str:
        """Return the format of the result for inputs of a format."""
        return self.result or input_format


DEVICE_OPS: dict[str, DeviceOp] = {}

#: The kinds of operations of the interface that only the stick rules know; these operations have no lowering.
KINDS: dict[str, Kind] = {
    "batchmatmulint4": Kind.MATMUL,
    **dict.fromkeys(("conv2dfp8", "conv2dint8", "conv2dint4"), Kind.CONVOLUTION),
    "exx2": Kind.REDUCE_STICK,
    "layernormnorm": Kind.NORMALISE,
    **dict.fromkeys(("topkvalue", "topkindex"), Kind.TOP_K),
}

#: The neutral element of a reduction, and of the contracted dim of a matmul: the value of masked elements.
NEUTRAL: dict[str, float] = {}

#: The scalar function that combines partial results.
COMBINE: dict[str, str] = {}

#: The patterns that fused operations replace, in the order in which they are tried.
PATTERNS: list[Pattern] = []


def define(*ops: DeviceOp) -> None:
    """Add operations to the table.

    Args:
        *ops: The operations, with names that are not in the table.

    Raises:
        CompileError: An operation is incomplete, or its name is already used; then no operation is added.
    """
    table = {**DEVICE_OPS}
    for op in ops:
        problem = next(_problems(op, table), None)
        if problem is not None:
            raise CompileError(f"The device operation '{op.name}' {problem}.")
        table[op.name] = op
    require_distinct((*PATTERNS, *(pattern for op in ops for pattern in _patterns(op))))
    _add(*ops)


def _add(*ops: DeviceOp) -> None:
    """Add operations to the table without a check."""
    PATTERNS[:] = ordered((*PATTERNS, *(pattern for op in ops for pattern in _patterns(op))))
    DEVICE_OPS.update((op.name, op) for op in ops)
    KINDS.update((op.name, op.kind) for op in ops)
    NEUTRAL.update((op.name, op.neutral) for op in ops if op.neutral is not None)
    COMBINE.update((op.name, op.combine) for op in ops if op.combine is not None)


def scalar_expression(expression: Expression, table: Mapping[str, DeviceOp] = DEVICE_OPS) -> Expression:
    """Return an expression that uses only scalar functions; other operations are replaced by their expressions."""
    if not isinstance(expression, tuple):
        return expression
    function, *arguments = expression
    arguments = [scalar_expression(argument, table) for argument in arguments]
    if function in SCALARS:
        return (function, *arguments)
    op = table[function]
    assert op.expression is not None
    names = (*op.operands, *op.constants)
    return substitute(scalar_expression(op.expression, table), dict(zip(names, arguments, strict=True)))


def is_extreme(op: DeviceOp, table: Mapping[str, DeviceOp] = DEVICE_OPS) -> bool:
    """Return whether an operation takes a maximum or minimum, whose sign is unspecified for zeros."""
    calls = [] if op.expression is None else applications_of(scalar_expression(op.expression, table))
    return not {op.combine, *(function for function, *_ in calls)}.isdisjoint(("maximum", "minimum"))


def _patterns(op: DeviceOp) -> Iterator[Pattern]:
    """Yield the patterns of an operation: its expression, unless it is a single function, and the written forms."""
    expressions = [*op.written]
    if isinstance(op.expression, tuple) and not op.kind.combines:
        if any(not isinstance(argument, str) for argument in op.expression[1:]):
            expressions.insert(0, (op.expression, {}))
    for expression, fixed in expressions:
        yield Pattern(expression, op.name, op.operands, op.constants, fixed)


# -- checks of an entry -------------------------------------------------------------------------------------


def _problems(op: DeviceOp, table: Mapping[str, DeviceOp]) -> Iterator[str]:
    """Yield the errors of an entry, each as the rest of a sentence that begins with its name."""
    if op.name in table:
        yield "is in the table already"
    unknown = [name for name in (*op.formats, op.result or DL16) if name not in _FORMATS]
    if unknown:
        yield f"has the unknown number format '{unknown[0]}'; there are {', '.join(_FORMATS)}"
    if not op.kind.is_elementwise and not op.kind.combines:
        if op.expression is not None:
            yield f"has an expression, but a {op.kind.value} computes nothing"
        return
    if op.expression is None:
        yield f"has no expression: state its result as a function of {', '.join(op.operands)}"
        return
    yield from _problems_of(op, op.expression, {}, table)
    for expression, fixed in op.written:
        problems = list(_problems_of(op, expression, {ANY: 0.0, **fixed}, table))
        yield from problems
        if problems:
            continue
        values: dict[str, Any] = dict.fromkeys(op.constants, _SOME)
        values |= {**fixed, ANY: _LIMIT, **dict(zip(op.operands, points(max(op.arity, 2)), strict=False))}
        forms = (scalar_expression(form, table) for form in (op.expression, expression))
        own, other = (evaluate(form, values) for form in forms)
        # The larger of two zeros has either sign.
        if not agree(own, other, has_signed_zeros=not is_extreme(op, table)):
            text = "both must agree, also for NaN and infinities"
            yield f"gives other numbers than its written form {expression}: {text}"
    yield from _problems_of_combination(op, table)


#: Constants for the comparison of written forms; the limit is beyond the ordinary numbers of ``POINTS``.
_SOME, _LIMIT = 0.5, 40.0


def _problems_of(
    op: DeviceOp, expression: Expression, fixed: Mapping[str, float], table: Mapping[str, DeviceOp]
) -> Iterator[str]:
    """Yield the errors of an expression of an operation."""
    stated, read = {*op.operands, *op.constants}, names_of(expression)
    for name in sorted(read - stated - ({ANY} & fixed.keys())):
        yield f"reads '{name}' in {expression}, which is not one of its operands and constants ({', '.join(stated)})"
    for name in sorted(stated - read - fixed.keys()):
        yield f"does not use '{name}' in {expression}"
    for function, *arguments in applications_of(expression):
        if function in SCALARS:
            arity = SCALARS[function].arity
        elif function in table and table[function].expression is not None:
            arity = table[function].arity + len(table[function].constants)
        else:
            yield f"uses '{function}' in {expression}, which is not a scalar function or an earlier operation"
            continue
        if len(arguments) != arity:
            count = counted(len(arguments), "argument")
            yield f"gives '{function}' {count} in {expression}; it takes {arity}"


def _problems_of_combination(op: DeviceOp, table: Mapping[str, DeviceOp]) -> Iterator[str]:
    """Yield the errors in how a reduction combines elements."""
    if not op.kind.combines:
        if op.combine is not None or op.neutral is not None:
            yield f"states how it combines elements, but a {op.kind.value} operation does not"
        return
    if op.combine is None:
        yield "does not state its combination (combine): the scalar function that combines two elements"
        return
    if op.combine not in SCALARS or SCALARS[op.combine].arity != 2:
        yield f"combines elements by '{op.combine}', which is not a scalar function of two operands"
        return
    if op.neutral is None:
        yield "does not state its neutral element (neutral): the input that changes no result"
        return
    assert op.expression is not None
    expression = scalar_expression(op.expression, table)
    term, *others = (
        evaluate(expression, dict.fromkeys(op.operands, value) | dict.fromkeys(op.constants, _SOME))
        for value in (op.neutral, -3.0, 0.25, 8.0)
    )
    if any(SCALARS[op.combine].compute(other, term) != other for other in others):
        yield f"has the neutral element {op.neutral}, which is not neutral for '{op.combine}'"


# -- the table ----------------------------------------------------------------------------------------------

_FORMATS = (DL16, FP32, INT32, INT8, FP8)
_ANY = (DL16, FP32, INT32)
_GELU = tuple(
    expression
    for argument in (("mul", "x", 0.5**0.5), ("realdiv", "x", 2**0.5))
    for erf in (("add", ("erf", argument), 1.0),)
    for expression in (
        ("mul", ("mul", "x", 0.5), erf),
        ("mul", "x", ("mul", erf, 0.5)),
        ("mul", ("mul", "x", erf), 0.5),
    )
)
_SCALED = ("mul", "x", "softplusBeta")


def _op(name: str, expression: Expression, operands: tuple[str, ...] = ("x",), **fields) -> DeviceOp:
    """Entry of a pointwise operation."""
    return DeviceOp(name, Kind.POINTWISE, operands, expression, **fields)


def _also(*expressions: tuple, **constants: float) -> tuple[tuple[tuple, Mapping[str, float]], ...]:
    """Return other expressions of an operation, with the constants that they do not name."""
    return tuple((expression, constants) for expression in expressions)


def _functions(names: str, operands: tuple[str, ...] = ("x",), **fields) -> Iterator[DeviceOp]:
    """Yield entries of operations that are a single scalar function."""
    for name in names.split():
        yield _op(name, (name, *operands), operands, **fields)


def _reductions(
    name: str, expression: Expression, combine: str, neutral: float, constants: tuple[str, ...] = ()
) -> Iterator[DeviceOp]:
    """Yield the entries of a reduction over the stick dim and over other dims."""
    for opcode, kind in ((name, Kind.REDUCE_STICK), (name + "nonstick", Kind.REDUCE_OTHER)):
        yield DeviceOp(
            opcode, kind, ("x",), expression, constants=constants, combine=combine, neutral=neutral
        )


def _product(kind: Kind, name: str, formats: tuple[str, ...], weight: str = "y", **fields) -> DeviceOp:
    """Entry of an operation that adds up products of its two operands."""
    terms = ("mul", "x", weight)
    return DeviceOp(
        name, kind, ("x", weight), terms, formats, combine="add", neutral=0.0, unit="pt", **fields
    )


def _cast(name: str, source: str, target: str) -> DeviceOp:
    return DeviceOp(name, Kind.CAST, ("x",), (name, "x"), (source,), target)


# A test defines the same operations with all checks, which take longer than the rest of the module.
_add(
    *_functions("add sub mul realdiv", ("x", "y")),
    _op("revsub", ("sub", "y", "x"), ("x", "y")),
    *_functions("equal notequal greaterequal lesserequal greaterthan lesserthan", ("x", "y")),
    *_functions("where3", ("c", "x", "y")),
    *_functions("maximum minimum", ("x", "y")),
    *_functions("abs neg exp floor"),
    *_functions("log sqrt rsqrt tanh", formats=(DL16,)),
    _op("identity", "x", formats=_FORMATS),
    _op("reciprocal", ("realdiv", 1.0, "x")),
    _op("sigmoid", ("reciprocal", ("add", 1.0, ("exp", ("neg", "x"))))),
    _op(
        "silu",
        ("mul", "x", ("sigmoid", "x")),
        written=_also(("realdiv", "x", ("add", 1.0, ("exp", ("neg", "x"))))),
    ),
    # A choice by "x > 0" would turn NaN into 0.
    _op(
        "relufwd",
        ("maximum", "x", 0.0),
        written=_also(
            ("where3", ("lesserequal", "x", 0.0), 0.0, "x"), ("where3", ("lesserthan", "x", 0.0), 0.0, "x")
        ),
    ),
    _op("relu6fwd", ("minimum", ("relufwd", "x"), 6.0), formats=(DL16,)),
    _op("gelufwd", _GELU[0], formats=(DL16,), written=_also(*_GELU[1:])),
    _op(
        "clip",
        ("minimum", ("maximum", "x", "clipMin"), "clipMax"),
        constants=("clipMin", "clipMax"),
        written=_also(("minimum", ("relufwd", "x"), "clipMax"), clipMin=0.0),
    ),
    _op(
        "leakyrelufwd",
        ("where3", ("greaterthan", "x", 0.0), "x", ("mul", "x", "alpha")),
        formats=(DL16,),
        constants=("alpha",),
    ),
    _op(
        "softplus",
        (
            "where3",
            ("greaterthan", _SCALED, "softplusThresh"),
            "x",
            ("realdiv", ("log1p", ("exp", _SCALED)), "softplusBeta"),
        ),
        formats=(DL16,),
        constants=("softplusBeta", "softplusThresh"),
        written=_also(
            ("where3", ("greaterthan", "x", "softplusThresh"), "x", ("log1p", ("exp", "x"))), softplusBeta=1.0
        ),
    ),
    # The threshold from which a softplus is x depends on the range of the number format.
    _op(
        "mish",
        ("mul", "x", ("tanh", ("log1p", ("exp", "x")))),
        formats=(DL16,),
        written=_also(("mul", "x", ("tanh", ("softplus", "x", 1.0, ANY)))),
    ),
    # Statistics lack the normalised dim: they are sparse both as inputs and as results.
    _op("layernormscale", ("rsqrt", ("add", "x", "eps")), constants=("eps",)),
    _op("addi32toi32", ("add", "x", "y"), ("x", "y"), formats=(INT32,)),
    _op("muli32toi32", ("mul", "x", "y"), ("x", "y"), formats=(INT32,)),
    _cast("dl16tofp32", DL16, FP32),
    _cast("fp32todl16", FP32, DL16),
    _cast("fp32toint32", FP32, INT32),
    _cast("int32tofp32", INT32, FP32),
    _cast("fp8todl16", FP8, DL16),
    _cast("qfp8ch", DL16, FP8),
    # The input is integers: the compiler scales and rounds before, in f32.
    DeviceOp(
        "csqint8ch",
        Kind.CAST,
        ("x",),
        ("csqint8ch", ("add", ("mul", "x", "scaleact"), "shiftact")),
        (DL16,),
        INT8,
        ("scaleact", "shiftact"),
    ),
    *_reductions("sum", "x", "add", 0.0),
    *_reductions("max", "x", "maximum", float("-inf")),
    *_reductions("min", "x", "minimum", float("inf")),
    *_reductions("absmax", ("abs", "x"), "maximum", 0.0),
    *_reductions("mean", ("mul", "x", "scaling_factor"), "add", 0.0, ("scaling_factor",)),
    DeviceOp("prod", Kind.REDUCE_OTHER, ("x",), "x", combine="mul", neutral=1.0),
    DeviceOp(
        "exx2_zeromean",
        Kind.REDUCE_STICK,
        ("x",),
        ("mul", ("mul", "x", "x"), "exx2scale"),
        constants=("exx2scale",),
        combine="add",
        neutral=0.0,
    ),
    _product(Kind.MATMUL, "batchmatmul", (DL16,)),
    # Both accumulate in a wider format than their operands and round to DL16 at the end, also for integer sums. The
    # kernels of 8-bit operands do not have partial sums (torch-spyre, work_division_constraints.py).
    _product(Kind.MATMUL, "batchmatmulint8", (INT8,), result=DL16, whole_sums=True),
    _product(Kind.MATMUL, "batchmatmulfp8", (FP8,), result=DL16, whole_sums=True),
    # Windows slide over the first input, whose channels are contracted too (docs/convolutions.md).
    _product(Kind.CONVOLUTION, "conv2d", (DL16,), "w"),
    _product(Kind.POOLING, "depthwiseconv2dnative", (DL16,), "w"),
    DeviceOp("avgpoolfwd", Kind.POOLING, ("x",), ("mul", "x", "nmap"), (DL16,), None, ("nmap",), "add", 0.0),
    DeviceOp("maxpoolfwd", Kind.POOLING, ("x",), "x", (DL16,), combine="maximum", neutral=float("-inf")),
    DeviceOp("ReStickifyOpHBM", Kind.RESTICKIFY, formats=_ANY),
    # Rows of a table by their positions: a copy whose source is read indirectly.
    DeviceOp("gather", Kind.GATHER, ("positions", "table"), formats=_ANY, index=0, function="identity"),
    # A redistribution over the LX of the cores, with unchanged bits.
    DeviceOp("shuffle", Kind.RELAYOUT, formats=_FORMATS),
)
