# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch_spyre._inductor.wsr.for_each_tile``: one loop over the tiles of operands, by ``frontend/tile_loops.py``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from spyre_mlir.errors import CompileError, counted
from spyre_mlir.frontend import tile_loops


class Gather:
    """Tiles of an operand by a list: step ``i`` gets element ``index[i]`` of dim ``axis``, as a dim of size 1."""

    def __init__(self, axis: int, index: Tensor) -> None:
        self.axis, self.index = axis, index


def for_each_tile(
    body: Callable[..., Any],
    operands: Sequence[Tensor],
    *,
    dims: Any,
    tile_size: int,
    init: Any = None,
    output: Tensor | None = None,
    out_dim: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Call ``body(carry, tiles)``, which returns ``(next_carry, out_tile)``, for each tile of the operands.

    Args:
        body: The function; ``tiles`` has an element for each operand. Without ``init``, ``carry`` is None.
        operands: The tensors that ``body`` reads.
        dims: What each operand is cut along, or one value for all operands: a dim, which is cut into tiles; None for
            an operand that each step gets whole; or ``Gather``.
        tile_size: The elements of a tile; it divides each dim that is cut.
        init: The first carry, a tensor or a tree of tensors.
        output: A tensor that the concatenated tiles are copied to.
        out_dim: The dim along which the tiles that ``body`` returns are concatenated; None discards them.
        reverse: Whether the last tile is the first step. Results are in the order of the tiles.

    Returns:
        The carry after the last step, None without ``init``; and the concatenated tiles, None without ``out_dim``.

    Raises:
        CompileError: The operands cannot be cut into equal numbers of such tiles.
    """
    specs = list(dims) if isinstance(dims, (tuple, list)) else [dims] * len(operands)
    if len(specs) != len(operands):
        raise CompileError(
            f"for_each_tile has {counted(len(operands), 'operand')} and {len(specs)} dims; give each operand a dim, "
            "None or Gather, or one of these for all."
        )
    cut: list[tuple[int, Tensor, int, int]] = [
        (number, spec.index, 0, 1) if isinstance(spec, Gather) else (number, operand, spec, tile_size)
        for number, (operand, spec) in enumerate(zip(operands, specs, strict=True))
        if spec is not None
    ]
    trips = {_trips(*each) for each in cut}
    if len(trips) != 1:
        raise CompileError(
            f"The operands of for_each_tile have {sorted(trips) or 'no'} tiles; cut at least one, and all into "
            "one number."
        )
    (count,) = trips
    # Without a carry, the order of the steps does not matter.
    is_reversed = reverse and init is not None

    def step(carry: Any, parts: Sequence[Tensor]) -> tuple[Any, Any]:
        """Call the body with each operand's tile."""
        tiles = list(operands)
        for (number, *_), part in zip(cut, parts, strict=True):
            spec = specs[number]
            tiles[number] = (
                operands[number].index_select(spec.axis, part) if isinstance(spec, Gather) else part
            )
        following, tile = body(carry, tuple(tiles))
        return following, tile if out_dim is not None else None

    tensors = [_reversed(tensor, dim, count) if is_reversed else tensor for _, tensor, dim, _ in cut]
    options: dict[str, Any] = {"dim": [dim for _, _, dim, _ in cut], "tiles": count, "out_dim": out_dim or 0}
    if init is None:
        carry = None
        results = tile_loops.for_each_tile(lambda *parts: step(None, parts)[1], *tensors, **options)
    else:
        carry, results = tile_loops.for_each_tile(
            lambda carry, *parts: step(carry, parts), *tensors, carried=init, **options
        )
    if is_reversed and out_dim is not None:
        results = pytree.tree_map(lambda whole: _reversed(whole, out_dim, count), results)
    if output is not None and out_dim is not None:
        return carry, output.copy_(results)
    return carry, results


def _trips(number: int, tensor: Tensor, dim: int, size: int) -> int:
    """Return the number of tiles of an operand."""
    if not -tensor.ndim <= dim < tensor.ndim or size < 1 or tensor.shape[dim] % size:
        raise CompileError(
            f"Operand {number} of for_each_tile has the shape {list(tensor.shape)}: dim {dim} cannot be cut into equal "
            f"tiles of {counted(size, 'element')}."
        )
    return tensor.shape[dim] // size


def _reversed(tensor: Tensor, dim: int, tiles: int) -> Tensor:
    """Return a tensor with its tiles along a dim in reverse order."""
    dim %= tensor.ndim
    return tensor.unflatten(dim, (tiles, -1)).flip(dim).flatten(dim, dim + 1)
