# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch_spyre._inductor``: hints in the code of models, and the configuration of the compiler."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from spyre_mlir.frontend import hints
from spyre_mlir.torch_spyre.public._inductor import config
from spyre_mlir.torch_spyre.public._inductor.wsr.for_each_tile import for_each_tile

__all__ = ["config", "for_each_tile", "spyre_hint"]


# A trace of torch.compile calls this function once, and does not capture the warning.
@torch.compiler.assume_constant_result
def _warn_of_hints(others: tuple[str, ...], names: tuple[str, ...]) -> None:
    if others:
        warnings.warn(
            f"The hints {', '.join(others)} of spyre_hint do not change programs here.", stacklevel=3
        )
    if unknown := [repr(name) for name in names if name not in hints.dim_sizes()]:
        warnings.warn(
            f"Hints for the dims {', '.join(unknown)} have no effect; declare_tensor_dim declares a dim.",
            stacklevel=3,
        )


def spyre_hint(
    *,
    tiles: Mapping[str, int] | None = None,
    num_tiles_per_dim: Mapping[str, int] | None = None,
    slices: Mapping[str, int] | None = None,
    work_div: Mapping[str, int] | None = None,
    **others: Any,
) -> contextlib.AbstractContextManager[None]:
    """Tile and divide the operations inside a context; the number of tiles has had three names in torch-spyre.

    ``others`` are hints that this compiler does not use, as ``named_dims``; a warning names them. Another warning names
    dims that are not declared: a hint does not have an effect on these dims.
    """
    given = [each for each in (tiles, num_tiles_per_dim, slices) if each is not None]
    tiled = {name: count for each in given for name, count in each.items()}
    divided = None if getattr(config, "ignore_work_division_hints", False) else work_div
    _warn_of_hints(tuple(others), (*tiled, *(divided or {})))
    return hints.spyre_hint(tiles=tiled, work_div=divided, ignores_undeclared=True)
