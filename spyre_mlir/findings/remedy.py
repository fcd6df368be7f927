# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Changes of a program that a trial compiles: options of ``compile``, or an edit of the model and its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple, TypeAlias

from spyre_mlir.records import dataclass


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
