# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lowering of placed operations to designs of a bundle."""
