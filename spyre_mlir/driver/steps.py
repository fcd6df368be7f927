# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The steps of a compiled program: bundles for the device and functions for the host, connected by named values."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from numpy.typing import NDArray

from spyre_mlir.bundle.images import Images, laid_out
from spyre_mlir.bundle.level_lines import Levels
from spyre_mlir.bundle.model import Bundle
from spyre_mlir.errors import CompileError
from spyre_mlir.host import HostFunction
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import Remark
from spyre_mlir.report.program_facts import ProgramFacts, program_facts
from spyre_mlir.simulator import BundleCall, Result, run_sequence

#: The values of a call by name: the inputs, the weights, and the outputs of steps.
Values = Mapping[str, NDArray[Any]]


@dataclass
class BundleStep:
    """One bundle. ``inputs`` and ``outputs`` name values; ``arrays`` are the bundle's own constants.

    ``module`` is the IR at the bundle level (None if the bundle was read or is part of a sequence). ``passes`` has the
    seconds of each pass. Only ``outputs`` stay in device memory for steps after a host function; LX and the rest of
    device memory are kept only between the bundles of a sequence. ``images`` are weights laid out in advance.
    ``levels`` has the lines of each level that the bundle was lowered through, empty if unknown.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    module: ir.Module | None
    bundle: Bundle
    arrays: dict[str, NDArray[Any]]
    remarks: Sequence[Remark] = ()
    passes: Sequence[tuple[str, float]] = ()
    lx_frac_avail: float | None = None
    float_operations: int = 0
    last_run: Result | None = field(default=None, repr=False)
    images: Images = field(default_factory=Images, repr=False)
    levels: Levels = field(default_factory=dict, repr=False)

    def call(self, values: Values) -> BundleCall:
        """Return the call for the simulator: the bundle with its arrays and images."""
        arrays = self._arrays(values)
        return BundleCall(
            self.bundle, self.images.without(arrays) if self.images.by_name else arrays, self.images
        )

    def results(self) -> dict[str, NDArray[Any]]:
        """Return the outputs of the last run by value name; empty before the first run."""
        if self.last_run is None:
            return {}
        labels = [argument.name for argument in self.bundle.manifest.arguments if argument.kind == "result"]
        return {name: self.last_run.outputs[label] for name, label in zip(self.outputs, labels, strict=True)}

    def lay_out(self, weights: Values, numerics: str) -> None:
        """Lay out weights and constants once; later runs with the same arrays use these bytes."""
        self.images = laid_out(self.bundle.manifest.arguments, self._arrays(weights), numerics)

    def _arrays(self, values: Values) -> dict[str, NDArray[Any]]:
        arrays = {**self.arrays, **{name: values[name] for name in self.inputs if name in values}}
        # Passes may drop an argument, such as a mask of which they need only parts, but the program keeps its array.
        return {name: array for name, array in arrays.items() if name in self._read}

    @functools.cached_property
    def _read(self) -> frozenset[str]:
        """The names of the arrays that the bundle reads."""
        return frozenset(argument.array_name for argument in self.bundle.manifest.arguments)

    def facts(self) -> ProgramFacts:
        """Return the facts for the summary and the page of ``report``."""
        return program_facts(self.bundle, self.remarks, self.passes, self.lx_frac_avail, levels=self.levels)


@dataclass
class HostStep:
    """A host function, and the number of operations in it."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    function: HostFunction
    operations: int
    float_operations: int = 0

    def run(self, values: Values) -> dict[str, NDArray[Any]]:
        """Run the function and return its outputs by name."""
        missing = next((name for name in self.inputs if name not in values), None)
        if missing is not None:
            raise CompileError(f"No array was given for '{missing}', which {self.name} reads.")
        results = self.function(*(values[name] for name in self.inputs))
        return dict(zip(self.outputs, results, strict=True))


Step = BundleStep | HostStep


def sequences(steps: Sequence[Step]) -> Iterator[HostStep | list[BundleStep]]:
    """Yield host steps and sequences of bundles, in order; a bundle that uses memory of the previous one joins it."""
    sequence: list[BundleStep] = []
    for step in steps:
        if sequence and not (isinstance(step, BundleStep) and step.bundle.manifest.expects):
            yield sequence
            sequence = []
        if isinstance(step, BundleStep):
            sequence.append(step)
        else:
            yield step
    if sequence:
        yield sequence


def run_steps(steps: Sequence[Step], values: Values, numerics: str) -> dict[str, NDArray[Any]]:
    """Run the steps; return all values of the call. Each sequence of bundles runs on one simulated machine."""
    values = dict(values)
    for unit in sequences(steps):
        if isinstance(unit, HostStep):
            values.update(unit.run(values))
            continue
        results = run_sequence([step.call(values) for step in unit], numerics, unit[0].lx_frac_avail)
        for step, result in zip(unit, results, strict=True):
            step.last_run = result
            values.update(step.results())
    return values
