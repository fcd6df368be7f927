# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stick rules: the table against plain predicates after "Tensor Layouts", and its messages."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator

import pytest
from layout_cases import iteration

from spyre_mlir.errors import CompileError
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.rules import (
    RULES,
    Iteration,
    StickAssignment,
    neutral_padding,
    stick_assignments,
    stick_digits,
    stick_violation,
    violation,
    why_no_form,
)
from spyre_mlir.target.ops import KINDS, NEUTRAL, Kind
from spyre_mlir.target.target import default_target

ELEMENTS = {"f16": 64, "f32": 32}
Lanes = tuple[int | None, ...]


# -- the table against predicates ---------------------------------------------------------------------

#: Kinds of dims of an operation: the operands that have it (r: the result), then R reduced, W window.
DIMS = {
    Kind.POINTWISE: ("0r", "1r", "01r", "01r", "0R"),
    Kind.CAST: ("0r", "0r", "0R"),
    Kind.REDUCE_STICK: ("0r", "0r", "0R"),
    Kind.REDUCE_OTHER: ("0r", "0r", "0R", "r"),
    Kind.MATMUL: ("0r", "1r", "01r", "01R", "0R"),
    Kind.CONVOLUTION: ("0r", "1r", "01R", "01RW", "0rW"),
    Kind.NORMALISE: ("01r", "01r", "02r", "0R"),
    Kind.POOLING: ("0r", "0r", "0rW", "0RW"),
    Kind.TOP_K: ("0r", "0r", "0R", "r"),
    Kind.RESTICKIFY: ("0r", "0r", "0R"),
    Kind.RELAYOUT: ("0r", "0r", "0R"),
    Kind.GATHER: ("0r", "0r", "1r", "1r", "1R"),
}
OPCODES = {
    Kind.POINTWISE: "add",
    Kind.CAST: "dl16tofp32",
    Kind.REDUCE_STICK: "exx2",
    Kind.REDUCE_OTHER: "prod",
    Kind.MATMUL: "batchmatmul",
    Kind.CONVOLUTION: "conv2d",
    Kind.NORMALISE: "layernormnorm",
    Kind.POOLING: "maxpoolfwd",
    Kind.TOP_K: "topkvalue",
    Kind.RESTICKIFY: "ReStickifyOpHBM",
    Kind.RELAYOUT: "shuffle",
    Kind.GATHER: "gather",
}


def random_iteration(rng: random.Random, kind: Kind) -> Iteration:
    """Return an iteration with up to five dims of random sizes, for operations of a kind."""
    dims = [rng.choice(DIMS[kind]) for _ in range(rng.randrange(1, 6))]
    arity = max(int(mark) for text in DIMS[kind] for mark in text if mark.isdigit()) + 1
    having = [{d for d, text in enumerate(dims) if mark in text} for mark in (*"012"[:arity], "r")]
    dtypes = ("f16", "f32") if kind is Kind.CAST else ("f16",) * (arity + 1)
    marked = [frozenset(d for d, text in enumerate(dims) if mark in text) for mark in "RW"]
    sizes = tuple(rng.choice((1, 2, 64, 65, 130)) for _ in dims)
    return Iteration(default_target(), sizes, tuple(map(frozenset, having)), marked[0], dtypes, marked[1])


def all_lanes(it: Iteration) -> Iterator[Lanes]:
    """Every way to give each operand one of its dims of more than one element, or none."""
    return itertools.product(*([None, *(d for d in sorted(has) if it.sizes[d] > 1)] for has in it.present))


def follows(it: Iteration, lanes: Lanes, dim: int | None) -> bool:
    return all(lane == (dim if dim in has else None) for lane, has in zip(lanes, it.present, strict=True))


def is_pointwise(it: Iteration, lanes: Lanes) -> bool:
    """Any stick, the same for all operands and the result."""
    return not it.reduced and follows(it, lanes, lanes[-1])


