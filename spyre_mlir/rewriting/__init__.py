# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Changes of IR that passes share: copies, outlining, loops, windows, layouts in types, builders."""
