"""The price of moving bytes: short runs pay for every burst that they do not fill."""

from __future__ import annotations

import functools

from spyre_mlir.target.device import device


@functools.cache
def effective_bytes(transferred_bytes: int, run_bytes: int) -> int:
    """Bytes that full bursts would move in the time of ``transferred_bytes`` in runs of ``run_bytes``.

    Device memory moves bursts of at most ``burst_bytes``; each costs its bytes and a fixed
    ``burst_overhead_bytes`` (spyre.toml says what they are fitted to), so

        bytes * (1 + overhead / min(run, burst)) / (1 + overhead / burst)

    which is ``transferred_bytes`` itself for runs of a whole burst and more.
    """
    memory = device()
    burst, overhead = memory.burst_bytes, memory.burst_overhead_bytes
    run = min(max(run_bytes, 1), burst)
    return round(transferred_bytes * (1 + overhead / run) / (1 + overhead / burst))
