# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From the designs of a bundle to KTIR, the tile programs of RFC 0682."""
