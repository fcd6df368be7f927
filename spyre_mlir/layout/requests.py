# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""User-defined layout constraints, and the layouts that they name: dims in the stick, order of the other dims.

``stick_dims`` names the dims in the stick, the innermost last: one dim, no dim for a stick-sparse tensor, or
several dims; the other dims keep their default order. For elements of 1 byte and of 4 bits one stick holds several
dims. For larger elements each of the k stick dims is cut into sticks, as in RFC 0047: the layout has N + k device
dims, and the last k are the positions in a stick of each stick dim; the last one fills the sticks of 128 bytes.
``dim_order`` names the whole order: the last entry is the stick dim (-1 after all dims: stick-sparse), the first
entry is the innermost dim outside the stick. ``stick_outermost`` puts the stick count first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from spyre_mlir.errors import CompileError
from spyre_mlir.layout.stick_layout import (
    ELEMENT_BITS,
    Digit,
    StickLayout,
    elements_per_stick,
    filling_counts,
)
from spyre_mlir.options import Options
from spyre_mlir.records import dataclass
from spyre_mlir.target.element_types import ELEMENT_TYPES
from spyre_mlir.target.target import Target

#: The elements of each dim in a stick of several dims, outermost first, by bits of an element and number of dims. None
#: is the count that fills the stick. These are the sticks of the operands of a matmul (``rules.STICKS``); in sticks of
#: 128 bytes: N 64, K 2 for int8 and fp8; N 64, K 4 and K 8, M 2, K 16 for int4.
_FORMS: dict[int, dict[int, tuple[int | None, ...]]] = {
    8: {2: (None, 2)},
    4: {2: (None, 4), 3: (None, 2, 16)},
}


@dataclass(frozen=True)
class LayoutRequest(Options):
    """A layout constraint: the stick dims or the order of all dims; without either, the default layout."""

    stick_dims: tuple[int, ...] | None = None
    dim_order: tuple[int, ...] | None = None
    stick_outermost: bool = False

    @classmethod
    def title(cls) -> str:
        """Return the name of the options in errors."""
        return "layout"

    @classmethod
    def of_mapping(cls, request: Any, what: str) -> LayoutRequest:
        """Return the constraint from a mapping of these fields; ``what`` names the tensor in a ``CompileError``."""
        if not isinstance(request, Mapping):
            raise CompileError(
                f"The layout of {what} is a mapping such as {{'stick_dims': [0]}}, not {request!r}."
            )
        known = [field.name for field in fields(cls)]
        for name in request:
            if name not in known:
                raise CompileError(f"The layout of {what} has no '{name}'; it has {', '.join(known)}.")
        dims = {name: request[name] for name in ("stick_dims", "dim_order") if request.get(name) is not None}
        for name, value in dims.items():
            # Not ``isinstance``: True is an int in Python, but not a dim.
            if not isinstance(value, Sequence) or not all(type(item) is int for item in value):
                raise CompileError(
                    f"The {name} of the layout of {what} must be a list of integers, not {value!r}."
                )
        outermost = request.get("stick_outermost")
        if not isinstance(outermost, bool | np.bool_ | None):
            raise CompileError(
                f"The stick_outermost of the layout of {what} is True or False, not {outermost!r}."
            )
        dims = {name: tuple(value) for name, value in dims.items()}
        return cls(**dims, stick_outermost=bool(outermost))

    def layout(self, target: Target, shape: Sequence[int], dtype: str, what: str) -> StickLayout:
        """Return the layout of a tensor of ``shape`` and MLIR type ``dtype``; ``CompileError`` for a bad constraint.

        ``what`` names the tensor in the error, as in "tensor 'x'".
        """
        rank, dtype, subject = len(shape), device_dtype(dtype), f"The layout of {what}"
        if dtype not in ELEMENT_BITS:
            raise CompileError(f"{subject} cannot be chosen: the device does not support {dtype}.")
        sticks = self._sticks(rank, dtype, subject)
        order = self._order(rank, sticks, subject)
        if sticks is None or len(sticks) < 2:
            return StickLayout.for_tensor(target, shape, dtype, order, self.stick_outermost)
        if ELEMENT_BITS[dtype] not in _FORMS:
            return StickLayout.tiled(target, shape, dtype, sticks, order, self.stick_outermost)
        counts = filling_counts(_FORMS[ELEMENT_BITS[dtype]][len(sticks)], elements_per_stick(target, dtype))
        elements = tuple(zip(sticks, counts, strict=True))
        return StickLayout.for_tensor(target, shape, dtype, order, self.stick_outermost, elements)

    def _sticks(self, rank: int, dtype: str, subject: str) -> list[int] | None:
        """The stick dims, counted from the first dim."""
        if self.stick_dims is None:
            return None
        for dim in self.stick_dims:
            if not -rank <= dim < rank:
                raise CompileError(
                    f"{subject} has the stick dim {dim}, but the tensor has rank {rank}; dims count from 0."
                )
        sticks, dims = [dim % rank for dim in self.stick_dims], list(self.stick_dims)
        # A packed stick may contain a dim twice, for example an int4 stick: K 8, M 2, K 16.
        if len(set(sticks)) != len(sticks) and ELEMENT_BITS[dtype] not in _FORMS:
            raise CompileError(f"{subject} has the stick_dims {dims}, which name a dim twice.")
        limit = max(_FORMS.get(ELEMENT_BITS[dtype], {rank: ()}))
        if len(sticks) > limit:
            raise CompileError(
                f"{subject} has the stick_dims {dims}, but a stick of {dtype} holds at most {limit}."
            )
        return sticks

    def _order(self, rank: int, sticks: list[int] | None, subject: str) -> list[int] | None:
        """The dim order that ``StickLayout.for_tensor`` accepts."""
        if self.dim_order is None:
            if sticks is None or len(sticks) > 1:
                return None
            return [*(dim for dim in range(rank) if dim not in sticks), *(sticks or [-1])]
        order = list(self.dim_order)
        dims = order[:-1] if len(order) == rank + 1 and order[-1] == -1 else order
        if sorted(dims) != list(range(rank)):
            raise CompileError(
                f"{subject} has the dim_order {order}, which must name each of the {rank} dims once, "
                "the stick last, or all of them and then -1."
            )
        if sticks is not None and order[-1:] != (sticks or [-1])[-1:]:
            raise CompileError(f"{subject} has the stick_dims {sticks}, but its dim_order is {order}.")
        return order


