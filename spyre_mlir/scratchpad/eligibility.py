# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ineligibility reasons: why a buffer cannot be in a scratchpad, as one ordered list (docs/scratchpad.md)."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from spyre_mlir.records import dataclass


class Barrier(enum.Enum):
    """Ineligibility reason, in reporting order. The last one is the planner's choice; all others exclude a buffer."""

    OPERATION = "operation not eligible"
    BOUNDARY = "graph input or output"
    RESTICKIFY = "read by a restickify across cores"
    INDIRECT = "indirect access"
    PARTIAL = "partial or offset access"
    MISMATCH = "core division mismatch"
    ADVANCES = "advances with a tile"
    PINNED = "pinned elsewhere"
    EVICTED = "evicted"
    BUNDLES = "lives over the end of a bundle"
    NO_READER = "no reader in LX"
    TOO_LARGE = "too large"
    LOST = "lost the competition"


_ORDER = {barrier: number for number, barrier in enumerate(Barrier)}


@dataclass(frozen=True)
class Reason:
    """An ineligibility reason, and a sentence that says where it applies."""

    barrier: Barrier
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.barrier.value}: {self.detail}" if self.detail else self.barrier.value


def ordered(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Return the first reason of each barrier, in the order of the barriers."""
    first: dict[Barrier, Reason] = {}
    for reason in reasons:
        first.setdefault(reason.barrier, reason)
    return tuple(sorted(first.values(), key=lambda reason: _ORDER[reason.barrier]))
