# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Divisions written by hand, from the level laid out to the simulator: shared sums and slices that differ."""

from __future__ import annotations

import numpy as np
import pytest

from spyre_mlir.bundle.design_json import to_json
from spyre_mlir.bundle.model import Bundle
from spyre_mlir.bundle.validate import validate
from spyre_mlir.dialects import context
from spyre_mlir.errors import CompileError
from spyre_mlir.lowering.export import export
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import run_pipeline
from spyre_mlir.simulator import Result, run

MATMUL = """
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
!a = tensor<64x4096xf16, #stick.layout<#rows>>
!w = tensor<4096x64xf16, #stick.layout<#rows>>
!c = tensor<64x64xf16, #stick.layout<#rows>>
func.func @main(%a: !a {{sdsc.host = #sdsc.host<"a", "input", "f16">}},
    %w: !w {{sdsc.host = #sdsc.host<"w", "input", "f16">}}) -> (!c {{sdsc.host = #sdsc.host<"c", "result", "f16">}}) {{
  %e = tensor.empty() : !c
  %c = linalg.generic {{indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%a, %w : !a, !w) outs(%e : !c)
      attrs = {{sdsc.op = #sdsc.op<"batchmatmul", {{}}>, sdsc.division = #sdsc.division<{division}>{combine}}} {{
  ^bb0(%p: f16, %q: f16, %o: f16):
    %r = arith.mulf %p, %q : f16
    %s = arith.addf %o, %r : f16
    linalg.yield %s : f16
  }} -> !c
  return %c : !c
}}"""
LOWER = "verify-divided,place-in-hbm,verify-placed,verify-ownership,convert-sdsc-to-sdscbundle,verify-bundle"
ADDED = ', sdsc.combine = "add"'

#: Slices of rows, columns and depth, and the cores that have the finished values.
DIVISIONS = {
    "neighbours share a sum": ("[1, 1, 4], affine_map<(d0) -> (0, 0, d0)>", (3,)),
    "two groups of neighbours": ("[2, 1, 4], affine_map<(d0) -> (d0 floordiv 4, 0, d0 mod 4)>", (3, 7)),
    "cores of one sum lie apart": ("[2, 1, 4], affine_map<(d0) -> (d0 mod 2, 0, d0 floordiv 2)>", (6, 7)),
    "the first core has the last slice": ("[1, 1, 4], affine_map<(d0) -> (0, 0, 3 - d0)>", (0,)),
    "a smaller last part": ("[1, 1, 5], affine_map<(d0) -> (0, 0, d0)>", (4,)),
    "smaller last rows and part": (
        "[5, 1, 5], affine_map<(d0) -> (d0 floordiv 5, 0, d0 mod 5)>", (4, 9, 14, 19, 24),
    ),
}  # fmt: skip


def lowered(division: str, combine: str = ADDED) -> Bundle:
    module = ir.Module.parse(MATMUL.format(division=division, combine=combine), context())
    run_pipeline(module, LOWER)
    return export(module)[0]


def simulated(bundle: Bundle) -> tuple[Result, np.ndarray]:
    """A run on matrices of -1, 0 and 1, and their product: all sums are small whole numbers, exact in fp16."""
    rng = np.random.default_rng(0)
    a, w = (rng.integers(-1, 2, shape).astype(np.float16) for shape in ((64, 4096), (4096, 64)))
    return run(bundle, {"a": a, "w": w}), a.astype(np.int64) @ w.astype(np.int64)


@pytest.mark.parametrize("name", DIVISIONS)
def test_the_product_is_exact(name):
    """Every part of every sum is added once, and no rule of a bundle is broken."""
    bundle = lowered(DIVISIONS[name][0])
    assert not (findings := validate(bundle)), "\n".join(map(str, findings))
    result, expected = simulated(bundle)
    np.testing.assert_array_equal(result.outputs["c"], expected)


@pytest.mark.parametrize("name", DIVISIONS)
def test_the_core_of_the_last_slice_finishes(name):
    """Depth is dim 'in' of the design; the finishing cores, and no others, have its last slice."""
    division, finishers = DIVISIONS[name]
    (design,) = lowered(division).designs.values()
    last = design.slices["in"] - 1
    assert tuple(core for core, own in enumerate(design.core_slices) if own["in"] == last) == finishers


@pytest.mark.parametrize("name", DIVISIONS)
def test_a_finished_value_is_written_once(name):
    """Parts of sums go over the ring: 64 x 64 results are 8 KiB of device memory, whoever shares them."""
    (statistics,) = simulated(lowered(DIVISIONS[name][0]))[0].statistics.executes.values()
    assert statistics.write_bytes == 64 * 64 * 2


def test_the_last_core_has_the_smaller_slice():
    """64 sticks of depth in 5 slices: 13, 13, 13, 13, 12, each at its own address."""
    (design,) = lowered(DIVISIONS["a smaller last part"][0]).designs.values()
    assert (design.sizes["in"], design.slices["in"], design.shares["in"]) == (4096, 5, 13 * 64)
    assert [len(set(operand.start)) for operand in design.operands] == [5, 5, 1]


def test_the_folder_tells_the_first_slice_from_the_last():
    """The bundle's ``ss_`` is a full slice, ``el_`` the last one: 832 and 768 of a depth of 4096."""
    (design,) = lowered(DIVISIONS["a smaller last part"][0]).designs.values()
    stage = to_json(design)["0_batchmatmul"]["dscs_"][0]["batchmatmul"]["dataStageParam_"]["0"]
    assert (stage["ss_"]["in_"], stage["el_"]["in_"]) == (832, 768)


def test_parts_that_nobody_combines_are_an_error():
    with pytest.raises(
        CompileError, match="dim 2 is reduced and divided, but no operation combines the partial"
    ):
        lowered(DIVISIONS["neighbours share a sum"][0], combine="")


def test_a_slice_without_work_is_an_error():
    """9 slices of 64 rows are 8 of 8 and one of none."""
    with pytest.raises(
        CompileError, match="dim 0 has 64 rows or sticks, so the last of 9 slices has no work"
    ):
        lowered("[9, 1, 1], affine_map<(d0) -> (d0, 0, 0)>", combine="")
