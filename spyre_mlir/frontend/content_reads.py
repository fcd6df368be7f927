# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Record of the tensor data that an import reads: the program depends on that data, not on shapes alone.

A parameter is an argument of the program, and its data does not matter unless a rewrite computes with it, as
``fold_batch_norms`` does. Such a rewrite calls ``note_read``: a program from the cache on disk
(``driver/program_cache.py``) matches a model only if all data that its import read is equal. Buffers and constants
always count as read.
"""

from __future__ import annotations

import contextvars
from contextlib import AbstractContextManager
from dataclasses import field

from spyre_mlir.compile_lock import assigned
from spyre_mlir.records import dataclass

_current: contextvars.ContextVar[ContentReads | None] = contextvars.ContextVar("reads", default=None)


@dataclass
class ContentReads:
    """Names of the tensors whose data was read. ``example_inputs`` is True if the data of a call was read."""

    names: set[str] = field(default_factory=set)
    example_inputs: bool = False

    def collecting(self) -> AbstractContextManager[ContentReads]:
        """Make this object the current record within a block."""
        return assigned(_current, self)


def note_read(name: str) -> None:
    """Record that the program depends on the data of a parameter, a buffer or a constant."""
    reads = _current.get()
    if reads is not None:
        reads.names.add(name)


def note_read_of_inputs() -> None:
    """Record that the program, or an error, depends on the data of the example inputs."""
    reads = _current.get()
    if reads is not None:
        reads.example_inputs = True
