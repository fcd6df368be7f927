# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""--check: the inputs of a program, and the allowed errors."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from bundles import add_bundle

from spyre_mlir.bundle.transfer import misfit
from spyre_mlir.driver.checking import compare, random_arguments
from spyre_mlir.target.formats import BIT_TRUE, IEEE
from spyre_mlir.tools.spyre_compile import main as spyre_compile

ARGUMENTS = add_bundle().manifest.arguments
RESULTS = [argument for argument in ARGUMENTS if argument.kind == "result"]


def verdict(got, reference, numerics=IEEE):
    (comparison,) = compare(RESULTS, [np.float16(got)], [np.float16(reference)], numerics)
    return comparison


def test_arguments_are_the_same_every_time():
    first, second = random_arguments(ARGUMENTS), random_arguments(ARGUMENTS)
    assert list(first) == ["x", "y"] and first["x"].dtype == np.float16
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not np.array_equal(first["x"], first["y"])


def test_eight_bit_floats_are_bits_of_finite_numbers():
    eight_bits = replace(ARGUMENTS[0], host_dtype="float8_e4m3fn", host_shape=(64, 64))
    (array,) = random_arguments([eight_bits]).values()
    assert misfit(eight_bits, array) is None and len(np.unique(array)) == 64
    assert (array & 0x7F != 0x7F).all() and (array > 0x7F).any()


@pytest.mark.parametrize(("numerics", "allowed"), [(IEEE, 0.08), (BIT_TRUE, 0.16)])
def test_the_largest_error_counts_against_the_largest_value(numerics, allowed):
    assert verdict([8, 1], [8, 1 + 0.9 * allowed], numerics).passed
    assert not verdict([8, 1], [8, 1 + 1.2 * allowed], numerics).passed


def test_values_that_are_not_finite_agree_only_with_themselves():
    assert verdict([1, math.nan, math.inf], [1, math.nan, math.inf]).passed
    for got in ([1, math.nan, 2], [1, 1, math.inf], [math.nan, math.nan, math.inf], [1, math.nan, -math.inf]):
        assert not verdict(got, [1, math.nan, math.inf]).passed


MATMUL = """
func.func @main(%a: tensor<256x2048xf16>, %b: tensor<2048x256xf16>) -> tensor<256x256xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<256x256xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<256x256xf16>) -> tensor<256x256xf16>
  %c = linalg.matmul ins(%a, %b : tensor<256x2048xf16>, tensor<2048x256xf16>)
      outs(%f : tensor<256x256xf16>) -> tensor<256x256xf16>
  return %c : tensor<256x256xf16>
}"""


def test_the_reference_is_more_exact_than_what_it_judges(tmp_path, capsys):
    """Long sums of the device are right; a reference that accumulates in f16 would be off by more than it allows."""
    (tmp_path / "matmul.mlir").write_text(MATMUL)
    assert spyre_compile([str(tmp_path / "matmul.mlir"), "-o", str(tmp_path / "out"), "--check"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    error, allowed = re.fullmatch(r"PASS  result0: largest error (\S+), allowed (\S+)", line).groups()
    assert float(error) < float(allowed) / 5
