# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors in device memory, in layouts that their owner chooses, and views of them."""
