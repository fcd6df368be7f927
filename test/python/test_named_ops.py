# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every named operation of linalg: it gives upstream's numbers, or it is refused by one sentence."""

from __future__ import annotations

import re

import named_ops
import numpy as np
import pytest
from cpu_reference import CpuReference

import spyre_mlir
import spyre_mlir.driver.compilation
import spyre_mlir.pipelines
from spyre_mlir.driver.checking import random_arguments
from spyre_mlir.errors import CompileError
from spyre_mlir.passes.decompose_softmax import DecomposeSoftmax

PROGRAMS = named_ops.programs()

#: Nothing of upstream, and nothing of ours, computes these.
REFUSED = {
    "fill": "f16 is not a ranked tensor",
    "pack": "'linalg.pack' has no device operation",
    "unpack": "'linalg.unpack' has no device operation",
    "winograd_filter_transform": "'linalg.winograd_filter_transform' has no device operation",
    "winograd_input_transform": "'linalg.winograd_input_transform' has no device operation",
    "winograd_output_transform": "'linalg.winograd_output_transform' has no device operation",
}


def test_each_named_operation_of_the_bindings_is_here():
    """The test names operations that a new version of upstream adds."""
    from torch_mlir.dialects import linalg

    names = {
        getattr(linalg, name).OPERATION_NAME for name in dir(linalg) if name.endswith("Op") and name != "Op"
    }
    names -= {"linalg.generic", "linalg.index", "linalg.yield"}
    assert names == {f"linalg.{name.partition(' ')[0]}" for name in PROGRAMS}


def in_double(text: str) -> str:
    """A program with f64 for f16: a sum of hundreds that rounds each time to fp16 is off by a percent."""
    infinities = {"0xFC00": "0xFFF0000000000000", "0x7C00": "0x7FF0000000000000"}
    return re.sub(
        r"\bf16\b|xf16\b|0xFC00|0x7C00",
        lambda match: infinities.get(match[0]) or match[0].replace("f16", "f64"),
        text,
    )


@pytest.mark.sampled(24)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_the_numbers_are_those_of_upstream(name: str):
    """On positive numbers, of which all operations have a finite result."""
    if name in REFUSED:
        with pytest.raises(CompileError, match=REFUSED[name]):
            spyre_mlir.compile(PROGRAMS[name], sencores=4)
        return
    program = named_ops.compiled(PROGRAMS[name])
    arrays = {
        key: (abs(array) + 1).astype(array.dtype) if array.dtype != np.bool_ else array
        for key, array in random_arguments(program.arguments).items()
    }
    module = spyre_mlir.driver.compilation._parsed(in_double(PROGRAMS[name]))
    DecomposeSoftmax().run(module.operation)
    doubles = (array.astype(np.float64) if array.dtype == np.float16 else array for array in arrays.values())
    expected = CpuReference(module)(*doubles)
    results = program.run(arrays)
    for result, exact in zip(results, expected, strict=True):
        largest = np.abs(exact.astype(np.float64)).max()
        limit = 0.01 * largest if exact.dtype.kind == "f" else 0
        assert np.abs(result.astype(np.float64) - exact.astype(np.float64)).max() <= limit


@pytest.mark.parametrize("shape", ["64x128", "3x5x70", "130", "2x1x64"])
@pytest.mark.parametrize("numerics", ["ieee", "dl16"])
def test_softmax_over_each_dim(shape: str, numerics: str):
    """The numbers of float64, for large and for equal inputs too."""
    sizes = [int(size) for size in shape.split("x")]
    x = np.random.default_rng(1).normal(0, 4, sizes).astype(np.float16)
    x.flat[0] = 300
    for dim in range(len(sizes)):
        type_ = f"tensor<{shape}xf16>"
        program = spyre_mlir.compile(
            f"func.func @main(%x: {type_}) -> {type_} {{\n  %e = tensor.empty() : {type_}\n"
            f"  %y = linalg.softmax dimension({dim}) ins(%x : {type_}) outs(%e : {type_}) -> {type_}\n"
            f"  return %y : {type_}\n}}\n",
            sencores=4,
            numerics=numerics,
        )
        exponentials = np.exp(x.astype(np.float64) - x.max(dim, keepdims=True))
        exact = exponentials / exponentials.sum(dim, keepdims=True)
        (result,) = program.run({"arg0": x})
        assert np.abs(result.astype(np.float64) - exact).max() <= 0.004


@pytest.mark.parametrize(
    ("op", "advice"),
    [
        ("arith.addf %x, %x : tensor<16x64xf16>", "--convert-elementwise-to-linalg converts it to linalg"),
        ("math.exp %x : tensor<16x64xf16>", "--convert-elementwise-to-linalg converts it to linalg"),
        ("tosa.exp %x : (tensor<16x64xf16>) -> tensor<16x64xf16>", "tosa-to-linalg"),
    ],
)
def test_operations_that_upstream_lowers_name_its_pass(op: str, advice: str, tmp_path):
    """The operations run after that pass."""
    type_ = "tensor<16x64xf16>"
    text = f"func.func @main(%x: {type_}) -> {type_} {{\n  %y = {op}\n  return %y : {type_}\n}}\n"
    with pytest.raises(CompileError, match=advice) as error:
        spyre_mlir.pipelines.run_pipeline(
            spyre_mlir.driver.compilation._parsed(text), "decompose-to-device-ops"
        )
    assert error.value.location.endswith(":2:8")
    pipeline = error.value.message.partition("--")[2].partition(" converts")[0]
    pipeline = pipeline.partition('"')[2].rstrip('"') or pipeline
    module = spyre_mlir.driver.compilation._parsed(text)
    spyre_mlir.pipelines.run_pipeline(module, pipeline)
    assert spyre_mlir.compile(module, sencores=2).bundles


@pytest.mark.documents
def test_the_page_is_up_to_date():
    """The table of docs/linalg.md is up to date."""
    assert named_ops.table() in named_ops.PAGE.read_text(encoding="utf-8")


def test_programs_on_memrefs_are_refused():
    """IR after bufferization does not have results that could be placed."""
    text = """func.func @main(%x: memref<16x64xf16>, %y: memref<16x64xf16>) {
  linalg.exp ins(%x : memref<16x64xf16>) outs(%y : memref<16x64xf16>)
  return
}
"""
    with pytest.raises(
        CompileError, match="is not a ranked tensor; arguments and results of a program are tensors"
    ):
        spyre_mlir.compile(text)
