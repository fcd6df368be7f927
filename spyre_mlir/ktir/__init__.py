# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From the designs of a bundle to KTIR, the tile programs that are the other public input of the tool chain."""
