# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Threads that share the work of one operation: numpy, BLAS and compiled code run concurrently in the threads.

The result of a task does not depend on other tasks, so results are the same for any number of threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.systems import processor_count

T = TypeVar("T")

#: Just below the size from which the C library allocates and frees each block separately.
_KEPT_BYTES = 31 << 20

#: The number of bytes from which an array is copied by several threads.
_SHARED_COPY_BYTES = 1 << 22


def worker_count() -> int:
    """Return the number of threads: one for each processor that this process may use."""
    return processor_count()


@functools.cache
def keep_freed_memory() -> None:
    """Let the C library keep freed memory, up to twice this size, for the next operation.

    The C library adapts to the largest freed block; otherwise each array of an operation gets new pages.
    """
    np.empty(_KEPT_BYTES, np.uint8)


@functools.cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return the thread pool of a process; a forked process does not have the threads of its parent."""
    return ThreadPoolExecutor(threads, "simulator")


def run_tasks(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Run tasks, several at a time, and return their results in order; raise the error of the first task that fails."""
    if len(tasks) < 2 or (threads := worker_count()) < 2:
        return [task() for task in tasks]
    futures = [_pool(os.getpid(), threads).submit(task) for task in tasks]
    for future in futures:
        # Wait for all tasks before raising, so that no task uses data that the caller changes next.
        future.exception()
    return [future.result() for future in futures]


def copy_array(target: NDArray[Any], source: NDArray[Any]) -> None:
    """Copy an array to another array of its shape, by several threads if it is large."""
    if target.nbytes < _SHARED_COPY_BYTES:
        np.copyto(target, source)
        return
    axis, count = int(np.argmax(target.shape)), 4 * worker_count()
    parts = zip(np.array_split(target, count, axis), np.array_split(source, count, axis), strict=True)
    run_tasks([functools.partial(compiled().copy_array, *pair) for pair in parts])


@functools.cache
def compiled() -> ModuleType:
    """Return the module of compiled functions, which imports numba."""
    return importlib.import_module("spyre_mlir.simulator.compiled")


class _BlasThreads:
    """The number of threads of a numpy product: one while a bundle runs."""

    def __init__(self) -> None:
        self._lock, self._users, self._before = threading.Lock(), 0, 0

    def enter(self) -> None:
        """Set one thread."""
        with self._lock:
            self._users += 1
            if self._users == 1 and (library := _blas()):
                self._before = library.scipy_openblas_get_num_threads64_()
                library.scipy_openblas_set_num_threads64_(1)

    def leave(self) -> None:
        """Restore the number of threads from before the first ``enter``."""
        with self._lock:
            self._users -= 1
            if not self._users and (library := _blas()):
                library.scipy_openblas_set_num_threads64_(self._before)


_BLAS_THREADS = _BlasThreads()


@contextlib.contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Run each product in the calling thread, so that the order of its sums depends only on its shape."""
    _BLAS_THREADS.enter()
    try:
        yield
    finally:
        _BLAS_THREADS.leave()


@functools.cache
def _blas() -> ctypes.CDLL | None:
    """Return the BLAS of numpy if it is the one in its wheels; the threads of another BLAS do not change."""
    try:
        library = ctypes.CDLL(importlib.import_module("numpy.linalg._umath_linalg").__file__)
        library.scipy_openblas_get_num_threads64_.restype = ctypes.c_int
        library.scipy_openblas_set_num_threads64_.argtypes = [ctypes.c_int]
    except (AttributeError, OSError):
        return None
    return library
