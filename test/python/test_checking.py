"""--check: what it feeds a program, and what it accepts."""

import math

import numpy as np
import pytest
from bundles import add_bundle

from spyre_mlir.checking import compare, random_arguments
from spyre_mlir.target.formats import BIT_TRUE, IEEE

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


@pytest.mark.parametrize(("numerics", "allowed"), [(IEEE, 0.08), (BIT_TRUE, 0.16)])
def test_the_largest_error_counts_against_the_largest_value(numerics, allowed):
    assert verdict([8, 1], [8, 1 + 0.9 * allowed], numerics).passed
    assert not verdict([8, 1], [8, 1 + 1.2 * allowed], numerics).passed


def test_values_that_are_not_finite_agree_only_with_themselves():
    assert verdict([1, math.nan, math.inf], [1, math.nan, math.inf]).passed
    for got in ([1, math.nan, 2], [1, 1, math.inf], [math.nan, math.nan, math.inf], [1, math.nan, -math.inf]):
        assert not verdict(got, [1, math.nan, math.inf]).passed
