# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A lower bound of a program's time on a device. The bound depends on the computation, not on the plan."""

from __future__ import annotations

from collections.abc import Mapping

from spyre_mlir.records import dataclass
from spyre_mlir.target.target import Target


@dataclass(frozen=True)
class ProgramBound:
    """Minimal work of a program: logical bytes of its inputs, weights and results, and multiply-adds.

    ``by_format`` maps the data format of the factors to multiply-adds, because the array is faster with some formats.
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
        """Return the time of the bytes in one direction or of the multiply-adds on all cores, whichever is longer.

        Both rates come from the device description: ``hbm.one_way_bytes_per_ns`` and
        ``array.multiply_adds_per_ns``.
        """
        array = target.array
        work = sum(count / array.speedup_of(data_format) for data_format, count in self.by_format.items())
        rate = target.cores * array.multiply_adds_per_ns
        return max(self.bytes / target.one_way_bytes_per_ns, work / rate)
