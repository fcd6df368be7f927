# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Version of the package, read by ``pyproject.toml`` and the tools."""

import time

VERSION = "0.1.0"

#: Nanoseconds of the clock when the package began to load: a file of it that is newer may not be the code that runs.
LOADED_NS = time.time_ns()
