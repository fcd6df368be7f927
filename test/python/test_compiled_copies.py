# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies tile by tile, between arrays that lie in memory in different orders."""

from __future__ import annotations

import numpy as np
import pytest

from spyre_mlir.simulator import compiled
from spyre_mlir.simulator.compiled import copy_array

RNG = np.random.default_rng(7)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
@pytest.mark.parametrize(("rows", "columns"), [(640, 100), (64, 64), (333, 77), (5000, 3)])
def test_sticks_of_the_transposed_tensor(rows, columns, dtype):
    host = RNG.integers(0, 255, (rows, columns)).astype(dtype)
    host.flags.writeable = False
    target = np.zeros((columns, rows), dtype)
    copy_array(target, host.T)
    np.testing.assert_array_equal(target, host.T)


@pytest.mark.parametrize("seed", range(40))
def test_any_order_and_any_part(seed, monkeypatch):
    monkeypatch.setattr(compiled, "_PLANE_ELEMENTS", 1)
    rng = np.random.default_rng(seed)
    shape = rng.integers(1, 40, rng.integers(1, 5))
    whole = rng.integers(0, 255, shape + rng.integers(0, 3, len(shape))).astype(np.uint16)
    source = whole[tuple(slice(count) for count in shape)].transpose(rng.permutation(len(shape)))
    around = np.full([count + 2 for count in source.shape], 999, np.uint16)
    inside = (slice(1, -1),) * source.ndim
    copy_array(around[inside], source)
    np.testing.assert_array_equal(around[inside], source)
    around[inside] = 999
    assert (around == 999).all()
