# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops that random programs call: loops of PyTorch, ``for_each_tile``, and their meaning in plain Python."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


def _scan(combine: Callable[..., Any], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> Any:
    leaves, tree = pytree.tree_flatten(xs)
    trips = range(leaves[0].shape[dim])
    rows: list[Any] = []
    for trip in reversed(trips) if reverse else trips:
        init, row = combine(init, pytree.tree_unflatten([x.select(dim, trip) for x in leaves], tree))
        rows.append(row)
    return init, _stacked(rows[::-1] if reverse else rows)


def _associative_scan(
    combine: Callable[..., Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = ""
) -> Any:
    leaves, tree = pytree.tree_flatten(xs)
    trips = range(leaves[0].shape[dim])
    if len(trips) < 2:
        return xs  # PyTorch returns the operands themselves, so that writes to results change them.
    rows: list[Any] = []
    for trip in reversed(trips) if reverse else trips:
        row = pytree.tree_unflatten([x.select(dim, trip) for x in leaves], tree)
        rows.append(combine(rows[-1], row) if rows else row)
    return _stacked(rows[::-1] if reverse else rows, dim)


def _map(function: Callable[..., Any], xs: Tensor) -> Any:
    return _stacked([function(row) for row in xs])


def _while_loop(condition: Callable[..., Any], body: Callable[..., Any], carried: Sequence[Any]) -> Any:
    carried = tuple(x.clone() for x in carried)
    while bool(condition(*carried)):
        carried = tuple(body(*carried))
    return carried


def _cond(
    condition: Any, true: Callable[..., Any], false: Callable[..., Any], operands: Sequence[Any] = ()
) -> Any:
    return true(*operands) if bool(condition) else false(*operands)


def _for_each_tile(
    body: Callable[..., Any],
    *tensors: Tensor,
    dim: int = 0,
    tile: int = 1,
    carried: Any = None,
    out_dim: int = 0,
) -> Any:
    rows: list[Any] = []
    for parts in zip(*(x.split(tile, dim) for x in tensors), strict=True):
        if carried is None:
            rows.append(body(*parts))
        else:
            carried, row = body(carried, *parts)
            rows.append(row)
    results = pytree.tree_map(lambda *pieces: torch.cat(pieces, out_dim), *rows)
    return results if carried is None else (carried, results)


def _stacked(rows: Sequence[Any], dim: int = 0) -> Any:
    return pytree.tree_map(lambda *pieces: torch.stack(pieces, dim), *rows)


#: By the names that programs call them.
PLAIN: dict[str, Callable[..., Any]] = {
    "scan": _scan,
    "associative_scan": _associative_scan,
    "map_rows": _map,
    "while_loop": _while_loop,
    "cond": _cond,
    "for_each_tile": _for_each_tile,
}

#: How a file imports the names.
IMPORTS = """from torch._higher_order_ops import cond, scan, while_loop
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_rows

from spyre_mlir import for_each_tile
"""


@functools.cache
def of_pytorch() -> dict[str, Any]:
    """The loops themselves by name."""
    names: dict[str, Any] = {}
    exec(IMPORTS, names)
    return {name: names[name] for name in PLAIN}


def is_used(source: str) -> bool:
    """Return whether the text of a program calls one of the loops."""
    return any(f"{name}(" in source for name in PLAIN)
