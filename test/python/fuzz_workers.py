# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Worker processes of the fuzzer: they run one case after the other, and are replaced when one kills or hangs them.

    with Workers(run, jobs=2) as workers:
        for case, outcome in workers.map(cases):

``run(case)`` is a function of a module; it returns (class, why), and what it raises is an internal error.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

RIGHT, REFUSED, WRONG, INTERNAL, CRASH, HANG = "right", "refused", "wrong", "internal", "crash", "hang"
#: Also "skipped": a case that is none, such as a program that PyTorch refuses.
SKIPPED = "skipped"

FAILURES = (WRONG, INTERNAL, CRASH, HANG)

#: Seconds on the processor after which a case hangs; one that waits hangs after three times as many on the clock.
SECONDS = 20.0

#: Bytes that a case may allocate in addition to the memory of its worker at the start.
MEMORY_BYTES = 4 * 2**30

Run = Callable[[Any], tuple[str, str]]


@dataclass(frozen=True)
class Outcome:
    """Class of the result of a case, and the reason in a line."""

    kind: str
    why: str = ""
    seconds: float = 0.0


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    case: Any = None
    started: float = 0.0
    processor: float = 0.0


class Workers:
    """Processes that run cases; ``prepare`` is a module that is imported before they are forked."""

    def __init__(
        self, run: Run, jobs: int = 1, *, seconds: float = SECONDS, memory_bytes: int = MEMORY_BYTES
    ) -> None:
        self.run, self.jobs = run, jobs
        self.seconds, self.memory_bytes = seconds, memory_bytes
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(
            [run.__module__, "spyre_mlir.driver.compilation", "spyre_mlir.frontend"]
        )
        self._workers: list[_Worker] = []

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in list(self._workers):
            if worker.case is None:
                worker.pipe.send(None)  # it may end by itself
                worker.process.join(2)
            self._end(worker)

    def one(self, case: Any) -> Outcome:
        """The outcome of one case."""
        ((_, outcome),) = self.map([case])
        return outcome

    def map(self, cases: Iterable[Any]) -> Iterator[tuple[Any, Outcome]]:
        """Every case with its outcome, as they come in."""
        rest = iter(cases)
        busy: list[_Worker] = []
        while True:
            busy += [self._start(case) for case in itertools.islice(rest, self.jobs - len(busy))]
            if not busy:
                return
            for worker in list(busy):
                outcome = self._outcome(worker, busy)
                if outcome is not None:
                    busy.remove(worker)
                    yield worker.case, outcome

    def _start(self, case: Any) -> _Worker:
        worker = next((w for w in self._workers if w.case is None), None) or self._new()
        worker.case, worker.started = case, time.monotonic()
        worker.processor = _processor_seconds(worker.process.pid)
        worker.pipe.send(case)
        return worker

    def _new(self) -> _Worker:
        pipe, other = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(other, self.run, self.memory_bytes), daemon=True)
        process.start()
        other.close()
        self._workers.append(_Worker(process, pipe))
        pipe.recv()
        return self._workers[-1]

    def _outcome(self, worker: _Worker, busy: list[_Worker]) -> Outcome | None:
        """Return the answer of a worker, or the reason why it cannot answer; None while it runs."""
        wait([w.pipe for w in busy], timeout=0.5)
        if worker.pipe.poll():
            with suppress(EOFError, ConnectionResetError):
                kind, why = worker.pipe.recv()
                outcome = Outcome(kind, why, time.monotonic() - worker.started)
                self._release(worker)
                return outcome
            self._end(worker)
            return Outcome(CRASH, _death(worker.process.exitcode), time.monotonic() - worker.started)
        elapsed = time.monotonic() - worker.started
        processor = _processor_seconds(worker.process.pid) - worker.processor
        if processor > self.seconds or elapsed > 3 * self.seconds:
            self._end(worker)
            return Outcome(HANG, f"still runs after {elapsed:.0f} s", elapsed)
        return None

    def _release(self, worker: _Worker) -> None:
        """Free for the next case; ``worker.case`` is read after this, so that it is a copy that is free."""
        index = self._workers.index(worker)
        self._workers[index] = _Worker(worker.process, worker.pipe)

    def _end(self, worker: _Worker) -> None:
        worker.process.join(0.2)
        if worker.process.is_alive():
            worker.process.kill()
        worker.process.join()
        worker.pipe.close()
        self._workers = [w for w in self._workers if w.process is not worker.process]


def _serve(pipe: Connection, run: Run, memory_bytes: int) -> None:
    os.setpgid(0, 0)
    limit = _memory_bytes() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    pipe.send("ready")
    while True:
        try:
            case = pipe.recv()
        except EOFError:
            return
        if case is None:
            return
        pipe.send(answer(run, case))


def answer(run: Run, case: Any) -> tuple[str, str]:
    """Return the result of ``run``, or an internal error if ``run`` raises."""
    from spyre_mlir.faults import faults_kept

    try:
        # A fault of the compiler is not a refusal.
        with faults_kept():
            return run(case)
    except MemoryError:
        return INTERNAL, "MemoryError: no memory within the limit"
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        first = (str(error).splitlines() or [""])[0][:300]
        return INTERNAL, f"{type(error).__name__}: {first} ({os.path.basename(frame.filename)}:{frame.name})"


def _memory_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _processor_seconds(process: int) -> float:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _death(status: int | None) -> str:
    if status is not None and status < 0:
        return signal.Signals(-status).name
    return f"the process ended with status {status}"
