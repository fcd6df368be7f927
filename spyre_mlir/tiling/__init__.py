"""Working-set reduction: names of tensor dims, and the loops that hints ask for. No IR."""

from spyre_mlir.tiling.hints import (
    Hint,
    HintError,
    HintTree,
    NamedIteration,
    TiledLoop,
    check_dims,
    tiled_loops,
)
from spyre_mlir.tiling.names import NamedDim, Names, Part, Parts, UnnamedDim

__all__ = [
    "Hint",
    "HintError",
    "HintTree",
    "NamedDim",
    "NamedIteration",
    "Names",
    "Part",
    "Parts",
    "TiledLoop",
    "UnnamedDim",
    "check_dims",
    "tiled_loops",
]
