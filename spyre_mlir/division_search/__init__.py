# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cheapest divisions of operations over cores, one by one and jointly with the placements of buffers. No IR."""
