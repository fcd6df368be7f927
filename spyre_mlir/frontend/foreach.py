# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations on lists of tensors, ``_foreach_add`` and others, as the operations on each tensor that PyTorch has."""

from __future__ import annotations

from typing import Any

import torch

_PREFIX = "aten::_foreach_"


def is_foreach(operation: Any) -> bool:
    """Return whether an operation takes lists of tensors, to treat one tensor after the other."""
    return operation._schema.name.startswith(_PREFIX)


def one_by_one(operation: Any, args: Any, named: dict[str, Any]) -> Any:
    """Results of PyTorch's loop over the tensors, which it has for devices without a kernel for lists."""
    # The operations of the loop are dispatched by their tensors.
    return operation._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **named)
