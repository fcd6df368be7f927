# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Windows that slide along a dim of a tensor: the memory positions that windows access, and their padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class Sliding:
    """Position ``k`` of ``extent`` of window ``o`` is position ``stride * o + dilation * k - before`` of a dim.

    The dim has ``size`` positions in memory. The ``before`` positions before the first and all positions after the last
    are padding, which is not in memory.
    """

    extent: int
    stride: int
    dilation: int
    before: int
    size: int

    @property
    def reach(self) -> int:
        """The positions from the first to the last of a window, both included."""
        return self.dilation * (self.extent - 1) + 1

    def reached(self, count: Any) -> Any:
        """Return the positions from the first to the last of ``count`` windows, with padding; an array for an array."""
        return (count - 1) * self.stride + self.reach

    def end(self, count: int) -> int:
        """Return the position after the last one of ``count`` windows; beyond ``size`` it is in the padding."""
        return self.reached(count) - self.before

    def accessed(self, first: int, count: int) -> tuple[int, int]:
        """Return the first position that ``count`` windows from ``first`` on access, and the number of positions.

        Positions between the windows count too, because a core reads one contiguous range.
        """
        begin = first * self.stride
        end = min(begin + self.end(count), self.size)
        begin = max(begin - self.before, 0)
        return begin, max(end - begin, 0)

    def most_accessed(self, count: Any) -> Any:
        """Return the largest number of positions that ``count`` windows access; an array for an array of counts."""
        reached = self.reached(count)
        return np.minimum(reached, self.size) if isinstance(reached, np.ndarray) else min(reached, self.size)

    def is_padded(self, count: int) -> bool:
        """Return whether ``count`` windows reach beyond an end of the dim."""
        return self.before > 0 or self.end(count) > self.size

    def has_empty(self, count: int) -> bool:
        """Return whether one of ``count`` windows contains only padding."""
        return self.before >= self.reach or (count - 1) * self.stride - self.before >= self.size
