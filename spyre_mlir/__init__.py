"""spyre-mlir: an MLIR compiler in Python for the IBM Spyre accelerator.

program = spyre_mlir.compile(model, (x,))
y = program(x)                 # runs the bundle on the simulator
print(program.summary())
program.save("out")            # bundle.mlir, sdsc_<i>.json, manifest.json
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spyre_mlir.errors import CompileError
from spyre_mlir.version import VERSION as __version__

if TYPE_CHECKING:
    from spyre_mlir.program import Program, compile

__all__ = ["CompileError", "Program", "__version__", "compile"]


def __getattr__(name: str) -> Any:
    # The bindings take a third of a second to import: not for a tool that only reads bundles.
    if name in ("Program", "compile"):
        from spyre_mlir import program

        return getattr(program, name)
    raise AttributeError(f"module 'spyre_mlir' has no attribute '{name}'")
