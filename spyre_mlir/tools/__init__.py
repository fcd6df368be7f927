# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Command line tools: thin wrappers around the library, each with ``main(argv=None) -> int``."""
