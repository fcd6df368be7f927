# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch_spyre._inductor.propagate_named_dims``: names of the dims of tensors."""

from spyre_mlir import clear_tensor_dims, declare_tensor_dim, name_tensor_dims

__all__ = ["clear_tensor_dims", "declare_tensor_dim", "name_tensor_dims"]
