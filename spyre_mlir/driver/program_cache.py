# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cache on disk of ``compile`` and ``spyre-compile``: a program that was compiled before is read from a file.

The key of a program is the digest of the settings (``program_cache.py``) and of its source: the MLIR text, or the text
of the captured graph of a PyTorch model (``frontend/capture_key.py``). An entry is data (``stored_program.py``) in a
folder that processes share (``CacheFolder``). A problem with an entry or with the folder is logged, and the program is
compiled. docs/cache.md is the manual.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import logging
import os
import platform
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from spyre_mlir import logs
from spyre_mlir.algorithms import REGISTRIES, Algorithm, foreign_modules, is_foreign_module
from spyre_mlir.bundle.folder import write_arrays
from spyre_mlir.bundle.regular_files import read_stored_arrays
from spyre_mlir.driver.program import Program
from spyre_mlir.driver.stored_program import StoredProgram
from spyre_mlir.errors import CompileError, Uncached
from spyre_mlir.files import read_text
from spyre_mlir.passes.base import is_ours
from spyre_mlir.pipelines import SpyrePipeline
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.buffers import PlanError
from spyre_mlir.target.ops import DEVICE_OPS
from spyre_mlir.target.target import default_target
from spyre_mlir.version import LOADED_NS, VERSION

# The settings of a compilation that affect a program in addition to its source, as one text for the cache key.
#
# The settings are the content of this package's code, the versions of its dependencies, the device, the pipeline
# options with the content of the plan file, environment variables, the registered device operations, and user-defined
# algorithms. User-defined passes in the pipeline, and a package that has changed since it was loaded, raise
# ``Uncached`` with the reason.

#: Environment variables that affect programs; the other variables that the package reads do not.
VARIABLES = (
    "SPYRE_DEVICE", "SENCORES", "DXP_LX_FRAC_AVAIL", "LX_PLANNING", "CO_OPTIMIZING_LX_PLANNING", "CO_OPTIMIZER",
    "LAYOUT_SOLVER",
)  # fmt: skip

#: Packages whose versions affect programs, installed or not.
_PACKAGES = ("torch-mlir", "torch", "numpy", "numba", "ortools", "scipy", "transformers")

_PACKAGE = Path(__file__).parents[1]
_SUFFIXES = (".py", ".toml", ".json")

#: A file counts as changed after loading if it changed up to this long (ns) before: file clocks are coarse.
_MARGIN_NS = 10**9


class _File(NamedTuple):
    """State of a file of the package; the change time (ctime) cannot be set back, but the modification time can."""

    path: str
    size: int
    modified_ns: int
    changed_ns: int


def settings_text(pipeline: SpyrePipeline) -> str:
    """Return the text of all settings; raise ``Uncached`` if a setting cannot be expressed as text."""
    if pipeline.save_plan is not None:
        raise Uncached("writes a plan file")
    algorithms = algorithms_text(pipeline)
    # Building the pipeline imports its passes, which would delay a program that comes from the cache.
    for step in pipeline.pipeline().steps if pipeline.insert or pipeline.passes else ():
        # A key does not cover the code of user-defined passes.
        if step.ours is not None and not is_ours(type(step.ours)):
            raise Uncached(f"runs the user-defined pass '{step.name}'")
    target = default_target()
    lines = [
        code_text(),
        *(f"{name}={os.environ.get(name)}" for name in VARIABLES),
        repr(pipeline), repr(pipeline.target_from(target)), repr(target),
        read_text(pipeline.use_plan) if pipeline.use_plan else "", repr(DEVICE_OPS),
        algorithms,
    ]  # fmt: skip
    return "\n".join(lines)


def code_text() -> str:
    """Return the digest of this package, the versions of its dependencies and of Python; may raise ``Uncached``."""
    python = f"{sys.version} {platform.machine()} {sys.flags.optimize}"
    return "\n".join([VERSION, package_digest(), *_versions(), python])


def package_digest() -> str:
    """Return the digest of the code of this package; raise ``Uncached`` if a file changed since it was loaded.

    After an edit, a running process still has the code that it loaded, which differs from the files.
    """
    files = tuple(_files(str(_PACKAGE)))
    newest = max(files, key=lambda file: file.changed_ns, default=None)
    if newest is None or newest.changed_ns > LOADED_NS - _MARGIN_NS:
        changed = newest.path if newest else "the package"
        raise Uncached(f"is compiled by a process that may be older than '{changed}'; start Python again")
    return _digest_of(files)


