# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Link to eager mode, which only the frontend can compile: operations on device tensors, tensors in loaded programs."""

from collections.abc import Callable
from typing import Any

#: Imports and returns ``frontend/eager.py``; the package root sets this function when it is imported.
load: Callable[[], Any]
