# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Windows that slide along a dim of a tensor: which positions of memory they touch, and what of them is padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class Sliding:
    """Position ``k`` of ``extent`` of window ``o`` is position ``stride * o + dilation * k - before`` of a dim.

    The dim has ``size`` positions in memory. Those that it has not, ``before`` the first and behind the last, are
    padding, which is nowhere in memory.
    """

    extent: int
    stride: int
    dilation: int
    before: int
    size: int

    @property
    def reach(self) -> int:
        """Positions from the first of a window to its last."""
        return self.dilation * (self.extent - 1) + 1

    def end(self, count: int) -> int:
        """The position behind the last one of ``count`` windows; beyond ``size`` in the padding."""
        return (count - 1) * self.stride + self.reach - self.before

    def accessed(self, first: int, count: int) -> tuple[int, int]:
        """Return the first position that ``count`` windows from ``first`` on touch, and how many there are.

        What lies between the windows is touched, too, since a core reads one piece.
        """
        begin = first * self.stride
        end = min(begin + self.end(count), self.size)
        begin = max(begin - self.before, 0)
        return begin, max(end - begin, 0)

    def most_accessed(self, count: Any) -> Any:
        """Positions that ``count`` windows touch, at most; an array for an array of counts."""
        reached = (count - 1) * self.stride + self.reach
        return np.minimum(reached, self.size) if isinstance(reached, np.ndarray) else min(reached, self.size)

    def is_padded(self, count: int) -> bool:
        """Return whether ``count`` windows reach beyond an end of the dim."""
        return self.before > 0 or self.end(count) > self.size

    def has_empty(self, count: int) -> bool:
        """Return whether one of ``count`` windows has nothing but padding."""
        return self.before >= self.reach or (count - 1) * self.stride - self.before >= self.size
