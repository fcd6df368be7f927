# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Distribution of the points of a sweep to the workers of an executor, and recovery from the death of a worker.

A point whose worker died is submitted again, at most twice. If an executor does not report which call killed a worker,
such as a process pool that breaks as a whole, the lost calls are retried one at a time, so that a point is not blamed
for another.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from spyre_mlir.errors import CompileError
from spyre_mlir.experiments.task import LOST, Outcome, SweepTask, run_task
from spyre_mlir.systems import processor_count

#: Maximum number of submissions of a point.
MOST_ATTEMPTS = 3

#: Maximum calls in flight per worker, and in total if the number of workers is unknown.
_CALLS_PER_WORKER, _CALLS = 2, 64

#: Callback with a point, its result and the number of its submissions.
Record = Callable[[SweepTask, Outcome, int], None]


class Dispatcher:
    """The waiting points, the running points, and the points whose worker died; without ``executor``, local workers."""

    def __init__(self, executor: Executor | None, workers: int | None) -> None:
        self._is_own = executor is None
        self._executor = LocalWorkers(workers) if executor is None else executor
        count = (
            workers or getattr(self._executor, "_max_workers", None) or getattr(self._executor, "count", None)
        )
        self._most_calls = count * _CALLS_PER_WORKER if count else _CALLS
        self._waiting: deque[SweepTask] = deque()
        self._suspects: deque[SweepTask] = deque()
        self._running: dict[Future[Outcome], SweepTask] = {}
        self._attempts: Counter[str] = Counter()

    def run(self, tasks: Iterable[SweepTask], is_needed: Callable[[SweepTask], bool], record: Record) -> None:
        """Compile points in any order; ``is_needed`` is called directly before a point is submitted."""
        self._waiting.extend(tasks)
        is_complete = False
        try:
            while self._submit(is_needed):
                ended, _ = concurrent.futures.wait(
                    self._running, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for future in ended:
                    self._take(future, record)
            is_complete = True
        finally:
            for future in self._running:
                future.cancel()
            if self._is_own:
                self._executor.shutdown(wait=is_complete)

    def _submit(self, is_needed: Callable[[SweepTask], bool]) -> bool:
        """Submit points up to the limit of calls in flight; return False if no call is running."""
        while self._waiting and len(self._running) < self._most_calls:
            task = self._waiting.popleft()
            if is_needed(task):
                self._give(task)
        if not self._running and self._suspects:
            self._give(self._suspects.popleft())
        return bool(self._running)

    def _give(self, task: SweepTask) -> None:
        try:
            future = self._executor.submit(run_task, task)
        except BrokenExecutor:
            # The calls of the broken pool end with the same error, and ``_take`` handles each of them.
            self._renew()
            future = self._executor.submit(run_task, task)
        self._attempts[task.key] += 1
        self._running[future] = task

    def _take(self, future: Future[Outcome], record: Record) -> None:
        task = self._running.pop(future)
        try:
            outcome = future.result()
        except CompileError:
            raise
        except (Exception, CancelledError) as error:
            if not _is_death(error):
                raise CompileError(
                    f"The executor cannot run the points of the sweep: {type(error).__name__}: {error}. Those that "
                    "ended are in the store."
                ) from error
            self._give_again(task, record)
            return
        record(task, outcome, self._attempts[task.key])

    def _give_again(self, task: SweepTask, record: Record) -> None:
        attempts = self._attempts[task.key]
        if attempts >= MOST_ATTEMPTS:
            text = f"The worker that compiled the point died, and so did {attempts - 1} others after it."
            record(task, Outcome(error=text, kind=LOST), attempts)
        elif isinstance(self._executor, LocalWorkers):
            self._waiting.append(task)
        else:
            self._suspects.append(task)

    def _renew(self) -> None:
        """Replace a broken process pool by a new pool of the same kind, which the sweep shuts down."""
        pool: Any = self._executor
        if not isinstance(self._executor, ProcessPoolExecutor):
            raise CompileError(
                "The executor broke, and only a pool of processes can be made again; start the sweep anew."
            )
        if self._is_own:
            pool.shutdown(wait=False)
        self._executor = ProcessPoolExecutor(
            pool._max_workers, pool._mp_context, pool._initializer, pool._initargs
        )
        self._is_own = True


def _is_death(error: BaseException) -> bool:
    """Return whether an error means that the worker of a call died."""
    distributed = sys.modules.get("distributed")
    killed = () if distributed is None else (distributed.KilledWorker,)
    return isinstance(error, (WorkerDiedError, BrokenExecutor, *killed))


# Local worker processes as an executor: a worker that dies loses only its own call, and a new worker replaces it.
#
# A worker is a new Python process that does not run the main script. It ends when the parent process ends, for any
# reason.

_CODE = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[2]); "
    "from spyre_mlir.experiments.dispatch import serve; serve(int(sys.argv[1]))"
)

#: Environment for one thread per worker in the numeric libraries: there are as many workers as cores.
_ONE_THREAD = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}


class WorkerDiedError(Exception):
    """A worker ended before it returned the result of a call."""


class LocalWorkers(Executor):
    """An executor with up to ``count`` processes, started on demand."""

    def __init__(self, count: int | None = None) -> None:
        self.count = count or processor_count()
        self._threads = ThreadPoolExecutor(self.count, "spyre-worker")
        self._workers: dict[int, _WorkerProcess] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function that a worker can import; the exception is ``WorkerDiedError`` if the worker dies."""
        return self._threads.submit(self._call, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers: after their calls with ``wait``, else immediately."""
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
    """A process that runs calls one after the other."""

    def __init__(self) -> None:
        self._connection, inherited = Pipe()
        command = [sys.executable, "-c", _CODE, str(inherited.fileno()), json.dumps(sys.path)]
        # stdout goes to stderr, because text that models and solvers print must not mix with a tool's output.
        self._process = subprocess.Popen(
            command,
            pass_fds=[inherited.fileno()],
            env={**os.environ, **_ONE_THREAD},
            stdin=subprocess.DEVNULL,
            stdout=2,
        )
        inherited.close()

    def call(self, call: Any) -> Any:
        """Send a call and wait for its result or exception."""
        self._connection.send(call)
        return self._connection.recv()

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        self._connection.close()


def serve(descriptor: int) -> None:
    """Run calls until the process at the other end has ended: the main function of a worker."""
    # Ctrl-C goes to all processes of a terminal; the parent process ends the worker.
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
