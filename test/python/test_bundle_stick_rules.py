# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The stick rule of each kind of operation: good operands pass, each broken one is named."""

from dataclasses import replace

import bundles
import pytest
from bundle_edits import design, tensor

from spyre_mlir.bundle.model import INPUT, KERNEL, OUTPUT
from spyre_mlir.bundle.rules_design import stick_rules
from spyre_mlir.layout.rules import sentence as rule_of

SPARSE = {"scale": {"mb": 1, "out": -2}}
ROW = {"scale": {"mb": -1, "out": 1}}
ON_MB = {"stick_dim": "mb", "dim_order": ("out", "mb")}
ON_IN = {"stick_dim": "in"}


def sentences(opcode, *operands, sizes=None):
    """Return the messages of the rule on an operation with operands given as (dims, changes)."""
    roles = (INPUT, KERNEL, OUTPUT)[-len(operands) :]
    made = [
        bundles.operand(role, dims, (0, 0), **changes)
        for role, (dims, changes) in zip(roles, operands, strict=True)
    ]
    design = bundles.two_core_design(0, opcode, tuple(made))
    return list(stick_rules(replace(design, sizes=sizes) if sizes else design))


POINTWISE, STICK_SUM, OTHER_SUM, RESTICKIFY, MATMUL_RULE, GATHER_RULE = map(
    rule_of, ("add", "sum", "sumnonstick", "ReStickifyOpHBM", "batchmatmul", "gather")
)

FULL = ("mb out", {})
MATMUL = {"mb": 64, "in": 64, "out": 64}
LEFT, RIGHT, PRODUCT = ("mb in", ON_IN), ("in out", {}), ("mb out", {})

GOOD = {
    "add of two matrices": ("add", FULL, FULL, FULL),
    "add of a row, broadcast along the rows": ("add", FULL, ("mb out", ROW), FULL),
    "add of a column, one element per stick": ("add", FULL, ("mb out", SPARSE), FULL),
    "reciprocal of a sparse column": ("reciprocal", ("mb out", SPARSE), ("mb out", SPARSE)),
    "both stick on mb": ("exp", ("out mb", ON_MB), ("out mb", ON_MB)),
    "cast": ("dl16tofp32", FULL, ("mb out", {"stick_elements": 32})),
    "sum over the stick": ("sum", FULL, ("mb out", SPARSE)),
    "sum over rows": ("sumnonstick", FULL, ("mb out", ROW)),
    "restickify": ("ReStickifyOpHBM", FULL, ("out mb", ON_MB)),
    "relayout": ("shuffle", FULL, FULL),
    "relayout of a sparse column": ("shuffle", ("mb out", SPARSE), ("mb out", SPARSE)),
    "copies of a row, mb counts them": ("exp", ("mb out", ROW), ("mb out", ROW)),
    "copies of a row over the ring": ("shuffle", ("mb out", ROW), ("mb out", ROW)),
}


@pytest.mark.parametrize("case", GOOD)
def test_good(case):
    assert sentences(*GOOD[case]) == []


def test_a_stick_reduction_over_a_dim_of_size_1_too():
    broken, sentence = BROKEN["a stick reduction over the rows too"]
    assert sentence in sentences(*broken)
    assert sentences(*broken, sizes={"mb": 1, "out": 128}) == []


