# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The stick rule of each kind of operation: good operands pass, each broken one is named."""

from dataclasses import replace

import bundles
import pytest
from bundle_edits import design, tensor

from spyre_mlir.bundle.model import INPUT, KERNEL, OUTPUT
from spyre_mlir.bundle.rules_design import stick_rules

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
        "The output does not keep the stick out of the input; a relayout moves whole sticks.",
    ),
    "a relayout that loses the rows": (
        ("shuffle", FULL, ("mb out", ROW)),
        "Only one operand has the dim mb; a relayout moves the whole tensor.",
    ),
    "an input on another stick": (
        ("add", FULL, ("out mb", ON_MB), FULL),
        "Tensor1 sticks on mb; expected out, the stick of the output.",
    ),
    "a dim outside of the stick": (
        ("add", FULL, ("out mb", {**ON_MB, "scale": {"mb": -2, "out": 1}}), FULL),
        "Tensor1 has out outside of its stick; expected out as its stick.",
    ),
    "the output loses the stick": (
        ("exp", FULL, ("mb out", SPARSE)),
        "Tensor0 has out but the output does not; a pointwise operation keeps all dims.",
    ),
    "the output loses the rows": (
        ("exp", FULL, ("mb out", ROW)),
        "The output does not have the dim mb; a pointwise operation keeps all dims.",
    ),
    "a stick reduction that keeps its stick": (
        ("sum", FULL, FULL),
        "The output does not have scale -2 on out; expected the input's stick to be reduced.",
    ),
    "a stick reduction of a sparse input": (
        ("sum", ("mb out", SPARSE), ("mb out", SPARSE)),
        "Tensor0 broadcasts its stick out; expected the reduced dim there.",
    ),
    "a stick reduction over the rows too": (
        ("sum", FULL, ("mb out", {"scale": {"mb": -1, "out": -2}})),
        "The dim mb is reduced too; expected the stick out as the only reduced dim.",
    ),
    "another reduction that loses the stick": (
        ("sumnonstick", FULL, ("mb out", {"scale": {"mb": -1, "out": -2}})),
        "The output does not keep the stick out of the input.",
    ),
    "another reduction that reduces nothing": (
        ("sumnonstick", FULL, FULL),
        "No dim outside of the stick is reduced; expected one with scale -1 in the output.",
    ),
    "another reduction that invents a dim": (
        ("sumnonstick", ("mb out", ROW), FULL),
        "The output has the dim mb but the input does not.",
    ),
    "a restickify to the same stick": (
        ("ReStickifyOpHBM", FULL, FULL),
        "Input and output both stick on out; expected two different sticks.",
    ),
    "a restickify of a part": (
        ("ReStickifyOpHBM", FULL, ("out mb", {**ON_MB, "scale": {"mb": 1, "out": -1}})),
        "Tensor1 does not have the dim out; a restickify moves the whole tensor.",
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
            "Tensor0 sticks on mb; expected a whole stick of in.",
        ),
        (
            (LEFT, ("in out", {"stick_dim": "in"}), PRODUCT),
            "Tensor1 sticks on in; expected a whole stick of out.",
        ),
        ((("mb in out", ON_IN), RIGHT, PRODUCT), "Tensor0 has the dim out; expected an operand without it."),
        ((LEFT, ("mb in out", {}), PRODUCT), "Tensor1 has the dim mb; expected an operand without it."),
        ((LEFT, RIGHT, ("mb in out", {})), "Tensor2 has the dim in; expected an operand without it."),
        (
            (LEFT, ("mb out", ROW), PRODUCT),
            "Tensor1 does not have the dim in; expected the contracted dim in both inputs.",
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
            "Tensor0 sticks on mb; expected one position per stick.",
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
            "The output does not keep the stick out of the table.",
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
