# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Symbolic dims: dims whose size is known only at run time, a multiple of a granularity up to a planned maximum."""

from __future__ import annotations

from dataclasses import replace

from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class SymbolicDim:
    """A dim of ``factor`` times the run-time size ``name``, a multiple of ``granularity`` up to ``max_value``."""

    name: str
    granularity: int
    max_value: int
    factor: int = 1

    @property
    def extent(self) -> int:
        """The largest extent of the dim in elements."""
        return self.factor * self.max_value

    @property
    def step(self) -> int:
        """The elements by which the dim grows, which is also its smallest extent."""
        return self.factor * self.granularity

    def scaled(self, factor: int) -> SymbolicDim:
        """Return the dim with ``factor`` elements in place of each element."""
        return replace(self, factor=self.factor * factor)

    def divided(self, divisor: int) -> SymbolicDim | None:
        """Return the dim that counts groups of ``divisor`` elements; None if some size would cut a group."""
        if self.factor % divisor == 0:
            return replace(self, factor=self.factor // divisor)
        return None


#: The dims of a tensor, or of an iteration space, that are symbolic.
SymbolicDims = dict[int, SymbolicDim]