BROKEN = {
    "a relayout to another stick": (
        ("shuffle", FULL, ("out mb", ON_MB)),
        "input 1 has dim out in the stick; expected dim mb as in the result: both sides of a shuffle have one stick.",
    ),
    "a relayout that loses the rows": (
        ("shuffle", FULL, ("mb out", ROW)),
        "it has 1 reduced dim [mb]; expected none: both sides of a shuffle have one stick.",
    ),
    "an input on another stick": (
        ("add", FULL, ("out mb", ON_MB), FULL),
        f"input 2 has dim mb in the stick; expected dim out as in the result: {POINTWISE}.",
    ),
    "a dim outside of the stick": (
        ("add", FULL, ("out mb", {**ON_MB, "scale": {"mb": -2, "out": 1}}), FULL),
        f"input 2 is sparse; expected dim out as in the result: {POINTWISE}.",
    ),
    "the output loses the stick": (
        ("exp", FULL, ("mb out", SPARSE)),
        f"it has 1 reduced dim [out]; expected none: {POINTWISE}.",
    ),
    "the output loses the rows": (
        ("exp", FULL, ("mb out", ROW)),
        f"it has 1 reduced dim [mb]; expected none: {POINTWISE}.",
    ),
    "a stick reduction that keeps its stick": (
        ("sum", FULL, FULL),
        f"it has no reduced dim; expected at least 1: {STICK_SUM}.",
    ),
    "a stick reduction of a sparse input": (
        ("sum", ("mb out", SPARSE), ("mb out", SPARSE)),
        f"it has no reduced dim; expected at least 1: {STICK_SUM}.",
    ),
    "a stick reduction over the rows too": (
        ("sum", FULL, ("mb out", {"scale": {"mb": -1, "out": -2}})),
        f"it has 2 reduced dims of more than one element [mb, out]; expected at most 1: {STICK_SUM}.",
    ),
    "another reduction that loses the stick": (
        ("sumnonstick", FULL, ("mb out", {"scale": {"mb": -1, "out": -2}})),
        f"input 1 has dim out in the stick; expected it sparse: {OTHER_SUM}.",
    ),
    "another reduction that reduces nothing": (
        ("sumnonstick", FULL, FULL),
        f"it has no reduced dim; expected at least 1: {OTHER_SUM}.",
    ),
    "another reduction that invents a dim": (
        ("sumnonstick", ("mb out", ROW), FULL),
        "The output has the dim mb but the input does not.",
    ),
    "a restickify to the same stick": (
        ("ReStickifyOpHBM", FULL, FULL),
        f"input 1 has dim out in the stick, and so it is in the result: {RESTICKIFY}.",
    ),
    "a restickify of a part": (
        ("ReStickifyOpHBM", FULL, ("out mb", {**ON_MB, "scale": {"mb": 1, "out": -1}})),
        f"it has 1 reduced dim [out]; expected none: {RESTICKIFY}.",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken(case):
    arguments, sentence = BROKEN[case]
    assert sentence in sentences(*arguments)


def test_matmul():
    assert sentences("batchmatmul", LEFT, RIGHT, PRODUCT, sizes=MATMUL) == []


@pytest.mark.parametrize(
    ("operands", "sentence"),
    [
        (
            (("mb in", {"stick_dim": "mb"}), RIGHT, PRODUCT),
            f"input 1 has dim mb in the stick; expected the contracted dim in: {MATMUL_RULE}.",
        ),
        (
            (LEFT, ("in out", {"stick_dim": "in"}), PRODUCT),
            f"input 2 has dim in in the stick; expected the column dim out: {MATMUL_RULE}.",
        ),
        ((("mb in out", ON_IN), RIGHT, PRODUCT), "Tensor0 has the dim out; expected an operand without it."),
        ((LEFT, ("mb in out", {}), PRODUCT), "Tensor1 has the dim mb; expected an operand without it."),
        ((LEFT, RIGHT, ("mb in out", {})), "Tensor2 has the dim in; expected an operand without it."),
        (
            (LEFT, ("mb out", ROW), PRODUCT),
            f"it has no contracted dim; expected at least 1: {MATMUL_RULE}.",
        ),
    ],
)
def test_broken_matmul(operands, sentence):
    assert sentence in sentences("batchmatmul", *operands, sizes=MATMUL)


GATHER = bundles.gather_bundle()


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (
            tensor(GATHER, 0, stick_dim="mb", scale={"mb": 1, "out": -1, "x": -1}),
            f"input 1 has dim mb in the stick; expected it sparse: {GATHER_RULE}.",
        ),
        (
            tensor(GATHER, 0, memory="lx", start=(0, 0)),
            "Tensor0 is in lx; expected an indirect access in device memory.",
        ),
        (
            tensor(GATHER, 1, memory="lx", start=(0, 0)),
            "Tensor1 is in lx; expected an indirect access in device memory.",
        ),
        (
            tensor(GATHER, 2, scale={"mb": 1, "out": -2, "x": -1}),
            f"input 2 has dim out in the stick; expected it sparse: {GATHER_RULE}.",
        ),
        (
            design(GATHER, slices={"mb": 1, "out": 1, "x": 2}),
            "The table has the dims ['x'] in addition to the dims of the output; "
            "expected one, undivided and outside of the stick, that the positions count.",
        ),
        (
            tensor(GATHER, 1, scale={"mb": 1, "x": 1, "out": 1}),
            "The output does not have the dims of the positions and of one row of the table.",
        ),
        (
            tensor(GATHER, 2, scale={"mb": 1, "x": 1, "out": 1}),
            "The table has the dims [] in addition to the dims of the output; "
            "expected one, undivided and outside of the stick, that the positions count.",
        ),
    ],
)
def test_broken_gather(broken, sentence):
    assert sentence in list(stick_rules(broken.designs["sdsc_0.json"]))
