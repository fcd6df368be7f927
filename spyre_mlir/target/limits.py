"""Base of pass options whose values the device limits."""

from __future__ import annotations

from spyre_mlir.errors import CompileError
from spyre_mlir.options import Options
from spyre_mlir.target.device import device


class DeviceOptions(Options):
    """Options whose fields ``sencores`` (cores) and ``lx_frac_avail`` (part of LX) are checked where they exist.

    A value outside the limits is a ``CompileError`` of the constructor, so it comes before any pass runs.
    """

    def __post_init__(self) -> None:
        cores, fraction = getattr(self, "sencores", None), getattr(self, "lx_frac_avail", None)
        if cores is not None and not 1 <= cores <= device().cores:
            raise CompileError(f"sencores is {cores}; the device has 1 to {device().cores} cores.")
        if fraction is not None and not 0 <= fraction <= 1:
            raise CompileError(f"lx-frac-avail is {fraction}; it is a part of LX, 0 to 1.")
