# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The CPU reference runs linalg modules on numpy arrays, without torch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import cpu_reference as reference
import numpy as np
import pytest
from cpu_reference import CpuReference, evaluate

from spyre_mlir.dialects import context
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir


def parse(text: str) -> ir.Module:
    return ir.Module.parse(text, ir.Context())


def pointwise(element: str, body: str, size: int = 4) -> ir.Module:
    """A module that applies ``body`` (from %a to %r) to each element."""
    return parse(f"""
#id = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<{size}x{element}>) -> tensor<{size}x{element}> {{
  %e = tensor.empty() : tensor<{size}x{element}>
  %y = linalg.generic {{indexing_maps = [#id, #id], iterator_types = ["parallel"]}}
      ins(%x : tensor<{size}x{element}>) outs(%e : tensor<{size}x{element}>) {{
  ^bb0(%a: {element}, %o: {element}):
    {body}
    linalg.yield %r : {element}
  }} -> tensor<{size}x{element}>
  return %y : tensor<{size}x{element}>
}}""")


MATMUL = """
func.func @main(%a: tensor<3x65xf16>, %b: tensor<65x5xf16>) -> tensor<3x5xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x5xf32>) -> tensor<3x5xf32>
  %c = linalg.matmul ins(%a, %b : tensor<3x65xf16>, tensor<65x5xf16>)
      outs(%f : tensor<3x5xf32>) -> tensor<3x5xf32>
  return %c : tensor<3x5xf32>
}"""


