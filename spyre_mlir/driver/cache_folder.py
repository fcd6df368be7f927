# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The folder of the cache on disk: one file per program, bounded in its size, shared by any number of processes.

A file is written beside the others under a name of its own and renamed, so a reader has all of it or none. A hit sets
its time; the files that were used longest ago go first when the folder is larger than it may be. What a process left
that was killed goes after an hour. Nothing here knows what an entry says: it is arrays by name, no pickled objects.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from spyre_mlir.bundle.folder import write_arrays
from spyre_mlir.bundle.regular_files import read_stored_arrays
from spyre_mlir.errors import CompileError

#: Another form of the entries is another folder, so that versions do not read each other's.
_NAME = "programs-1"

_SUFFIX, _UNFINISHED = ".npz", ".writing"

#: Seconds after which a file that nobody finished is that of a process that is dead.
_ABANDONED_SECONDS = 3600

#: Mebibytes of all entries where SPYRE_CACHE_SIZE does not say so.
DEFAULT_MEBIBYTES = 1024


class CacheFolder:
    """Entries by key in a folder that only its owner may read; ``OSError`` where the system refuses.

    ``most_bytes`` is what all entries may take together.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder = folder / _NAME
        self.most_bytes = most_bytes

    @classmethod
    def of_environment(cls) -> CacheFolder:
        """Return the folder of SPYRE_CACHE_DIR and SPYRE_CACHE_SIZE, or that of the user's caches."""
        default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spyre-mlir"
        folder = Path(os.environ.get("SPYRE_CACHE_DIR") or default)
        text = os.environ.get("SPYRE_CACHE_SIZE") or str(DEFAULT_MEBIBYTES)
        if not text.isdecimal():
            raise CompileError(
                f"The environment variable SPYRE_CACHE_SIZE must be a number of mebibytes, not '{text}'."
            )
        return cls(folder, int(text) << 20)

    def read(self, key: str) -> dict[str, NDArray[Any]] | None:
        """Return the arrays of an entry, which is now the last used; None without one, some exception if damaged."""
        path = self._path(key)
        if not os.path.lexists(path):
            return None
        self._require_private()
        if path.stat(follow_symlinks=False).st_size > self.most_bytes:
            raise ValueError("the entry is larger than the cache may be")
        arrays = read_stored_arrays(path)
        with contextlib.suppress(OSError):
            os.utime(path)
        return arrays

    def write(self, key: str, arrays: Mapping[str, NDArray[Any]]) -> bool:
        """Write an entry, in place of one that is there; return False for one that is too large to keep."""
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
        """Raise ``PermissionError`` for a folder to which others may write: programs of theirs would run as ours."""
        state = self.folder.stat()
        if state.st_uid != os.getuid() or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"others may write to '{self.folder}'")

    def _evict(self) -> None:
        """Remove the entries that were used longest ago, until the rest is small enough."""
        entries = sorted(self._entries(), key=lambda entry: -entry[1].st_mtime_ns)
        total = 0
        for path, state in entries:
            total += state.st_size
            if total > self.most_bytes:
                _remove(path)

    def _entries(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the files of entries; other processes may remove any of them meanwhile."""
        abandoned = time.time() - _ABANDONED_SECONDS
        for entry in os.scandir(self.folder):
            with contextlib.suppress(FileNotFoundError):
                state = entry.stat(follow_symlinks=False)
                if entry.name.endswith(_SUFFIX):
                    yield entry.path, state
                elif entry.name.endswith(_UNFINISHED) and state.st_mtime < abandoned:
                    _remove(entry.path)


def _remove(path: str) -> None:
    """Remove a file, unless another process was faster."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
