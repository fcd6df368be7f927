# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Facts about IR, computed and never written: aliasing, buffer uses, ownership by core, loops, patterns."""
