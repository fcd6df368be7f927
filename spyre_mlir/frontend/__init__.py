# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch on top of the driver: models into MLIR, ``torch.compile``, eager mode and the PyTorch device ``spyre``.

Its import makes ``torch.compile`` compile programs on that device, without a backend and for ``inductor``.
"""

from spyre_mlir.frontend.device_registration import register
from spyre_mlir.frontend.dynamo import install
from spyre_mlir.frontend.importer import Argument, Imported, capture_torch, import_torch
from spyre_mlir.frontend.torch_programs import torch_backend

register()
install(torch_backend)

__all__ = ["Argument", "Imported", "capture_torch", "import_torch"]
