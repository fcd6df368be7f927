# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Link from device tensors to eager mode: ``tensors`` runs operations, and only the frontend can compile them."""

from collections.abc import Callable
from typing import Any

#: Imports and returns ``frontend/eager.py``; the package root sets this function when it is imported.
load: Callable[[], Any]
