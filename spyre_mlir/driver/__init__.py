# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A compiled program from the outside: build its steps, save and load them, run them with tensors of the host."""
