# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch_spyre.ops``: operations of the device."""
