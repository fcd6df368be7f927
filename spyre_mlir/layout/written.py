"""A layout as people write it: by the order of its dims, without the room that the compiler adds."""

from __future__ import annotations

from dataclasses import replace

from spyre_mlir.layout.requests import LayoutRequest
from spyre_mlir.layout.stick_layout import StickLayout


def without_room(layout: StickLayout) -> StickLayout:
    """The same order of device dims with no more positions than the shape needs."""
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


def same_order(left: StickLayout, right: StickLayout) -> bool:
    """Whether two layouts of a tensor differ in nothing but room (padding beyond whole sticks)."""
    return without_room(left).same_memory(without_room(right))


def request_of(layout: StickLayout) -> LayoutRequest | None:
    """The dim order that names a layout, room aside; None for one that only its map can tell."""
    rank, stick = len(layout.shape), layout.stick_dim
    if len(layout.stick_digits) > 1:
        return None
    order = list(dict.fromkeys(digit.dim for digit in layout.outer_digits if digit.dim is not None))
    others = [dim for dim in order if dim != stick]
    missing = [dim for dim in range(rank) if dim not in order and dim != stick]
    lane = -1 if stick is None else stick
    for outermost in (False, True):
        named = (*others[-1:], *missing, *others[:-1], lane)
        request = LayoutRequest(dim_order=named, stick_outermost=outermost)
        if rank and request.layout(layout.shape, layout.dtype, "a tensor").same_memory(without_room(layout)):
            return request
    return None
