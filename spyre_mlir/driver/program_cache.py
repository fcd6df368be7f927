# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cache on disk of ``compile`` and ``spyre-compile``: a program that was compiled before is read from a file.

The key of a program is the digest of the settings (``cache_settings.py``) and of its source: the MLIR text, or the text
of the captured graph of a PyTorch model (``frontend/capture_key.py``). An entry is data (``stored_program.py``) in a
folder that processes share (``CacheFolder``). A problem with an entry or with the folder is logged, and the program is
compiled. docs/cache.md is the manual.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from spyre_mlir import logs
from spyre_mlir.bundle.folder import write_arrays
from spyre_mlir.bundle.regular_files import read_stored_arrays
from spyre_mlir.driver.cache_settings import settings_text
from spyre_mlir.driver.program import Program
from spyre_mlir.driver.stored_program import StoredProgram
from spyre_mlir.errors import CompileError, Uncached
from spyre_mlir.pipelines import SpyrePipeline
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.buffers import PlanError

#: The topic of all log records about the cache.
TOPIC = "cache"

_SWITCH = {"": True, "1": True, "0": False}


@dataclass(frozen=True)
class ProgramCache:
    """The cache for one compilation; ``settings`` is the text of the settings when the compilation began."""

    pipeline: SpyrePipeline
    folder: CacheFolder
    settings: str

    @classmethod
    def open(cls, pipeline: SpyrePipeline, is_enabled: bool | None) -> ProgramCache | None:
        """Return the cache; None if ``is_enabled`` or SPYRE_CACHE disables it, or the program cannot be cached."""
        if not (_is_on() if is_enabled is None else is_enabled):
            return None
        if logs.requested_topics() - {TOPIC}:
            tell_uncached("must run its passes for the requested log")
            return None
        try:
            return cls(pipeline, CacheFolder.of_environment(), settings_text(pipeline))
        except Uncached as reason:
            tell_uncached(str(reason))
        except (CompileError, PlanError):
            # The error is about a file that the options name; the compilation reports it again with its location.
            tell_uncached("has options that cannot be read")
        return None

    def key(self, *source: str) -> str:
        """Return the key for the settings and a source, given as several texts."""
        digest = hashlib.sha256()
        for text in (self.settings, *source):
            data = text.encode("utf-8", "surrogatepass")
            digest.update(b"%d\n" % len(data) + data)
        return digest.hexdigest()

    def serve(self, key: str, restore: Callable[[StoredProgram], Program | None]) -> Program | None:
        """Return the program that ``restore`` creates from an entry; None if the entry is missing or damaged."""
        begun = time.perf_counter()
        try:
            arrays = self.folder.read(key)
            program = None if arrays is None else restore(StoredProgram.of_arrays(key, arrays))
        # A damaged entry can raise any exception, depending on the damage.
        except Exception as error:
            _tell(logging.WARNING, f"The entry {key} of the cache is not used: {_reason(error)}.")
            return None
        if program is not None:
            seconds, first = time.perf_counter() - begun, program.compile_seconds + program.import_seconds
            _tell(
                logs.REMARK,
                f"The program is read from entry {key} of the cache in {seconds:.3f} s (compiled in {first:.3f} s); "
                "no pass runs.",
            )
        return program

    def keep(self, key: str, store: Callable[[], StoredProgram]) -> None:
        """Write the entry of a compiled program, unless the settings have changed during the compilation."""
        try:
            if settings_text(self.pipeline) != self.settings:
                tell_uncached("was compiled while its settings changed")
            elif not self.folder.write(key, store().to_arrays()):
                tell_uncached("is larger than the cache limit")
            else:
                _tell(logging.INFO, f"The program is now entry {key} of the cache.")
        except Uncached as reason:
            tell_uncached(str(reason))
        # The caller gets the compiled program even if it cannot be written to the cache.
        except Exception as error:
            _tell(logging.WARNING, f"The program is not written to the cache: {_reason(error)}.")


def tell_uncached(reason: str) -> None:
    """Log why a program is not cached; ``reason`` is a predicate of a sentence about the program."""
    _tell(logging.INFO, f"The program is not cached, because it {reason}.")


