# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The state of the process during a compilation.

One thread compiles at a time, because PyTorch's export and warning filters are not thread-safe, and no cycles are
collected.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")


@contextlib.contextmanager
def assigned(variable: ContextVar[Any], value: T) -> Iterator[T]:
    """Assign a ``value`` to a context variable while the block runs."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


def turns(lock: Callable[[], AbstractContextManager[Any]]) -> Callable[[], AbstractContextManager[None]]:
    """Return a reentrant context manager that holds the ``lock``.

    A thread that runs with a copy of the holder's ``contextvars`` context is inside the block as well.
    """
    is_held: ContextVar[bool] = ContextVar("is_held", default=False)

    @contextlib.contextmanager
    def turn() -> Iterator[None]:
        if is_held.get():
            yield
            return
        with lock(), assigned(is_held, True):
            yield

    return turn


_lock = threading.Lock()
_builtins_lock = threading.RLock()


def _replace() -> None:
    """Create new locks: in a forked child, no thread would release a lock that another thread of the parent held."""
    global _lock, _builtins_lock
    _lock, _builtins_lock = threading.Lock(), threading.RLock()


os.register_at_fork(after_in_child=_replace)

#: The context manager of a compilation.
one_at_a_time = turns(lambda: _lock)


@contextlib.contextmanager
def without_cycle_search() -> Iterator[None]:
    """Disable the cyclic garbage collector: it takes an eighth of the compile time, and there is little to collect."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def builtins_kept() -> Iterator[None]:
    """Keep other threads from importing numba and from compiling with it, until the block ends.

    ``torch.export`` replaces ``builtins.max``, ``builtins.min`` and ``math.pow`` for all threads while it traces, and
    numba fails on the replacements. ``jit.py`` imports numba in such a block.
    """
    with _builtins_lock:
        compiler = sys.modules.get("numba.core.compiler_lock")
        with compiler.global_compiler_lock if compiler else contextlib.nullcontext():
            yield
