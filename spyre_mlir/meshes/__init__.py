# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models on several cards: all ranks of a mesh in one process, and the memory of each card (docs/several-cards.md)."""
