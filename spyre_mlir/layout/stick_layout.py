"""A stick layout: how a logical index becomes a device coordinate.

A tensor lives on the device as a row-major array whose innermost dim is one stick (128 bytes). Each device
dim shows one *digit* of a logical index: ``(index[dim] floordiv divisor) mod modulus``. The last digit is
the position in the stick, of the stick dim; where it is absent (``dim is None``) the layout is
*stick-sparse*: one valid element per stick, in lane 0.

    [512, 256] fp16, stick 1:  (d1 floordiv 64, d0, d1 mod 64)   device size (4, 512, 64)

Sizes follow from the tensor's shape, ceil-divided: padding. A modulus larger than the shape needs pads a
dim further (``d0 mod 128`` for a dim of 71).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spyre_mlir.target.device import device

#: Bytes of an element on the device, by MLIR element type. fp16, bf16 and booleans all run as DL16.
ELEMENT_BYTES = {"f16": 2, "bf16": 2, "i1": 2, "f32": 4, "i32": 4}


def elements_per_stick(dtype: str) -> int:
    """Elements of an MLIR element type in one stick; ``KeyError`` for a type the device has not."""
    return device().stick_bytes // ELEMENT_BYTES[dtype]


@dataclass(frozen=True)
class Digit:
    """One device dim: ``(index[dim] floordiv divisor) mod modulus``; constant 0 where ``dim is None``."""

    dim: int | None
    divisor: int = 1
    modulus: int | None = None

    def size(self, shape: Sequence[int]) -> int:
        if self.dim is None:
            return 1
        return self.modulus or -(-shape[self.dim] // self.divisor)


@dataclass(frozen=True)
class StickLayout:
    """A tensor's device layout: logical ``shape``, element type, device dims outermost first.

    The last of ``digits`` is the position in the stick. Two layouts are equal if they say the same of
    every index; ``same_memory`` ignores dims of size 1.
    """

    shape: tuple[int, ...]
    dtype: str
    digits: tuple[Digit, ...]

    @classmethod
    def for_tensor(
        cls,
        shape: Sequence[int],
        dtype: str,
        dim_order: Sequence[int] | None = None,
        stick_outermost: bool = False,
    ) -> StickLayout:
        """The layout named by a dim order: its last entry is the stick (-1: stick-sparse), its first goes
        innermost before the stick, the others stay outermost in the order given, then the stick count.

        Without ``dim_order`` the last dim is the stick. ``stick_outermost`` puts the stick count first
        (the default of the tiled-tensor RFC).
        """
        shape = tuple(shape)
        per_stick = elements_per_stick(dtype)
        order = list(range(len(shape)) if dim_order is None else dim_order)
        if sorted(dim for dim in order if dim != -1) != list(range(len(shape))) or -1 in order[:-1]:
            raise ValueError(f"dim_order {order} must name each of the {len(shape)} dims once, or end in -1")
        *others, stick = order or [-1]
        if stick == -1:
            count, lane = Digit(None), Digit(None)
        else:
            count, lane = Digit(stick, per_stick), Digit(stick, 1, per_stick)
        inner = [Digit(dim) for dim in others[:1]]
        outer = [Digit(dim) for dim in others[1:]]
        middle = [count, *outer] if stick_outermost else [*outer, count]
        return cls(shape, dtype, (*middle, *inner, lane))

    @property
    def elements_per_stick(self) -> int:
        return elements_per_stick(self.dtype)

    @property
    def stick_dim(self) -> int | None:
        """The logical dim whose elements lie in the stick; None if sparse."""
        return self.digits[-1].dim

    @property
    def device_size(self) -> tuple[int, ...]:
        """Sizes of the device array, outermost first; the last is a whole stick."""
        return (*(digit.size(self.shape) for digit in self.digits[:-1]), self.elements_per_stick)

    @property
    def device_strides(self) -> tuple[int, ...]:
        """Row-major strides of the device array, in elements."""
        sizes = self.device_size
        return tuple(math.prod(sizes[k + 1 :]) for k in range(len(sizes)))

    @property
    def stride_map(self) -> tuple[int, ...]:
        """Host elements that one step in each device dim advances; -1 where no host dim of size > 1 feeds it."""
        host = [math.prod(self.shape[k + 1 :]) for k in range(len(self.shape))]
        return tuple(
            -1 if digit.dim is None or self.shape[digit.dim] == 1 else digit.divisor * host[digit.dim]
            for digit in self.digits
        )

    @property
    def bytes(self) -> int:
        """Device bytes, padding included."""
        return math.prod(self.device_size) * ELEMENT_BYTES[self.dtype]

    def extent(self, dim: int) -> int:
        """How many positions of a logical dim the device array has room for."""
        return max(
            (digit.divisor * digit.size(self.shape) for digit in self.digits if digit.dim == dim), default=1
        )

    @property
    def padding(self) -> tuple[int, ...]:
        """Positions beyond the shape, per logical dim."""
        return tuple(self.extent(dim) - size for dim, size in enumerate(self.shape))

    def padded(self, dim: int, multiple: int) -> StickLayout:
        """The same layout with room for a whole multiple of positions in one dim."""
        outermost = max(
            (digit for digit in self.digits[:-1] if digit.dim == dim), key=lambda d: d.divisor, default=None
        )
        if outermost is None or self.extent(dim) % multiple == 0:
            return self
        if multiple % outermost.divisor:
            raise ValueError(
                f"dim {dim} has digits of {outermost.divisor}, they cannot fill multiples of {multiple}"
            )
        size = -(-self.extent(dim) // multiple) * multiple // outermost.divisor
        changed = replace(outermost, modulus=size)
        return replace(self, digits=tuple(changed if digit == outermost else digit for digit in self.digits))

    def reshaped_to(self, shape: Sequence[int]) -> StickLayout:
        """The same map for a tensor of another extent (a slice keeps its attribute)."""
        return replace(self, shape=tuple(shape))
