# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A language server for MLIR at all levels of the compiler: what an editor asks about a text.

``text_index`` and ``text_levels`` know the text alone, ``decisions`` what the compiler does with it;
``server`` answers the editor.
"""
