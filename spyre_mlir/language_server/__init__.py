# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A language server for MLIR at all levels of the compiler: what an editor asks about a text.

``text_index``, ``text_parts`` and ``text_levels`` know the text alone, ``decisions`` what the compiler does with it, in
a ``compiler_process``; ``text_errors`` are what comes from there. ``document`` has the positions of the editor,
``text_names`` what it asks about names, and ``server`` answers.
"""
