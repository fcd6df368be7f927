# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Problems that the algorithms of a compilation are given, collected for files where somebody asks for them."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any


class Problems:
    """Problems by the name of their bundle and by kind, in the order in which they came."""

    def __init__(self) -> None:
        self.by_bundle: dict[str, dict[str, list[Any]]] = {}
        self._bundle = ""

    def add(self, kind: str, problem: Any) -> None:
        """Add a problem of the bundle that is compiled."""
        self.by_bundle.setdefault(self._bundle, {}).setdefault(kind, []).append(problem)

    @contextlib.contextmanager
    def of_bundle(self, name: str) -> Iterator[None]:
        """Context in which problems are those of a bundle; none of a bundle that cannot be compiled."""
        self._bundle = name
        try:
            yield
        except BaseException:
            self.by_bundle.pop(name, None)
            raise
        finally:
            self._bundle = ""


_current: contextvars.ContextVar[Problems | None] = contextvars.ContextVar("problems", default=None)


@contextlib.contextmanager
def collecting(problems: Problems | None) -> Iterator[None]:
    """Context whose problems are collected, with None nowhere: those of evaluations are not those of the program."""
    token = _current.set(problems)
    try:
        yield
    finally:
        _current.reset(token)


def offer(kind: str, problem: Any) -> None:
    """Add a problem where problems are collected."""
    problems = _current.get()
    if problems is not None:
        problems.add(kind, problem)


def of_bundle(name: str) -> contextlib.AbstractContextManager[None]:
    """Context in which problems are those of a bundle."""
    problems = _current.get()
    return contextlib.nullcontext() if problems is None else problems.of_bundle(name)
