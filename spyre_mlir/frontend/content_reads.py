# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Record of the numbers of a model that an import reads: the program is made for them, not for their shapes alone.

A parameter is an argument of the program, whatever its numbers are, unless a rewrite computes with them, as
``fold_batch_norms`` does. Who does so calls ``note_read``: a program from the cache on disk
(``driver/program_cache.py``) is that of a model only if all numbers are equal that its import read. Buffers and
constants count as read always.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from dataclasses import field

from spyre_mlir.records import dataclass

_current: contextvars.ContextVar[ContentReads | None] = contextvars.ContextVar("reads", default=None)


@dataclass
class ContentReads:
    """Names of the tensors whose numbers were read; ``example_inputs`` is True if those of a call were, too."""

    names: set[str] = field(default_factory=set)
    example_inputs: bool = False

    @contextlib.contextmanager
    def collecting(self) -> Iterator[ContentReads]:
        """Make this the current record within a block."""
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)


def note_read(name: str) -> None:
    """Record that the numbers of a parameter, a buffer or a constant decide about the program."""
    reads = _current.get()
    if reads is not None:
        reads.names.add(name)


def note_read_of_inputs() -> None:
    """Record that the numbers of the example inputs decide about the program, or about an error."""
    reads = _current.get()
    if reads is not None:
        reads.example_inputs = True
