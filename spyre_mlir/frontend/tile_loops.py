# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``for_each_tile``: a loop over the tiles of tensors in order, with values carried from one tile to the next.

Eager, it is a Python loop over slices; captured by ``compile``, one iteration between marks (``loop_marks.py``); traced
by Dynamo, PyTorch's ``scan`` or ``map``. Both become an ``scf.for`` in the bundle of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops import scan
from torch._higher_order_ops.map import map as map_rows
from torch.utils import _pytree as pytree

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend import loop_marks

Dims = int | Sequence[int]


def for_each_tile(
    body: Callable[..., Any],
    *tensors: Tensor,
    dim: Dims = 0,
    tile: int | None = None,
    tiles: int | None = None,
    carried: Any = None,
    out_dim: Dims = 0,
) -> Any:
    """Call a function on each tile of tensors in order; return its results, concatenated.

    ``body`` may read outer tensors, but must not change them, and must not draw random numbers, because it is traced
    only once.

    Args:
        body: ``body(*tiles)`` returns a tensor, a tuple or another tree of tensors, or None. With ``carried`` it is
            ``body(carried, *tiles)``, which returns ``(carried, results)``.
        *tensors: The tensors to cut; all must have the same number of tiles.
        dim: The dim to cut, for all tensors, or one dim per tensor.
        tile: The size of a tile along ``dim``, in elements; the last tile may be smaller.
        tiles: Alternatively, the number of tiles, cut as by ``torch.chunk``.
        carried: A tensor or a tree of tensors that is passed from one tile to the next.
        out_dim: The dim along which results are concatenated.

    Returns:
        The results of all tiles, in the tree of ``body``; with ``carried``, a pair of the values carried after the last
        tile, in their initial shapes and types, and the results.

    Raises:
        CompileError: The tensors cannot be cut into such tiles, or ``body`` returns another structure.
    """
    dims = [dim] * len(tensors) if isinstance(dim, int) else list(dim)
    cut = _Cut.of(tensors, dims, tile, tiles)
    has_carried = carried is not None
    state, tree = pytree.tree_flatten(carried if has_carried else [])
    state = [value if isinstance(value, Tensor) else torch.as_tensor(value) for value in state]

    def iteration(state: Sequence[Tensor], parts: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor], Any]:
        """Return the next state, the results and their tree for one tile."""
        if not has_carried:
            return [], *_flattened(body(*parts))
        returned = body(pytree.tree_unflatten(list(state), tree), *parts)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise CompileError(
                "With 'carried', the body of for_each_tile returns a pair: (carried, results)."
            )
        following, following_tree = pytree.tree_flatten(returned[0])
        _check_carried(state, tree, following, following_tree)
        return following, *_flattened(returned[1])

    state, pieces, result_tree = _form()(cut, state, iteration, out_dim)
    wholes = [
        torch.cat(parts, place) if len(parts) > 1 else parts[0] for parts, place in zip(*pieces, strict=True)
    ]
    results = _unflattened(wholes, result_tree)
    return (pytree.tree_unflatten(state, tree), results) if has_carried else results


def _flattened(results: Any) -> tuple[list[Tensor], Any]:
    """The tensors of a tree, and the tree with True for each of them; None is preserved."""
    tree = pytree.tree_map(lambda leaf: None if leaf is None else True, results)
    return [leaf for leaf in pytree.tree_leaves(results) if leaf is not None], tree


def _unflattened(tensors: Sequence[Tensor], tree: Any) -> Any:
    remaining = iter(tensors)
    return pytree.tree_map(lambda leaf: None if leaf is None else next(remaining), tree)


