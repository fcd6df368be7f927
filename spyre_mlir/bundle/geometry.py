"""Where an operand lies: the rules of the docstring of ``model.py`` as arithmetic, in sticks and bytes.

Everything counts in sticks, the smallest thing that is ever moved: a position along a dim is one element,
except along the stick dim, where it is one stick.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from spyre_mlir.bundle.model import Design, Operand
from spyre_mlir.target.device import device


@dataclass(frozen=True)
class Region:
    """Sticks of a strided rectangle: ``counts[k]`` positions, ``strides[k]`` sticks apart."""

    counts: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def span_sticks(self) -> int:
        """Sticks from the first to the last one, both included."""
        return 1 + sum((count - 1) * stride for count, stride in zip(self.counts, self.strides, strict=True))

    @property
    def span_bytes(self) -> int:
        return self.span_sticks * device().stick_bytes


def slice_sizes(design: Design, core: int) -> dict[str, int]:
    """Elements of each dim that the core works on; the last slice may be shorter than the others."""
    slices, shares = design.core_slices[core], design.shares
    return {dim: min(shares[dim], size - slices[dim] * shares[dim]) for dim, size in design.sizes.items()}


def positions(operand: Operand, dim: str, size: int) -> int:
    """Positions of ``size`` elements along a dim of an operand: 1 where it does not vary, else elements or sticks."""
    if operand.scale[dim] != 1:
        return 1
    return -(-size // operand.stick_elements) if dim == operand.stick_dim else size


def memory_counts(design: Design, operand: Operand) -> tuple[int, ...]:
    """Positions per dim of the memory that the operand is a part of: the whole tensor, in LX one share."""
    sizes = design.sizes if operand.memory == "hbm" else design.shares
    return tuple(positions(operand, dim, sizes[dim] + operand.gap.get(dim, 0)) for dim in operand.dim_order)


def memory_strides(design: Design, operand: Operand) -> tuple[int, ...]:
    """Sticks between neighbours along each dim of ``dim_order``."""
    counts = memory_counts(design, operand)
    return tuple(prod(counts[:k]) for k in range(len(counts)))


def valid_sizes(design: Design, core: int) -> dict[str, int]:
    """Elements of each dim that the core works on and that are no padding; 0 for a slice of padding alone."""
    padded = slice_sizes(design, core)
    ends = {dim: size - design.padding.get(dim, 0) for dim, size in design.sizes.items()}
    slices = design.core_slices[core]
    return {
        dim: max(0, min(size, ends[dim] - slices[dim] * design.shares[dim])) for dim, size in padded.items()
    }


def core_region(design: Design, operand: Operand, core: int, valid: bool = False) -> Region:
    """The sticks that a core reads or writes, relative to its start address; with ``valid`` those that
    hold more than padding."""
    sizes = valid_sizes(design, core) if valid else slice_sizes(design, core)
    counts = tuple(positions(operand, dim, sizes[dim]) for dim in operand.dim_order)
    return Region(counts, memory_strides(design, operand))


def core_offset_bytes(design: Design, operand: Operand, core: int) -> int:
    """Bytes from the start of an HBM tensor to the start of the core's slice of it."""
    offset = 0
    for dim, stride in zip(operand.dim_order, memory_strides(design, operand), strict=True):
        if operand.scale[dim] == 1:
            offset += positions(operand, dim, design.core_slices[core][dim] * design.shares[dim]) * stride
    return offset * device().stick_bytes


def lx_bytes(design: Design, operand: Operand) -> int:
    """Bytes that an operand occupies in the LX of each core."""
    return prod(memory_counts(design, operand)) * device().stick_bytes
