# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lowering of the designs of a bundle to KTIR, the tile programs of RFC 0682."""
