# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors in device memory, in user-chosen layouts, and their views."""
