# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The driver: build the steps of a program, save and load them, and run them with host tensors."""
