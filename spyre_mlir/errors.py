# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The exceptions and warnings that users see, each one sentence that fits on a screen."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

#: Maximum characters of a message without and with a location. The location is not counted, so a message does not
#: depend on the path of the file. Most printed messages stay below 300. SPYRE_TRACEBACK lifts the bounds.
LONGEST, _LONGEST_BEHIND = 260, 210
TRACEBACK = "SPYRE_TRACEBACK"
_REST = f" ... ({TRACEBACK}=1 shows the rest)"
#: Characters of a cut message before its remedy, the note included.
_SHORTEST_PROBLEM = 100
_MOST_LISTED = 6
_LONGEST_PATH = 120


def brief(text: str, most: int = LONGEST) -> str:
    """Cut a message to its first line and to ``most`` characters, unless SPYRE_TRACEBACK is set.

    A message is ``problem; remedy``, and the problem is cut: the remedy is kept unless it takes most of the space.
    """
    if os.environ.get(TRACEBACK):
        return text
    lines = text.strip().splitlines() or [""]
    # A line that ends with a colon introduces the next line, so the two are joined.
    if len(lines) > 1 and lines[0].endswith((":", ": ")):
        lines[:2] = [f"{lines[0].rstrip()} {lines[1].strip()}"]
    if len(lines) == 1 and len(lines[0]) <= most:
        return lines[0]
    problem, semicolon, remedy = lines[0].rpartition("; ")
    if not semicolon or len(remedy) > most - _SHORTEST_PROBLEM:
        problem, remedy = lines[0], ""
    # Cut after the last whole word that leaves space for the note and the remedy.
    end = f"; {remedy}" if remedy else "."
    room = most - len(_REST) - len(end)
    cut = problem if len(problem) <= room else problem[:room].rpartition(" ")[0] or problem[:room]
    return cut.rstrip(" .,;:") + _REST + end


def located(location: str, severity: str, text: str) -> str:
    """Format ``file:line:col: error: ..``; the length of a location does not change where the text is cut."""
    head = f"{location}: {severity}: " if location else f"{severity}: "
    return head + brief(text, _LONGEST_BEHIND if location else LONGEST - len(head))


def shown_path(path: str | os.PathLike[str]) -> str:
    """Return a quoted path for a message: on one line, and only the end of a long path."""
    text = os.fspath(path)
    text = text if text.isprintable() else repr(text)[1:-1]
    return f"'{text}'" if len(text) <= _LONGEST_PATH else f"'...{text[-_LONGEST_PATH:]}'"


def listed(names: Iterable[str], like: str = "") -> str:
    """List names for a message; of many, only the first, or the closest to ``like``, and the number omitted."""
    every = list(names)
    if len(every) <= _MOST_LISTED + 1:
        return ", ".join(every) or "none"
    if like:
        import difflib

        every = difflib.get_close_matches(like, every, len(every), 0)
    return f"{', '.join(every[:_MOST_LISTED])} and {len(every) - _MOST_LISTED} more"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: "1 core", "1,024 cores"; the plural of ``noun`` is regular."""
    plural = noun[:-1] + "ies" if re.search("[^aeiou]y$", noun) else noun + "s"
    return f"{count:,} {noun if count == 1 else plural}"


def first_sentence(error: BaseException) -> str:
    """Return the first sentence of an error's text, without its full stop: errors of numpy and PyTorch are long."""
    return re.split(r"\.\s", str(error).strip(), maxsplit=1)[0].rstrip(".") or type(error).__name__


def kind_of(value: Any) -> str:
    """Return the type of a value with its article, such as "a list" or "an ndarray"; "None" for None."""
    name = type(value).__name__
    # Acronyms are spelled out, and "nd" is.
    is_vowel = re.match("[aeiouAEIOU]|[FHLMNRSX](?=[A-Z])|nd", name)
    return "None" if value is None else f"{'an' if is_vowel else 'a'} {name}"


def suggestion(name: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """Return "did you mean .." with the known name that is closest to ``name``; empty if none is close."""
    import difflib  # on use: most runs end without an error

    close = difflib.get_close_matches(name, list(names), 1, cutoff)
    return f"did you mean '{close[0]}'?" if close else ""


def with_suggestion(sentence: str, name: str, names: Iterable[str]) -> str:
    """Return a sentence about an unknown name, with "did you mean .." at its end if a known name is close."""
    # The sentence lists the names already, so only a likely misspelling gets a suggestion.
    hint = suggestion(name, names, 0.75)
    return f"{sentence.removesuffix('.')} ({hint})." if hint else sentence


class CompileError(Exception):
    """A program, an option or a file that cannot be compiled or run.

    Tools print it as ``location: error: message`` and exit with status 1.

    Attributes:
        message: One sentence that says what is wrong and what to do.
        location: ``file:line:col`` in the user's source, or empty.
        operation: The PyTorch operation that the model called there, or empty.
        module: The path of the PyTorch module that called the operation, or empty.
    """

    def __init__(self, message: str, location: str = "", operation: str = "", module: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.location = location
        self.operation = operation
        self.module = module

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle the attributes: a subclass may have other constructor arguments.
        return _made_anew, (type(self), self.args), vars(self)

    def __str__(self) -> str:
        place = f"in '{self.module}'" if self.module else ""
        caller = " ".join(part for part in (self.operation, place) if part)
        return located(self.location, "error", f"{caller}: {self.message}" if caller else self.message)


def _made_anew(cls: type[CompileError], arguments: tuple[Any, ...]) -> CompileError:
    return cls.__new__(cls, *arguments)


class UncapturedError(CompileError):
    """A model that torch.export does not capture as one graph of static shapes; it may run as several pieces."""


#: Prefix of the message about an assertion whose condition is known to be false at compile time.
ALWAYS_FAILS = "The program asserts what is never true"


class FailedAssertionError(CompileError, RuntimeError):
    """A failed assertion of a program, for every input or for the inputs of a call; the call has no effect.

    It is also a ``RuntimeError``, which PyTorch raises for a failed assertion.
    """


class UnsupportedDtypeError(CompileError, RuntimeError):
    """A dtype that the device does not support; also the ``RuntimeError`` that PyTorch's devices raise for it."""


class AlgorithmError(CompileError):
    """A user-defined algorithm failed or returned an invalid result; the compiler does not try an alternative."""


class _BriefWarning(UserWarning):
    """A warning whose text is cut as the message of an error."""

    def __init__(self, text: str) -> None:
        super().__init__(brief(text))


class PassWarning(UserWarning):
    """A pass accepts an operation, but doubts it; the text has the place in the source and the reason."""


class RangeWarning(_BriefWarning):
    """Values of a run exceeded the range of the device's 16-bit format; the text names tensors and replacements."""


class FallbackWarning(_BriefWarning):
    """An operation on device tensors runs on the host; issued once per operation, with the reason."""


class HostWorkWarning(FallbackWarning):
    """The host runs over 1 % of the floating-point operations of a program; ``compile`` warns once per program."""


class RecompileWarning(_BriefWarning):
    """A model has compiled many programs, one per size or branch; the text names the last piece or size."""


class Uncached(Exception):
    """The reason why a program is not cached on disk, as a predicate of a sentence whose subject is the program."""


@contextlib.contextmanager
def without_causes() -> Iterator[None]:
    """Context that re-raises a ``CompileError`` as a whole sentence, without inner frames and causes."""
    try:
        yield
    except CompileError as error:
        if os.environ.get(TRACEBACK):
            raise
        if not error.message.endswith((".", "?")):
            error.message = error.message.rstrip() + "."
        raise error.with_traceback(None) from None
