# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Settings of a compilation that decide about a program beside its source, as one text for the key of the cache.

They are the code of this package by its content, the versions of what it is built on, the device, the options of the
pipeline with the plan file that they name, the environment, the device operations that are defined, and the algorithms
of the user (``cache_algorithms.py``). Passes of the user that take part, or a package that has changed since it was
loaded, are no text: ``Uncached`` says why.
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

#: Variables of the environment that change programs; the other ones that the package reads do not.
VARIABLES = (
    "SPYRE_DEVICE", "SENCORES", "DXP_LX_FRAC_AVAIL", "LX_PLANNING", "CO_OPTIMIZING_LX_PLANNING", "CO_OPTIMIZER",
    "LAYOUT_SOLVER",
)  # fmt: skip

#: Packages whose versions change programs, installed or not.
_PACKAGES = ("torch-mlir", "torch", "numpy", "numba", "ortools", "scipy", "transformers")

_PACKAGE = Path(__file__).parents[1]
_SUFFIXES = (".py", ".toml", ".json")

#: Nanoseconds before the package was loaded in which a file counts as changed since: clocks of files are coarse.
_MARGIN_NS = 10**9


class _File(NamedTuple):
    """State of a file of the package; the time of change cannot be set back, as that of modification can."""

    path: str
    size: int
    modified_ns: int
    changed_ns: int


def settings_text(pipeline: SpyrePipeline) -> str:
    """Return the text of all settings; ``Uncached`` if there is none."""
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
    """Return the text of the code: this package, what it is built on, and Python; ``Uncached`` if there is none."""
    python = f"{sys.version} {platform.machine()} {sys.flags.optimize}"
    return "\n".join([VERSION, package_digest(), *_versions(), python])


def _refuse_passes_of_users(pipeline: SpyrePipeline) -> None:
    """``Uncached`` for a pipeline with a pass that is not of the compiler, whose code no key has."""
    # A served program is not to wait for the passes of the pipeline, which are imported when it is made.
    if not (pipeline.insert or pipeline.passes):
        return
    for step in pipeline.pipeline().steps:
        if step.ours is not None and not is_ours(type(step.ours)):
            raise Uncached(f"runs the pass '{step.name}', which is not of the compiler")


def package_digest() -> str:
    """Return the digest of the code of this package; ``Uncached`` if it changed since it was loaded.

    A process that runs long has the code that it loaded, which the files no longer are after an edit.
    """
    files = tuple(_files(str(_PACKAGE)))
    newest = max(files, key=lambda file: file.changed_ns, default=None)
    if newest is None or newest.changed_ns > LOADED_NS - _MARGIN_NS:
        changed = newest.path if newest else "the package"
        raise Uncached(f"is compiled by a process that may be older than '{changed}'; start Python again")
    return _digest_of(files)


@functools.lru_cache(maxsize=2)
def _digest_of(files: tuple[_File, ...]) -> str:
    """Return the digest of the contents of files, of which a process needs one while they are as they were."""
    digest = hashlib.sha256()
    for file in files:
        path = Path(file.path)
        digest.update(f"{path.relative_to(_PACKAGE)} {file.size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _files(folder: str) -> Iterator[_File]:
    """Yield all files of code and data of a folder, in the order of their names."""
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
    """Return the versions of the packages; those that are not installed have none."""
    versions = []
    for name in _PACKAGES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{name} -")
    return tuple(versions)


def _plan_text(pipeline: SpyrePipeline) -> str:
    """Return the content of the plan file that has to hold."""
    return read_text(pipeline.use_plan) if pipeline.use_plan else ""
