# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The settings of a compilation that affect a program in addition to its source, as one text for the cache key.

The settings are the content of this package's code, the versions of its dependencies, the device, the pipeline options
with the content of the plan file, environment variables, the registered device operations, and user-defined algorithms.
User-defined passes in the pipeline, and a package that has changed since it was loaded, raise ``Uncached`` with the
reason.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import NamedTuple

from spyre_mlir.algorithms import REGISTRIES, Algorithm, foreign_modules, is_foreign_module
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
