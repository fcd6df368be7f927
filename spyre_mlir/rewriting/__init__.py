# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""IR rewrites that passes share: copies, outlining, loops, windows, layouts in types, builders."""
