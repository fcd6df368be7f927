"""The device description: ``spyre.toml`` as frozen values.

Nothing else in the product writes down a size, a limit or a rate of the hardware.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class ArrayRates:
    """Rates of a core's array of multiply-adds; ``spyre_mlir.cost.model`` has the formula.

    ``speedup``, by the format of the operands, is the factor over the multiply-adds of fp16.
    """

    multiply_adds_per_ns: float
    full_rows: int
    fill_exponent: float
    split_sum_slowdown: float
    speedup: Mapping[str, float]


@dataclass(frozen=True)
class SharingRates:
    """Slowdown of loads that many cores share; ``spyre_mlir.cost.model`` has the formula."""

    uncontended_cores: int
    contention_exponent: float


@dataclass(frozen=True)
class RowReductionRates:
    """Bandwidth of a reduction over the stick by its rows: the least, and what is added to it for few rows."""

    least_bytes_per_ns: float
    more_bytes_per_ns: float
    decay_rows: float


@dataclass(frozen=True)
class RingRates:
    """Rates of the ring: a hop of a partial sum, a link in one direction, and the fit of ``spyre_mlir.cost.ring``."""

    partial_sum_ns: float
    link_bytes_per_ns: float
    relayout_run_ns: float
    relayout_run_split_ns: float
    relayout_bytes_per_ns: float
    relayout_splits: tuple[int, int]


@dataclass(frozen=True)
class Device:
    """Sizes, limits and rates of one device; the comments in ``spyre.toml`` name the sources."""

    cores: int
    emitted_corelets: int
    stick_bytes: int
    lx_bytes: int
    lx_reserved_bytes: int
    lx_backend_fraction: float
    lx_alignment_bytes: int
    hbm_bytes: int
    pool_bytes: int
    span_bytes: int
    hbm_alignment_bytes: int
    peak_bytes_per_ns: float
    one_way_bytes_per_ns: float
    turnaround_ns_per_byte: float
    restickify_bytes_per_ns: float
    broadcast_bytes_per_ns: float
    row_reduction: RowReductionRates
    burst_bytes: int
    burst_overhead_bytes: int
    hbm_access_ns: float
    saturation_cores: tuple[int, ...]
    saturation: tuple[float, ...]
    vector_sticks_per_ns: float
    ring: RingRates
    array: ArrayRates
    sharing: SharingRates
    loop_iterations: int
    operand_layouts: int
    loads_begin_early: bool

    def usable_lx_bytes(self, backend_fraction: float | None = None) -> int:
        """Bytes of LX per core that the compiler may use, a multiple of the alignment.

        ``ValueError`` if the fraction is not in [0, 1].
        """
        fraction = self.lx_backend_fraction if backend_fraction is None else backend_fraction
        if not 0 <= fraction <= 1:
            raise ValueError(f"lx-frac-avail is {fraction}; it is a part of LX, 0 to 1.")
        usable = int((self.lx_bytes - self.lx_reserved_bytes) * (1 - fraction))
        return -(-usable // self.lx_alignment_bytes) * self.lx_alignment_bytes


@functools.cache
def device() -> Device:
    """Read the device of ``spyre.toml``."""
    data = tomllib.loads(resources.files("spyre_mlir.target").joinpath("spyre.toml").read_text())
    return Device(
        cores=data["cores"]["count"],
        emitted_corelets=data["cores"]["emitted_corelets"],
        stick_bytes=data["stick"]["bytes"],
        lx_bytes=data["lx"]["bytes"],
        lx_reserved_bytes=data["lx"]["reserved_bytes"],
        lx_backend_fraction=data["lx"]["backend_fraction"],
        lx_alignment_bytes=data["lx"]["alignment_bytes"],
        hbm_bytes=data["hbm"]["bytes"],
        pool_bytes=data["hbm"]["pool_bytes"],
        span_bytes=data["hbm"]["span_bytes"],
        hbm_alignment_bytes=data["hbm"]["alignment_bytes"],
        peak_bytes_per_ns=data["hbm"]["peak_bytes_per_ns"],
        one_way_bytes_per_ns=data["hbm"]["one_way_bytes_per_ns"],
        turnaround_ns_per_byte=data["hbm"]["turnaround_ns_per_byte"],
        restickify_bytes_per_ns=data["hbm"]["restickify_bytes_per_ns"],
        broadcast_bytes_per_ns=data["hbm"]["broadcast_bytes_per_ns"],
        row_reduction=RowReductionRates(**data["row_reduction"]),
        burst_bytes=data["hbm"]["burst_bytes"],
        burst_overhead_bytes=data["hbm"]["burst_overhead_bytes"],
        hbm_access_ns=data["hbm"]["access_ns"],
        saturation_cores=tuple(data["hbm"]["saturation_cores"]),
        saturation=tuple(data["hbm"]["saturation"]),
        vector_sticks_per_ns=data["vector"]["sticks_per_ns"],
        ring=RingRates(**{**data["ring"], "relayout_splits": tuple(data["ring"]["relayout_splits"])}),
        array=ArrayRates(**data["array"]),
        sharing=SharingRates(**data["sharing"]),
        loop_iterations=data["program"]["loop_iterations"],
        operand_layouts=data["program"]["operand_layouts"],
        loads_begin_early=data["program"]["loads_begin_early"],
    )
