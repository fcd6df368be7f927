# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The exceptions and the warnings that users see, in a sentence that fits on a screen."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

#: Characters of a message, and those of one behind a location, whose length is not counted: a message is the same
#: wherever the file lies. What Python prints stays below 300 in most folders. The variable lifts the bounds.
LONGEST, _LONGEST_BEHIND = 260, 210
TRACEBACK = "SPYRE_TRACEBACK"
_REST = f" ... ({TRACEBACK}=1 shows the rest)."
_MOST_LISTED = 6
_LONGEST_PATH = 120


def brief(text: str, most: int = LONGEST) -> str:
    """Cut a message to its first line and to ``most`` characters, unless the traceback is asked for."""
    if os.environ.get(TRACEBACK):
        return text
    lines = text.strip().splitlines() or [""]
    # A line that announces the next one says nothing alone.
    if len(lines) > 1 and lines[0].endswith((":", ": ")):
        lines[:2] = [f"{lines[0].rstrip()} {lines[1].strip()}"]
    if len(lines) == 1 and len(lines[0]) <= most:
        return lines[0]
    # Behind the last whole word that leaves room for the note.
    room = most - len(_REST)
    cut = lines[0] if len(lines[0]) <= room else lines[0][:room].rpartition(" ")[0] or lines[0][:room]
    return cut.rstrip(" .,;:") + _REST


def located(location: str, severity: str, text: str) -> str:
    """Put a message behind its place, ``file:line:col: error: ..``, as short as that of any place."""
    head = f"{location}: {severity}: " if location else f"{severity}: "
    return head + brief(text, _LONGEST_BEHIND if location else LONGEST - len(head))


def shown_path(path: str | os.PathLike[str]) -> str:
    """Return a path of the user for a sentence, in quotes: on one line, and of a long one the end."""
    text = os.fspath(path)
    text = text if text.isprintable() else repr(text)[1:-1]
    return f"'{text}'" if len(text) <= _LONGEST_PATH else f"'...{text[-_LONGEST_PATH:]}'"


def listed(names: Iterable[str], like: str = "") -> str:
    """List names in a sentence; of many only the first ones, or those most like a name, and how many more there are."""
    every = list(names)
    if len(every) <= _MOST_LISTED + 1:
        return ", ".join(every) or "none"
    if like:
        import difflib

        every = difflib.get_close_matches(like, every, len(every), 0)
    return f"{', '.join(every[:_MOST_LISTED])} and {len(every) - _MOST_LISTED} more"


def suggestion(name: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the question whether a name close to an unknown one was meant; empty if none is close."""
    import difflib  # on use: most runs end without an error

    close = difflib.get_close_matches(name, list(names), 1, cutoff)
    return f"did you mean '{close[0]}'?" if close else ""


def with_suggestion(sentence: str, name: str, names: Iterable[str]) -> str:
    """Return a sentence about an unknown name, with the question at its end whether a close one was meant."""
    # The names are in the sentence: the question is for a misspelt one alone.
    hint = suggestion(name, names, 0.75)
    return f"{sentence.removesuffix('.')} ({hint})." if hint else sentence


class CompileError(Exception):
    """A program, an option or a file that cannot be compiled or run.

    Tools print it as ``location: error: message`` and exit with status 1.

    Attributes:
        message: One sentence that says what is wrong and what to do.
        location: ``file:line:col`` of the user's source, or empty where there is none.
        operation: What a PyTorch model called there, or empty.
        module: The path of the module of the model that did, or empty.
    """

    def __init__(self, message: str, location: str = "", operation: str = "", module: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.location = location
        self.operation = operation
        self.module = module

    def __reduce__(self) -> tuple[Any, ...]:
        # As it is: what its class is made from is not what it holds.
        return _made_anew, (type(self), self.args), vars(self)

    def __str__(self) -> str:
        place = f"in '{self.module}'" if self.module else ""
        caller = " ".join(part for part in (self.operation, place) if part)
        return located(self.location, "error", f"{caller}: {self.message}" if caller else self.message)


def _made_anew(cls: type[CompileError], arguments: tuple[Any, ...]) -> CompileError:
    return cls.__new__(cls, *arguments)


class UncapturedError(CompileError):
    """A model that torch.export does not capture as one graph of static shapes; in pieces it may run."""


#: Begin of the message about an assertion whose condition is known to be false when it is compiled.
ALWAYS_FAILS = "The program asserts what is never true"


class FailedAssertionError(CompileError, RuntimeError):
    """An assertion of a program that fails, for every input or for the inputs of a call; the call has no effect.

    PyTorch raises a ``RuntimeError``, which this is too.
    """


class AlgorithmError(CompileError):
    """An algorithm of the user that fails or gives a wrong answer: no other way to compile is tried."""


class _BriefWarning(UserWarning):
    """A warning whose text is cut as that of an error is."""

    def __init__(self, text: str) -> None:
        super().__init__(brief(text))


class RangeWarning(_BriefWarning):
    """Numbers of a run left the range of the device's 16-bit format; the text names tensors and replacements."""


class HostWorkWarning(_BriefWarning):
    """The host runs over 1 % of the floating-point operations of a program; ``compile`` warns once of each."""


class FallbackWarning(_BriefWarning):
    """An operation on tensors of the device runs on the host; the text has the reason, once for each operation."""


class RecompileWarning(_BriefWarning):
    """A model in pieces has many programs, one for each size or branch; the text names the last piece."""


class Uncached(Exception):
    """Reason why a program has no place in the cache on disk, as the rest of a sentence about the program."""


@contextlib.contextmanager
def without_causes() -> Iterator[None]:
    """Context whose ``CompileError`` is a whole sentence, and leaves it without the frames and causes inside."""
    try:
        yield
    except CompileError as error:
        if os.environ.get(TRACEBACK):
            raise
        if not error.message.endswith("."):
            error.message = error.message.rstrip() + "."
        raise error.with_traceback(None) from None
