# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch_spyre.constants``: names of the device."""

DEVICE_NAME = "spyre"
