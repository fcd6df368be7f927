# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The families: programs at full size that plans are judged by, and that nobody tuned plans for.

Each has the schedule that an expert would choose, and by hand the bytes that it must read and write and the
multiply-adds that it needs: logical bytes without padding, no constants that a compiler makes, of causal attention
half. They are an oracle apart from the compiler's own bound. All are fp16; weights and inputs take no memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from spyre_mlir.zoo import families_attention, families_images, families_linear, families_steps
from spyre_mlir.zoo.family import EIGHT_BITS, Family, causal_pairs

__all__ = ["EIGHT_BITS", "Family", "all_families", "causal_pairs"]

_MODULES = (families_attention, families_linear, families_steps, families_images)


def all_families() -> Mapping[str, Family]:
    """All by name."""
    return {name: family for module in _MODULES for name, family in module.FAMILIES.items()}
