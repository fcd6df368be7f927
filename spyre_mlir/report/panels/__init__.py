# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The panels of the page of a report, one file each."""
