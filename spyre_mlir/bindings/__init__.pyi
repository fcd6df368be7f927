# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Types of the MLIR bindings of the ``torch-mlir`` wheel, which has none; ``spyre_mlir/mlir.py`` imports both."""
