# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A core reads from its LX the elements of its slices: checked by the validator, and by the simulator."""

from __future__ import annotations

from dataclasses import replace

import bundles
import numpy as np
import pytest
from bundle_edits import design, tensor
from simulator_programs import failure

from spyre_mlir.bundle.elements import Elements
from spyre_mlir.bundle.model import Bundle, HeldSlices
from spyre_mlir.bundle.validate import validate
from spyre_mlir.simulator import run

REDUCTION, RELAYOUT = bundles.reduction_bundle(), bundles.relayout_bundle()


def turned(bundle: Bundle, position: int) -> Bundle:
    """The cores of a design exchange their slices, and with them the addresses in device memory."""
    made = bundle.designs[f"sdsc_{position}.json"]
    operands = tuple(replace(each, start=each.start[::-1]) for each in made.operands)
    return design(bundle, position, core_slices=made.core_slices[::-1], operands=operands)


def inputs(bundle: Bundle) -> dict[str, np.ndarray]:
    (x,) = (each for each in bundle.manifest.arguments if each.kind == "input")
    return {"x": np.arange(np.prod(x.host_shape)).reshape(x.host_shape).astype(np.float16) / 32768}


def check_refused(bundle: Bundle, text: str) -> None:
    """Validator and simulator both say that."""
    (finding,) = validate(bundle)
    assert finding.rule == "elements"
    assert text in finding.message
    error = failure(bundle, inputs(bundle))
    assert error.kind == "elements" and text in error.message


def test_a_reader_on_other_cores_than_the_writer():
    """The slices give the addresses of the result, so only the elements in LX are wrong."""
    text = "reads Tensor0 in LX as the slice mb 1, but execute 0 wrote the slice mb 0 there"
    check_refused(turned(REDUCTION, 1), text)


def test_writer_and_reader_on_other_cores_together():
    """The program is valid: each core works on the other half."""
    bundle = turned(turned(REDUCTION, 0), 1)
    assert validate(bundle) == []
    expected, found = (run(each, inputs(each)).outputs["s"] for each in (REDUCTION, bundle))
    assert np.array_equal(expected, found)


def test_a_relayout_of_what_the_cores_do_not_hold():
    source = RELAYOUT.designs["sdsc_1.json"].operands[0]
    assert source.held is not None
    held = HeldSlices(source.held.slices, source.held.core_slices[::-1])
    check_refused(tensor(RELAYOUT, 0, 1, held=held), "as the slice mb 1, but execute 0 wrote the slice mb 0")


def test_a_reader_of_a_relayout_on_other_cores():
    check_refused(turned(RELAYOUT, 2), "as the slice out 1, but execute 1 wrote the slice out 0 there")


def problem(**changes) -> str | None:
    """Return the error of reading, by other dims, the rows that two cores wrote: each 64 of 128 rows of 4 sticks."""
    elements = Elements(REDUCTION.target)
    elements.write(0, REDUCTION.designs["sdsc_0.json"])
    source = bundles.operand(bundles.INPUT, changes.pop("dims"), (0, 0))
    reader = bundles.two_core_design(1, "abs", (source, replace(source, role=bundles.OUTPUT)), **changes)
    return elements.problem(1, reader, 0)


def test_a_view_of_the_rows_as_two_dims():
    """The slices of the outer dim equal the slices of the rows; if the inner dim is divided, they differ."""
    sizes = {"mb": 64, "x": 2, "out": 256}
    outer = {"slices": {"mb": 1, "x": 2, "out": 1}, "shares": {"mb": 64, "x": 1, "out": 256}}
    inner = {"slices": {"mb": 2, "x": 1, "out": 1}, "shares": {"mb": 32, "x": 2, "out": 256}}
    by_x, by_mb = (tuple({"mb": 0, "x": 0, "out": 0, dim: core} for core in range(2)) for dim in ("x", "mb"))
    assert problem(dims="mb x out", sizes=sizes, core_slices=by_x, **outer) is None
    assert problem(dims="mb x out", sizes=sizes, core_slices=by_x[::-1], **outer) is not None
    assert problem(dims="mb x out", sizes=sizes, core_slices=by_mb, **inner) is not None


def test_a_view_that_no_order_of_the_tensor_allows():
    """128 rows of 2 sticks on each core: its first 128 sticks are rows of the other core's half, too."""
    changes = {"sizes": {"mb": 256, "out": 128}, "shares": {"mb": 128, "out": 128}}
    text = "expected reader and writer to have the elements of the tensor in the same order"
    assert text in (problem(dims="mb out", **changes) or "")


@pytest.mark.parametrize("cores", (1, 2))
def test_a_restickify_on_several_cores_reads_device_memory(cores):
    """One core has the whole tensor in its LX; several cores have subviews of its new sticks."""
    bundle = bundles.restickify_bundle(cores)
    rules = [(finding.rule, finding.message) for finding in validate(bundle)]
    if cores == 1:
        assert rules == []
        x = inputs(bundle)
        assert np.array_equal(run(bundle, x).outputs["z"], np.abs(x["x"]))
        return
    text = "A restickify on 2 cores reads Tensor0 from lx; expected hbm."
    assert rules == [("restickify-source", text)]
    assert "on 2 cores reads Tensor0 from lx; expected hbm" in failure(bundle, inputs(bundle)).message
