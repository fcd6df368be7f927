# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reports about a program: pages, pictures, and their data."""
