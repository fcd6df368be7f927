# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The settings of a compilation that affect a program in addition to its source, as one text for the cache key.

The settings are the content of this package's code, the versions of its dependencies, the device, the pipeline options
with the content of the plan file, environment variables, the registered device operations, and user-defined algorithms
(``cache_algorithms.py``). User-defined passes in the pipeline, and a package that has changed since it was loaded,
raise ``Uncached`` with the reason.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from spyre_mlir.driver.cache_algorithms import algorithms_text
from spyre_mlir.errors import Uncached
from spyre_mlir.files import read_text
from spyre_mlir.passes.base import is_ours
from spyre_mlir.pipelines import SpyrePipeline
from spyre_mlir.target.ops import DEVICE_OPS
from spyre_mlir.target.target import default_target
from spyre_mlir.version import LOADED_NS, VERSION

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
    _refuse_passes_of_users(pipeline)
    target = default_target()
    lines = [
        code_text(),
        *(f"{name}={os.environ.get(name)}" for name in VARIABLES),
        repr(pipeline), repr(pipeline.target_from(target)), repr(target), _plan_text(pipeline), repr(DEVICE_OPS),
        algorithms,
    ]  # fmt: skip
    return "\n".join(lines)


def code_text() -> str:
    """Return the digest of this package, the versions of its dependencies and of Python; may raise ``Uncached``."""
    python = f"{sys.version} {platform.machine()} {sys.flags.optimize}"
    return "\n".join([VERSION, package_digest(), *_versions(), python])


def _refuse_passes_of_users(pipeline: SpyrePipeline) -> None:
    """Raise ``Uncached`` for a pipeline with a user-defined pass, whose code is not part of a key."""
    # Building the pipeline imports its passes, which would delay a program that comes from the cache.
    if not (pipeline.insert or pipeline.passes):
        return
    for step in pipeline.pipeline().steps:
        if step.ours is not None and not is_ours(type(step.ours)):
            raise Uncached(f"runs the pass '{step.name}', which is not of the compiler")


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
        raise Uncached(f"is compiled by a package that is no folder of files: {error.strerror}") from None


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


def _plan_text(pipeline: SpyrePipeline) -> str:
    """Return the content of the plan file in the options, or an empty string."""
    return read_text(pipeline.use_plan) if pipeline.use_plan else ""