def device_dtype(dtype: str) -> str:
    """Return the element type that the device uses for an MLIR element type of the host."""
    element = ELEMENT_TYPES.get(dtype)
    return dtype if element is None or element.device is None else element.device


def with_element_type(layout: StickLayout, dtype: str) -> StickLayout:
    """Return the layout with the same order for another element type; ``ValueError`` if a new stick would be cut.

    f32 (d1 floordiv 32, d0, d1 mod 32)  ->  f16 (d1 floordiv 64, d0, d1 mod 64)
    """
    old, new = layout.elements_per_stick, replace(layout, dtype=dtype).elements_per_stick
    if old == new or layout.stick_dim is None:
        return replace(layout, dtype=dtype)
    digits = []
    for digit in layout.digits[:-1]:
        if digit.dim == layout.stick_dim:
            if digit.divisor != old or (digit.modulus is not None and digit.modulus * old % new):
                raise ValueError(f"dim {digit.dim} is not cut in whole sticks of {new} elements")
            digit = replace(digit, divisor=new, modulus=digit.modulus and digit.modulus * old // new)
        digits.append(digit)
    return replace(layout, dtype=dtype, digits=(*digits, Digit(layout.stick_dim, 1, new)))


def why_not_a_layout(layout: StickLayout) -> str | None:
    """Return why a map is not a layout that gives each element its own position in sticks of the type; None if it is.

    The digits of a dim must form a mixed-radix number: each digit begins where the next smaller digit ends.
    """
    if not layout.digits:
        return "it has no results"
    innermost, elements = layout.digits[-1], math.prod(digit.modulus or 0 for digit in layout.stick_digits)
    if innermost.dim is not None and (innermost.divisor != 1 or elements != layout.elements_per_stick):
        expected = f"'d{innermost.dim} mod {layout.elements_per_stick}' or 0"
        return f"its last result must be {expected} for {layout.dtype}"
    for dim, size in enumerate(layout.shape):
        reached = 1  # positions that the digits so far can count
        digits = [digit for digit in layout.digits if digit.dim == dim and size > 1]
        for digit in sorted(digits, key=lambda digit: digit.divisor):
            if digit.divisor < reached:
                return f"the digits of d{dim} overlap"
            # A gap: positions that no digit distinguishes share one place, which is reported below.
            if digit.divisor > reached:
                break
            reached *= digit.size(layout.shape)
        if reached < size:
            return f"the elements of d{dim} share places: its digits reach {reached} of {size}"
    return None


def without_room(layout: StickLayout) -> StickLayout:
    """Return the layout with the same order of device dims, padded only to whole sticks."""
    outermost = {}
    for digit in layout.outer_digits:
        if digit.dim is not None and digit.divisor >= outermost.get(digit.dim, digit).divisor:
            outermost[digit.dim] = digit
    digits = list(layout.digits)
    for index, digit in enumerate(layout.outer_digits):
        unpadded = replace(digit, modulus=None)
        if digit in outermost.values() and digit.size(layout.shape) >= unpadded.size(layout.shape):
            digits[index] = unpadded
    return replace(layout, digits=tuple(digits))


def same_order(first: StickLayout, second: StickLayout) -> bool:
    """Return whether two layouts of a tensor differ at most in padding beyond whole sticks."""
    return without_room(first).same_memory(without_room(second))


def request_of(layout: StickLayout) -> LayoutRequest | None:
    """Return the request whose dim order names a layout, up to padding; None if only a map expresses the layout."""
    rank, stick = len(layout.shape), layout.stick_dim
    if len(layout.stick_digits) > 1:
        return None
    others = list(dict.fromkeys(digit.dim for digit in layout.outer_digits if digit.dim not in (None, stick)))
    missing = [dim for dim in range(rank) if dim not in others and dim != stick]
    # A dim order begins with the innermost dim outside the stick (``StickLayout.for_tensor``).
    dim_order = (*others[-1:], *missing, *others[:-1], -1 if stick is None else stick)
    for outermost in (False, True):
        request = LayoutRequest(dim_order=dim_order, stick_outermost=outermost)
        if rank and request.layout(layout.target, layout.shape, layout.dtype, "a tensor").same_memory(
            without_room(layout)
        ):
            return request
    return None
