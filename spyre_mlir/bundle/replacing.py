# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Atomic replacement of a folder: the new contents are written completely or not at all.

The new folder is written in a locked work folder ``.NAME.XXXXXXXX.writing`` next to the target. Then the old folder
moves into the work folder and the new folder takes its place. A work folder without a lock belongs to a dead process:
the next process that writes there restores the old folder if it is missing, and removes the rest.
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

#: The files that identify a folder of this package, the names of all its files, and the names of its folders.
_PROGRAMS = ("bundle.mlir", "program.mlir", "program.json", "sizes.json", "rank_0/program.json")
_FILES = re.compile(
    r"(bundle|program)\.mlir|(manifest|program|sizes)\.json|sdsc_\d+\.json|host_\d+\.mlir|constants\.npz|remarks\.jsonl"
    r"|device_weights\.(npy|json)"
)
_FOLDERS = re.compile(r"rank_\d+|device_\d+(_\d+)?|\d+(-\d+)*")


@contextlib.contextmanager
def replacing(folder: str | Path) -> Iterator[Path]:
    """Yield a new folder to write to; without an error it replaces ``folder`` at the end.

    An existing folder must contain a bundle or a program of several bundles only. If ``folder`` is a link, the folder
    that the link points to is replaced.
    """
    try:
        require_replaceable(folder)
        # A link stays a link to its folder.
        target = Path(os.path.realpath(folder))
        target.parent.mkdir(parents=True, exist_ok=True)
        with _ended_by_sigterm(), _work_folder(target) as work:
            fresh = work / _FRESH
            fresh.mkdir()
            yield fresh
            # Check again: other files may have been added while the new folder was written.
            require_replaceable(folder)
            old = work / _OLD
            try:
                # Two atomic renames: at any moment the old or the new folder is complete.
                if target.exists():
                    target.rename(old)
                fresh.rename(target)
            except BaseException:
                if old.exists() and not target.exists():
                    old.rename(target)
                raise
    except OSError as error:
        raise CompileError(f"The bundle cannot be written: {error}.", str(folder)) from None


def require_replaceable(path: str | Path) -> None:
    """Raise ``CompileError`` for a path that must not be replaced: a file, or a folder with other files in it."""
    name = str(path)
    require_name(os.fspath(path))
    folder = Path(os.path.realpath(path))
    outer = next((each for each in folder.parents if each.exists()), None)
    if outer is not None and not outer.is_dir():
        raise CompileError(f"The folder cannot be made, because '{outer.name}' is a file.", name)
    if not folder.exists():
        return
    if not folder.is_dir():
        raise CompileError("A bundle is a folder, but there is a file with this name.", name)
    if any(folder.iterdir()) and not any((folder / program).is_file() for program in _PROGRAMS):
        text = "The folder is not empty and holds no bundle, so it is left alone; name another folder."
        raise CompileError(text, name)
    foreign = _foreign(folder)
    if foreign is not None:
        text = (
            f"The folder holds '{foreign.relative_to(folder)}' in addition to a bundle, so it is left alone"
        )
        raise CompileError(f"{text}; move that away, or name another folder.", name)


def _foreign(folder: Path) -> Path | None:
    """Return a path in a folder that does not belong to a bundle; None if there is none."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            inside = _foreign(path) if _FOLDERS.fullmatch(path.name) else path
            if inside is not None:
                return inside
        elif not _FILES.fullmatch(path.name):
            return path
    return None


@contextlib.contextmanager
def _work_folder(target: Path) -> Iterator[Path]:
    """Yield a locked folder next to the target, removed at the end; first clean up folders of dead processes."""
    # One process at a time cleans up and makes a work folder, so a folder without a lock yet is never removed.
    with _locked(target.parent, wait=True):
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
        work = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=_SUFFIX))
        lock = contextlib.ExitStack()
        lock.enter_context(_locked(work))
    with lock:
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path, *, wait: bool = False) -> Iterator[bool]:
    """Lock a folder and yield whether the lock succeeded; on a file system without locks it never succeeds."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        is_locked = False
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            is_locked = True
        yield is_locked
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that unfinished work is cleaned up; an existing handler is kept."""
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
