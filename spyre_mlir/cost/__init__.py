# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cost of plans: one model of time, which ranks them. Pure Python and numpy, no IR."""
