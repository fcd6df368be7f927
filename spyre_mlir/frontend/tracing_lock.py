# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One trace at a time in a process, of an import or of Dynamo: PyTorch keeps what a trace is about in globals."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch._dynamo import convert_frame

from spyre_mlir.compile_lock import one_at_a_time, turns

#: Dynamo holds this lock while it traces a function, and while a backend takes its graph.
_no_dynamo = turns(lambda: convert_frame.compile_lock)


@contextlib.contextmanager
def tracing_alone() -> Iterator[None]:
    """Context of an import, in which no other thread compiles or traces."""
    with one_at_a_time(), _no_dynamo():
        yield
