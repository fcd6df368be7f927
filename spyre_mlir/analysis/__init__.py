# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Analyses of IR, which compute facts and never change IR: aliasing, buffer uses, core ownership, loops, patterns."""
