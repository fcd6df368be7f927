"""Base of options whose values the device limits."""

from __future__ import annotations

from spyre_mlir.options import Options
from spyre_mlir.target.target import Target, default_target


class DeviceOptions(Options):
    """Options that may have ``sencores`` (cores) and ``lx_frac_avail`` (part of LX): None stands for the target's.

    A value outside the limits is a ``CompileError`` of the constructor, so it comes before any pass runs.
    """

    def __post_init__(self) -> None:
        _ = self.target

    @property
    def target(self) -> Target:
        """The target of the module that is compiled, as these options change it."""
        cores, fraction = getattr(self, "sencores", None), getattr(self, "lx_frac_avail", None)
        return default_target().with_options(cores, fraction)