@functools.lru_cache(maxsize=2)
def _digest_of(files: tuple[_File, ...]) -> str:
    """Return the digest of the contents of files; cached for as long as the states of the files are unchanged."""
    digest = hashlib.sha256()
    for file in files:
        path = Path(file.path)
        digest.update(f"{path.relative_to(_PACKAGE)} {file.size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _files(folder: str) -> Iterator[_File]:
    """Yield all code and data files of a folder and its subfolders, sorted by name."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        for entry in entries:
            if entry.name.endswith(_SUFFIXES):
                state = entry.stat()
                yield _File(entry.path, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _files(entry.path)
    except OSError as error:
        raise Uncached(f"is compiled by a package that is not a directory: {error.strerror}") from None


@functools.cache
def _versions() -> tuple[str, ...]:
    """Return the version of each package, "-" for a package that is not installed."""
    versions = []
    for name in _PACKAGES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{name} -")
    return tuple(versions)


# User-defined algorithms: their code counts by content, like the compiler's own code.
#
# The code of an algorithm is the module that defines it and every module that it imports, at the top or in a function.
# An installed package other than the algorithm's own counts by its version; data files do not count. A module without a
# file, as in a notebook, and a file that changed after Python started raise ``Uncached`` with the reason.

#: Folder names in the path of an installed package.
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def algorithms_text(pipeline: SpyrePipeline) -> str:
    """Return kinds, names and code digests of all user-defined algorithms; ``Uncached`` if code is unavailable."""
    # This registers the algorithms of entry points that the options name.
    pipeline.require_algorithms()
    REGISTRIES["layout_solver"].require(pipeline.layout_solver)
    return "\n".join(
        f"{registry.noun} {name} {cls.__module__}.{cls.__qualname__} {code_of(cls)}"
        for _, registry in sorted(REGISTRIES.items())
        for name, cls in sorted(registry.classes.items())
        if cls.is_foreign()
    )


def code_of(cls: type[Algorithm]) -> str:
    """Return the digest of the modules that define an algorithm; ``Uncached`` if the code is unavailable."""
    noun = cls.registry.noun
    digest, waiting, known = hashlib.sha256(), foreign_modules(cls), set[str]()
    packages = {name.partition(".")[0] for name in waiting}
    while waiting:
        name = waiting.pop(0)
        path = None if name in known else _file_of(name)
        known.add(name)
        if path is None:
            if name in foreign_modules(cls):
                raise Uncached(f"may run the {noun} '{cls.name}', whose code is not in a file")
            continue
        package = name.partition(".")[0]
        if package not in packages and _INSTALLED & set(path.parts):
            digest.update(f"{package} {getattr(sys.modules.get(package), '__version__', None)}\n".encode())
            continue
        try:
            changed_ns, data = path.stat().st_ctime_ns, path.read_bytes()
        except OSError:
            raise Uncached(f"may run the {noun} '{cls.name}', whose file '{path}' cannot be read") from None
        if changed_ns > LOADED_NS - _MARGIN_NS:
            text = f"may run the {noun} '{cls.name}', which may be older than its file '{path}'"
            raise Uncached(f"{text}; start Python again")
        digest.update(f"{name} {len(data)}\n".encode() + data)
        waiting += imported_modules(data, name if path.name == "__init__.py" else name.rpartition(".")[0])
    return digest.hexdigest()


def _file_of(name: str) -> Path | None:
    """Return the source file of a module, imported or not; None without one, and for the compiler and Python itself."""
    if not is_foreign_module(name):
        return None
    module = sys.modules.get(name)
    try:
        spec: ModuleSpec | None = getattr(module, "__spec__", None) or importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    origin = getattr(module, "__file__", None) or (
        spec.origin if spec is not None and spec.has_location else None
    )
    return Path(origin).resolve() if origin else None


@functools.lru_cache(maxsize=256)
def imported_modules(source: bytes, package: str) -> tuple[str, ...]:
    """Return the names of the modules that a module in ``package`` imports, at the top or in a function.

    ``from a import b`` gives a and a.b, which may be a module. A text that is not Python imports nothing.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            if module:
                names += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return tuple(dict.fromkeys(names))


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
        folder = CacheFolder.of_environment()
        try:
            return cls(pipeline, folder, settings_text(pipeline))
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
        # Remove the least recently used entries, until the rest is within the limit.
        entries = sorted(self._entries(), key=lambda entry: -entry[1].st_mtime_ns)
        total = 0
        for path, state in entries:
            total += state.st_size
            if total > self.most_bytes:
                _remove(path)
        return self._path(key).exists()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _require_private(self) -> None:
        """Raise ``PermissionError`` if other users may write to the folder: their programs would run as ours."""
        state = self.folder.stat()
        if state.st_uid != os.getuid() or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"others may write to '{self.folder}'")

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
