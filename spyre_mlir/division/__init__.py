"""Work division over cores: how many slices per dim, and which core owns which. No IR."""

from spyre_mlir.division.distribute import Division, distribute

__all__ = ["Division", "distribute"]
