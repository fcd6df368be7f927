# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The steps of a compiled program: bundles for the device and functions for the host, connected by named values."""

from __future__ import annotations

import functools
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from numpy.typing import NDArray

from spyre_mlir import eager_mode
from spyre_mlir.bundle.model import Bundle, KernelArgument, Levels
from spyre_mlir.bundle.transfer import Images, laid_out, same_moves
from spyre_mlir.driver.collectives import CollectiveStep
from spyre_mlir.errors import CompileError
from spyre_mlir.host import HostFunction
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import Remark
from spyre_mlir.report.program_facts import ProgramFacts, program_facts
from spyre_mlir.simulator import BundleCall, Result, Schedule, run_sequence
from spyre_mlir.tables import aligned

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
        return {name: self.last_run.outputs[argument.name] for name, argument in self.written}

    @property
    def written(self) -> list[tuple[str, KernelArgument]]:
        """The names of the outputs, each with the argument that the bundle writes for it."""
        results = [argument for argument in self.bundle.manifest.arguments if argument.kind == "result"]
        return list(zip(self.outputs, results, strict=True))

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


Step = BundleStep | HostStep | CollectiveStep


def sequences(steps: Sequence[Step]) -> Iterator[HostStep | CollectiveStep | list[BundleStep]]:
    """Yield other steps and sequences of bundles, in order; a bundle that uses memory of the previous one joins it."""
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


def run_steps(
    steps: Sequence[Step], values: Values, numerics: str, schedule: Schedule | None = None
) -> dict[str, NDArray[Any]]:
    """Run the steps of one rank; return all values of the call. Collectives run over the process group of PyTorch."""
    run = stepped(steps, values, numerics, schedule)
    try:
        step, array = next(run)
        while True:
            step, array = run.send(eager_mode.load().over_process_group(step, array))
    except StopIteration as end:
        return end.value


def stepped(
    steps: Sequence[Step], values: Values, numerics: str, schedule: Schedule | None = None
) -> Generator[tuple[CollectiveStep, NDArray[Any]], NDArray[Any], dict[str, NDArray[Any]]]:
    """Run the steps; return all values of the call. Each sequence of bundles runs on one simulated machine.

    Each collective is yielded with the tensor of this rank; its result is sent to the generator.
    """
    values = dict(values)
    for unit in sequences(steps):
        if isinstance(unit, HostStep):
            values.update(unit.run(values))
            continue
        if isinstance(unit, CollectiveStep):
            values[unit.outputs[0]] = yield unit, unit.operand(values)
            continue
        calls = [step.call(values) for step in unit]
        results = run_sequence(calls, numerics, unit[0].lx_frac_avail, schedule)
        for step, result in zip(unit, results, strict=True):
            step.last_run = result
            values.update(step.results())
    return values


# Transfers between host and device: as few as the layouts allow.
#
# The bundles of a sequence share one device memory: later bundles read values that were copied for earlier bundles. A
# value that one bundle writes and later bundles read stays in device memory across the host functions between them, if
# all of them use the layout in which it was written. These are the planned transfers: the simulator loads every
# argument from the host array, which has the same values.


@dataclass(frozen=True)
class Transfers:
    """Values that a call copies to the device before a bundle step and to the host after it.

    ``resident`` are inputs that are in device memory already.
    """

    to_device: tuple[KernelArgument, ...] = ()
    to_host: tuple[KernelArgument, ...] = ()
    resident: tuple[KernelArgument, ...] = ()


class TransferList(list[Transfers]):
    """The transfers of each step; printed, a table of bytes by direction."""

    def __str__(self) -> str:
        rows = [("step", "direction", "value", "bytes", "shape")]
        for number, step in enumerate(self):
            named = {
                "to the device": step.to_device,
                "stays there": step.resident,
                "to the host": step.to_host,
            }
            for direction, arguments in named.items():
                rows += [
                    (
                        str(number),
                        direction,
                        each.array_name,
                        f"{each.bytes:,}",
                        " x ".join(map(str, each.host_shape)),
                    )
                    for each in arguments
                ]
        return "\n".join(aligned(rows, "><<><"))


def transfers(steps: Sequence[Step], weights: Sequence[str], returned: Sequence[str]) -> TransferList:
    """Plan the transfers of each step; host steps have none.

    ``weights`` are on the device already; ``returned`` are the values that the call returns to the host.
    """
    bundles = [step for step in steps if isinstance(step, BundleStep)]
    produced = {name: argument for step in bundles for name, argument in step.written}
    # The link reads and writes device memory, in the layouts of the bundles.
    received = {name for step in steps if isinstance(step, CollectiveStep) for name in step.outputs}
    host_values = set(returned).union(*(step.inputs for step in steps if isinstance(step, HostStep)))
    resident: list[tuple[KernelArgument, ...]] = []
    copied: list[tuple[KernelArgument, ...]] = []
    present: set[str] = set()
    for step in steps:
        arguments = step.bundle.manifest.arguments if isinstance(step, BundleStep) else ()
        # A value may occur in several layouts, each with its own argument.
        inputs = [
            argument
            for argument in arguments
            if argument.array_name in step.inputs and argument.array_name not in weights
        ]
        # Only a bundle that expects buffers of the bundle before it continues with its device memory.
        if not (isinstance(step, BundleStep) and step.bundle.manifest.expects):
            present = set()
        names = {
            argument.name
            for argument in inputs
            if argument.name in present or argument.array_name in received or _is_resident(argument, produced)
        }
        resident.append(tuple(argument for argument in inputs if argument.name in names))
        copied.append(tuple(argument for argument in inputs if argument.name not in names))
        host_values.update(argument.array_name for argument in copied[-1])
        present.update(argument.name for argument in inputs)
    # A value that a later step copies from the host must be copied to the host first, so this needs all steps above.
    to_host = [
        tuple(argument for name, argument in step.written if name in host_values)
        if isinstance(step, BundleStep)
        else ()
        for step in steps
    ]
    return TransferList(Transfers(*values) for values in zip(copied, to_host, resident, strict=True))


def _is_resident(argument: KernelArgument, produced: dict[str, KernelArgument]) -> bool:
    """Return whether an argument accepts, byte for byte, the result of another bundle, including its padding."""
    source = produced.get(argument.array_name)
    return (
        source is not None
        and argument.fill is None
        and (source.data_format, source.bytes) == (argument.data_format, argument.bytes)
        and same_moves(source.transfer, argument.transfer)
    )