def is_reduction_over_stick(it: Iteration, lanes: Lanes) -> bool:
    """The reduced dim is the only stick dim; the result is sparse. A dim of size 1 is not a stick dim."""
    sized = [d for d in it.reduced if it.sizes[d] > 1]
    return bool(it.reduced) and lanes in [(d, None) for d in sized or [None]] and len(sized) < 2


def is_reduction_over_others(it: Iteration, lanes: Lanes) -> bool:
    """Any stick dim that is not reduced, kept by the result."""
    return bool(it.reduced) and lanes[0] not in it.reduced and lanes[1] == lanes[0]


def is_product(it: Iteration, lanes: Lanes) -> bool:
    """Input 1 sticks on K (channels in), input 2 and the result on N (channels out)."""
    left, right, result = it.present
    inner, columns = (left & right) - result - it.windows, right - left
    if len(inner) != 1 or len(columns) != 1:
        return False
    (k,), (n,) = inner, columns
    stick = [d if it.sizes[d] > 1 else None for d in (k, n, n)]
    return lanes == tuple(stick)


def is_matmul(it: Iteration, lanes: Lanes) -> bool:
    """In addition at most 2 rows and 2 batch dims; nothing else is reduced."""
    left, right, result = it.present
    few = len((left & result) - right) <= 2 and len(left & right & result) <= 2
    return is_product(it, lanes) and few and len(it.reduced) == 1


def is_normalisation(it: Iteration, lanes: Lanes) -> bool:
    """Only the normalised dim in the stick, which is the dim that the statistics do not have."""
    normalised = it.present[0] - it.present[1]
    dim = next((d for d in normalised if it.sizes[d] > 1), None)
    return not it.reduced and len(normalised) == 1 and follows(it, lanes, dim)


def is_pooling(it: Iteration, lanes: Lanes) -> bool:
    """Window dims never in the stick."""
    return bool(it.windows) and not it.windows & set(lanes) and lanes[0] == lanes[1]


def is_top_k(it: Iteration, lanes: Lanes) -> bool:
    """Neither the reduced dim nor k is in the stick."""
    k = it.present[1] - it.present[0]
    return bool(it.reduced) and not (it.reduced | k) & set(lanes) and lanes[0] == lanes[1]


def is_gather(it: Iteration, lanes: Lanes) -> bool:
    """The index is sparse, table and result have one stick, which is never the dim that the index counts."""
    return lanes[0] is None and lanes[1] == lanes[2] and lanes[1] not in it.reduced


PREDICATES: dict[Kind, Callable[[Iteration, Lanes], bool]] = {
    Kind.POINTWISE: is_pointwise,
    Kind.CAST: is_pointwise,
    Kind.REDUCE_STICK: is_reduction_over_stick,
    Kind.REDUCE_OTHER: is_reduction_over_others,
    Kind.MATMUL: is_matmul,
    Kind.CONVOLUTION: is_product,
    Kind.NORMALISE: is_normalisation,
    Kind.POOLING: is_pooling,
    Kind.TOP_K: is_top_k,
    Kind.RESTICKIFY: lambda it, lanes: not it.reduced and lanes[0] != lanes[1],
    Kind.RELAYOUT: is_pointwise,
    Kind.GATHER: is_gather,
}


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name)
def test_forms_and_violations_are_the_rule(kind: Kind) -> None:
    """Over every lane of 500 random iterations: a form exactly where the predicate holds, else a sentence."""
    rng = random.Random(kind.name)
    legal = 0
    for _ in range(500):
        it = random_iteration(rng, kind)
        opcode = OPCODES[kind]
        expected = {lanes for lanes in all_lanes(it) if PREDICATES[kind](it, lanes)}
        found = [
            form.stick_dims
            for form in stick_assignments(opcode, it)
            if form.inputs == tuple(sorted(form.inputs))
        ]
        assert sorted(found, key=str) == sorted(expected, key=str), it
        for lanes in all_lanes(it):
            assert (violation(opcode, it, lanes) is None) == (lanes in expected), (it, lanes)
        legal += len(expected)
    assert legal > 25


