# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The passes: one file, one class, one name each; ``foo_bar.py`` holds ``FooBar``, the pass ``foo-bar``.

A new file is a new pass: there is no list to edit. ``find`` imports one file by the name of its pass,
``load_all`` imports every file of this folder.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from spyre_mlir.passes.base import PASSES, Pass

__all__ = ["PASSES", "Pass", "find", "load_all"]


def find(name: str) -> type[Pass] | None:
    """Return the class of the pass ``name`` and import its file if needed; None where the package has no such pass."""
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
