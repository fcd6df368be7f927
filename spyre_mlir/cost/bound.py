# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The least that a program takes on a device, from what it computes, whatever its plan."""

from __future__ import annotations

from collections.abc import Mapping

from spyre_mlir.records import dataclass
from spyre_mlir.target.target import Target


@dataclass(frozen=True)
class ProgramBound:
    """What a program needs: logical bytes of its inputs, weights and results, and multiply-adds.

    ``by_format`` are the multiply-adds by the data format of their factors, for the array does some formats faster.
    """

    read_bytes: int
    written_bytes: int
    by_format: Mapping[str, int]

    @property
    def bytes(self) -> int:
        """The bytes in both directions."""
        return self.read_bytes + self.written_bytes

    @property
    def multiply_adds(self) -> int:
        """The multiply-adds of all formats."""
        return sum(self.by_format.values())

    def ns(self, target: Target) -> float:
        """The bytes at the rate of one direction, or the multiply-adds on all cores, whatever takes longer.

        Both rates are those of the device description, ``hbm.one_way_bytes_per_ns`` and
        ``array.multiply_adds_per_ns``.
        """
        array = target.array
        work = sum(count / array.speedup_of(data_format) for data_format, count in self.by_format.items())
        rate = target.cores * array.multiply_adds_per_ns
        return max(self.bytes / target.one_way_bytes_per_ns, work / rate)
