# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A file that --load cannot import."""

raise ValueError("no passes today")
