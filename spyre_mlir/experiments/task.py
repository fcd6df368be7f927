# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A point of an experiment as data, and its compilation in a worker process."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import sys
import threading
import time
import warnings
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from spyre_mlir.algorithms import REGISTRIES
from spyre_mlir.api import compile
from spyre_mlir.driver.program_cache import code_of, code_text
from spyre_mlir.errors import AlgorithmError, CompileError, Uncached, brief
from spyre_mlir.experiments.program_sources import ProgramSource
from spyre_mlir.faults import InternalError, faults_reported
from spyre_mlir.files import read_text
from spyre_mlir.loading import error_of_file, load
from spyre_mlir.records import dataclass
from spyre_mlir.target.target import Target, compiling_for

#: Why a point has no figures: the compiler rejected it, an exception was raised, or its workers died.
REFUSED, FAILED, LOST = "refused", "failed", "lost"

#: The number of programs that a worker keeps loaded; points are ordered by program.
_LOADED_PROGRAMS = 4

#: Lock for one compilation at a time per process: MLIR, PyTorch's export and warnings are not thread-safe.
_LOCK = threading.Lock()


@dataclass(frozen=True)
class UserFile:
    """A user-written Python file that workers import, with the digest of its content."""

    path: str
    digest: str

    @classmethod
    def read(cls, path: str) -> UserFile:
        """Read the file; raise ``CompileError`` if it cannot be read."""
        return cls(path, hashlib.sha256(read_text(path).encode("utf-8", "surrogatepass")).hexdigest())


@dataclass(frozen=True)
class Outcome:
    """The figures of a point, or the text and the kind of its error; seconds are the time of the compilation."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    kind: str = ""
    wall_s: float = 0.0
    cpu_s: float = 0.0


@dataclass(frozen=True)
class SweepTask:
    """A point: the program, all device tables as JSON, the keywords of ``compile``, and files to import.

    The result depends on nothing else: options with defaults from the environment are always among the ``options``.
    ``code`` is the digest of the compiler and its dependencies. ``algorithms`` is the digest of user-defined
    algorithms that the options name and that are not in the files.
    """

    source: ProgramSource
    device: str
    options: tuple[tuple[str, Any], ...]
    load: tuple[UserFile, ...]
    code: str
    algorithms: str = ""

    @functools.cached_property
    def key(self) -> str:
        """The digest of the content of the point."""
        content = [
            self.source.digest,
            self.device,
            self.options,
            [file.digest for file in self.load],
            self.code,
            self.algorithms,
        ]
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()


def code_digest() -> str:
    """Return the digest of the compiler; raise ``CompileError`` if its files have changed since it was loaded."""
    try:
        return hashlib.sha256(code_text().encode()).hexdigest()
    except Uncached as reason:
        raise CompileError(f"A program of the sweep {reason}.") from None


def algorithms_digest(device: str, options: tuple[tuple[str, Any], ...], files: tuple[UserFile, ...]) -> str:
    """Return the digest of the user-defined algorithms that a point names, e.g. from entry points; empty without any.

    Algorithms in ``files`` are skipped. Raise ``CompileError`` if the code of an algorithm is not a file, or has
    changed since it was loaded.
    """
    names = {
        "cost_model": json.loads(device).get("program", {}).get("cost_model"),
        **{option: name for option, name in options if option in REGISTRIES and name},
    }
    paths = frozenset(file.path for file in files)
    return "".join(_algorithm_digest(option, name, paths) for option, name in sorted(names.items()) if name)


@functools.lru_cache(maxsize=256)
def _algorithm_digest(option: str, name: str, paths: frozenset[str]) -> str:
    cls = REGISTRIES[option].find(name)
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if not cls.is_foreign() or (file and str(Path(file).resolve()) in paths):
        return ""
    try:
        return f"{option} {code_of(cls)}\n"
    except Uncached as reason:
        raise CompileError(f"A program of the sweep {reason}; give the file as 'load'.") from None


def run_task(task: SweepTask) -> Outcome:
    """Compile a point; raise ``CompileError`` if files or code differ from the process that started the sweep."""
    with _LOCK:
        _check_code(task.code)
        try:
            for file in task.load:
                import_file(file)
            if algorithms_digest(task.device, task.options, task.load) != task.algorithms:
                raise _OtherFilesError("An algorithm of the sweep differs on a worker.")
            program = _loaded(task.source)
        except _OtherFilesError as error:
            raise CompileError(str(error)) from None
        except Exception as error:
            return _failure(error)
        return _compiled(task, program)


class _OtherFilesError(Exception):
    """A file differs from the file in the key of the point."""


@functools.lru_cache(maxsize=4)
def _check_code(code: str) -> None:
    if code != code_digest():
        raise CompileError(
            "A worker runs another version of spyre-mlir, of its packages or of Python than the sweep; install the "
            "same on all machines."
        )


@functools.lru_cache(maxsize=64)
def import_file(file: UserFile) -> None:
    """Import a user file, once per process."""
    if UserFile.read(file.path) != file:
        raise _OtherFilesError(f"The file '{file.path}' changed while the sweep ran, or differs on a worker.")
    load(file.path)


@functools.lru_cache(maxsize=_LOADED_PROGRAMS)
def _loaded(source: ProgramSource) -> tuple[Any, Any]:
    if source.current_digest() != source.digest:
        raise _OtherFilesError(
            f"The files of the program '{source.label}' changed while the sweep ran, or differ on a worker."
        )
    return source.load()


def _compiled(task: SweepTask, program: tuple[Any, Any]) -> Outcome:
    model, inputs = program
    options = dict(task.options)
    if options.get("plan") is not None:
        options["plan"] = json.loads(options["plan"])
    begun, processor_begun = time.perf_counter(), time.process_time()
    outcome = Outcome()
    try:
        # The device tables of a point may be inconsistent, which is an error of this point only.
        target = Target.of_sections(json.loads(task.device), "the device of the point")
        with faults_reported(always=True), compiling_for(target), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = compile(model, inputs, **options)
            metrics = getattr(compiled, "metrics", None)
            if metrics is None:
                raise CompileError("A model that is compiled in pieces has no figures before it is called.")
            outcome = Outcome(metrics())
    except Exception as error:
        outcome = _failure(error)
    seconds = time.perf_counter() - begun, time.process_time() - processor_begun
    return Outcome(outcome.metrics, outcome.error, outcome.kind, *seconds)


def _failure(error: Exception) -> Outcome:
    # stderr is discarded, because ``error_of_file`` would print a traceback for each point.
    is_told = isinstance(error, CompileError)
    with contextlib.redirect_stderr(io.StringIO()):
        of_file = None if is_told else error_of_file(error)
    # An error in a user-defined algorithm or in the compiler is a failure, not a rejection of the program.
    kind = REFUSED if is_told and not isinstance(error, AlgorithmError | InternalError) else FAILED
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    text = str(error) if is_told else brief(f"{type(error).__name__}{notes}: {error}")
    text = (text if of_file is None else str(of_file)).removeprefix("error: ")
    # Replace lone surrogates, which cannot be written to a file.
    return Outcome(error=text.encode("utf-8", "replace").decode(), kind=kind)