def test_a_turned_matmul_is_the_matmul_of_its_inputs_exchanged() -> None:
    rng = random.Random(1)
    for _ in range(300):
        it = random_iteration(rng, Kind.MATMUL)
        turned = [form for form in stick_assignments("batchmatmul", it) if form.inputs == (1, 0)]
        straight = [
            form for form in stick_assignments("batchmatmul", it.reordered((1, 0))) if form.inputs == (0, 1)
        ]
        assert [(b, a, r) for a, b, r in (form.stick_dims for form in turned)] == [
            f.stick_dims for f in straight
        ]


@pytest.mark.parametrize("name", ["sum", "max", "min", "absmax", "mean"])
def test_a_reduction_takes_the_name_of_its_form(name: str) -> None:
    """Asked by either name, the forms that keep the stick come first."""
    it = iteration((65, 70), "01", "0", reduced="1")
    expected = [(f"{name}nonstick", (0, 0)), (f"{name}nonstick", (None, None)), (name, (1, None))]
    for opcode in (name, f"{name}nonstick"):
        assert [(form.opcode, form.stick_dims) for form in stick_assignments(opcode, it)] == expected


def test_several_reduced_dims_keep_the_stick() -> None:
    it = iteration((4, 65, 70), "012", "0", reduced="12")
    assert {form.opcode for form in stick_assignments("sum", it)} == {"sumnonstick"}


def test_lanes_are_normalised() -> None:
    """A stick dim of size 1, or a dim that is missing from the operand, is not a stick dim."""
    assert violation("add", iteration((1, 70), "01", "1", "01"), (0, None, 0)) is None
    assert violation("add", iteration((5, 70), "01", "1", "01"), (0, 0, 0)) is None


def test_the_last_dim_comes_first() -> None:
    """Ties go to the default layout; sparse is the last resort."""
    assert [
        form.stick_dims[-1] for form in stick_assignments("exp", iteration((4, 1, 70), "012", "012"))
    ] == [2, 0, None]


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name)
def test_a_stick_dim_has_room_for_whole_sticks_everywhere(kind: Kind) -> None:
    """``padded_dims`` are exactly the operands whose own stick of a dim is shorter than the longest of it."""
    rng = random.Random(kind.name)
    for _ in range(100):
        it = random_iteration(rng, kind)
        for form in stick_assignments(OPCODES[kind], it):
            own = {
                (at, dim): ELEMENTS[dtype] if dim == lane else 1
                for at, (has, lane, dtype) in enumerate(
                    zip(it.present, form.stick_dims, it.dtypes, strict=True)
                )
                for dim in has
            }
            longest = {dim: max(own[key] for key in own if key[1] == dim) for _, dim in own}
            assert form.padded_dims == tuple(sorted(key for key in own if own[key] < longest[key[1]]))


# -- sticks and padding -------------------------------------------------------------------------------

#: Types of the operands by the operation.
DTYPES = {
    "batchmatmul": "f16 f16 f16",
    "batchmatmulfp8": "f8E4M3FN f8E4M3FN f16",
    "batchmatmulint8": "i8 i8 f16",
}


def product(opcode: str, sizes: tuple[int, ...] = (6, 192, 256)) -> Iteration:
    """A product over rows, columns and the contracted dim, in the types of the operation."""
    return iteration(sizes, "02", "21", "01", reduced="2", dtypes=DTYPES.get(opcode, "i4 i4 f16"))


PRODUCT = product("batchmatmul")


def test_sticks_of_one_dim() -> None:
    """A cast: 64 elements of fp16 with 32 of fp32, so the shorter side needs more padding."""
    (form, *_) = stick_assignments("dl16tofp32", iteration((3, 70), "01", "01", dtypes="f16 f32"))
    assert stick_digits(iteration((3, 70), "01", "01", dtypes="f16 f32"), form) == (((1, 64),), ((1, 32),))
    assert form.padded_dims == ((1, 1),)


