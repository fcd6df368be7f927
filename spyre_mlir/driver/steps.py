# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The steps of a compiled program: bundles for the device, functions for the host, and what passes between them."""

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

#: The values of a call by name: what the model is called with, its weights, and what steps have made.
Values = Mapping[str, NDArray[Any]]


@dataclass
class BundleStep:
    """One bundle. ``inputs`` and ``outputs`` name values; ``arrays`` are the bundle's own constants.

    ``module`` is the IR at the bundle level (None for one that was read or is one of a sequence), ``passes`` the
    seconds of each pass. What a step behind a host function reads is one of the ``outputs``, in device memory; LX and
    the rest of device memory stay for the bundles of a sequence only. ``images`` are weights that were laid out ahead
    of time. ``levels`` are the lines of the levels that the bundle came through, empty where they are not known.
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
        """The bundle with its arrays and images, as the simulator takes it."""
        arrays = self._arrays(values)
        return BundleCall(
            self.bundle, self.images.without(arrays) if self.images.by_name else arrays, self.images
        )

    def results(self) -> dict[str, NDArray[Any]]:
        """The outputs of the last run by the names of the program."""
        if self.last_run is None:
            return {}
        labels = [argument.name for argument in self.bundle.manifest.arguments if argument.kind == "result"]
        return {name: self.last_run.outputs[label] for name, label in zip(self.outputs, labels, strict=True)}

    def lay_out(self, weights: Values, numerics: str) -> None:
        """Lays out weights and constants once; runs with the same arrays then take these bytes."""
        self.images = laid_out(self.bundle.manifest.arguments, self._arrays(weights), numerics)

    def _arrays(self, values: Values) -> dict[str, NDArray[Any]]:
        arrays = {**self.arrays, **{name: values[name] for name in self.inputs if name in values}}
        # Passes drop masks of which they need parts alone: the program still has the array, the bundle does not.
        return {name: array for name, array in arrays.items() if name in self._read}

    @functools.cached_property
    def _read(self) -> frozenset[str]:
        """Names of the arrays that the bundle takes."""
        return frozenset(argument.array_name for argument in self.bundle.manifest.arguments)

    def facts(self) -> ProgramFacts:
        """Return the numbers in the summary and the page of ``report``."""
        return program_facts(self.bundle, self.remarks, self.passes, self.lx_frac_avail, levels=self.levels)


@dataclass
class HostStep:
    """One function of the host, of so many operations."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    function: HostFunction
    operations: int
    float_operations: int = 0

    def run(self, values: Values) -> dict[str, NDArray[Any]]:
        """The outputs of the function by name."""
        missing = next((name for name in self.inputs if name not in values), None)
        if missing is not None:
            raise CompileError(f"No array was given for '{missing}', which {self.name} reads.")
        results = self.function(*(values[name] for name in self.inputs))
        return dict(zip(self.outputs, results, strict=True))


Step = BundleStep | HostStep


def sequences(steps: Sequence[Step]) -> Iterator[HostStep | list[BundleStep]]:
    """The steps in order, the bundles that go on with what the one before leaves together."""
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
    """All values of a call, those that steps make among them; each sequence of bundles runs on one machine."""
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
