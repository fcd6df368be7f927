# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layouts in the form of torch-spyre: the same memory as the layouts of ``to_device``, and numbers that come back."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Sequence

import numpy as np
import pytest
import torch

import spyre_mlir.frontend  # noqa: F401  registers the device
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.tensor_layouts import (
    DataFormats,
    SpyreTensorLayout,
    get_device_dtype,
    get_elem_in_stick,
)

F16 = DataFormats.SEN169_FP16


def numbers(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """Different numbers that each dtype represents."""
    return (torch.arange(int(np.prod(shape))) % 251).to(dtype).reshape(shape)


@pytest.mark.parametrize("shape", [(), (1,), (70,), (3, 130), (130, 3), (2, 3, 64), (2, 5, 3, 70)], ids=str)
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.float32, torch.bool, torch.int64, torch.int8], ids=str
)
def test_orders_of_dims(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """A layout by device sizes and steps is the layout that the order of dims names."""
    x = numbers(*shape, dtype=dtype)
    orders: list[list[int] | None] = [None]
    if shape:
        orders += [list(order) for order in itertools.permutations(range(len(shape)))]
        orders.append([*range(len(shape)), -1])
    for order in orders:
        stl = (
            SpyreTensorLayout(shape, dtype)
            if order is None
            else SpyreTensorLayout(shape, x.stride(), dtype, order)
        )
        again = SpyreTensorLayout(
            device_size=stl.device_size, stride_map=stl.stride_map, device_dtype=get_device_dtype(dtype)
        )
        assert again == stl and hash(again) == hash(stl)
        moved = x.to(device_layout=again)
        expected = x.to("spyre") if order is None else x.to("spyre", dim_order=order)
        assert np.array_equal(moved.device_tensor.data, expected.device_tensor.data)
        assert moved.device_tensor_layout() == stl and torch.equal(moved.cpu(), x)


#: Shape and strides of a tensor, sizes and steps on the device, and whether a program can read the layout.
EXPLICIT = {
    "padded rows": ((40, 60), (60, 1), (1, 512, 64), (64, 60, 1), True),
    "one dim of two": ((512, 256), (256, 1), (2048, 64), (64, 1), True),
    "two dims of one": ((512,), (1,), (2, 4, 64), (256, 64, 1), True),
    "transposed": ((40, 60), (1, 40), (1, 60, 64), (64, 40, 1), True),
    "dims of size 1": ((60,), (1,), (1, 1, 1, 64), (60, 60, 64, 1), True),
    "cache position first": (
        (2, 3, 5, 70),
        (1050, 350, 70, 1),
        (5, 3, 2, 2, 64),
        (70, 350, 64, 1050, 1),
        True,
    ),
    "sparse": ((5, 7), (7, 1), (5, 7, 64), (7, 1, -1), True),
    "repeated": ((60,), (1,), (1, 512, 64), (64, 0, 1), False),
    "parts of 15": ((60,), (1,), (2, 2, 1, 1, 64), (30, 15, 64, 60, 1), False),
    "folded rows": ((40, 60), (60, 1), (38, 64), (64, 1), False),
}


@pytest.mark.parametrize("name", EXPLICIT)
def test_explicit_layouts(name: str) -> None:
    shape, strides, sizes, steps, is_readable = EXPLICIT[name]
    x = torch.empty_strided(shape, strides, dtype=torch.float16).copy_(numbers(*shape))
    stl = SpyreTensorLayout(sizes, steps, F16)
    moved = x.to("spyre", device_layout=stl)
    assert (stl.stick_layout(x) is not None) == is_readable
    assert moved.device_tensor_layout() == stl and moved.device.type == "spyre"
    if is_readable:
        assert moved.device_tensor.nbytes == int(np.prod(sizes)) * 2
        memory = moved.device_tensor.data.view(np.uint16).reshape(sizes)
        assert_places(x, memory, steps)
    for result, expected in ((moved, x), (moved + 1, x + 1), (torch.compile(torch.neg)(moved), -x)):
        assert torch.equal(result.cpu(), expected)


def assert_places(x: torch.Tensor, memory: np.ndarray, steps: Sequence[int]) -> None:
    """Each element of the host is at a place whose steps lead to it. Other places of its offset may be padding."""
    elements = torch.as_strided(x, (x.untyped_storage().nbytes() // 2,), (1,))
    codes = elements.clone().to("spyre").device_tensor.data.view(np.uint16)[: len(elements)].tolist()
    found: dict[int, set[int]] = {}
    for place in np.ndindex(*memory.shape):
        if all(step >= 0 or not index for index, step in zip(place, steps, strict=True)):
            offset = sum(index * step for index, step in zip(place, steps, strict=True))
            found.setdefault(offset, set()).add(int(memory[place]))
    assert all(code in found[offset] for offset, code in enumerate(codes))


def test_factories_have_layouts() -> None:
    stl = SpyreTensorLayout((5, 70), (70, 1), torch.float16, [1, 0])
    for made in (torch.zeros(5, 70, dtype=torch.float16, device_layout=stl), torch.empty(5, 70, dtype=torch.float16,
                 device="spyre", device_layout=stl, memory_format=torch.preserve_format)):  # fmt: skip
        assert made.device_tensor_layout() == stl
    with pytest.raises(RuntimeError, match="only supports contiguous"):
        torch.empty(1, 3, 4, 4, device_layout=stl, memory_format=torch.channels_last)


def test_layouts_are_values() -> None:
    stl = SpyreTensorLayout([512, 240], torch.float16)
    assert (
        pickle.loads(pickle.dumps(stl))
        == copy.deepcopy(stl)
        == stl
        != SpyreTensorLayout([512, 240], torch.float32)
    )
    assert str(stl) == (
        "SpyreTensorLayout(device_size=[4, 512, 64], stride_map =[64, 240, 1], device_dtype=DataFormats.SEN169_FP16)"
    )
    assert (
        stl.elems_per_stick() == get_elem_in_stick(torch.bfloat16) == 64
        and get_elem_in_stick(torch.int8) == 128
    )
    assert get_device_dtype(torch.float64) is DataFormats.INVALID


def test_wrong_layouts() -> None:
    with pytest.raises(CompileError, match="give each device dim a step"):
        SpyreTensorLayout([1, 64], [1], F16)
    for x, match in (
        (numbers(5, 70), "64 places for the 350 elements"),
        (numbers(3).float(), "is DataFormats.IEEE_FP32"),
    ):
        with pytest.raises(CompileError, match=match):
            x.to(device_layout=SpyreTensorLayout([1, 64], [64, 1], F16))
    with pytest.raises(TypeError, match="sizes and a dtype"):
        SpyreTensorLayout([1, 64])
    with pytest.raises(CompileError, match="has no elements"):
        get_elem_in_stick(torch.complex64)
    with pytest.raises(RuntimeError, match="float64 is not supported"):
        torch.empty(3, dtype=torch.float64, device="spyre")
