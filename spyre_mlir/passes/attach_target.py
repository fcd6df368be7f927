# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass ``attach-target``."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.dialects.targets import attach, target_of
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.target.target import Target


@dataclass(frozen=True)
class AttachTarget(Pass):
    """Attach a target device to a module. All later passes and the bundle use this target.

    ``module {..}``  ->  ``module attributes {sdsc.target = {cores = {usable = 2 : i64}}} {..}``

    ``device`` is a device file (docs/devices.md); without it the module keeps its device. ``sencores`` is
    the number of cores that the program may use, ``lx_frac_avail`` the fraction of LX that the back end reserves,
    ``cost_model`` the name of the model of execution times (docs/writing-an-algorithm.md).
    """

    name: ClassVar[str] = "attach-target"
    device: str = ""
    sencores: int | None = None
    lx_frac_avail: float | None = None
    cost_model: str | None = None

    def target_from(self, base: Target) -> Target:
        """Return the target of the device file, or else ``base``, modified by the other options."""
        target = Target.read(self.device) if self.device else base
        return target.with_options(self.sencores, self.lx_frac_avail, self.cost_model)

    def run(self, module: ir.Operation) -> None:
        """Set the attribute."""
        attach(module, self.target_from(target_of(module)))
