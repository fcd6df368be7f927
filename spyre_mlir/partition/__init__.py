# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which operations of a program run on the device and which on the host: the mathematics, without IR."""
