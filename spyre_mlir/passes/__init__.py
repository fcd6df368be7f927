# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The passes. Each has its own file, class and name: ``foo_bar.py`` contains ``FooBar``, the pass ``foo-bar``.

To add a pass, add a file; no list has to be edited. ``find`` imports the file of one pass by name,
``load_all`` imports every file of this folder.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from spyre_mlir.passes.base import PASSES, Pass

__all__ = ["PASSES", "Pass", "find", "load_all"]


def find(name: str) -> type[Pass] | None:
    """Return the class of the pass ``name``, importing its file if needed; None if the package has no such pass."""
    if name not in PASSES and name.replace("-", "_") in _modules():
        importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    return PASSES.get(name)


def load_all() -> dict[str, type[Pass]]:
    """Import every file of this folder and return all registered passes by name, in alphabetical order."""
    for module in _modules():
        importlib.import_module(f"{__name__}.{module}")
    return dict(sorted(PASSES.items()))


@functools.cache
def _modules() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))
