"""The one place that names the MLIR bindings.

The upstream Python bindings come inside the ``torch-mlir`` wheel (the index's ``mlir-python-bindings``
is an empty placeholder); another root, say ``mlir.ir``, is a change of the lines below. Importing this
module does not import torch.
"""

from __future__ import annotations

from torch_mlir import ir
from torch_mlir.dialects import arith, ext, func, linalg, scf, tensor
from torch_mlir.passmanager import PassManager

__all__ = ["PassManager", "arith", "ext", "func", "ir", "linalg", "location_of", "scf", "tensor"]


def location_of(location: ir.Location) -> str:
    """The innermost ``file:line:col`` in a location tree, or an empty string."""
    if isinstance(location, ir.FileLineColLoc):
        return f"{location.filename}:{location.start_line}:{location.start_col}"
    if isinstance(location, ir.CallSiteLoc):
        return location_of(location.callee) or location_of(location.caller)
    if isinstance(location, ir.NameLoc):
        return location_of(location.child_loc)
    if isinstance(location, ir.FusedLoc):
        return next((found for part in location.locations if (found := location_of(part))), "")
    return ""
