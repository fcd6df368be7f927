# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writing a folder whole or not at all, in the place of what was written there before.

What is new is made in a work folder beside it, ``.NAME.XXXXXXXX.writing``, which its process keeps locked. Then the old
folder goes into the work folder and the new one takes its place. A work folder that nobody has locked is that of a
process that is dead: the next one that writes there puts the old folder back if it is missing, and removes the rest.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from spyre_mlir.errors import CompileError
from spyre_mlir.files import require_name

_OLD, _FRESH, _SUFFIX = "old", "fresh", ".writing"

#: What a folder of ours is known by, the names of all its files, and those of its folders.
_PROGRAMS = ("bundle.mlir", "program.mlir", "program.json", "sizes.json")
_FILES = re.compile(
    r"(bundle|program)\.mlir|(manifest|program|sizes)\.json|sdsc_\d+\.json|host_\d+\.mlir|constants\.npz|remarks\.jsonl"
    r"|device_weights\.(npy|json)"
)
_FOLDERS = re.compile(r"device_\d+(_\d+)?|\d+(-\d+)*")


@contextlib.contextmanager
def replacing(folder: str | Path) -> Iterator[Path]:
    """A new folder to write to, which takes the place of ``folder`` at the end, if nothing went wrong.

    What is there already must be a bundle or a program of several, and nothing else. Of a link the folder is replaced
    that it leads to.
    """
    try:
        require_replaceable(folder)
        # A link stays one, to the folder that it leads to.
        target = Path(os.path.realpath(folder))
        target.parent.mkdir(parents=True, exist_ok=True)
        with _ended_by_sigterm(), _work_folder(target) as work:
            fresh = work / _FRESH
            fresh.mkdir()
            yield fresh
            # Again: other files may have come there while the new folder was written.
            require_replaceable(folder)
            _exchange(target, fresh, work / _OLD)
    except OSError as error:
        raise CompileError(f"The bundle cannot be written: {error}.", str(folder)) from None


def require_replaceable(path: str | Path) -> None:
    """Raise ``CompileError`` where no bundle may be written: at a file, and at a folder with anything else in it."""
    name = str(path)
    require_name(os.fspath(path))
    folder = Path(os.path.realpath(path))
    if not folder.exists():
        return
    if not folder.is_dir():
        raise CompileError("A bundle is a folder, but there is a file with this name.", name)
    if any(folder.iterdir()) and not any((folder / program).is_file() for program in _PROGRAMS):
        text = "The folder is not empty and holds no bundle, so it is left alone; name another folder."
        raise CompileError(text, name)
    foreign = _foreign(folder)
    if foreign is not None:
        text = f"The folder holds '{foreign.relative_to(folder)}' beside a bundle, so it is left alone"
        raise CompileError(f"{text}; move that away, or name another folder.", name)


def _foreign(folder: Path) -> Path | None:
    """Something in a folder that no bundle has."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            inside = _foreign(path) if _FOLDERS.fullmatch(path.name) else path
            if inside is not None:
                return inside
        elif not _FILES.fullmatch(path.name):
            return path
    return None


def _exchange(target: Path, fresh: Path, old: Path) -> None:
    """Put ``fresh`` in the place of ``target``, or leave all as it was."""
    try:
        # Two renames, each atomic: at any moment the old or the new folder is whole.
        if target.exists():
            target.rename(old)
        fresh.rename(target)
    except BaseException:
        if old.exists() and not target.exists():
            old.rename(target)
        raise


@contextlib.contextmanager
def _work_folder(target: Path) -> Iterator[Path]:
    """A locked folder beside the target, gone at the end; those of dead processes are cleaned up first."""
    # One process at a time cleans up and makes a work folder, so none removes one that is not locked yet.
    with _locked(target.parent, wait=True):
        _clean_up(target)
        work = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=_SUFFIX))
        lock = contextlib.ExitStack()
        lock.enter_context(_locked(work))
    with lock:
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _clean_up(target: Path) -> None:
    for work in target.parent.glob(f".{glob.escape(target.name)}.*{_SUFFIX}"):
        if work.is_symlink() or not work.is_dir():
            continue
        with _locked(work) as is_mine:
            # A folder with other files in it is not a work folder, whatever its name.
            if not is_mine or {path.name for path in work.iterdir()} - {_OLD, _FRESH}:
                continue
            if (work / _OLD).exists() and not target.exists():
                (work / _OLD).rename(target)
            shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path, *, wait: bool = False) -> Iterator[bool]:
    """Lock a folder and yield whether that succeeded; on a file system without locks it never does."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield _lock(descriptor, wait)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, wait: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Make SIGTERM an exception, so that what is begun is cleaned up; a handler of the program's own stays."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(*_: object) -> NoReturn:
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
