# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A compiler process separate from the server: the server neither waits for it nor fails with it.

``concurrent.futures`` has process pools too, but their exit may wait for a process that has been killed.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from spyre_mlir.faults import internal_error, is_fault

_SPAWN = multiprocessing.get_context("spawn")

Begin = tuple[Callable[[Sequence[str]], object], Sequence[str], int]


class CompilerProcessError(Exception):
    """The reason why a call did not return: an exception, or the end of the process."""


class CompilerProcess:
    """A process that runs calls one after the other; it starts with the first call."""

    def __init__(
        self, begin: Callable[[Sequence[str]], object], arguments: Sequence[str], niceness: int
    ) -> None:
        """Create a process that first calls ``begin(arguments)``, with a ``niceness`` for the scheduler."""
        self._begin: Begin = begin, tuple(arguments), niceness
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple]] = queue.SimpleQueue()
        self._latest: dict[str, tuple[str, Future[Any]]] = {}
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._is_ended = False
        threading.Thread(target=self._serve, daemon=True).start()

    def call(self, function: Callable[..., Any], *arguments: object) -> Future[Any]:
        """Call a function in the process; restart the process if it has ended, e.g. because it ran out of memory."""
        future: Future[Any] = Future()
        self._calls.put((future, function, arguments))
        return future

    def latest(self, uri: str, function: Callable[[str], Any], text: str) -> Future[Any]:
        """Call a function on the text of a document, once per text; cancel a waiting call for an older text."""
        known = self._latest.get(uri)
        if known is None or known[0] != text:
            self.forget(uri)
            self._latest[uri] = known = text, self.call(function, text)
        return known[1]

    def forget(self, uri: str) -> None:
        """Cancel the call for a document and drop its result."""
        if uri in self._latest:
            self._latest.pop(uri)[1].cancel()

    def end(self) -> None:
        """Kill the process, even during a call."""
        with self._lock:
            self._is_ended = True
            if self._process is not None:
                self._process.kill()

    def _serve(self) -> None:
        while True:
            future, function, arguments = self._calls.get()
            if future.set_running_or_notify_cancel():
                try:
                    answer = self._answer(function, arguments)
                except CompilerProcessError as error:
                    future.set_exception(error)
                # Report any other error to the caller and keep the thread alive, e.g. if the system cannot start the
                # process, or the server cannot read an answer.
                except Exception as error:
                    future.set_exception(
                        CompilerProcessError(internal_error(error).message.removesuffix("."))
                    )
                else:
                    future.set_result(answer)

    def _answer(self, function: Callable[..., Any], arguments: tuple) -> Any:
        process, pipe = self._started()
        try:
            pipe.send((function, arguments))
            succeeded, answer = pipe.recv()
        except (EOFError, OSError):
            process.join()
            raise CompilerProcessError(f"the process ended with the status {process.exitcode}") from None
        if not succeeded:
            raise CompilerProcessError(answer)
        return answer

    def _started(self) -> tuple[BaseProcess, Connection]:
        """Return the process and its pipe; start the process if it is not running."""
        with self._lock:
            if self._is_ended:
                raise CompilerProcessError("the server ends")
            if self._process is None or self._pipe is None or not self._process.is_alive():
                self._pipe, end = _SPAWN.Pipe()
                process = self._process = _SPAWN.Process(target=_work, args=(end, self._begin))
                process.start()
                end.close()  # so that the pipe closes when the process ends
            return self._process, self._pipe


def _work(pipe: Connection, begin: Begin) -> None:
    """Run calls in the process until the server has ended."""
    prepare, arguments, niceness = begin
    os.nice(niceness)
    threading.Thread(target=_end_with_server, daemon=True).start()
    prepare(arguments)
    while True:
        try:
            function, values = pipe.recv()
        except EOFError:
            return
        try:
            answer = True, function(*values)
        except Exception as error:
            answer = (
                False,
                (internal_error(error).message if is_fault(error) else str(error)).removesuffix("."),
            )
        pipe.send(answer)


def _end_with_server() -> None:
    """Wait until the server ends, even if it is killed, and end this process."""
    server = multiprocessing.parent_process()
    if server is not None:
        server.join()
        os._exit(1)
