# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Combinatorial optimization on arrays: elimination, linear bounds, branch and bound, packing. No device words."""
