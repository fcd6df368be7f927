"""What takes how long: scopes in scopes, such as stage, pass and part of a pass.

    with scope("trial"):
        ...

A scope is a line of ``--mlir-timing`` and of ``SPYRE_LOG=debug``, and a word of the progress line. It costs some
microseconds, so it is for what takes milliseconds at least.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from spyre_mlir import logs

Kind = Literal["stages", "passes", "parts"]

_LEVELS: dict[Kind, int] = {"stages": logging.INFO, "passes": logging.DEBUG, "parts": logging.DEBUG}


@dataclass(eq=False)
class Scope:
    """A piece of work.

    ``options`` is its name with its options, if it has any; ``place`` the number of a step or a pass
    and how many there are.
    """

    name: str
    kind: Kind = "parts"
    options: str = ""
    place: tuple[int, int] | None = None
    seconds: float = 0.0
    scopes: list[Scope] = field(default_factory=list)

    @property
    def title(self) -> str:
        return self.options or self.name


#: The scopes in which the program is, the outermost first.
_path: contextvars.ContextVar[tuple[Scope, ...]] = contextvars.ContextVar("path", default=())
#: The scope that the next one is a part of, if anybody collects.
_outer: contextvars.ContextVar[Scope | None] = contextvars.ContextVar("outer", default=None)


@contextlib.contextmanager
def scope(
    name: str, kind: Kind = "parts", options: str = "", place: tuple[int, int] | None = None
) -> Iterator[None]:
    """The work of this block, or of the function that it decorates, is a scope of that name.

    Whatever is inside of a pass is a part of it.
    """
    around, outer = _path.get(), _outer.get()
    is_part = any(each.kind != "stages" for each in around)
    entered = Scope(name, "parts" if is_part else kind, options, place)
    path = (*around, entered)
    if outer is not None:
        outer.scopes.append(entered)
    tokens = _path.set(path), _outer.set(entered)
    logs.show_progress(_progress(path), is_part=entered.kind == "parts")
    begun = time.perf_counter()
    try:
        yield
    finally:
        entered.seconds = time.perf_counter() - begun
        _path.reset(tokens[0])
        _outer.reset(tokens[1])
        _leave(path)


def entered() -> list[str]:
    """The names of the scopes in which the program is, the outermost first."""
    return [each.name for each in _path.get()]


def _leave(path: Sequence[Scope]) -> None:
    """Tells what the last scope of a path took; behind the outermost there is no progress."""
    left, names = path[-1], [each.name for each in path]
    logs.tell(_LEVELS[left.kind], f"[{' > '.join(names)}] {left.seconds:.4f} s", left.kind, names)
    if len(path) == 1:
        logs.clear_progress()


def _progress(path: Sequence[Scope]) -> str:
    """``[2/7 12/48] device_1 > tiled > auto-tiling > trial``."""
    places = " ".join("{}/{}".format(*each.place) for each in path if each.place)
    head = f"[{places}] " if places else ""
    return head + " > ".join(each.name for each in path)


class Timing(Sequence[tuple[str, float]]):
    """What was measured within ``collecting``: as a sequence the seconds of each pass, and a tree as ``report``."""

    def __init__(self) -> None:
        self.root = Scope("Total")
        self._is_collecting = False

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """The scopes of this block are added; within such a block they are already."""
        if self._is_collecting:
            yield
            return
        self._is_collecting, token = True, _outer.set(self.root)
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.root.seconds += time.perf_counter() - begun
            self._is_collecting = False
            _outer.reset(token)

    def __len__(self) -> int:
        return len(self._passes())

    def __iter__(self) -> Iterator[tuple[str, float]]:
        return iter(self._passes())

    def __getitem__(self, index):
        return self._passes()[index]

    def _passes(self) -> list[tuple[str, float]]:
        return [(each.title, each.seconds) for each in _passes_in(self.root)]

    def report(self) -> str:
        """A tree of seconds and their part of all; scopes of the same name in the same scope are one line."""
        total = self.root.seconds
        rest = total - sum(each.seconds for each in self.root.scopes)
        rows = [*_rows(self.root.scopes, 0), ("Rest", rest), ("Total", total)]
        table = [f"  {s:8.4f} ({100 * s / (total or 1):5.1f}%)  {name}" for name, s in rows]
        head = ["... Execution time report ...", "  ----Wall Time----  ----Name----"]
        return "\n".join([*head, *table]) + "\n"


def _passes_in(outer: Scope) -> Iterator[Scope]:
    for each in outer.scopes:
        if each.kind == "passes":
            yield each
        else:
            yield from _passes_in(each)


def _rows(scopes: Iterable[Scope], depth: int) -> Iterator[tuple[str, float]]:
    """Name and seconds of each line, indented, in the order in which the names came first."""
    named: dict[str, list[Scope]] = {}
    for each in scopes:
        named.setdefault(each.title, []).append(each)
    for name, same in named.items():
        times = f" ({len(same)} times)" if len(same) > 1 else ""
        yield f"{'  ' * depth}{name}{times}", sum(each.seconds for each in same)
        yield from _rows(itertools.chain.from_iterable(each.scopes for each in same), depth + 1)
