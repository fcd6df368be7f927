# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Worker processes of this machine as an executor: one that dies loses its call alone, and another takes its place.

A worker is a new Python, which does not run the script that started it. It ends when the process that started it
does, however that ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from spyre_mlir.systems import processor_count

_CODE = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[2]); "
    "from spyre_mlir.experiments.local_workers import serve; serve(int(sys.argv[1]))"
)

#: Threads of the numeric libraries in a worker: as many workers as cores leave one to each.
_ONE_THREAD = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}


class WorkerDiedError(Exception):
    """The end of a worker before it gave the result of a call."""


class LocalWorkers(Executor):
    """An executor with ``count`` processes, which start when there is a call for them."""

    def __init__(self, count: int | None = None) -> None:
        self.count = count or processor_count()
        self._threads = ThreadPoolExecutor(self.count, "spyre-worker")
        self._workers: dict[int, _WorkerProcess] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function that a worker can import; ``WorkerDiedError`` is the exception if that dies."""
        return self._threads.submit(self._call, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers: after their calls with ``wait``, else at once."""
        if not wait or cancel_futures:
            self._threads.shutdown(wait=False, cancel_futures=True)
            for worker in list(self._workers.values()):
                worker.kill()
        self._threads.shutdown(wait=True)
        for worker in self._workers.values():
            worker.kill()
        self._workers.clear()

    def _call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        thread = threading.get_ident()
        worker = self._workers.get(thread)
        if worker is None:
            worker = self._workers[thread] = _WorkerProcess()
        try:
            is_result, value = worker.call((function, args, kwargs))
        except (EOFError, OSError):
            del self._workers[thread]
            worker.kill()
            raise WorkerDiedError("A worker died.") from None
        if is_result:
            return value
        raise value


class _WorkerProcess:
    """A process that calls functions, one after the other."""

    def __init__(self) -> None:
        self._connection, inherited = Pipe()
        command = [sys.executable, "-c", _CODE, str(inherited.fileno()), json.dumps(sys.path)]
        # What models and solvers print must not mix with the output of a tool.
        self._process = subprocess.Popen(
            command,
            pass_fds=[inherited.fileno()],
            env={**os.environ, **_ONE_THREAD},
            stdin=subprocess.DEVNULL,
            stdout=2,
        )
        inherited.close()

    def call(self, call: Any) -> Any:
        """Send a call and wait for what it returns or raises."""
        self._connection.send(call)
        return self._connection.recv()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        self._connection.close()


def serve(descriptor: int) -> None:
    """Run calls until the process at the other end is gone: the main function of a worker."""
    # Ctrl-C goes to all processes of a terminal; the one that started this one ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(descriptor)
    while True:
        try:
            function, args, kwargs = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = (True, function(*args, **kwargs))
        except Exception as error:
            answer = (False, error)
        try:
            connection.send(answer)
        except OSError:
            return
