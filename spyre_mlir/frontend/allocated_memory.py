# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.spyre.memory``: bytes of the storages of tensors on the device, including the padding of their layouts.

A storage is freed when its last tensor is collected. There is not a cache, so reserved bytes equal allocated bytes.
"""

from __future__ import annotations

from typing import Any

from spyre_mlir.frontend.device_streams import check_device
from spyre_mlir.target.target import default_target
from spyre_mlir.tensors.device_tensor import live_storages


def memory_allocated(device: Any = None) -> int:
    """Return the number of bytes of the storages that are alive."""
    check_device(device)
    return live_storages.allocated_bytes


def max_memory_allocated(device: Any = None) -> int:
    """The maximum number of bytes that were alive since the last ``reset_peak_memory_stats``."""
    check_device(device)
    return live_storages.peak_bytes


def reset_peak_memory_stats(device: Any = None) -> None:
    """Reset the peak to the bytes that are alive now."""
    check_device(device)
    live_storages.reset_peak()


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Reset the counts of allocated and freed bytes to 0."""
    check_device(device)
    live_storages.reset_totals()


memory_reserved = memory_allocated
max_memory_reserved = max_memory_allocated


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return the free bytes and the total bytes of the device memory."""
    check_device(device)
    total = default_target().hbm_bytes
    return max(0, total - live_storages.allocated_bytes), total


def memory_stats(device: Any = None) -> dict[str, int]:
    """Return the counts, keyed by the names of ``torch.accelerator.memory_stats``."""
    check_device(device)
    counts = {
        "current": live_storages.allocated_bytes,
        "peak": live_storages.peak_bytes,
        "allocated": live_storages.total_allocated_bytes,
        "freed": live_storages.total_freed_bytes,
    }
    kinds = ("allocated_bytes", "reserved_bytes")
    return {f"{kind}.all.{name}": count for kind in kinds for name, count in counts.items()}


def empty_cache() -> None:
    """Do nothing: no bytes are kept for later use."""
