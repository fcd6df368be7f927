# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conversion of times to whole picoseconds, which compare exactly."""

from __future__ import annotations

PICOSECONDS = 1000  # per nanosecond


def picoseconds(nanoseconds: float) -> int:
    """Convert nanoseconds to whole picoseconds: integer sums are exact in any order, so equal sums compare equal."""
    return round(PICOSECONDS * nanoseconds)
