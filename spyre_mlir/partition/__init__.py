# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Partition of a program's operations into device and host operations: the mathematics, without IR."""
