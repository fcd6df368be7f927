# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Types of the arrays that problems and solutions are made of, and what numpy does for them at a price."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.int64]
Floats = NDArray[np.float64]


def distinct(values: Array) -> Array:
    """Return the different values, rising, without the masked arrays that ``np.unique`` imports for it."""
    ordered = np.sort(values)
    is_first = np.ones(len(ordered), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]