def test_matmul_accumulates_in_the_format_of_its_result():
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal(shape).astype(np.float16) for shape in ((3, 65), (65, 5)))
    (result,) = CpuReference(parse(MATMUL))(a, b)
    np.testing.assert_allclose(result, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("function", ["exp", "tanh", "erf", "sqrt", "log"])
def test_mathematics_of_16_bits_is_rounded_once(function):
    """Functions of libm are not replaced by polynomials in f16."""
    from math import erf

    x = np.linspace(0.1, 3, 64).astype(np.float16)
    exact = (
        np.vectorize(erf)(x.astype(float)) if function == "erf" else getattr(np, function)(x.astype(float))
    )
    (result,) = CpuReference(pointwise("f16", f"%r = math.{function} %a : f16", 64))(x)
    np.testing.assert_allclose(result.astype(float), exact, rtol=6e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("element", "dtype", "body"),
    [
        ("i1", np.bool_, "%c = arith.constant true\n%r = arith.xori %a, %c : i1"),
        ("i32", np.int32, "%c = arith.constant -1 : i32\n%r = arith.muli %a, %c : i32"),
        ("i64", np.int64, "%c = arith.constant -1 : i64\n%r = arith.muli %a, %c : i64"),
        ("f32", np.float32, "%r = arith.negf %a : f32"),
    ],
)
def test_element_types(element, dtype, body):
    x = np.array([0, 1, 0, 1], dtype)
    (result,) = CpuReference(pointwise(element, body))(x)
    np.testing.assert_array_equal(result, ~x if dtype is np.bool_ else -x)


def test_bfloat16_travels_as_bits():
    """1.5 is 0x3fc0 and 3.0 is 0x4040."""
    (result,) = CpuReference(pointwise("bf16", "%r = arith.addf %a, %a : bf16"))(
        np.full(4, 0x3FC0, np.uint16)
    )
    assert result.tolist() == [0x4040] * 4


def test_nothing_computes_in_bfloat16():
    """A processor without bf16 would call __truncsfbf2 of libgcc 13: only moves and bit casts are left."""
    body = """
    %sum = arith.addf %a, %a : bf16
    %exp = math.exp %sum : bf16
    %less = arith.cmpf olt, %exp, %a : bf16
    %max = arith.maximumf %exp, %sum : bf16
    %i = arith.fptosi %max : bf16 to i32
    %f = arith.sitofp %i : i32 to bf16
    %r = arith.select %less, %f, %max : bf16"""
    lowered = str(reference._lower(pointwise("bf16", body)))
    computed = {
        line.split(" = ")[1].split()[0]
        for line in lowered.splitlines()
        if " = " in line and re.search(r"\bbf16\b", line.split(" = ")[1])
    }
    assert computed <= {
        "llvm.load",
        "llvm.bitcast",
        "llvm.select",
        "llvm.mlir.constant",
        "llvm.getelementptr",
    }


def test_layouts_change_no_number():
    """Pins and restickifies equal their operand, also for an argument with a layout; the module is not changed."""
    text = """
#s = affine_map<(d0) -> (d0, 0)>
func.func @main(%x: tensor<4xf16, #stick.layout<#s>>) -> tensor<4xf16> {
  %p = "stick.pin"(%x) {stick.to = #stick.layout<#s>} : (tensor<4xf16, #stick.layout<#s>>) -> tensor<4xf16>
  %r = "stick.restickify"(%p) {stick.to = #stick.layout<#s>} : (tensor<4xf16>) -> tensor<4xf16>
  %e = tensor.empty() : tensor<4xf16>
  %y = linalg.add ins(%p, %r : tensor<4xf16>, tensor<4xf16>) outs(%e : tensor<4xf16>) -> tensor<4xf16>
  return %y : tensor<4xf16>
}"""
    module = ir.Module.parse(text, context())
    before = str(module)
    (result,) = CpuReference(module)(np.array([1, 2, 3, 4], np.float16))
    assert result.tolist() == [2, 4, 6, 8] and str(module) == before


def test_slices_pads_and_concatenations():
    module = parse("""
func.func @main(%x: tensor<2x3xf16>) -> tensor<2x6xf16> {
  %one = arith.constant 1.0 : f16
  %s = tensor.extract_slice %x[0, 1] [2, 2] [1, 1] : tensor<2x3xf16> to tensor<2x2xf16>
  %p = tensor.pad %s low[0, 0] high[0, 1] {
  ^bb0(%i: index, %j: index):
    tensor.yield %one : f16
  } : tensor<2x2xf16> to tensor<2x3xf16>
  %c = tensor.concat dim(1) %x, %p : (tensor<2x3xf16>, tensor<2x3xf16>) -> tensor<2x6xf16>
  return %c : tensor<2x6xf16>
}""")
    (result,) = CpuReference(module)(np.arange(6, dtype=np.float16).reshape(2, 3))
    assert result.tolist() == [[0, 1, 2, 1, 2, 1], [3, 4, 5, 4, 5, 1]]


def test_evaluate_runs_a_function_without_arguments():
    module = parse("""
func.func @iota() -> (tensor<4xi64>, tensor<f16>) {
  %half = arith.constant dense<0.5> : tensor<f16>
  %e = tensor.empty() : tensor<4xi64>
  %y = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      outs(%e : tensor<4xi64>) {
  ^bb0(%o: i64):
    %i = linalg.index 0 : index
    %r = arith.index_cast %i : index to i64
    linalg.yield %r : i64
  } -> tensor<4xi64>
  return %y, %half : tensor<4xi64>, tensor<f16>
}""")
    iota, half = evaluate(module, "iota")
    assert iota.tolist() == [0, 1, 2, 3] and half.shape == () and half == 0.5


def test_the_module_and_the_inputs_stay_as_they_are():
    """An argument may be a result; the reference works on copies."""
    module = parse("func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }")
    before, x = str(module), np.array([1, 2], np.float32)
    (result,) = CpuReference(module)(x)
    result += 1
    assert str(module) == before and x.tolist() == [1, 2]


def test_other_arrays_are_rejected():
    reference = CpuReference(pointwise("f32", "%r = arith.negf %a : f32"))
    with pytest.raises(CompileError, match="takes 1 arrays, not 0"):
        reference()
    with pytest.raises(CompileError, match=r"Argument 0 of @main is float32 \(4,\), not float16 \(4,\)"):
        reference(np.zeros(4, np.float16))
    with pytest.raises(CompileError, match=r"is float32 \(4,\), not float32 \(5,\)"):
        reference(np.zeros(5, np.float32))


def test_modules_that_cannot_run():
    with pytest.raises(CompileError, match="no function @main"):
        CpuReference(parse("func.func @other() { return }"))
    with pytest.raises(CompileError, match="tensors of static shape"):
        CpuReference(parse("func.func @main(%x: tensor<?xf32>) { return }"))
    with pytest.raises(CompileError, match="no numbers of the type complex<f32>"):
        CpuReference(parse("func.func @main(%x: tensor<2xcomplex<f32>>) { return }"))


def test_torch_is_not_imported():
    code = "import sys, cpu_reference; sys.exit('torch' in sys.modules)"
    folder = Path(reference.__file__).parent
    assert subprocess.run([sys.executable, "-c", code], cwd=folder, check=False).returncode == 0
