"""The steps of a compiled program: bundles for the device, functions for the host, and what passes between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from numpy.typing import NDArray

from spyre_mlir.bundle.images import Images, laid_out
from spyre_mlir.bundle.model import Bundle
from spyre_mlir.errors import CompileError
from spyre_mlir.host import HostFunction
from spyre_mlir.mlir import ir
from spyre_mlir.remarks import Remark
from spyre_mlir.report.program_facts import ProgramFacts, program_facts
from spyre_mlir.simulator import Result, run

#: The values of a call by name: what the model is called with, its weights, and what steps have made.
Values = Mapping[str, NDArray]


@dataclass
class BundleStep:
    """One bundle. ``inputs`` and ``outputs`` name values; ``arrays`` are the bundle's own constants.

    ``module`` is the IR at the bundle level (None for one that was read), ``passes`` the seconds of each pass. LX does
    not outlive a bundle: what a later step reads is one of the ``outputs``, in device memory. ``images`` are weights
    that were laid out ahead of time.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    module: ir.Module | None
    bundle: Bundle
    arrays: dict[str, NDArray]
    remarks: Sequence[Remark] = ()
    passes: Sequence[tuple[str, float]] = ()
    lx_frac_avail: float | None = None
    float_operations: int = 0
    last_run: Result | None = field(default=None, repr=False)
    images: Images = field(default_factory=Images, repr=False)

    def run(self, values: Values, numerics: str) -> list[NDArray]:
        """The results of the bundle on the simulator."""
        given = self.images.without(self._given(values))
        self.last_run = run(self.bundle, given, numerics, self.lx_frac_avail, self.images)
        results = [each.name for each in self.bundle.manifest.arguments if each.kind == "result"]
        return [self.last_run.outputs[name] for name in results]

    def lay_out(self, weights: Values, numerics: str) -> None:
        """Lays out weights and constants once; runs with the same arrays then take these bytes."""
        self.images = laid_out(self.bundle.manifest.arguments, self._given(weights), numerics)

    def _given(self, values: Values) -> dict[str, NDArray]:
        return {**self.arrays, **{name: values[name] for name in self.inputs if name in values}}

    def facts(self) -> ProgramFacts:
        """What the summary and the page of ``report`` tell of the bundle, as numbers."""
        return program_facts(self.bundle, self.remarks, self.passes, self.lx_frac_avail)


@dataclass
class HostStep:
    """One function of the host, of so many operations."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    function: HostFunction
    operations: int
    float_operations: int = 0

    def run(self, values: Values, numerics: str) -> list[NDArray]:
        """The results of the function; ``numerics`` is a matter of the device."""
        missing = next((name for name in self.inputs if name not in values), None)
        if missing is not None:
            raise CompileError(f"No array was given for '{missing}', which {self.name} reads.")
        return self.function(*(values[name] for name in self.inputs))


Step = BundleStep | HostStep
