# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Distribution of the points of a sweep to the workers of an executor, and what follows from the death of one.

A point whose worker died is given out again, twice at most. Where an executor does not say which of its calls killed a
worker, as a pool that breaks as a whole, the calls that were lost with it run alone then, so that no point answers for
another.
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

#: Workers that a point is given to at most.
MOST_ATTEMPTS = 3

#: Calls that an executor holds for each of its workers, and at once if it does not say how many it has.
_CALLS_PER_WORKER, _CALLS = 2, 64

#: Takes the result of a point and how often it was given to a worker.
Record = Callable[[SweepTask, Outcome, int], None]


class Dispatcher:
    """The points that wait, those that run, and those whose worker died; ``executor`` None is local workers."""

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
        """Compile points in any order; ``is_needed`` is asked right before one is given out."""
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
        """Give out points as far as the executor takes them; False if nothing is left to wait for."""
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
            # The calls that it had end with the same error, and are taken one by one.
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
        """Replace a pool that broke by one like it, which is the sweep's to shut down."""
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
    """Return whether the worker of a call died."""
    distributed = sys.modules.get("distributed")
    killed = () if distributed is None else (distributed.KilledWorker,)
    return isinstance(error, (WorkerDiedError, BrokenExecutor, *killed))


# Worker processes of this machine as an executor: one that dies loses its call alone, and another takes its place.
#
# A worker is a new Python, which does not run the script that started it. It ends when the process that started it
# does, however that ends.

_CODE = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[2]); "
    "from spyre_mlir.experiments.dispatch import serve; serve(int(sys.argv[1]))"
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