class _Cut:
    """Tensors and how they are cut: ``full`` tiles of ``sizes``, and one smaller tile if ``has_rest``."""

    def __init__(
        self, tensors: Sequence[Tensor], dims: Sequence[int], sizes: Sequence[int], full: int
    ) -> None:
        self.tensors, self.dims, self.sizes, self.full = tensors, dims, sizes, full
        self.rests = [
            tensor.shape[dim] - full * size for tensor, dim, size in zip(tensors, dims, sizes, strict=True)
        ]

    @classmethod
    def of(cls, tensors: Sequence[Tensor], dims: list[int], tile: int | None, tiles: int | None) -> _Cut:
        """Cut tensors; ``CompileError`` if they cannot be cut."""
        if (tile is None) == (tiles is None):
            raise CompileError("for_each_tile takes either 'tile', elements, or 'tiles', a number of tiles.")
        if not tensors or len(dims) != len(tensors):
            raise CompileError(
                "for_each_tile takes at least one tensor, and one dim for each or one for all."
            )
        for position, (tensor, dim) in enumerate(zip(tensors, dims, strict=True)):
            if not -tensor.ndim <= dim < tensor.ndim:
                raise CompileError(
                    f"Tensor {position} of for_each_tile has {tensor.ndim} dims, no dim {dim}."
                )
        dims = [dim % tensor.ndim for tensor, dim in zip(tensors, dims, strict=True)]
        extents = [tensor.shape[dim] for tensor, dim in zip(tensors, dims, strict=True)]
        wanted = tile if tile is not None else tiles
        if not isinstance(wanted, int) or wanted < 1 or 0 in extents:
            raise CompileError(
                "for_each_tile takes tiles of at least one element, of tensors that have elements."
            )
        sizes = [min(wanted, size) if tile is not None else -(-size // wanted) for size in extents]
        counts = {-(-extent // size) for extent, size in zip(extents, sizes, strict=True)}
        fulls = {extent // size for extent, size in zip(extents, sizes, strict=True)}
        if len(counts) > 1 or len(fulls) > 1:
            raise CompileError(
                f"The tensors of for_each_tile have {sorted(counts | fulls)} tiles; all need as many."
            )
        return cls(tensors, dims, sizes, fulls.pop())

    @property
    def has_rest(self) -> bool:
        """Return whether the last tile is smaller."""
        return any(self.rests)

    def tile(self, index: int) -> list[Tensor]:
        """Return the tile of each tensor at an index."""
        sizes = self.sizes if index < self.full else self.rests
        return [
            tensor.narrow(dim, index * size, part)
            for tensor, dim, size, part in zip(self.tensors, self.dims, self.sizes, sizes, strict=True)
        ]


Iteration = Callable[[Sequence[Tensor], Sequence[Tensor]], tuple[list[Tensor], list[Tensor], Any]]
#: The final state; for each result its parts, and the dim along which they are concatenated; and their tree.
Finished = tuple[list[Tensor], tuple[list[list[Tensor]], list[int]], Any]


def _form() -> Callable[[_Cut, list[Tensor], Iteration, Dims], Finished]:
    """Select the form of the loop for the current context."""
    # Dynamo traces for any backend, and supports an operator for this loop.
    if torch.compiler.is_dynamo_compiling():
        return _scanned
    return _marked if loop_marks.is_marking() else _eager


def _eager(cut: _Cut, state: list[Tensor], iteration: Iteration, out_dim: Dims) -> Finished:
    rows = []
    tree: Any = None
    for index in range(cut.full + cut.has_rest):
        state, results, tree = iteration(state, cut.tile(index))
        rows.append(results)
    parts = [list(column) for column in zip(*rows, strict=True)]
    return state, (parts, _result_dims(rows[0], out_dim)), tree


def _marked(cut: _Cut, state: list[Tensor], iteration: Iteration, out_dim: Dims) -> Finished:
    begin = loop_marks.loop_begin(state, list(cut.tensors), cut.dims, cut.sizes, cut.full)
    following, results, tree = iteration(begin[: len(state)], begin[len(state) : -1])
    dims = _result_dims(results, out_dim)
    ends = loop_marks.loop_end(begin[-1], following, results, dims, cut.full)
    state, parts = list(ends[: len(state)]), [[whole] for whole in ends[len(state) :]]
    if cut.has_rest:
        state, rest, tree = iteration(state, cut.tile(cut.full))
        parts = [[*column, part] for column, part in zip(parts, rest, strict=True)]
    return state, (parts, dims), tree


def _scanned(cut: _Cut, state: list[Tensor], iteration: Iteration, out_dim: Dims) -> Finished:
    """A PyTorch scan over the tiles as rows."""
    # Only for the tree, because a scan must not change outer values; nothing else reads the results.
    _, _, tree = iteration(state, cut.tile(0))

    def step(state: list[Tensor], parts: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the next state and results as separate tensors, which a scan requires."""
        following, results, _ = iteration(state, parts)
        return [value.clone() for value in following], [value.clone() for value in results]

    rows = [
        tensor.narrow(dim, 0, cut.full * size).unflatten(dim, (cut.full, size)).movedim(dim, 0)
        for tensor, dim, size in zip(cut.tensors, cut.dims, cut.sizes, strict=True)
    ]
    if state:
        state, stacked = scan(step, state, rows)
    else:
        stacked = map_rows(lambda parts, *_: step([], parts)[1], rows)
    dims = _result_dims([whole[0] for whole in stacked], out_dim)
    parts = [[whole.movedim(0, dim).flatten(dim, dim + 1)] for whole, dim in zip(stacked, dims, strict=True)]
    if cut.has_rest:
        state, rest, _ = iteration(state, cut.tile(cut.full))
        parts = [[*column, part] for column, part in zip(parts, rest, strict=True)]
    return state, (parts, dims), tree


def _result_dims(results: Sequence[Tensor], out_dim: Dims) -> list[int]:
    dims = [out_dim] * len(results) if isinstance(out_dim, int) else list(out_dim)
    if len(dims) != len(results):
        raise CompileError(f"for_each_tile has {len(dims)} 'out_dim' for {len(results)} results.")
    for result, dim in zip(results, dims, strict=True):
        if not -result.ndim <= dim < result.ndim:
            raise CompileError(
                f"A result of for_each_tile has {result.ndim} dims, no dim {dim} to put tiles together."
            )
    return [dim % result.ndim for result, dim in zip(results, dims, strict=True)]


def _check_carried(
    before: Sequence[Tensor], tree: Any, following: Sequence[Any], following_tree: Any
) -> None:
    """Raise ``CompileError`` if the carried values that a body returns differ in tree, shape or type."""
    if tree != following_tree:
        raise CompileError(f"The body of for_each_tile carries {following_tree}, and began with {tree}.")
    for position, (old, new) in enumerate(zip(before, following, strict=True)):
        if not isinstance(new, Tensor) or new.shape != old.shape or new.dtype != old.dtype:
            found = f"{tuple(new.shape)} {new.dtype}" if isinstance(new, Tensor) else type(new).__name__
            raise CompileError(
                f"The body of for_each_tile carries {found} as tensor {position}, which began as {tuple(old.shape)} "
                f"{old.dtype}; both must be the same."
            )


__all__ = ["for_each_tile"]
