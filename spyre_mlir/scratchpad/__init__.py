"""Memory planning: where buffers with lifetimes go. No IR."""

from spyre_mlir.scratchpad.first_fit import Lifetime, first_fit

__all__ = ["Lifetime", "first_fit"]
