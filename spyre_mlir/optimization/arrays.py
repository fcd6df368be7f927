# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Array types of problems and solutions, and a cheaper replacement of a numpy function."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.int64]
Floats = NDArray[np.float64]


def distinct(values: Array) -> Array:
    """Return the distinct values, ascending, without importing masked arrays as ``np.unique`` does."""
    ordered = np.sort(values)
    is_first = np.ones(len(ordered), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]
