# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Working-set reduction: names of tensor dims, and the loops that hints request. No IR."""

from spyre_mlir.tiling.hint_tree import (
    DimSplit,
    Hint,
    HintError,
    HintTree,
    NamedIteration,
    TiledLoop,
    check_dims,
    dim_splits,
    divided_slices,
    name_tiles,
    tiled_loops,
    why_whole,
)
from spyre_mlir.tiling.names import DigitRun, DimDigits, NamedDim, Names, UnnamedDim

__all__ = [
    "DigitRun", "DimDigits", "DimSplit", "Hint", "HintError", "HintTree", "NamedDim", "NamedIteration",
    "Names", "TiledLoop", "UnnamedDim", "check_dims", "dim_splits", "divided_slices", "name_tiles",
    "tiled_loops", "why_whole",
]  # fmt: skip
