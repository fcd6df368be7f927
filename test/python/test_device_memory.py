# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program is refused exactly if its arguments and results exceed device memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import spyre_mlir
from spyre_mlir.bundle.validate import validate
from spyre_mlir.passes.joint_planning import JointPlanning

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


def test_weights_without_room_are_refused_before_they_are_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers that are left out count; a weight of which a part is read does not."""
    layers = [torch.nn.Linear(128, 128, bias=False).half() for _ in range(40)]
    weights = sum(layer.weight.nbytes for layer in layers)
    planned: list[object] = []
    monkeypatch.setattr(JointPlanning, "decide", lambda *function: planned.append(function))
    x = torch.zeros(64, 128).half()
    with pytest.raises(spyre_mlir.CompileError, match=f"at least {weights + x.nbytes} bytes.*fewer layers"):
        spyre_mlir.compile(torch.nn.Sequential(*layers), (x,), device=device(tmp_path, weights))
    assert not planned


def test_a_table_of_which_a_part_is_read(tmp_path: Path) -> None:
    """The device gets the part, so the whole need not fit."""
    table = torch.nn.Parameter(torch.zeros(1 << 16, 64).half())

    class Sliced(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = table

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.table[:64]

    x = torch.zeros(64, 64).half()
    program = spyre_mlir.compile(Sliced(), (x,), device=device(tmp_path, table.nbytes // 2))
    assert validate(program.bundle) == []


def test_arguments_that_fit_exactly(tmp_path: Path) -> None:
    """A cache that is changed in place counts once, for the compiler and for the validator."""
    row = torch.zeros(1, 64).half()
    memory = CACHE_BYTES + 2 * ROW_BYTES + CONSTANT_BYTES
    program = spyre_mlir.compile(Cache(), (row,), device=device(tmp_path, memory))
    assert validate(program.bundle) == []
    with pytest.raises(spyre_mlir.CompileError, match=f"take {memory} bytes, the device has {memory - 128}"):
        spyre_mlir.compile(Cache(), (row,), device=device(tmp_path, memory - 128))
