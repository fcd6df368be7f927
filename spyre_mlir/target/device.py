"""The default target, for what is not handed a target yet."""

from __future__ import annotations

from spyre_mlir.target.target import Target, default_target


def device() -> Target:
    """Return the default target."""
    return default_target()
