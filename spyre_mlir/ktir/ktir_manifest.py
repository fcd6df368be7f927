# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The manifest of a KTIR program for its caller: the function, and the memory of each of its arguments."""

from __future__ import annotations

from dataclasses import field

from spyre_mlir.bundle.model import OPTIONAL, KernelArgument, RuntimeIndex
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class FunctionArgument:
    """An argument of the function: the start of a memory of ``bytes``, as an index of elements of one type.

    ``memory`` is the parameter of host arguments, or a pool, which is initially zero.
    """

    memory: str
    element: str
    bytes: int


@dataclass(frozen=True)
class KtirManifest:
    """The ``function``, its ``memories`` in the order of its arguments, and the host arguments.

    After the memories come arguments for the ``indices`` that a call passes: numbers that the host reads in its arrays.
    ``predicted_us`` are the microseconds that the timeline predicts for the plan; 0 if they are not known.
    """

    function: str
    memories: tuple[FunctionArgument, ...]
    arguments: tuple[KernelArgument, ...]
    version: int = 1
    predicted_us: float = 0.0
    indices: tuple[RuntimeIndex, ...] = field(default=(), metadata=OPTIONAL)
