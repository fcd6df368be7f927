"""spyre-mlir: an MLIR compiler in Python for the IBM Spyre accelerator.

program = spyre_mlir.compile(model, (x,))
y = program(x)                 # runs the bundle on the simulator
print(program.summary())
program.save("out")            # bundle.mlir, sdsc_<i>.json, manifest.json
x = spyre_mlir.to_device(array, stick_dims=[0])    # a tensor in the layout that you choose
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spyre_mlir.errors import CompileError
from spyre_mlir.version import VERSION as __version__

if TYPE_CHECKING:
    from spyre_mlir.device_tensor import DeviceTensor, to_device
    from spyre_mlir.program import Program, compile

__all__ = ["CompileError", "DeviceTensor", "Program", "__version__", "compile", "to_device"]


def __getattr__(name: str) -> Any:
    # The bindings take a third of a second to import: not for a tool that only reads bundles.
    if name in ("Program", "compile"):
        from spyre_mlir import program

        return getattr(program, name)
    if name in ("DeviceTensor", "to_device"):
        from spyre_mlir import device_tensor

        return getattr(device_tensor, name)
    raise AttributeError(f"module 'spyre_mlir' has no attribute '{name}'")