@pytest.mark.parametrize(
    ("opcode", "bits", "first", "second"),
    [
        ("batchmatmulfp8", 8, ((2, 128),), ((1, 64), (2, 2))),
        ("batchmatmulint8", 8, ((2, 128),), ((1, 64), (2, 2))),
        ("batchmatmulint4", 4, ((2, 8), (0, 2), (2, 16)), ((1, 64), (2, 4))),
        ("conv2dint4", 4, ((2, 8), (0, 2), (2, 16)), ((1, 64), (2, 4))),
    ],
)
def test_sticks_of_several_digits(opcode: str, bits: int, first: tuple, second: tuple) -> None:
    """Input 1 [K=128] or [K=16, M=2, K=8], input 2 [K=2, N=64] or [K=4, N=64], innermost first: 128 bytes each."""
    form = stick_assignments(opcode, product(opcode))[0]
    sticks = stick_digits(product(opcode), form)
    assert sticks == (first, second, ((1, 64),)) and form.stick_dims == (2, 1, 1)
    for digits in sticks[:2]:
        assert math.prod(count for _, count in digits) * bits == 128 * 8


def test_room_for_sticks_of_several_digits() -> None:
    """Input 2 has whole sticks along K; with int4 the result has whole pairs of rows."""
    assert [
        form.padded_dims for form in stick_assignments("batchmatmulint8", product("batchmatmulint8"))
    ] == [
        ((1, 2),),
        ((0, 2),),
    ]
    assert stick_assignments("batchmatmulint4", product("batchmatmulint4"))[0].padded_dims == ((1, 2), (2, 0))


def test_a_stick_of_several_digits_keeps_its_places() -> None:
    """With one row or no row dim the stick is still 8 x 2 x 16."""
    one_row = product("batchmatmulint4", (1, 192, 256))
    assert stick_digits(one_row, stick_assignments("batchmatmulint4", one_row)[0])[0] == (
        (2, 8),
        (0, 2),
        (2, 16),
    )
    no_row = iteration((192, 256), "1", "10", "0", reduced="1", dtypes="i4 i4 f16")
    assert stick_digits(no_row, stick_assignments("batchmatmulint4", no_row)[0])[0] == (
        (1, 8),
        (None, 2),
        (1, 16),
    )


def test_sticks_are_those_of_a_layout() -> None:
    """``StickLayout.for_tensor`` accepts them, by the dims of the operand."""
    sticks = stick_digits(
        product("batchmatmulint8"), stick_assignments("batchmatmulint8", product("batchmatmulint8"))[0]
    )
    layout = StickLayout.for_tensor(
        default_target(), (256, 192), "i8", sticks=[(0 if d == 2 else 1, n) for d, n in sticks[1]]
    )
    assert layout.device_size == (128, 3, 64, 2)


def test_sticks_of_several_dims_are_checked() -> None:
    """The error names the dims in the stick of the operand, and the dims that the operation requires."""
    right = ((), ((1, 64), (2, 2)), ())
    assert stick_violation("batchmatmulint8", product("batchmatmulint8"), right) is None
    wrong = stick_violation("batchmatmulint8", product("batchmatmulint8"), ((), ((2, 2), (1, 64)), ()))
    assert wrong is not None and wrong.startswith(
        "input 2 has 2 of dim 2 x 64 of dim 1 in the stick; expected 64 of dim 1 x 2 of dim 2: a matmul has"
    )
    plain = stick_violation("batchmatmul", product("batchmatmul"), right)
    assert plain is not None and plain.startswith(
        "input 2 has 64 of dim 1 x 2 of dim 2 in the stick; expected one dim there: a matmul has"
    )


