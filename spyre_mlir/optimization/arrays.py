"""Types of the arrays that problems and solutions are made of."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.int64]
Floats = NDArray[np.float64]
