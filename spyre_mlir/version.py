# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The version of the package, read by ``pyproject.toml`` and the tools."""

import time

VERSION = "0.1.0"

#: Time in nanoseconds at the start of the import: a source file that is newer may differ from the loaded code.
LOADED_NS = time.time_ns()
