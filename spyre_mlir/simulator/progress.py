# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Progress of a long simulation, as a line on the terminal: never in a log, a pipe or a notebook."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from spyre_mlir import logs

#: Seconds before the line is first shown, and between two updates.
PATIENCE_SECONDS, INTERVAL_SECONDS = 2.0, 0.2

#: A function of the index of an execute in the program text, from 0 on, and its opcode.
Advance = Callable[[int, str], None]


def ignore(index: int, opcode: str) -> None:
    """Show nothing."""


@contextlib.contextmanager
def simulation_progress(executes: int) -> Iterator[Advance]:
    """Yield a function to call at each of the ``executes``; it is called repeatedly for an execute in a loop."""
    shown = time.monotonic() + PATIENCE_SECONDS - INTERVAL_SECONDS

    def advance(index: int, opcode: str) -> None:
        nonlocal shown
        now = time.monotonic()
        if now < shown + INTERVAL_SECONDS:
            return
        shown = now
        logs.show_wait(f"[{index + 1}/{executes}] simulate > {opcode}")

    try:
        yield advance
    finally:
        logs.clear_wait()
