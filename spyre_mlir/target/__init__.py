# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The device as data: sizes, limits and rates of a device file, number formats, and the table of device operations."""
