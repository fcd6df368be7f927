# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A process of the compiler beside the server: no answer of the server waits for it, or fails with it."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any


class CompilerProcess:
    """A process that calls functions of texts, one after the other; it starts with the first call."""

    def __init__(self, begin: Callable[..., object], arguments: Sequence[str], niceness: int) -> None:
        """Keep what prepares the process: ``begin(arguments)`` is called in it before all else."""
        self._begin = begin, tuple(arguments), niceness
        self._pool: ProcessPoolExecutor | None = None
        self._latest: dict[str, tuple[str, Future[Any]]] = {}

    def call(self, function: Callable[..., Any], *arguments: object) -> Future[Any]:
        """Call a function; the process starts anew if it has ended, as of memory."""
        if self._pool is not None:
            try:
                return self._pool.submit(function, *arguments)
            except BrokenProcessPool:
                pass
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, context, _begin_process, self._begin)
        return self._pool.submit(function, *arguments)

    def latest(self, uri: str, function: Callable[[str], Any], text: str) -> Future[Any]:
        """Call a function of the text of a document, once for each text; what waits for an older text is dropped."""
        known = self._latest.get(uri)
        if known is None or known[0] != text:
            self.forget(uri)
            self._latest[uri] = known = text, self.call(function, text)
        return known[1]

    def forget(self, uri: str) -> None:
        """Drop what is known of a document."""
        if uri in self._latest:
            self._latest.pop(uri)[1].cancel()


def end_processes() -> None:
    """End all processes of the compiler, whatever they do."""
    for process in multiprocessing.active_children():
        process.kill()


def _begin_process(begin: Callable[..., object], arguments: tuple[str, ...], niceness: int) -> None:
    os.nice(niceness)
    threading.Thread(target=_end_with_server, daemon=True).start()
    begin(arguments)


def _end_with_server() -> None:
    """Wait for the end of the server, which may be killed, and end with it."""
    server = multiprocessing.parent_process()
    if server is not None:
        server.join()
        os._exit(1)
