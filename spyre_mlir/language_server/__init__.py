# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A language server for MLIR at all levels of the compiler.

``text_index`` works on the text only. ``decisions`` runs the compiler on the text, in a separate process. ``server``
answers the editor's requests; it includes the process, the documents with their positions, and the answers about
names.
"""
