# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ping-pong pairs of buffers (``sdsc.ping_pong``): the buffers of each pair, and the offset of the second buffer."""

from __future__ import annotations

from collections.abc import Iterable

from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.mlir import ir

#: The values in the two buffers of a pair, each with a flag for the second buffer; values of the first come first.
Pair = list[tuple[ir.Value, bool]]


def pairs_of(roots: Iterable[ir.Value]) -> list[Pair]:
    """Return the ping-pong pairs among some buffers."""
    pairs: dict[int, Pair] = {}
    for root in roots:
        owner = defining_op(root)
        number = None if owner is None else sdsc.ping_pong_of(owner)
        if number is not None:
            pair, second = number
            pairs.setdefault(pair, []).append((root, second))
    return [sorted(pair, key=lambda member: member[1]) for pair in pairs.values()]


def second_at(size: int, alignment: int) -> int:
    """Return the offset from the first of two adjacent buffers of ``size`` bytes to the second, in bytes."""
    return -(-size // alignment) * alignment
