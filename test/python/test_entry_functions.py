# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The entry function of a module: it may have any name, and its callees are private."""

from __future__ import annotations

import numpy as np
import pytest

import spyre_mlir
from spyre_mlir import CompileError

#: A model with a position in a body, which runs on the host.
POSITIONS = """func.func @{name}(%a: tensor<4x64xf16>) -> tensor<4x64xf16> {{
  %e = tensor.empty() : tensor<4x64xf16>
  %0 = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}} ins(%a : tensor<4x64xf16>) outs(%e : tensor<4x64xf16>) {{
  ^bb0(%x: f16, %y: f16):
    %i = linalg.index 1 : index
    %j = arith.index_cast %i : index to i32
    %f = arith.sitofp %j : i32 to f16
    %s = arith.addf %x, %f : f16
    linalg.yield %s : f16
  }} -> tensor<4x64xf16>
  {end}
}}
"""
CALL = """%1 = func.call @helper(%0) : (tensor<4x64xf16>) -> tensor<4x64xf16>
  return %1 : tensor<4x64xf16>"""
HELPER = """func.func {visibility} @helper(%x: tensor<4x64xf16>) -> tensor<4x64xf16> {{
  %0 = linalg.add ins(%x, %x : tensor<4x64xf16>, tensor<4x64xf16>) outs(%x : tensor<4x64xf16>) -> tensor<4x64xf16>
  return %0 : tensor<4x64xf16>
}}
"""
X = np.ones((4, 64), np.float16)
POSITION = np.arange(64, dtype=np.float16)


# The last three are names that the compiler uses.
@pytest.mark.parametrize("name", ["main", "forward", "host_0", "device_0", "loop_body_0"])
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_the_host_helps_a_function_of_any_name(name):
    text = POSITIONS.format(name=name, end="return %0 : tensor<4x64xf16>")
    np.testing.assert_array_equal(spyre_mlir.compile(text)(X), X + POSITION)


@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_private_functions_are_parts_of_the_public_one():
    text = POSITIONS.format(name="net", end=CALL)
    for module in (text + HELPER.format(visibility="private"), HELPER.format(visibility="private") + text):
        np.testing.assert_array_equal(spyre_mlir.compile(module)(X), 2 * (X + POSITION))


@pytest.mark.parametrize("callee", [HELPER.format(visibility=""), "func.func private @helper(tensor<4x64xf16>) -> "
                                    "tensor<4x64xf16>\n"])  # fmt: skip
def test_a_call_of_another_function_is_refused(callee):
    text = "func.func @net(%0: tensor<4x64xf16>) -> tensor<4x64xf16> {\n  " + CALL + "\n}\n" + callee
    with pytest.raises(
        CompileError, match="a program is one function; a callee must be private and have a body"
    ):
        spyre_mlir.compile(text)
