# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The source files of a user-defined function: its module, and all modules that the module imports.

Files are read, not run. Files of Python and of installed packages do not count, except for the package of the function.
Files that are not Python, such as weights, do not count either.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sysconfig
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

#: Folders of Python and of installed packages, whose files do not count.
_INSTALLED = tuple(
    {Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def module_file(name: str) -> Path | None:
    """Return the source file of a module without importing it; None if there is no such file."""
    spec = _spec(name)
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None


def source_digest(name: str) -> str:
    """Return the digest of the source files of a module and of the modules that it imports."""
    digest = hashlib.sha256()
    for module, data in sorted(_sources(name).items()):
        digest.update(f"{module} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def bound_names(text: str) -> set[str] | None:
    """Return the names that the text of a module binds; None if they cannot be determined from the text."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return None if names & {"*", "__getattr__"} else names


def _spec(name: str) -> ModuleSpec | None:
    """Find the spec of a module without importing its parent packages."""
    top, *rest = name.split(".")
    below = top
    try:
        spec = importlib.util.find_spec(top)
        locations = _locations(spec)
        for part in rest:
            below = f"{below}.{part}"
            try:
                spec = PathFinder.find_spec(below, locations)
                locations = _locations(spec)
            # A namespace package looks up its parent in sys.modules, which does not have it before an import.
            except KeyError:
                spec = None
                locations = [str(Path(folder, part)) for folder in locations if Path(folder, part).is_dir()]
    except (ImportError, ValueError):
        return None
    return spec


def _locations(spec: ModuleSpec | None) -> list[str]:
    """Return the folders of a package; empty for a module."""
    found = spec and spec.submodule_search_locations
    return list(getattr(found, "_path", found) or ())


def _sources(root: str) -> dict[str, bytes]:
    """Return, by module name, the texts of a module, of its parent packages and of all modules that they import."""
    sources: dict[str, bytes] = {}
    pending = [root]
    while pending:
        module = pending.pop()
        file = module_file(module)
        if module in sources or file is None or not _counts(module, file, root):
            continue
        sources[module] = file.read_bytes()
        package = module if file.name == "__init__.py" else module.rpartition(".")[0]
        pending += _imported(sources[module], package)
        pending += [module.rpartition(".")[0]] if "." in module else []
    return sources


def _counts(module: str, file: Path, root: str) -> bool:
    top = module.partition(".")[0]
    # The code of this package is already part of every key.
    if top == "spyre_mlir":
        return False
    return top == root.partition(".")[0] or not any(
        file.resolve().is_relative_to(folder) for folder in _INSTALLED
    )


def _imported(source: bytes, package: str) -> Iterator[str]:
    """Yield the names of the modules that a text imports; ``from a import b`` gives a and a.b, a possible module."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            if module:
                yield module
                yield from (f"{module}.{alias.name}" for alias in node.names)
