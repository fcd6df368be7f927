# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kinds of device operations, by what they do to the iteration space."""

from __future__ import annotations

import enum


class Kind(enum.Enum):
    """Class of an operation by its use of the iteration space; decides stick rules and lowering.

    Attributes:
        POINTWISE: Each element of the result is computed from those at its position.
        CAST: A change of the number format.
        REDUCE_STICK: A reduction over the stick dim.
        REDUCE_OTHER: A reduction over other dims.
        MATMUL: A product of matrices.
        CONVOLUTION: A convolution, whose windows the device slides.
        NORMALISE: A normalisation.
        POOLING: A pooling, whose windows the device slides.
        TOP_K: The largest elements.
        RESTICKIFY: A copy to another stick.
        RELAYOUT: A relayout over the ring.
        GATHER: An indirect access.
    """

    POINTWISE = "pointwise"
    CAST = "cast"
    REDUCE_STICK = "reduction over the stick dim"
    REDUCE_OTHER = "reduction over other dims"
    MATMUL = "matmul"
    CONVOLUTION = "convolution"
    NORMALISE = "normalisation"
    POOLING = "pooling"
    TOP_K = "top-k"
    RESTICKIFY = "restickify"
    RELAYOUT = "relayout over the ring"
    GATHER = "indirect access"

    @property
    def is_elementwise(self) -> bool:
        """Return whether a result is computed element by element, from the operands at its position."""
        return self in (Kind.POINTWISE, Kind.CAST)

    @property
    def combines(self) -> bool:
        """Return whether elements are combined into one, from a neutral element on, as in reductions and matmuls."""
        return self in (Kind.REDUCE_STICK, Kind.REDUCE_OTHER, Kind.MATMUL, Kind.CONVOLUTION, Kind.POOLING)

    @property
    def slides(self) -> bool:
        """Return whether the first input is read by windows that slide over it."""
        return self in (Kind.CONVOLUTION, Kind.POOLING)

    @property
    def is_divided_by_cost(self) -> bool:
        """Return whether the cheapest division is looked for: cores share operands, or windows overlap."""
        return self is Kind.MATMUL or self.slides

    @property
    def reduces(self) -> bool:
        """Return whether the result lacks dims of the iteration space, such as the rows of the table of a gather."""
        return self.combines or self is Kind.GATHER

    @property
    def moves_bits(self) -> bool:
        """Return whether elements go elsewhere as they are."""
        return self in (Kind.RESTICKIFY, Kind.RELAYOUT, Kind.GATHER)

    @property
    def takes_sticks_apart(self) -> bool:
        """Return whether several cores read parts of sticks that others hold: in device memory, not in LX."""
        return self is Kind.RESTICKIFY

    @property
    def on_array(self) -> bool:
        """Return whether the array of multiply-adds works, not the vector unit."""
        return self in (Kind.MATMUL, Kind.CONVOLUTION)