def test_neutral_padding() -> None:
    """Only of dims that are reduced and padded, on every operand that has them."""
    product = iteration((6, 65, 70), "02", "21", "01", reduced="2")
    assert [
        neutral_padding(product, form, (6, 128, 128)) for form in stick_assignments("batchmatmul", product)
    ] == [((0, 2), (1, 2))] * 2
    assert neutral_padding(PRODUCT, stick_assignments("batchmatmul", PRODUCT)[0], PRODUCT.sizes) == ()
    reduction = iteration((65, 70), "01", "0", reduced="1")
    row, column, sparse = (
        form
        for dims in ((0, 0), (1, None), (None, None))
        for form in stick_assignments("max", reduction)
        if form.stick_dims == dims
    )
    assert neutral_padding(reduction, column, (65, 128)) == ((0, 1),)
    assert neutral_padding(reduction, row, (128, 70)) == neutral_padding(reduction, sparse, (65, 70)) == ()
    assert neutral_padding(reduction, StickAssignment("exp", (1, 1), (0,), ()), (65, 128)) == ()


def test_every_kind_has_a_rule() -> None:
    """Operations that reduce into padding have a neutral value."""
    assert set(RULES) == set(Kind)
    assert set(OPCODES.values()) <= set(KINDS) and {KINDS[opcode] for opcode in OPCODES.values()} == set(Kind)
    for opcode in ("sum", "max", "min", "absmax", "mean", "exx2_zeromean", "batchmatmul"):
        assert RULES[KINDS[opcode]].neutral is not None and opcode in NEUTRAL


# -- messages -----------------------------------------------------------------------------------------

SQUARE = iteration((64, 65), "01", "01", "01")
ROWS = iteration((64, 65), "01", "0", reduced="1")
POOL = iteration((64, 8, 8, 3), "0123", "012", reduced="3", windows="23")
TOP = iteration((64, 65, 4), "01", "02", reduced="1")
NORM = iteration((64, 65), "01", "0", "1", "01")
CONV = iteration((64, 65, 66, 3), "023", "123", "01", reduced="23", windows="3")
STICK_RULE = "a reduction over the stick reduces the dim in the stick and no other, its result is sparse"
MATMUL_RULE = (
    "a matmul has the contracted dim in the stick of input 1, "
    "its columns in the sticks of input 2 and the result"
)