def _is_on() -> bool:
    text = os.environ.get("SPYRE_CACHE", "")
    if text not in _SWITCH:
        raise CompileError(f"The environment variable SPYRE_CACHE must be 0 or 1, not '{text}'.")
    return _SWITCH[text]


def _reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _tell(level: int, message: str) -> None:
    logs.tell(level, message, TOPIC, (TOPIC,))


# The cache folder: one file per program, with a bounded total size, shared by any number of processes.
#
# A file is written under a temporary name in the same folder and renamed, so a reader sees a complete file or none. A
# hit updates the file's time; if the folder exceeds its size, the least recently used files are removed. Unfinished
# files of killed processes are removed after an hour. An entry is a set of named arrays, without pickled objects; this
# section does not interpret them.

#: The name of the subfolder; a new format of the entries gets a new name, so that versions do not share entries.
_NAME = "programs-1"

_SUFFIX, _UNFINISHED = ".npz", ".writing"

#: Age in seconds at which an unfinished file is assumed to belong to a dead process.
_ABANDONED_SECONDS = 3600

#: Default of SPYRE_CACHE_SIZE: the size of all entries in mebibytes.
DEFAULT_MEBIBYTES = 1024


class CacheFolder:
    """Entries by key in a folder that is private to its owner; methods raise ``OSError`` if the system denies access.

    ``most_bytes`` is the limit for the total size of all entries.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder = folder / _NAME
        self.most_bytes = most_bytes

    @classmethod
    def of_environment(cls) -> CacheFolder:
        """Return the folder in SPYRE_CACHE_DIR, by default in the user's cache folder, limited by SPYRE_CACHE_SIZE."""
        default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spyre-mlir"
        folder = Path(os.environ.get("SPYRE_CACHE_DIR") or default)
        text = os.environ.get("SPYRE_CACHE_SIZE") or str(DEFAULT_MEBIBYTES)
        if not text.isdecimal():
            raise CompileError(
                f"The environment variable SPYRE_CACHE_SIZE must be a number of mebibytes, not '{text}'."
            )
        return cls(folder, int(text) << 20)

    def read(self, key: str) -> dict[str, NDArray[Any]] | None:
        """Return the arrays of an entry and mark it as used; None if missing, any exception if damaged."""
        path = self._path(key)
        if not os.path.lexists(path):
            return None
        self._require_private()
        if path.stat(follow_symlinks=False).st_size > self.most_bytes:
            raise ValueError("the entry is larger than the cache limit")
        arrays = read_stored_arrays(path)
        with contextlib.suppress(OSError):
            os.utime(path)
        return arrays

    def write(self, key: str, arrays: Mapping[str, NDArray[Any]]) -> bool:
        """Write or replace an entry; return False if it is too large to keep."""
        if sum(array.nbytes for array in arrays.values()) > self.most_bytes:
            return False
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._require_private()
        descriptor, name = tempfile.mkstemp(dir=self.folder, suffix=_UNFINISHED)
        os.close(descriptor)
        try:
            write_arrays(Path(name), arrays)
            os.replace(name, self._path(key))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        self._evict()
        return self._path(key).exists()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _require_private(self) -> None:
        """Raise ``PermissionError`` if other users may write to the folder: their programs would run as ours."""
        state = self.folder.stat()
        if state.st_uid != os.getuid() or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"others may write to '{self.folder}'")

    def _evict(self) -> None:
        """Remove the least recently used entries, until the rest is within the limit."""
        entries = sorted(self._entries(), key=lambda entry: -entry[1].st_mtime_ns)
        total = 0
        for path, state in entries:
            total += state.st_size
            if total > self.most_bytes:
                _remove(path)

    def _entries(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the files of entries and remove abandoned files; other processes may remove files concurrently."""
        abandoned = time.time() - _ABANDONED_SECONDS
        for entry in os.scandir(self.folder):
            with contextlib.suppress(FileNotFoundError):
                state = entry.stat(follow_symlinks=False)
                if entry.name.endswith(_SUFFIX):
                    yield entry.path, state
                elif entry.name.endswith(_UNFINISHED) and state.st_mtime < abandoned:
                    _remove(entry.path)


def _remove(path: str) -> None:
    """Remove a file, if it still exists."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
