# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cache on disk of ``compile`` and ``spyre-compile``: a program that was compiled before is read, not compiled.

The key of a program is the digest of the settings (``cache_settings.py``) and of its source: the text of MLIR, or that
of the captured graph of a PyTorch model (``frontend/capture_key.py``). An entry is data (``stored_program.py``) in a
folder that several processes share (``cache_folder.py``). What is wrong with an entry or with the folder is a line of
the log; the program is then compiled. docs/cache.md is the manual.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable

from spyre_mlir import logs
from spyre_mlir.driver.cache_folder import CacheFolder
from spyre_mlir.driver.cache_settings import settings_text
from spyre_mlir.driver.program import Program
from spyre_mlir.driver.stored_program import StoredProgram
from spyre_mlir.errors import CompileError, Uncached
from spyre_mlir.pipelines import SpyrePipeline
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.buffers import PlanError

#: The topic of all lines of the log about the cache.
TOPIC = "cache"

_SWITCH = {"": True, "1": True, "0": False}


@dataclass(frozen=True)
class ProgramCache:
    """The cache for compilations with one pipeline; ``settings`` are those when the compilation began."""

    pipeline: SpyrePipeline
    folder: CacheFolder
    settings: str

    @classmethod
    def open(cls, pipeline: SpyrePipeline, is_enabled: bool | None) -> ProgramCache | None:
        """Return the cache; None if it is off, by ``is_enabled`` or else SPYRE_CACHE, or has no place for a program."""
        if not (_is_on() if is_enabled is None else is_enabled):
            return None
        if logs.requested_topics() - {TOPIC}:
            tell_uncached("has to run its passes, for the log is asked about them")
            return None
        try:
            return cls(pipeline, CacheFolder.of_environment(), settings_text(pipeline))
        except Uncached as reason:
            tell_uncached(str(reason))
        except (CompileError, PlanError):
            # Of a file that the options name: the compilation reports it at its place.
            tell_uncached("has options that cannot be read")
        return None

    def key(self, *source: str) -> str:
        """Return the key of a source, whose parts are texts."""
        digest = hashlib.sha256()
        for text in (self.settings, *source):
            data = text.encode("utf-8", "surrogatepass")
            digest.update(b"%d\n" % len(data) + data)
        return digest.hexdigest()

    def serve(self, key: str, restore: Callable[[StoredProgram], Program | None]) -> Program | None:
        """Return what ``restore`` makes of the entry of a key; None without one, or if it is damaged."""
        begun = time.perf_counter()
        try:
            arrays = self.folder.read(key)
            program = None if arrays is None else restore(StoredProgram.of_arrays(key, arrays))
        # What a damaged entry raises depends on where the damage is.
        except Exception as error:
            _tell(logging.WARNING, f"The entry {key} of the cache is not used: {_reason(error)}.")
            return None
        if program is not None:
            seconds, first = time.perf_counter() - begun, program.compile_seconds + program.import_seconds
            _tell(
                logs.REMARK,
                f"The program is that of entry {key} of the cache, read in {seconds:.3f} s and compiled before in "
                f"{first:.3f} s; no pass runs.",
            )
        return program

    def keep(self, key: str, store: Callable[[], StoredProgram]) -> None:
        """Write an entry for a program that was compiled, unless the settings have changed meanwhile."""
        try:
            if settings_text(self.pipeline) != self.settings:
                tell_uncached("was compiled while its settings changed")
            elif not self.folder.write(key, store().to_arrays()):
                tell_uncached("is larger than the cache may be")
            else:
                _tell(logging.INFO, f"The program is now entry {key} of the cache.")
        except Uncached as reason:
            tell_uncached(str(reason))
        # A program is what the caller wants, whatever keeps it from being an entry.
        except Exception as error:
            _tell(logging.WARNING, f"The program is not written to the cache: {_reason(error)}.")


def tell_uncached(reason: str) -> None:
    """Log why a program is not in the cache, as the rest of a sentence."""
    _tell(logging.INFO, f"The cache has no place for the program, which {reason}.")


def _is_on() -> bool:
    text = os.environ.get("SPYRE_CACHE", "")
    if text not in _SWITCH:
        raise CompileError(f"The environment variable SPYRE_CACHE must be 0 or 1, not '{text}'.")
    return _SWITCH[text]


def _reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _tell(level: int, message: str) -> None:
    logs.tell(level, message, TOPIC, (TOPIC,))
