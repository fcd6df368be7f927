# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Work division over cores: the slices per dim, the core that owns each slice, and the memory traffic. No IR."""

from spyre_mlir.division.cores import Division
from spyre_mlir.division.ownership import CoreView, core_view, local_bytes, mismatch, same_owners
from spyre_mlir.division.slices import work_distribution
from spyre_mlir.division.spans import SpanError, required_splits, span_bytes

__all__ = [
    "CoreView", "Division", "SpanError", "core_view", "local_bytes", "mismatch", "required_splits",
    "same_owners", "span_bytes", "work_distribution",
]  # fmt: skip
