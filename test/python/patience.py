# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The time after which a process that a test waits for counts as hanging."""

from __future__ import annotations

#: Seconds; much more than any load of the machine delays, so that no test fails by the load.
HANG_SECONDS = 900
