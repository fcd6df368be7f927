# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Timing by nested scopes, such as a stage, a pass and a part of a pass.

    with scope("trial"):
        ...

A scope is a line of ``--mlir-timing`` and of ``SPYRE_LOG=debug``, and a word of the progress line. A scope costs a few
microseconds, so use it for work of at least some milliseconds.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import json
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Literal, overload

from spyre_mlir import logs
from spyre_mlir.records import dataclass

Kind = Literal["stages", "passes", "parts"]

#: The forms of a report, named as in mlir-opt: a tree of nested scopes, or a flat list.
Display = Literal["tree", "list"]

_LEVELS: dict[Kind, int] = {"stages": logging.INFO, "passes": logging.DEBUG, "parts": logging.DEBUG}


@dataclass(eq=False)
class TimingScope:
    """One timed piece of work and its nested scopes.

    ``options`` is the name with the options, or empty; ``place`` is the number of a step or a pass, and their count.
    """

    name: str
    kind: Kind = "parts"
    options: str = ""
    place: tuple[int, int] | None = None
    seconds: float = 0.0
    scopes: list[TimingScope] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The name in reports."""
        return self.options or self.name


#: The open scopes, the outermost first.
_path: contextvars.ContextVar[tuple[TimingScope, ...]] = contextvars.ContextVar("path", default=())
#: The scope that collects the next one, None outside of ``Timing.collecting``.
_outer: contextvars.ContextVar[TimingScope | None] = contextvars.ContextVar("outer", default=None)


@contextlib.contextmanager
def scope(
    name: str, kind: Kind = "parts", options: str = "", place: tuple[int, int] | None = None
) -> Iterator[None]:
    """Time a block, or a decorated function, as a scope; every scope inside a pass is a part.

    Args:
        name: The name in reports.
        kind: The kind in reports: "stages", "passes" or "parts".
        options: The name with options, for a pass.
        place: The number of the scope and the total, for the progress line.
    """
    enclosing, outer = _path.get(), _outer.get()
    is_part = any(scope.kind != "stages" for scope in enclosing)
    current = TimingScope(name, "parts" if is_part else kind, options, place)
    path = (*enclosing, current)
    if outer is not None:
        outer.scopes.append(current)
    tokens = _path.set(path), _outer.set(current)
    # Such as "[2/7 12/48] device_1 > tiled > auto-tiling > trial".
    places = " ".join("{}/{}".format(*open_.place) for open_ in path if open_.place)
    names = [open_.name for open_ in path]
    progress = f"{f'[{places}] ' if places else ''}{' > '.join(names)}"
    logs.show_progress(progress, is_part=current.kind == "parts")
    start = time.perf_counter()
    try:
        yield
    finally:
        current.seconds = time.perf_counter() - start
        _path.reset(tokens[0])
        _outer.reset(tokens[1])
        message = f"[{' > '.join(names)}] {current.seconds:.4f} s"
        logs.tell(_LEVELS[current.kind], message, current.kind, names)
        if len(path) == 1:
            logs.clear_progress()


def entered() -> list[str]:
    """Return the names of the open scopes, the outermost first."""
    return [scope.name for scope in _path.get()]


class Timing(Sequence[tuple[str, float]]):
    """Measurements of ``collecting``: a sequence of (pass, seconds); ``report`` formats all scopes.

    Attributes:
        root: The root of the tree of scopes.
    """

    def __init__(self) -> None:
        self.root: TimingScope = TimingScope("Total")
        self._is_collecting = False

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """Collect the scopes of a block; a nested call has no effect."""
        if self._is_collecting:
            yield
            return
        self._is_collecting, token = True, _outer.set(self.root)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.root.seconds += time.perf_counter() - start
            self._is_collecting = False
            _outer.reset(token)

    def __len__(self) -> int:
        return len(self._passes())

    def __iter__(self) -> Iterator[tuple[str, float]]:
        return iter(self._passes())

    @overload
    def __getitem__(self, index: int) -> tuple[str, float]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, float]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, float] | list[tuple[str, float]]:
        return self._passes()[index]

    def _passes(self) -> list[tuple[str, float]]:
        return [(scope.title, scope.seconds) for scope in _passes_in(self.root)]

    def report(self, display: Display = "tree") -> str:
        """Format seconds and percentages; scopes of the same name in the same scope are merged into one line.

        Args:
            display: "tree", or "list": a line for each name in the whole tree, the longest time first. The time of
                a nested scope is also part of its outer scope.
        """
        total = self.root.seconds
        rows = [*self._lines(display), ("Rest", self._rest()), ("Total", total)]
        table = [f"  {s:8.4f} ({100 * s / (total or 1):5.1f}%)  {name}" for name, s in rows]
        head = ["... Execution time report ...", "  ----Wall Time----  ----Name----"]
        return "\n".join([*head, *table]) + "\n"

    def json_report(self, display: Display = "tree") -> str:
        """Format the report as JSON, as mlir-opt does: seconds, percentage and name.

        Args:
            display: "tree", where each scope has the list of its nested scopes, or "list".
        """
        records: list[dict[str, object]] = []
        # The lists that the next line may be added to, the outermost first.
        open_lists = [records]
        for name, seconds in self._lines(display):
            depth = (len(name) - len(name.lstrip())) // 2
            inside: list[dict[str, object]] = []
            record = self._record(name.strip(), seconds)
            open_lists[depth].append({**record, "passes": inside} if display == "tree" else record)
            open_lists[depth + 1 :] = [inside]
        records += [self._record("Rest", self._rest()), self._record("Total", self.root.seconds)]
        return "[\n" + ",\n".join(map(json.dumps, records)) + "\n]\n"

    def _record(self, name: str, seconds: float) -> dict[str, object]:
        percentage = round(100 * seconds / (self.root.seconds or 1), 1)
        return {"wall": {"duration": round(seconds, 6), "percentage": percentage}, "name": name}

    def _rest(self) -> float:
        return self.root.seconds - sum(scope.seconds for scope in self.root.scopes)

    def _lines(self, display: Display) -> list[tuple[str, float]]:
        if display == "tree":
            return list(_rows(self.root.scopes, 0))
        every = sorted(_all_in(self.root), key=lambda scope: scope.title)
        return sorted(_rows(every, 0, is_flat=True), key=lambda row: -row[1])


def _all_in(outer: TimingScope) -> Iterator[TimingScope]:
    for scope in outer.scopes:
        yield scope
        yield from _all_in(scope)


def _passes_in(outer: TimingScope) -> Iterator[TimingScope]:
    for scope in outer.scopes:
        if scope.kind == "passes":
            yield scope
        else:
            yield from _passes_in(scope)


def _rows(scopes: Iterable[TimingScope], depth: int, is_flat: bool = False) -> Iterator[tuple[str, float]]:
    """Yield indented name and seconds for each line of a tree, in the order of the first scope with a name."""
    by_title: dict[str, list[TimingScope]] = {}
    for scope in scopes:
        by_title.setdefault(scope.title, []).append(scope)
    for title, group in by_title.items():
        times = f" ({len(group)} times)" if len(group) > 1 else ""
        yield f"{'  ' * depth}{title}{times}", sum(scope.seconds for scope in group)
        if is_flat:
            continue
        yield from _rows(itertools.chain.from_iterable(scope.scopes for scope in group), depth + 1)
