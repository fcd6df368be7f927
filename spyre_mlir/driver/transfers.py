# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transfers between host and device in a program of several steps: as few as the layouts allow.

The bundles of a sequence share one device memory: later bundles read values that were copied for earlier bundles.

A value that one bundle writes and later bundles read stays in device memory across the host functions between them, if
all of them use the layout in which it was written. These are the planned transfers: the simulator loads every argument
from the host array, which has the same values.
"""

from __future__ import annotations

from collections.abc import Sequence

from spyre_mlir.bundle.model import KernelArgument
from spyre_mlir.bundle.transfer import same_moves
from spyre_mlir.driver.steps import BundleStep, HostStep, Step
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class Transfers:
    """Values that a call copies to the device before a bundle step and to the host after it.

    ``resident`` are inputs that are in device memory already.
    """

    to_device: tuple[KernelArgument, ...] = ()
    to_host: tuple[KernelArgument, ...] = ()
    resident: tuple[KernelArgument, ...] = ()


def transfers(steps: Sequence[Step], weights: Sequence[str], returned: Sequence[str]) -> list[Transfers]:
    """Plan the transfers of each step; host steps have none.

    ``weights`` are on the device already; ``returned`` are the values that the call returns to the host.
    """
    produced = {name: argument for step in steps for name, argument in _results(step)}
    host_values = set(returned).union(*(step.inputs for step in steps if isinstance(step, HostStep)))
    resident: list[tuple[KernelArgument, ...]] = []
    copied: list[tuple[KernelArgument, ...]] = []
    present: set[str] = set()
    for step in steps:
        inputs = [argument for argument in _inputs(step) if argument.array_name not in weights]
        if not _is_continued(step):
            present = set()
        names = {
            argument.name
            for argument in inputs
            if argument.name in present or _is_resident(argument, produced)
        }
        resident.append(tuple(argument for argument in inputs if argument.name in names))
        copied.append(tuple(argument for argument in inputs if argument.name not in names))
        host_values.update(argument.array_name for argument in copied[-1])
        present.update(argument.name for argument in inputs)
    # A value that a later step copies from the host must be copied to the host first, so this needs all steps above.
    to_host = [tuple(argument for name, argument in _results(step) if name in host_values) for step in steps]
    return [Transfers(*values) for values in zip(copied, to_host, resident, strict=True)]


def _is_continued(step: Step) -> bool:
    """Return whether a step is a bundle that continues with the device memory of the bundle before."""
    return isinstance(step, BundleStep) and bool(step.bundle.manifest.expects)


def _inputs(step: Step) -> list[KernelArgument]:
    """Return the arguments of a bundle that are values of the program; a value may occur in several layouts."""
    if isinstance(step, HostStep):
        return []
    return [argument for argument in step.bundle.manifest.arguments if argument.array_name in step.inputs]


def _results(step: Step) -> list[tuple[str, KernelArgument]]:
    if isinstance(step, HostStep):
        return []
    results = [argument for argument in step.bundle.manifest.arguments if argument.kind == "result"]
    return list(zip(step.outputs, results, strict=True))


def _is_resident(argument: KernelArgument, produced: dict[str, KernelArgument]) -> bool:
    """Return whether an argument accepts, byte for byte, the result of another bundle, including its padding."""
    source = produced.get(argument.array_name)
    return (
        source is not None
        and argument.fill is None
        and (source.data_format, source.bytes) == (argument.data_format, argument.bytes)
        and same_moves(source.transfer, argument.transfer)
    )
