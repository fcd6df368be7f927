# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Print a table of the tensors of a function and their device layouts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import field

from spyre_mlir.layout.padding import States, state_text
from spyre_mlir.layout.stick_layout import StickLayout
from spyre_mlir.records import dataclass
from spyre_mlir.tables import aligned

_HEAD = ("tensor", "op", "shape", "type", "device size", "stick", "padding", "bytes", "origin", "location")


@dataclass(frozen=True)
class ListedTensor:
    """One tensor of a function: its name, its defining operation, its layout, its origin.

    ``owns_buffer`` is false for a view and for a part of another buffer, which do not own bytes.
    ``padding`` is the state of each padded dim whose state is resolved.
    """

    name: str
    operation: str
    layout: StickLayout
    origin: str
    location: str
    owns_buffer: bool = True
    restickified: bool = False
    padding: States = field(default_factory=dict)


def listing(function: str, tensors: Sequence[ListedTensor]) -> str:
    """Return the table of one function: a row per tensor, then the totals."""
    if not tensors:
        return f"@{function}: no tensors\n"
    rows = [_HEAD, *map(_row, tensors)]
    lines = [f"@{function}", *aligned(rows, "".join(">" if name == "bytes" else "<" for name in _HEAD))]
    buffers = [tensor.layout for tensor in tensors if tensor.owns_buffer]
    total, padding = sum(layout.bytes for layout in buffers), sum(map(padding_bytes, buffers))
    converted = [tensor.layout.bytes for tensor in tensors if tensor.restickified]
    lines.append(
        f"total: buffers {len(buffers)}, bytes {total:,}, padding {padding:,} ({percent(padding, total)}), "
        f"restickifies {len(converted)} ({sum(converted):,} bytes)"
    )
    return "\n".join(lines) + "\n"


def _row(tensor: ListedTensor) -> tuple[str, ...]:
    layout, states = tensor.layout, tensor.padding
    # For example ``d1 + 16: undefined``: the padding of each dim, the state of the padding, and the empty slots.
    padded = [
        f"d{dim} + {count}: {state_text(states[dim])}" if dim in states else f"d{dim} + {count}"
        for dim, count in enumerate(layout.padding)
        if count
    ]
    if layout.stick_dim is None:
        padded.append(f"{layout.elements_per_stick - 1} of {layout.elements_per_stick} lanes")
    return (
        tensor.name,
        tensor.operation,
        by(layout.shape),
        layout.dtype,
        by(layout.device_size),
        stick_text(layout),
        (", ".join(padded) or "-") if tensor.owns_buffer else "-",
        f"{layout.bytes if tensor.owns_buffer else 0:,}",
        tensor.origin,
        tensor.location or "-",
    )


def stick_text(layout: StickLayout) -> str:
    """Return the elements of each dim in the stick as text, ``d1 x 64``, or ``sparse``."""
    if layout.stick_dim is None:
        return "sparse"
    return ", ".join(f"d{digit.dim} x {digit.size(layout.shape)}" for digit in layout.stick_digits)


def padding_bytes(layout: StickLayout) -> int:
    """Return the device bytes that hold no element: positions beyond the shape, and empty slots of sparse sticks."""
    room = math.prod(layout.device_size)
    return layout.bytes * max(room - math.prod(layout.shape), 0) // max(room, 1)


def percent(part: int, whole: int) -> str:
    """Return ``part / whole`` as a percentage with one decimal; 0 if ``whole`` is 0."""
    return f"{100 * part / max(whole, 1):.1f} %"


def by(sizes: Iterable[int]) -> str:
    """Return sizes as text, ``4x512x64``; a tensor of rank 0 is ``scalar``."""
    return "x".join(map(str, sizes)) or "scalar"
