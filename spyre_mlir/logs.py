# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Log of the compiler: levels, topics and the progress line.

``SPYRE_LOG``, or ``--log`` of a tool, is a list of words:

    SPYRE_LOG=info                     the time of each stage
    SPYRE_LOG=debug,passes             the time of each pass
    SPYRE_LOG=remark,choose-layouts    the decisions of one pass, as the pass makes them
    SPYRE_LOG=progress                 the current stage and pass, even if stderr is not a terminal

One word may be a level: error, warning (the default), remark, info or debug; records of at least that severity are
shown. ``progress`` enables the progress line. Any other word is a topic: the name of a stage, a pass, a part of a
pass, or a logger. Below warnings, only records of the topics are shown; topics without a level select all levels.

All records go through Python's logging, to the logger ``spyre_mlir`` and its children, so a program that uses the
library may install its own handlers. With a level or a topic in ``SPYRE_LOG``, records go to stderr only.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterable, Iterator

from spyre_mlir.records import dataclass

#: Level of the decisions of passes: less severe than warnings, more severe than the times of stages.
REMARK = 25
LEVELS = {
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "remark": REMARK,
    "info": logging.INFO,
    "debug": logging.DEBUG,
}
LOGGER = logging.getLogger("spyre_mlir")


@dataclass(frozen=True)
class Request:
    """The parsed words of ``SPYRE_LOG``. ``level`` is None if neither a level nor a topic is named."""

    level: int | None = None
    topics: frozenset[str] = frozenset()
    progress: bool = False

    @classmethod
    def parse(cls, text: str) -> Request:
        """Parse the words of ``SPYRE_LOG``."""
        words = [word.strip() for word in text.split(",") if word.strip()]
        levels = [LEVELS[word] for word in words if word in LEVELS]
        topics = frozenset(words) - LEVELS.keys() - {"progress"}
        level = levels[-1] if levels else logging.DEBUG if topics else None
        return cls(level, topics, "progress" in words)


def _write(text: str) -> None:
    if sys.stderr is not None:  # None if it is closed
        sys.stderr.write(text)
        sys.stderr.flush()


def _has_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


class ProgressLine:
    """Display of the current scope: one overwritten line on a terminal, else one line per stage and pass."""

    def __init__(self, on_a_terminal: bool) -> None:
        self.on_a_terminal = on_a_terminal
        self._drawn = False

    def show(self, text: str, is_part: bool) -> None:
        """Show the current scope; without a terminal, skip the parts of passes, of which there are thousands."""
        if not self.on_a_terminal:
            if not is_part:
                _write(f"{text}\n")
            return
        import shutil  # on use: it imports three compression libraries

        width = shutil.get_terminal_size().columns - 1  # a full line would wrap, and could not be overwritten
        _write(f"\r{text[:width]}\x1b[K")
        self._drawn = True

    def clear(self) -> None:
        """Remove the line from the terminal."""
        if self._drawn:
            _write("\r\x1b[K")
        self._drawn = False


class _Handler(logging.Handler):
    """Handler that writes the records of a request to stderr, above the progress line."""

    def __init__(self) -> None:
        super().__init__()
        self.request = Request()
        self.progress: ProgressLine | None = None
        self.wait: ProgressLine | None = None
        self.hides_progress = False
        self.silent: set[str] = set()

    def use(self, request: Request, progress: ProgressLine | None) -> None:
        """Replace the request and the progress line."""
        self.request, self.progress = request, progress
        self.silent = set(request.topics)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record if one of its topics is requested, or if it is a warning or worse."""
        topics = {*getattr(record, "topics", ()), *record.name.split(".")[1:]}
        self.silent -= topics
        if record.levelno < logging.WARNING and self.request.topics and not topics & self.request.topics:
            return
        clear_progress()
        location = getattr(record, "location", "")
        head = f"{location}: " if location else ""
        _write(f"{head}{record.levelname.lower()}: {record.getMessage()}\n")


_handler = _Handler()


def configure(text: str, terminal: bool = False) -> None:
    """Replace the current request by the words in ``text``, in the syntax of ``SPYRE_LOG``.

    With ``terminal``, the progress line is shown without the word ``progress`` if stderr is a terminal and no level
    is named, so that no records are printed between its updates.
    """
    request = Request.parse(text)
    is_terminal = _has_terminal()
    shown = request.progress or (terminal and is_terminal and request.level is None)
    _handler.use(request, ProgressLine(is_terminal) if shown else None)
    LOGGER.removeHandler(_handler)
    LOGGER.setLevel(logging.NOTSET if request.level is None else request.level)
    # torch installs a handler at the root logger: a record would appear twice.
    LOGGER.propagate = request.level is None
    if request.level is not None:
        LOGGER.addHandler(_handler)


def shows(level: int) -> bool:
    """Return whether records of a level are shown."""
    return level >= (_handler.request.level or logging.WARNING)


def requested_topics() -> frozenset[str]:
    """Return the topics that ``SPYRE_LOG`` names."""
    return _handler.request.topics


def silent_topics() -> list[str]:
    """Return the requested topics without a record so far; most of them are misspelt names."""
    return sorted(_handler.silent)


def tell(level: int, message: str, logger: str = "", topics: Iterable[str] = (), location: str = "") -> None:
    """Log a record to ``spyre_mlir.<logger>`` with ``topics``; ``location`` is file:line:col in the user's source."""
    LOGGER.getChild(logger).log(level, "%s", message, extra={"topics": tuple(topics), "location": location})


def show_progress(text: str, is_part: bool = False) -> None:
    """Set the text of the progress line, if it is shown."""
    if _handler.progress is not None and not _handler.hides_progress:
        _handler.progress.show(text, is_part)


def show_wait(text: str) -> None:
    """Set the text of the progress line; an interactive session on a terminal shows one for this purpose.

    A script shows it only if the script or ``SPYRE_LOG`` has enabled the progress line.
    """
    if _handler.progress is not None or _handler.hides_progress:
        show_progress(text, is_part=True)
    elif hasattr(sys, "ps1") and _has_terminal():
        _handler.wait = _handler.wait or ProgressLine(True)
        _handler.wait.show(text, True)


def clear_wait() -> None:
    """Remove the line that ``show_wait`` shows in an interactive session."""
    if _handler.wait is not None:
        _handler.wait.clear()


def clear_progress() -> None:
    """Remove the progress line before other output to the terminal."""
    if _handler.progress is not None:
        _handler.progress.clear()
    clear_wait()


@contextlib.contextmanager
def hidden_progress() -> Iterator[None]:
    """Hide the progress line in a block whose code writes to stderr."""
    before, _handler.hides_progress = _handler.hides_progress, True
    try:
        yield
    finally:
        _handler.hides_progress = before


logging.addLevelName(REMARK, "REMARK")
configure(os.environ.get("SPYRE_LOG", ""))
