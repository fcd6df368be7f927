# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Search for the cheapest divisions of operations, one by one and jointly with buffer placements. No IR."""
