# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times that compare exactly."""

from __future__ import annotations

PICOSECONDS = 1000  # per nanosecond


def picoseconds(nanoseconds: float) -> int:
    """A time as a whole number: sums of these are exact in any order, so equal ones are equal."""
    return round(PICOSECONDS * nanoseconds)
