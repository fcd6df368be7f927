# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Faults of the compiler: exceptions that are not a ``CompileError``, as one diagnostic with how to report it.

Inside of the compiler a fault stays the exception that it is: no handler of a ``CompileError`` takes it for a refusal
of the program. The outermost entry point turns it into an ``InternalError``, once for all that it calls. The runner of
passes notes the pass and the operation on the exception, and which exceptions are from a pass of the user.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

from spyre_mlir.errors import TRACEBACK, CompileError, brief
from spyre_mlir.records import dataclass

_Class = TypeVar("_Class", bound=type)

#: Whether an entry point around this code reports faults.
_is_entered: ContextVar[bool] = ContextVar("is_entered", default=False)

#: Attributes of an exception: the place of a fault, and the mark of what is the user's.
_PLACE, _USERS = "_spyre_place", "_spyre_users"

#: Characters of the message of a fault that are shown.
_MOST_CHARACTERS = 60


class InternalError(CompileError):
    """A fault of the compiler itself, with the pass and the operation that it happened at."""


@dataclass(frozen=True)
class FaultPlace:
    """The place of a fault: the pass, the kind of operation and its location, as in ``CompileError``."""

    pass_name: str
    kind: str = ""
    location: str = ""
    operation: str = ""
    module: str = ""


def note_place(error: Exception, place: FaultPlace) -> None:
    """Note the place of a fault, unless a pass inside has noted another one."""
    vars(error).setdefault(_PLACE, place)


def note_user(error: Exception) -> None:
    """Note that user-defined code raised an exception, which reaches the user unchanged."""
    vars(error)[_USERS] = True


def is_placed(error: Exception) -> bool:
    """Return whether an exception is a fault of a pass."""
    return _PLACE in vars(error)


def is_fault(error: Exception) -> bool:
    """Return whether an exception is a fault of the compiler.

    Refusals, exceptions from user-defined code, warnings that the user has turned into errors, files that the system
    refuses and a lack of memory are not faults.
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
    text = brief(str(error), 1 << 20).removesuffix(".")
    shown = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS].rstrip()} .."
    message = (
        f"Internal error{where}: {type(error).__name__}{': ' if shown else ''}{shown}. "
        f"Please report the program and the traceback that {TRACEBACK}=1 shows."
    )
    return InternalError(message, place.location, place.operation, place.module)


#: Context of the outermost entry point, in which Dynamo traces nothing; the frontend sets it.
untraced: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext


@contextlib.contextmanager
def faults_reported(always: bool = False) -> Iterator[None]:
    """Context of an entry point, also its decorator, which a fault leaves as an ``InternalError``.

    Inside of another one it has no effect, unless ``always``: for a part whose faults do not end the whole. With
    ``SPYRE_TRACEBACK=1`` a fault stays the exception that it is.
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


@contextlib.contextmanager
def faults_kept() -> Iterator[None]:
    """Context whose caller reports faults itself."""
    token = _is_entered.set(True)
    try:
        yield
    finally:
        _is_entered.reset(token)


def entry_points(cls: _Class) -> _Class:
    """Decorate a class whose public methods, calls included, are entry points."""
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
