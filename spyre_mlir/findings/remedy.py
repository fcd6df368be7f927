# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A change of a program that a trial compiles: options of ``compile``, or an edit of the model and its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple, TypeAlias

from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class Resize:
    """Another size of every dim of the inputs that has ``size`` elements."""

    size: int
    to: int


@dataclass(frozen=True)
class Batch:
    """So many times as many samples in the first dim of the inputs that has ``size`` of them."""

    size: int
    times: int


class InputKey(NamedTuple):
    """An input of a call: its place among the tensors of a call, and its name, by which a mapping has it."""

    position: int
    name: str


@dataclass(frozen=True)
class Freeze:
    """These example inputs as buffers of the model."""

    inputs: tuple[InputKey, ...]


@dataclass(frozen=True)
class Halve:
    """A model, and inputs, of float16 in place of wider floating-point types."""


@dataclass(frozen=True)
class MovedStick:
    """A tensor of the device among the inputs, with dim ``stick_dim`` in its sticks."""

    input: InputKey
    stick_dim: int


@dataclass(frozen=True)
class Untranspose:
    """The model without the transposes in the functions that have these ``lines``, each a file and a number."""

    lines: tuple[tuple[str, int], ...]


ModelEdit: TypeAlias = Resize | Batch | Freeze | Halve | MovedStick | Untranspose


@dataclass(frozen=True)
class Remedy:
    """A change with the problem that it is for.

    ``problem`` and ``cause`` are sentences, ``text`` is what the user writes. ``options`` are those of ``compile`` that
    differ, ``edit`` is what happens to the model and its inputs. ``most_ns`` is about what it can save at most, by
    which trials are ordered; changes with the same ``kind`` are alternatives, of which the best is told. ``module``
    and ``location`` say where, if that is known without a trial. ``samples`` is how many times as many samples a run
    has: times are then those of a sample.
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
