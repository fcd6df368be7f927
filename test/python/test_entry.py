# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""IR of a later level as input of the whole pipeline: it keeps its meaning, or is refused."""

import numpy as np
import pytest

import spyre_mlir
from spyre_mlir.errors import CompileError

MAPS = """#id = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#columns = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
"""
X = '%x: tensor<64x64xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}'
RESULT = '(tensor<64x64xf16> {sdsc.host = #sdsc.host<"result0", "result", "f16">})'

PRODUCT = f"""{MAPS}func.func @f({X}) -> {RESULT} {{
  %e = tensor.empty() : tensor<64x64xf16>
  %0 = linalg.generic {{indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}}
      ins(%x, %x : tensor<64x64xf16>, tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) attrs = {{OP}} {{
  ^bb0(%a: f16, %b: f16, %c: f16):
    %m = arith.mulf %a, %b : f16
    linalg.yield %m : f16
  }} -> tensor<64x64xf16>
  return %0 : tensor<64x64xf16>
}}"""


def test_an_operation_named_before_is_what_its_body_computes():
    program = spyre_mlir.compile(PRODUCT.replace("{OP}", '{sdsc.op = #sdsc.op<"mul", {}>}'))
    x = np.full((64, 64), 3, np.float16)
    np.testing.assert_array_equal(program(x), np.full((64, 64), 9, np.float16))


def test_an_operation_with_the_name_of_another_is_refused():
    with pytest.raises(CompileError, match="add"):
        spyre_mlir.compile(PRODUCT.replace("{OP}", '{sdsc.op = #sdsc.op<"add", {}>}'))


def test_an_operation_without_a_name_among_named_ones_is_refused():
    with pytest.raises(CompileError, match=r"sdsc\.op"):
        spyre_mlir.compile(PRODUCT.replace("{OP}", "{}"))


def test_a_copy_that_claims_to_compute_is_refused():
    body = '%0 = "sdsc.clone"(%x) {sdsc.op = #sdsc.op<"neg", {}>} : (tensor<64x64xf16>) -> tensor<64x64xf16>'
    with pytest.raises(CompileError, match=r"'sdsc\.clone' cannot be a device operation"):
        spyre_mlir.compile(f"func.func @f({X}) -> {RESULT} {{\n{body}\nreturn %0 : tensor<64x64xf16>\n}}")


def test_a_conversion_without_a_request_is_refused():
    rows, columns = (f"tensor<64x64xf16, #stick.layout<#{name}>>" for name in ("rows", "columns"))
    body = f'%0 = "stick.restickify"(%x) : ({rows}) -> {columns}\nreturn %0 : {columns}'
    with pytest.raises(CompileError, match="enters at level laid-out"):
        spyre_mlir.compile(f"{MAPS}func.func @f(%x: {rows}) -> {columns} {{\n{body}\n}}")
