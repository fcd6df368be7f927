# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layouts as plan files write them: by the order of dims, without the padding that the compiler adds."""

from __future__ import annotations

from dataclasses import replace

from spyre_mlir.layout.requests import LayoutRequest
from spyre_mlir.layout.stick_layout import StickLayout


def without_room(layout: StickLayout) -> StickLayout:
    """Return the layout with the same order of device dims, padded only to whole sticks."""
    outermost = {}
    for digit in layout.outer_digits:
        if digit.dim is not None and digit.divisor >= outermost.get(digit.dim, digit).divisor:
            outermost[digit.dim] = digit
    digits = tuple(
        replace(digit, modulus=None)
        if digit in outermost.values()
        and digit.size(layout.shape) >= replace(digit, modulus=None).size(layout.shape)
        else digit
        for digit in layout.outer_digits
    )
    return replace(layout, digits=(*digits, *layout.digits[len(digits) :]))


def same_order(first: StickLayout, second: StickLayout) -> bool:
    """Return whether two layouts of a tensor differ at most in padding beyond whole sticks."""
    return without_room(first).same_memory(without_room(second))


def request_of(layout: StickLayout) -> LayoutRequest | None:
    """Return the request whose dim order names a layout, up to padding; None if only a map expresses the layout."""
    rank, stick = len(layout.shape), layout.stick_dim
    if len(layout.stick_digits) > 1:
        return None
    order = list(dict.fromkeys(digit.dim for digit in layout.outer_digits if digit.dim is not None))
    others = [dim for dim in order if dim != stick]
    missing = [dim for dim in range(rank) if dim not in order and dim != stick]
    stick_dim = -1 if stick is None else stick
    for outermost in (False, True):
        # A dim order begins with the innermost dim outside the stick (``StickLayout.for_tensor``).
        dim_order = (*others[-1:], *missing, *others[:-1], stick_dim)
        request = LayoutRequest(dim_order=dim_order, stick_outermost=outermost)
        if rank and request.layout(layout.target, layout.shape, layout.dtype, "a tensor").same_memory(
            without_room(layout)
        ):
            return request
    return None
