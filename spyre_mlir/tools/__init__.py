# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Command line tools: thin mains over the library, each ``main(argv=None) -> int``."""
