# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""User-defined algorithms in the key of the cache: their code counts by content, like the compiler's own code.

The code of an algorithm is the module that defines it and every module that it imports, at the top or in a function.
An installed package other than the algorithm's own counts by its version; data files do not count. A module without a
file, as in a notebook, and a file that changed after Python started raise ``Uncached`` with the reason.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

from spyre_mlir import version
from spyre_mlir.algorithms import REGISTRIES, Algorithm, foreign_modules, is_foreign_module
from spyre_mlir.errors import Uncached
from spyre_mlir.pipelines import SpyrePipeline

#: Folder names in the path of an installed package.
_INSTALLED = frozenset({"site-packages", "dist-packages"})

#: A file counts as changed after the start if it changed up to this long (ns) before: file clocks are coarse.
_MARGIN_NS = 10**9


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
    """Return the digest of the modules of a user-defined algorithm; ``Uncached`` if the code is unavailable."""
    noun = cls.registry.noun
    digest, waiting, known = hashlib.sha256(), foreign_modules(cls), set[str]()
    packages = {name.partition(".")[0] for name in waiting}
    while waiting:
        name = waiting.pop(0)
        path = None if name in known else _file_of(name)
        known.add(name)
        if path is None:
            if name in foreign_modules(cls):
                raise Uncached(f"may run the {noun} '{cls.name}', whose code is no file")
            continue
        package = name.partition(".")[0]
        if package not in packages and _INSTALLED & set(path.parts):
            digest.update(f"{package} {getattr(sys.modules.get(package), '__version__', None)}\n".encode())
            continue
        data = _content(path, noun, cls)
        digest.update(f"{name} {len(data)}\n".encode() + data)
        waiting += _imports(data, name)
    return digest.hexdigest()


def _content(path: Path, noun: str, cls: type[Algorithm]) -> bytes:
    try:
        changed_ns, data = path.stat().st_ctime_ns, path.read_bytes()
    except OSError:
        raise Uncached(f"may run the {noun} '{cls.name}', whose file '{path}' cannot be read") from None
    if changed_ns > version.LOADED_NS - _MARGIN_NS:
        text = f"may run the {noun} '{cls.name}', which may be older than its file '{path}'"
        raise Uncached(f"{text}; start Python again")
    return data


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
def _imports(data: bytes, name: str) -> tuple[str, ...]:
    """Return the names of the modules that a module imports; ``from a import b`` gives a and a.b, a possible module."""
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError):
        return ()
    return tuple(dict.fromkeys(_names(tree, name)))


def _names(tree: ast.AST, name: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = name.split(".")[: -node.level] if node.level else []
            base = ".".join([*parts, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
