"""Host transfer of a layout: the three tuples of the tiled-tensor RFC, with bounds for padded dims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spyre_mlir.layout.stick_layout import StickLayout


@dataclass(frozen=True)
class DmaTuples:
    """Loop ranges, host strides and device strides in elements, outermost device dim first.

    ``bounds`` lists, for each host dim that several loops feed or that is padded, ``(loops, weights,
    size)``: a position is padding unless ``sum(i_loop * weight) < size``.
    """

    ranges: tuple[int, ...]
    host_strides: tuple[int, ...]
    device_strides: tuple[int, ...]
    bounds: tuple[tuple[tuple[int, ...], tuple[int, ...], int], ...]


def dma_tuples(layout: StickLayout, strides: Sequence[int] | None = None) -> DmaTuples:
    """The loop nest that moves a host array into the device array of ``layout``.

    ``strides`` are those of the host array, in elements, outermost dim first; without them it is dense and
    row-major.
    """
    shape = layout.shape
    host = strides or [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    ranges, host_strides, device_strides = [], [], []
    for digit, stride in zip(layout.digits, layout.device_strides, strict=True):
        ranges.append(digit.size(shape))
        host_strides.append(0 if digit.dim is None else digit.divisor * host[digit.dim])
        device_strides.append(stride)
    bounds = []
    for dim, size in enumerate(shape):
        loops = tuple(at for at, digit in enumerate(layout.digits) if digit.dim == dim)
        reach = 1 + sum((ranges[at] - 1) * layout.digits[at].divisor for at in loops)
        if reach > size:
            bounds.append((loops, tuple(layout.digits[at].divisor for at in loops), size))
    return DmaTuples(tuple(ranges), tuple(host_strides), tuple(device_strides), tuple(bounds))
