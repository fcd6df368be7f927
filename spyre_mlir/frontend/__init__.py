# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch programs into MLIR, and the device ``spyre`` of PyTorch: the only package of the compiler that imports torch.

It also makes ``torch.compile`` without a backend compile what is on that device, unless another default is set.
"""

import torch

from spyre_mlir.frontend.dynamo import default_backend
from spyre_mlir.frontend.importer import Argument, Imported, capture_torch, import_torch
from spyre_mlir.frontend.torch_device import register

register()
# A default that the user has set stays.
if torch.compiler.get_default_backend() == "inductor":
    torch.compiler.set_default_backend(default_backend)

__all__ = ["Argument", "Imported", "capture_torch", "import_torch"]
