# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch-spyre without a card: scripts, tests and models of torch-spyre run unchanged on the simulated device. ::

    python -m spyre_mlir.torch_spyre script.py ARGUMENTS
    python -m spyre_mlir.torch_spyre -m pytest tests/

``install()`` does the same for a process: after the call, ``import torch_spyre`` imports the package ``public``. The
package has the names of torch-spyre's public interface, written from its documents and from what public programs
import. Nothing is copied. If torch-spyre is installed, ``install()`` raises an error and changes nothing.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from spyre_mlir.errors import CompileError

_NAME = "torch_spyre"
_PACKAGE = "spyre_mlir.torch_spyre.public"


class SimulatedDeviceWarning(UserWarning):
    """The device of torch-spyre is simulated; issued once per process."""


class _Loader(importlib.abc.Loader):
    """Loads a module of the package ``public`` as a module of torch-spyre."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        self._module = importlib.import_module(_PACKAGE + spec.name.removeprefix(_NAME))
        self._spec = self._module.__spec__
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its specification back: it has been executed under its own name."""
        module.__spec__ = self._spec


class _Finder(importlib.abc.MetaPathFinder):
    """Finds ``torch_spyre`` and its modules in the package ``public``."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != _NAME:
            return None
        found = importlib.util.find_spec(_PACKAGE + name.removeprefix(_NAME))
        if found is None:
            return None
        is_package = found.submodule_search_locations is not None
        return importlib.machinery.ModuleSpec(name, _Loader(), is_package=is_package)


def install() -> None:
    """Make ``import torch_spyre`` import the names of this package.

    Raises:
        CompileError: torch-spyre is installed.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    if _NAME in sys.modules or importlib.util.find_spec(_NAME) is not None:
        raise CompileError(
            "The package torch-spyre is installed, and this package does not replace it; "
            "use an environment without torch-spyre."
        )
    # First: the finder of files would load the modules a second time, from the folder of their package.
    sys.meta_path.insert(0, _Finder())
    # PyTorch imports an installed torch-spyre with torch.
    importlib.import_module(_NAME)
    warnings.warn(
        "torch_spyre is the simulated device of spyre-mlir: numbers are exact, times are predicted.",
        SimulatedDeviceWarning,
        stacklevel=2,
    )


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'; import torch_spyre after install()")
