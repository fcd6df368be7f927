# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The only module that imports the MLIR bindings.

The upstream Python bindings are part of the ``torch-mlir`` wheel (``mlir-python-bindings`` on the package index
is an empty placeholder). To use another root, such as ``mlir.ir``, change the imports below. Importing this
module does not import torch.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # The wheel has no type stubs for the bindings; the folder contains only the stubs.
    from spyre_mlir.bindings import ext, ir  # pyright: ignore[reportMissingModuleSource]
    from spyre_mlir.bindings.passmanager import PassManager  # pyright: ignore[reportMissingModuleSource]
else:
    from torch_mlir import ir
    from torch_mlir.dialects import ext
    from torch_mlir.passmanager import PassManager

__all__ = [
    "PassManager", "announce_dialect", "clean", "ext", "indexing_maps", "ir", "load_irdl", "load_tm_tensor",
    "location_of", "register_torch_passes", "source_operation",
]  # fmt: skip


def announce_dialect(namespace: str, module: str) -> None:
    """Register the Python module of a dialect with the bindings.

    The bindings look the module up for every attribute of the dialect, and search the disk each time they do not find
    one: a third of the pipeline's time on a chain of 1000 ops.
    """
    sys.modules.setdefault(f"torch_mlir.dialects.{namespace}", sys.modules[module])


class _DeferredDialect(ModuleType):
    """Lazy Python module of an upstream dialect, imported at the first access to one of its names.

    The bindings import the module at the first operation of the dialect, for operation classes that we do not use.
    The linalg module compiles its own operation language (OpDSL), a quarter of the time of a small pipeline.
    """

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":  # for ``import *``, which otherwise reads the names of this object
            return [each for each in dir(self) if not each.startswith("_")]
        if name.startswith("__") and name != "__path__":
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        return getattr(self._imported(), name)

    def __dir__(self) -> list[str]:
        return dir(self._imported())

    def _imported(self) -> ModuleType:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return importlib.import_module(self.__name__)


# Only linalg is deferred: user-defined passes use the classes of the other dialects, such as ``name`` of func.func.
sys.modules.setdefault("torch_mlir.dialects.linalg", _DeferredDialect("torch_mlir.dialects.linalg"))


def clean(operation: ir.Operation) -> None:
    """Run upstream's canonicalization and common subexpression elimination on an ``operation``."""
    with operation.context:
        PassManager.parse("builtin.module(canonicalize,cse)").run(operation)


def indexing_maps(op: ir.Operation) -> list[ir.AffineMap]:
    """Return the indexing maps of a structured ``op``."""
    if "indexing_maps" in op.attributes:
        return [ir.AffineMapAttr(attr).value for attr in ir.ArrayAttr(op.attributes["indexing_maps"])]
    # A named op does not have the attribute.
    linalg = importlib.import_module("torch_mlir._mlir_libs._mlirDialectsLinalg")
    return [ir.AffineMapAttr(attr).value for attr in linalg.get_indexing_maps(op)]


def register_torch_passes() -> None:
    """Register the passes of torch-mlir itself (refback-*, tm-tensor-*) by name, without importing torch."""
    importlib.import_module("torch_mlir._mlir_libs._torchMlir")


def load_irdl(module: ir.Module) -> None:
    """Define the dialects of an IRDL module in the context of the module."""
    from torch_mlir.dialects import irdl

    with module.context:
        irdl.load_dialects(module)


def load_tm_tensor(context: ir.Context) -> None:
    """Load torch-mlir's ``tm_tensor`` dialect (scans, scatters and sorts) into a context."""
    # The bindings have no call that loads the dialect; running a pass that depends on the dialect loads it.
    register_torch_passes()
    with context, ir.Location.unknown():
        PassManager.parse("builtin.module(func.func(convert-torch-to-tmtensor))").run(
            ir.Module.create().operation
        )


def location_of(location: ir.Location) -> str:
    """Return the innermost ``file:line:col`` of a nested ``location``, or an empty string."""
    if isinstance(location, ir.FileLineColLoc):
        return f"{location.filename}:{location.start_line}:{location.start_col}"
    if isinstance(location, ir.CallSiteLoc):
        return location_of(location.callee) or location_of(location.caller)
    if isinstance(location, ir.NameLoc):
        return location_of(location.child_loc)
    if isinstance(location, ir.FusedLoc):
        return next((text for part in location.locations if (text := location_of(part))), "")
    return ""


def source_operation(location: ir.Location) -> str:
    """Return the PyTorch operation (``aten.gather.default``) in the metadata of a ``location``, or an empty string."""
    return source_note(location, "aten")


def source_note(location: ir.Location, name: str) -> str:
    """Return the entry ``name`` in the metadata of a nested location about the PyTorch model, or an empty string."""
    if isinstance(location, ir.FusedLoc):
        metadata = location.metadata and location.metadata.maybe_downcast()
        if isinstance(metadata, ir.DictAttr) and name in metadata:
            return str(ir.StringAttr(metadata[name]).value)
        return next((text for part in location.locations if (text := source_note(part, name))), "")
    if isinstance(location, ir.CallSiteLoc):
        return source_note(location.callee, name) or source_note(location.caller, name)
    return source_note(location.child_loc, name) if isinstance(location, ir.NameLoc) else ""


def hint_values(location: ir.Location) -> dict[str, ir.Attribute]:
    """Return the keywords of ``spyre_hint`` around an operation that the compiler does not know, from its location."""
    if isinstance(location, ir.FusedLoc):
        metadata = location.metadata and location.metadata.maybe_downcast()
        if isinstance(metadata, ir.DictAttr) and "hint" in metadata:
            return {entry.name: entry.attr for entry in ir.DictAttr(metadata["hint"])}
        return next((found for part in location.locations if (found := hint_values(part))), {})
    if isinstance(location, ir.CallSiteLoc):
        return hint_values(location.callee) or hint_values(location.caller)
    return hint_values(location.child_loc) if isinstance(location, ir.NameLoc) else {}


def called_name(operation: str) -> str:
    """Return the name by which a model calls an operation: ``gather`` for ``aten.gather.default``."""
    parts = operation.split(".")
    return parts[1].lstrip("_") if len(parts) == 3 else operation
