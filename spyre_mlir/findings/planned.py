# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A compiled program as input of the search for findings: only figures and names."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, TypeAlias

from spyre_mlir.bundle.model import Bundle, KernelArgument
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import HOST, Remark
from spyre_mlir.report.program_facts import Operation, ProgramFacts

# Changes of a program that a trial compiles: options of ``compile``, or an edit of the model and its inputs.


@dataclass(frozen=True)
class Resize:
    """Change the size of every dim of the inputs that has ``size`` elements."""

    size: int
    to: int


@dataclass(frozen=True)
class Batch:
    """Multiply the number of samples by ``times`` in every input whose first dim has ``size`` elements."""

    size: int
    times: int


class InputKey(NamedTuple):
    """Key of an input: its index among the tensors of a call, and its name, the key in a mapping of inputs."""

    position: int
    name: str


@dataclass(frozen=True)
class Freeze:
    """Make the given example inputs buffers of the model."""

    inputs: tuple[InputKey, ...]


@dataclass(frozen=True)
class Halve:
    """Convert the model and its inputs from wider floating-point types to float16."""


@dataclass(frozen=True)
class MovedStick:
    """Give a device tensor among the inputs the stick dim ``stick_dim``."""

    input: InputKey
    stick_dim: int


@dataclass(frozen=True)
class Untranspose:
    """Remove the model's transposes in the functions that contain ``lines``, each a file and a line number."""

    lines: tuple[tuple[str, int], ...]


ModelEdit: TypeAlias = Resize | Batch | Freeze | Halve | MovedStick | Untranspose


@dataclass(frozen=True)
class Remedy:
    """A change with the problem that it solves.

    ``problem`` and ``cause`` are sentences; ``text`` is what the user has to write. ``options`` are the options of
    ``compile`` that change, ``edit`` is the change of the model and its inputs. ``most_ns`` is roughly the most that
    the change can save; it orders the trials. Changes with the same ``kind`` are alternatives, of which only the best
    is reported. ``module`` and ``location`` say where the problem is, if that is known without a trial. ``samples`` is
    the factor by which the samples of a run grow: times are then divided by it.
    """

    kind: str
    problem: str
    cause: str
    text: str
    most_ns: float
    options: Mapping[str, Any] = field(default_factory=dict)
    edit: ModelEdit | None = None
    module: str = ""
    location: str = ""
    samples: int = 1


#: Rates of the host: float operations per nanosecond, and bytes per nanosecond between host and device. Both are
#: assumptions about a server, not measurements (docs/findings.md): findings about the host need a cost.
HOST_FLOPS_PER_NS = 100.0
HOST_BYTES_PER_NS = 16.0


@dataclass(frozen=True)
class HostWork:
    """The host's part of a call: float operations, all operations, and bytes moved to and from its steps."""

    float_operations: int = 0
    operations: int = 0
    moved_bytes: int = 0

    @property
    def ns(self) -> float:
        """The assumed time of the work."""
        return self.float_operations / HOST_FLOPS_PER_NS + self.moved_bytes / HOST_BYTES_PER_NS


@dataclass(frozen=True)
class ExampleInput:
    """An input of a model: its index among the tensors of a call, its name, its shape, and its type on the host.

    If ``is_on_device``, the input is a ``DeviceTensor``, whose layout the caller chose.
    """

    position: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    is_on_device: bool = False

    @property
    def key(self) -> InputKey:
        """Key by which an edit of the inputs finds this input."""
        return InputKey(self.position, self.name)


@dataclass(frozen=True)
class PlannedProgram:
    """A compiled program with the inputs and options that it was compiled for.

    ``parts`` are the bundles with their facts, ``inputs`` the example inputs of a call, ``options`` the options of
    ``compile`` that the caller set. ``is_model`` is true for a PyTorch model, whose inputs can change.
    """

    parts: Sequence[tuple[Bundle, ProgramFacts]]
    device_ns: float
    host: HostWork
    remarks: Sequence[Remark]
    inputs: Sequence[ExampleInput]
    result_shapes: Sequence[tuple[int, ...]]
    options: Mapping[str, Any]
    is_model: bool

    @property
    def ns(self) -> float:
        """Time of one call: predicted time on the device plus assumed time on the host."""
        return self.device_ns + self.host.ns

    @property
    def device_cores(self) -> int:
        """Number of cores of the device."""
        return max((bundle.target.device_cores for bundle, _ in self.parts), default=1)

    @property
    def host_remarks(self) -> list[Remark]:
        """The operations that the host runs, with the reasons."""
        return [remark for remark in self.remarks if remark.kind == HOST]

    @property
    def operations(self) -> Iterator[Operation]:
        """The operations of all bundles."""
        for _, facts in self.parts:
            yield from facts.operations

    def by_module(self) -> dict[str, float]:
        """Return the device time in ns of each module path."""
        times: dict[str, list[float]] = {}
        for operation in self.operations:
            times.setdefault(operation.module, []).append(operation.execution.total_ns)
        return {module: math.fsum(values) for module, values in times.items()}

    def arguments(self) -> Iterator[tuple[KernelArgument, list[Operation]]]:
        """Yield each argument of a bundle with the operations that read or write the argument or a copy of it."""
        for bundle, facts in self.parts:
            for argument in bundle.manifest.arguments:
                buffers = bundle.manifest.buffers
                copies = {buffer.name for buffer in buffers if buffer.base == argument.parameter}
                accessing = []
                for operation in facts.operations:
                    if copies.isdisjoint(operation.buffers):
                        continue
                    accessing.append(operation)
                    if operation.category == "clone" and operation.buffers[0] in copies:
                        copies.add(operation.buffers[-1])
                yield argument, accessing
