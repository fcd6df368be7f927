# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The families: programs at full size for the evaluation of plans; no plans were tuned for them.

Each family has the schedule that an expert would choose, and figures counted by hand: the bytes that it must read and
write (logical bytes without padding or compiler-made constants) and its multiply-adds (half for causal attention). The
figures are an oracle independent of the compiler's bound. All are fp16; weights and inputs need no memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from spyre_mlir.zoo import families_attention, families_images, families_linear, families_steps
from spyre_mlir.zoo.family import EIGHT_BITS, Family, causal_pairs

__all__ = ["EIGHT_BITS", "Family", "all_families", "causal_pairs"]

_MODULES = (families_attention, families_linear, families_steps, families_images)


def all_families() -> Mapping[str, Family]:
    """Return all families by name."""
    return {name: family for module in _MODULES for name, family in module.FAMILIES.items()}
