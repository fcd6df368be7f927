# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Collection of the problems that a compilation passes to its algorithms, to be written to files on request."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from spyre_mlir.compile_lock import assigned


class Problems:
    """Problems by bundle name and by kind, in the order in which they were added."""

    def __init__(self) -> None:
        self.by_bundle: dict[str, dict[str, list[Any]]] = {}
        self._bundle = ""

    def add(self, kind: str, problem: Any) -> None:
        """Add a problem of the bundle that is being compiled."""
        self.by_bundle.setdefault(self._bundle, {}).setdefault(kind, []).append(problem)

    @contextlib.contextmanager
    def of_bundle(self, name: str) -> Iterator[None]:
        """Context that attributes problems to a bundle; an exception discards the problems of the bundle."""
        self._bundle = name
        try:
            yield
        except BaseException:
            self.by_bundle.pop(name, None)
            raise
        finally:
            self._bundle = ""


_current: contextvars.ContextVar[Problems | None] = contextvars.ContextVar("problems", default=None)


def collecting(problems: Problems | None) -> AbstractContextManager[Any]:
    """Context that collects problems in ``problems``; None drops them, for trials that are not part of the program."""
    return assigned(_current, problems)


def offer(kind: str, problem: Any) -> None:
    """Add a problem to the current collection; without a collection, do nothing."""
    problems = _current.get()
    if problems is not None:
        problems.add(kind, problem)


def of_bundle(name: str) -> contextlib.AbstractContextManager[None]:
    """Context that attributes the problems of the current collection to a bundle."""
    problems = _current.get()
    return contextlib.nullcontext() if problems is None else problems.of_bundle(name)
