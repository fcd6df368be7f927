# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program whose arguments and results are larger than device memory is refused, and none that fits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import spyre_mlir
from spyre_mlir.bundle.validate import validate

PACKAGED = Path(spyre_mlir.__file__).parent / "target" / "spyre.toml"
CACHE_BYTES = 1024 * 64 * 2
ROW_BYTES = 128
CONSTANT_BYTES = 128 + 64 * 128  # the 1 that is added, and the mask of the row among 64


class Cache(torch.nn.Module):
    keys: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1024, 64).half())

    def forward(self, row: torch.Tensor) -> torch.Tensor:
        self.keys[7:8] = row
        return row + 1


def device(folder: Path, memory: int) -> Path:
    """A device file with ``memory`` bytes of device memory."""
    text = PACKAGED.read_text(encoding="utf-8")
    for field, value in (("bytes = 120259084288", memory), ("pool_bytes = 16106127360", 16384)):
        assert f"\n{field}" in text
        text = text.replace(field, f"{field.partition(' ')[0]} = {value}")
    path = folder / "small.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_arguments_that_fit_exactly(tmp_path: Path) -> None:
    """A cache that is changed in place takes its bytes once, for the compiler and for the validator."""
    row = torch.zeros(1, 64).half()
    memory = CACHE_BYTES + 2 * ROW_BYTES + CONSTANT_BYTES
    program = spyre_mlir.compile(Cache(), (row,), device=device(tmp_path, memory))
    assert validate(program.bundle) == []
    with pytest.raises(spyre_mlir.CompileError, match=f"take {memory} bytes, the device has {memory - 128}"):
        spyre_mlir.compile(Cache(), (row,), device=device(tmp_path, memory - 128))
