# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One compilation at a time in a process: PyTorch's export and filters of warnings are not made for threads."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any


def turns(lock: Callable[[], AbstractContextManager[Any]]) -> Callable[[], AbstractContextManager[None]]:
    """Return a context in which the ``lock`` is held, and which has no effect inside of itself.

    Inside of it is also a thread that works for it, with a copy of its context.
    """
    is_held: ContextVar[bool] = ContextVar("is_held", default=False)

    @contextlib.contextmanager
    def turn() -> Iterator[None]:
        if is_held.get():
            yield
            return
        with lock():
            token = is_held.set(True)
            try:
                yield
            finally:
                is_held.reset(token)

    return turn


_lock = threading.Lock()


def _replace() -> None:
    """Make a new lock: in the child of a fork nobody releases the one that another thread held."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_replace)

#: The context of a compilation.
one_at_a_time = turns(lambda: _lock)
