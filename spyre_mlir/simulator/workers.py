# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Threads that share the work of one operation: numpy, BLAS and compiled code run beside one another in them.

What a task computes does not depend on the others, so results are the same with any number of threads.
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

#: Just below the size from which the C library always takes and gives back single blocks.
_KEPT_BYTES = 31 << 20

#: Bytes from which an array is copied by several threads.
_SHARED_COPY_BYTES = 1 << 22


def worker_count() -> int:
    """Return the number of threads: one for each processor that this process may use."""
    return processor_count()


@functools.cache
def keep_freed_memory() -> None:
    """Let the C library keep memory that is given back, up to twice this size, for the next operation.

    It learns so by the largest block that was given back; otherwise each array of an operation is made of new pages.
    """
    np.empty(_KEPT_BYTES, np.uint8)


@functools.cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """The threads of a process: those of the one that it was forked from are not there."""
    return ThreadPoolExecutor(threads, "simulator")


def run_tasks(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Run tasks, several at a time, and return their results in order; the error is that of the first that fails."""
    if len(tasks) < 2 or (threads := worker_count()) < 2:
        return [task() for task in tasks]
    futures = [_pool(os.getpid(), threads).submit(task) for task in tasks]
    for future in futures:
        # All are done before an error leaves, so that none works on what the caller changes next.
        future.exception()
    return [future.result() for future in futures]


def copy_array(target: NDArray[Any], source: NDArray[Any]) -> None:
    """Copy an array to another one of its shape, by several threads if it is large."""
    if target.nbytes < _SHARED_COPY_BYTES:
        np.copyto(target, source)
        return
    axis, count = int(np.argmax(target.shape)), 4 * worker_count()
    parts = zip(np.array_split(target, count, axis), np.array_split(source, count, axis), strict=True)
    run_tasks([functools.partial(_compiled_copies().copy_array, *pair) for pair in parts])


@functools.cache
def _compiled_copies() -> ModuleType:
    """The compiled copies, which import numba."""
    return importlib.import_module("spyre_mlir.simulator.compiled_copies")


class _BlasThreads:
    """How many threads a product of numpy takes: one while somebody runs a bundle."""

    def __init__(self) -> None:
        self._lock, self._users, self._before = threading.Lock(), 0, 0

    def enter(self) -> None:
        """Go down to one thread."""
        with self._lock:
            self._users += 1
            if self._users == 1 and (library := _blas()):
                self._before = library.scipy_openblas_get_num_threads64_()
                library.scipy_openblas_set_num_threads64_(1)

    def leave(self) -> None:
        """Go back to as many as there were when the first entered."""
        with self._lock:
            self._users -= 1
            if not self._users and (library := _blas()):
                library.scipy_openblas_set_num_threads64_(self._before)


_BLAS_THREADS = _BlasThreads()


@contextlib.contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Let each product run in the thread that asks for it: the order of its sums goes by its shape alone."""
    _BLAS_THREADS.enter()
    try:
        yield
    finally:
        _BLAS_THREADS.leave()


@functools.cache
def _blas() -> ctypes.CDLL | None:
    """The BLAS inside numpy, if it is the one of its wheels; another one keeps its threads."""
    try:
        library = ctypes.CDLL(importlib.import_module("numpy.linalg._umath_linalg").__file__)
        library.scipy_openblas_get_num_threads64_.restype = ctypes.c_int
        library.scipy_openblas_set_num_threads64_.argtypes = [ctypes.c_int]
    except (AttributeError, OSError):
        return None
    return library
