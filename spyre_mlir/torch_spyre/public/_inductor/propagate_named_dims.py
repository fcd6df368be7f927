# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch_spyre._inductor.propagate_named_dims``: names of the dims of tensors.

Unlike ``spyre_mlir.declare_tensor_dim``, a second declaration of a name replaces the first one.
"""

from spyre_mlir.frontend.hints import clear_tensor_dims, name_tensor_dims
from spyre_mlir.frontend.hints import redeclare_tensor_dim as declare_tensor_dim

reset = clear_tensor_dims

__all__ = ["clear_tensor_dims", "declare_tensor_dim", "name_tensor_dims", "reset"]
