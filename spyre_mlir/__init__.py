# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spyre-mlir: an MLIR compiler in Python for the IBM Spyre accelerator.

program = spyre_mlir.compile(model, (x,))
y = program(x)                 # runs the bundle on the simulator
print(program.summary())
program.save("out")            # bundle.mlir, sdsc_<i>.json, manifest.json
x = spyre_mlir.to_device(array, stick_dims=[0])    # a tensor in the layout that you choose
y = (x.t()[:64] + 1).restickify([0])               # views, and programs of one operation
y = torch.compile(model, backend=spyre_mlir.torch_backend)(x)
with spyre_mlir.spyre_hint(tiles={"M": 8}):        # in a model: tile what is computed here
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from spyre_mlir import eager_mode, moved_modules, systems
from spyre_mlir.errors import (
    CompileError,
    FallbackWarning,
    HostWorkWarning,
    PassWarning,
    RangeWarning,
    RecompileWarning,
)
from spyre_mlir.version import VERSION as __version__

systems.require_posix()

if TYPE_CHECKING:
    from spyre_mlir.api import compile, load
    from spyre_mlir.driver.device_report import device_report
    from spyre_mlir.driver.mesh_program import MeshProgram
    from spyre_mlir.driver.program import Program
    from spyre_mlir.frontend.dynamic import DynamicProgram
    from spyre_mlir.frontend.eight_bit_checkpoints import EightBitLinear, load_eight_bits
    from spyre_mlir.frontend.hints import clear_tensor_dims, declare_tensor_dim, name_tensor_dims, spyre_hint
    from spyre_mlir.frontend.piecewise import PiecewiseProgram
    from spyre_mlir.frontend.tile_loops import for_each_tile
    from spyre_mlir.frontend.torch_programs import torch_backend
    from spyre_mlir.meshes.memory_use import MemoryUse, memory
    from spyre_mlir.tensors.device_factories import arange, empty, full, zeros
    from spyre_mlir.tensors.device_tensor import DeviceTensor, restickify, to_device

__all__ = [
    "CompileError", "DeviceTensor", "DynamicProgram", "EightBitLinear", "FallbackWarning", "HostWorkWarning",
    "MemoryUse", "MeshProgram", "PassWarning", "PiecewiseProgram", "Program", "RangeWarning",
    "RecompileWarning", "__version__", "arange", "clear_tensor_dims", "compile", "declare_tensor_dim",
    "device_report", "empty", "for_each_tile", "full", "load", "load_eight_bits", "memory",
    "name_tensor_dims", "restickify", "spyre_hint", "to_device", "torch_backend", "zeros",
]  # fmt: skip

moved_modules.install()
# Operations on device tensors run in the frontend, which depends on the tensors.
eager_mode.load = lambda: importlib.import_module("spyre_mlir.frontend.eager")

#: Public names by the module that defines them. They are imported on first use: the bindings take a third of a second
#: to import, torch takes seconds, and a tool that only reads bundles needs neither.
_MODULES = {
    "spyre_mlir.api": ("compile", "load"),
    "spyre_mlir.driver.device_report": ("device_report",),
    "spyre_mlir.driver.mesh_program": ("MeshProgram",),
    "spyre_mlir.driver.program": ("Program",),
    "spyre_mlir.tensors.device_factories": ("arange", "empty", "full", "zeros"),
    "spyre_mlir.tensors.device_tensor": ("DeviceTensor", "restickify", "to_device"),
    "spyre_mlir.frontend.eight_bit_checkpoints": ("EightBitLinear", "load_eight_bits"),
    "spyre_mlir.frontend.dynamic": ("DynamicProgram",),
    "spyre_mlir.meshes.memory_use": ("MemoryUse", "memory"),
    "spyre_mlir.frontend.piecewise": ("PiecewiseProgram",),
    "spyre_mlir.frontend.tile_loops": ("for_each_tile",),
    "spyre_mlir.frontend.torch_programs": ("torch_backend",),
    "spyre_mlir.frontend.hints": (
        "clear_tensor_dims", "declare_tensor_dim", "name_tensor_dims", "spyre_hint",
    ),
}  # fmt: skip


if not TYPE_CHECKING:
    # Hidden from type checkers, which would accept every name of the package.
    def __getattr__(name: str) -> Any:
        for module, names in _MODULES.items():
            if name in names:
                return getattr(importlib.import_module(module), name)
        raise AttributeError(f"module 'spyre_mlir' has no attribute '{name}'")


def __dir__() -> list[str]:
    """Return the public names, imported or not, and the imported submodules."""
    modules = (name for name, value in globals().items() if isinstance(value, ModuleType))
    return sorted({*__all__, *(name for name in modules if f"{__name__}.{name}" in sys.modules)})
