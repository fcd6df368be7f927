# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Faults of the compiler: exceptions other than ``CompileError``, reported as one diagnostic with instructions.

Inside the compiler a fault keeps its exception type, so no handler of ``CompileError`` mistakes it for a rejected
program. The outermost entry point converts it to an ``InternalError``. The pass runner records the pass and the
operation on the exception, and marks exceptions that come from user-defined passes.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, TypeVar

from spyre_mlir.compile_lock import assigned
from spyre_mlir.errors import TRACEBACK, CompileError, brief
from spyre_mlir.records import dataclass

_Class = TypeVar("_Class", bound=type)

#: Whether an enclosing entry point reports faults.
_is_entered: ContextVar[bool] = ContextVar("is_entered", default=False)

#: Attributes of an exception: the place of a fault, and the mark of an exception from user-defined code.
_PLACE, _USERS = "_spyre_place", "_spyre_users"

#: Beginning of the note of an exception that a trial of later passes raised; the name of the pass follows.
TRIAL = "in a trial of the pass"

#: Characters of the message of a fault that are shown.
_MOST_CHARACTERS = 60


class InternalError(CompileError):
    """A fault of the compiler, with the pass and the operation where it happened."""


@dataclass(frozen=True)
class FaultPlace:
    """The place of a fault: the pass, the kind of operation and its location, as in ``CompileError``."""

    pass_name: str
    kind: str = ""
    location: str = ""
    operation: str = ""
    module: str = ""


def note_place(error: Exception, place: FaultPlace) -> None:
    """Record the place of a fault, unless an inner pass has recorded one."""
    vars(error).setdefault(_PLACE, place)


def note_user(error: Exception) -> None:
    """Mark an exception as raised by user-defined code; such an exception reaches the user unchanged."""
    vars(error)[_USERS] = True


def is_placed(error: Exception) -> bool:
    """Return whether an exception has the place of a fault recorded."""
    return _PLACE in vars(error)


def is_fault(error: Exception) -> bool:
    """Return whether an exception is a fault of the compiler.

    ``CompileError``, exceptions from user-defined code, warnings that the user has turned into errors, a lack of memory
    and an ``OSError`` about a file are not faults.
    """
    is_of_system = isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.filename is not None
    )
    return not (isinstance(error, CompileError | Warning) or is_of_system or _USERS in vars(error))


def internal_error(error: Exception) -> InternalError:
    """Describe a fault in one sentence, with its place and how to report it."""
    place = vars(error).get(_PLACE, FaultPlace(""))
    where = f" in the pass '{place.pass_name}'" if place.pass_name else ""
    where += f" at '{place.kind}'" if place.kind else ""
    where += "".join(f", {note}" for note in getattr(error, "__notes__", [])[:1] if note.startswith(TRIAL))
    text = brief(str(error), 1 << 20).removesuffix(".")
    shown = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS].rstrip()} .."
    message = (
        f"Internal error{where}: {type(error).__name__}{': ' if shown else ''}{shown}. "
        f"Please report the program and the traceback that {TRACEBACK}=1 shows."
    )
    return InternalError(message, place.location, place.operation, place.module)


#: Context of the outermost entry point, in which Dynamo does not trace; the frontend sets it.
untraced: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext


@contextlib.contextmanager
def faults_reported(always: bool = False) -> Iterator[None]:
    """Context manager and decorator of an entry point; it converts a fault to an ``InternalError``.

    A nested context has no effect unless ``always`` is set, for a part whose faults do not end the whole. With
    ``SPYRE_TRACEBACK=1`` the exception is not converted.
    """
    if _is_entered.get() and not always:
        yield
        return
    try:
        with untraced(), faults_kept():
            yield
    except Exception as error:
        if os.environ.get(TRACEBACK) or not is_fault(error):
            raise
        reported = internal_error(error)
    else:
        return
    raise reported


def faults_kept() -> AbstractContextManager[Any]:
    """Context without conversion of faults; the caller reports them."""
    return assigned(_is_entered, True)


def entry_points(cls: _Class) -> _Class:
    """Class decorator that makes all public methods, including ``__call__``, entry points."""
    for name, value in list(vars(cls).items()):
        if name == "__call__" or not name.startswith("_"):
            if inspect.isfunction(value):
                setattr(cls, name, _entry_point(value))
            elif isinstance(value, classmethod):
                setattr(cls, name, classmethod(_entry_point(value.__func__)))
    return cls


def _entry_point(function: Any) -> Any:
    @functools.wraps(function)
    def entered(*arguments: Any, **named: Any) -> Any:
        if _is_entered.get():
            return function(*arguments, **named)
        with faults_reported():
            return function(*arguments, **named)

    return entered
