# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Traffic of attention of many shapes."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.registry import Metrics, Noted, benchmark

BATCHES, HEADS, LENGTHS, COLUMNS = (1, 2, 4, 8), (8, 32, 64), (512, 1024, 2048, 4096), 128

#: Heads of keys: as many as heads, groups of 8, one for all.
GROUPED, ALL = 8, 1

#: The allowed traffic over its bound, which is each input and result once.
LIMIT = 1.3

#: Batch, heads, heads of keys, length, causal or not.
Shape = tuple[int, int, int, int, bool]


@benchmark(over_limit_without_price=0)
def attention(every: int = 37, most_seconds: int = 3600) -> Metrics:
    """Traffic of compiled attention over its bound, on 32 cores: batch, heads, grouped or not, length, causal or not.

    ``--every 1`` compiles all shapes, ``--every N`` each N-th shape; no compilation begins after ``--most_seconds``.
    The bound is each input and the result once, without a causal mask. Shapes over 1.3 have a remark with costs.
    """
    begin, notes, ratios, unpriced = time.monotonic(), [], [], 0
    for shape in list(_shapes())[::every]:
        if time.monotonic() - begin > most_seconds:
            break
        ratio, microseconds, priced = _compiled(shape)
        ratios.append(ratio)
        unpriced += ratio > LIMIT and not priced
        told = "" if ratio <= LIMIT else ", with prices" if priced else ", without a price"
        notes.append(f"{_text(shape)}: {ratio:.2f}, {microseconds:.0f} us{told}")
        print(notes[-1], flush=True)
    metrics = {
        "shapes": len(ratios),
        "over_limit": sum(ratio > LIMIT for ratio in ratios),
        "over_limit_without_price": unpriced,
        "ratio_geomean": math.exp(math.fsum(map(math.log, ratios)) / len(ratios)),
        "ratio_max": max(ratios),
    }
    return Noted(metrics, notes)


def _shapes() -> Iterator[Shape]:
    for batch, heads, length, causal in itertools.product(BATCHES, HEADS, LENGTHS, (False, True)):
        for keys in dict.fromkeys((heads, GROUPED, ALL)):
            yield batch, heads, keys, length, causal


def _text(shape: Shape) -> str:
    batch, heads, keys, length, causal = shape
    return f"{batch} x {heads} ({keys}) x {length}{' causal' if causal else ''}"


def _compiled(shape: Shape) -> tuple[float, float, bool]:
    """Return traffic over its bound, predicted microseconds, and whether a remark of the rewrite has a cost."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    import spyre_mlir

    batch, heads, keys, length, causal = shape
    query = torch.empty((batch, heads, length, COLUMNS), dtype=torch.float16)
    key, value = (torch.empty((batch, keys, length, COLUMNS), dtype=torch.float16) for _ in range(2))

    def run(query: Any, key: Any, value: Any) -> Any:
        return scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=heads != keys)

    program = spyre_mlir.compile(run, (query, key, value))
    found = program.timeline()
    bound = 2 * (2 * query.numel() + 2 * key.numel())
    priced = any("bytes" in each.reason for each in program.remarks if each.pass_name == "online-softmax")
    return (found.read_bytes + found.written_bytes) / bound, found.total_ns / 1000, priced