VIOLATIONS = [
    ("add", SQUARE, (1, 0, 1), "input 2 has dim 0 in the stick; expected dim 1 as in the result: "
     "all operands of a pointwise operation have one stick"),
    ("add", SQUARE, (None, 0, None), "input 2 has dim 0 in the stick; expected it sparse as the result: "
     "all operands of a pointwise operation have one stick"),
    ("add", iteration((64, 65), "01", "0", "01"), (1, 0, 1), "input 2 has dim 0 in the stick; "
     "expected it sparse, as it lacks dim 1 of the result: all operands of a pointwise operation have one stick"),
    ("exp", ROWS, (0, 0), "it has 1 reduced dim [1]; expected none: "
     "all operands of a pointwise operation have one stick"),
    ("dl16tofp32", iteration((64, 65), "01", "01"), (None, 1), "input 1 is sparse; expected dim 1 as in the result: "
     "both sides of a cast have one stick"),
    ("max", ROWS, (0, None), f"input 1 has dim 0 in the stick; expected the reduced dim 1: {STICK_RULE}"),
    ("max", ROWS, (1, 0), "the result has dim 0 in the stick; "
     f"expected it sparse, as it lacks dim 1 of input 1: {STICK_RULE}"),
    ("max", iteration((64, 1), "01", "0", reduced="1"), (0, 0), "input 1 has dim 0 in the stick; "
     f"expected it sparse: {STICK_RULE}"),
    ("maxnonstick", ROWS, (1, None), "input 1 has dim 1 in the stick; expected the kept dim 0 or sparse: "
     "a reduction over other dims than the stick keeps the stick in its result"),
    ("maxnonstick", ROWS, (0, None), "the result is sparse; expected dim 0 as in input 1: "
     "a reduction over other dims than the stick keeps the stick in its result"),
    ("batchmatmul", PRODUCT, (0, 1, 1), "input 1 has dim 0 in the stick; "
     f"expected the contracted dim 2: {MATMUL_RULE}"),
    ("batchmatmul", PRODUCT, (2, 2, 1), f"input 2 has dim 2 in the stick; expected the column dim 1: {MATMUL_RULE}"),
    ("batchmatmul", PRODUCT, (2, 1, 0), "the result has dim 0 in the stick; "
     f"expected dim 1 as in input 2: {MATMUL_RULE}"),
    ("conv2d", CONV, (3, 1, 1), "input 1 has dim 3 in the stick; expected the contracted dim 2: "
     "a convolution has its input channels in the stick of input 1, its output channels in the others"),
    ("layernormnorm", NORM, (0, 0, None, 0), "input 1 has dim 0 in the stick; expected the normalised dim 1: "
     "a normalisation has the normalised dim in the stick of all operands that have it"),
    ("maxpoolfwd", POOL, (2, 2), "input 1 has dim 2 in the stick; "
     "expected a kept dim of [0, 1] or sparse, never a window dim: pooling never has a dim of its window in the stick"),
    ("topkvalue", TOP, (None, 2), "the result has dim 2 in the stick; expected it sparse as input 1: "
     "a top-k has neither the reduced dim nor k in the stick"),
    ("topkvalue", TOP, (1, None), "input 1 has dim 1 in the stick; expected the kept dim 0 or sparse, never a k dim: "
     "a top-k has neither the reduced dim nor k in the stick"),
    ("ReStickifyOpHBM", iteration((64, 65), "01", "01"), (1, 1), "input 1 has dim 1 in the stick, "
     "and so it is in the result: a restickify moves the stick from one dim to another"),
]  # fmt: skip


@pytest.mark.sampled(len(VIOLATIONS))
@pytest.mark.parametrize(("opcode", "it", "lanes", "sentence"), VIOLATIONS)
def test_violation(opcode: str, it: Iteration, lanes: Lanes, sentence: str) -> None:
    assert violation(opcode, it, lanes) == sentence


THREE = iteration((4, 5, 6, 65, 66), "0124", "34", "0123", reduced="4")

NO_FORM = [
    ("exx2", iteration((64, 65), "01", "", reduced="01"), "it has 2 reduced dims of more than one element [0, 1]; "
     f"expected at most 1: {STICK_RULE}; there is no 'exx2nonstick'"),
    ("sum", iteration((64,), "0", "0"), "it has no reduced dim; expected at least 1: "
     "a reduction over other dims than the stick keeps the stick in its result; "
     f"it has no reduced dim; expected at least 1: {STICK_RULE}"),
    ("batchmatmul", THREE, "it has 3 row dims [0, 1, 2]; expected at most 2; with its operands swapped "
     f"it has 3 column dims [0, 1, 2]; expected exactly 1: {MATMUL_RULE}"),
    ("ReStickifyOpHBM", iteration((1, 1), "01", "01"), "all its dims have one element: "
     "a restickify moves the stick from one dim to another"),
]  # fmt: skip


@pytest.mark.parametrize(("opcode", "it", "sentence"), NO_FORM)
def test_why_no_form(opcode: str, it: Iteration, sentence: str) -> None:
    assert stick_assignments(opcode, it) == () and why_no_form(opcode, it) == sentence


@pytest.mark.parametrize(
    "ask", [stick_assignments, why_no_form, lambda name, it: violation(name, it, (0, 0, 0))]
)
def test_an_unknown_operation(ask: Callable) -> None:
    with pytest.raises(CompileError, match="'sin' is not a device operation, so it has no stick rule"):
        ask("sin", SQUARE)
