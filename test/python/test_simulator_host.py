# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transfers between host and device memory: the layouts of docs/layouts.md and others, types, shapes, padding."""

import math

import numpy as np
import pytest

from spyre_mlir.bundle.model import KernelArgument, Transfer
from spyre_mlir.bundle.transfer import valid_parts
from spyre_mlir.simulator import SimulationError
from spyre_mlir.simulator.machine import check_array, load_argument, read_argument
from spyre_mlir.simulator.memory import HOST, NOBODY, Memory
from spyre_mlir.target.formats import FORMATS, Numerics

DL16, INT32 = "SEN169_FP16", "IEEE_INT32"
IEEE = Numerics()
# Host size, device size, host elements per device dim: the check vectors of test_layout.py.
LAYOUTS = [
    ([], [1, 64], [-1, -1]),
    ([120], [2, 64], [64, 1]),
    ([512, 240], [4, 512, 64], [64, 240, 1]),
    ([512, 8, 240], [8, 4, 512, 64], [240, 64, 1920, 1]),
    ([5, 100, 150], [100, 3, 5, 64], [150, 64, 15000, 1]),
    ([5, 100, 150], [5, 3, 100, 64], [15000, 64, 150, 1]),
    ([512, 256], [8, 256, 64], [16384, 1, 256]),
    ([512, 8, 256], [256, 1, 512, 64], [1, 16384, 2048, 256]),
    ([512, 256], [256, 1, 512, 64], [1, -1, 256, -1]),
]


def make(host: list[int], device: list[int], stride_map: list[int], **changes) -> KernelArgument:
    """The argument of a layout: a loop per device dim; the stick dim is the host dim of the last stride."""
    strides = [math.prod(device[k + 1 :]) for k in range(len(device))]
    kept = [k for k, stride in enumerate(stride_map) if stride != -1]
    bounds = []
    if kept and kept[-1] == len(device) - 1:
        lane = stride_map[-1]
        host_strides = [math.prod(host[k + 1 :]) for k in range(len(host))]
        size = next(s for s, stride in zip(host, host_strides, strict=True) if stride == lane)
        sticks = [n for n, k in enumerate(kept) if stride_map[k] == 64 * lane and device[k] == -(-size // 64)]
        if sticks:
            bounds.append(((sticks[-1], len(kept) - 1), (64, 1), size))
        else:
            bounds.append(((len(kept) - 1,), (1,), size))
    fields = {
        "name": "x",
        "kind": "input",
        "parameter": "arg0",
        "host_dtype": "float16",
        "host_shape": tuple(host),
        "data_format": DL16,
        "device_size": tuple(device),
        "bytes": math.prod(device) * 2,
        "transfer": Transfer(
            tuple(device[k] for k in kept),
            tuple(stride_map[k] for k in kept),
            tuple(strides[k] for k in kept),
            tuple(bounds),
        ),
    }
    return KernelArgument(**{**fields, **changes})


def expected_device(array: np.ndarray, device: list[int], stride_map: list[int], fill: float) -> np.ndarray:
    """The device array by the definition of the stride map, which adds coordinates up to host indices."""
    host_strides = [stride // array.itemsize for stride in array.strides]
    where = [np.zeros(device, int) for _ in array.shape]
    inside = np.ones(device, bool)
    for axis, stride in enumerate(stride_map):
        coordinate = np.arange(device[axis]).reshape([-1 if k == axis else 1 for k in range(len(device))])
        if stride == -1:
            inside &= coordinate == 0
            continue
        fed = max((s, k) for k, s in enumerate(host_strides) if stride % s == 0)[1]
        where[fed] += coordinate * (stride // host_strides[fed])
    for index, size in zip(where, array.shape, strict=True):
        inside &= index < size
    result = np.full(device, fill, array.dtype)
    result[inside] = array[tuple(index[inside] for index in where)]
    return result


def small(sizes: list[int]) -> bool:
    return math.prod(sizes) < 1_200_000


@pytest.mark.parametrize(("host", "device", "stride_map"), [case for case in LAYOUTS if small(case[1])])
def test_device_memory_holds_what_the_stride_map_says(host, device, stride_map):
    argument = make(host, device, stride_map, fill=9.0)
    array = (np.arange(math.prod(host)) % 2039).reshape(host).astype(np.float16)
    memory = Memory(argument.bytes + 256, 128)
    load_argument(memory, 128, argument, array, IEEE)
    found = memory.data[128 : 128 + argument.bytes].view(np.float16).reshape(device)
    np.testing.assert_array_equal(found, expected_device(array, device, stride_map, 9.0))
    assert (memory.shadow[128 : 128 + argument.bytes].view(np.uint16) == HOST).all()
    assert (memory.shadow[:128] == NOBODY).all() and (memory.shadow[128 + argument.bytes :] == NOBODY).all()


@pytest.mark.parametrize(("host", "device", "stride_map"), LAYOUTS)
@pytest.mark.parametrize("numerics", ["ieee", "dl16"])
def test_what_is_loaded_can_be_read_back(host, device, stride_map, numerics):
    argument = make(host, device, stride_map)
    array = (np.arange(math.prod(host)) % 512).reshape(host).astype(np.float16)
    memory = Memory(argument.bytes, 128)
    load_argument(memory, 0, argument, array, Numerics(numerics))
    np.testing.assert_array_equal(read_argument(memory, 0, argument, Numerics(numerics)), array)


def positions(transfer: Transfer) -> list[tuple[int, ...]]:
    found = []
    for part in valid_parts(transfer):
        ranges = [range(start, start + count) for start, count in part]
        found += [tuple(int(i) for i in p) for p in np.stack(np.meshgrid(*ranges, indexing="ij"), -1).reshape(
            -1, len(ranges))]  # fmt: skip
    return found


@pytest.mark.parametrize("size", [0, 1, 5, 8, 13, 24, 100])
@pytest.mark.parametrize("weights", [(8, 1, 2), (1, 3, 7), (4, 4, 1)])
def test_bounds_keep_exactly_the_positions_inside(size, weights):
    transfer = Transfer((3, 2, 4), (0,) * 3, (0,) * 3, (((0, 1, 2), weights, size),))
    expected = [p for p in np.ndindex(3, 2, 4) if sum(i * w for i, w in zip(p, weights, strict=True)) < size]
    assert sorted(positions(transfer)) == sorted(expected)


def test_two_bounds_hold_together():
    transfer = Transfer((2, 4, 3), (0,) * 3, (0,) * 3, (((0, 1), (4, 1), 6), ((2,), (1,), 2)))
    assert len(positions(transfer)) == 6 * 2


def through(host_dtype: str, data_format: str, array: np.ndarray, numerics: str = "ieee") -> np.ndarray:
    lanes = FORMATS[data_format].stick_elements(128)
    transfer = Transfer((array.size,), (1,), (1,))
    argument = make(list(array.shape), [1, lanes], [64, 1], host_dtype=host_dtype, data_format=data_format,
                    bytes=128, transfer=transfer)  # fmt: skip
    check_array(argument, array)
    memory = Memory(128, 128)
    load_argument(memory, 0, argument, array, Numerics(numerics))
    return read_argument(memory, 0, argument, Numerics(numerics))


@pytest.mark.parametrize(
    ("dtype", "data_format", "values"),
    [
        ("bool", DL16, [True, False]),
        ("float32", DL16, [1.5, -2.25]),
        ("float32", "IEEE_FP32", [0.1, -3e30]),
        ("float16", "IEEE_FP32", [0.1, 60000]),
        ("int64", INT32, [-(2**31), 2**31 - 1]),
        ("int32", INT32, [-7, 7]),
        ("bool", INT32, [True, False]),
        ("int64", DL16, [-300, 12]),
    ],
)
@pytest.mark.parametrize("numerics", ["ieee", "dl16"])
def test_host_types(dtype, data_format, values, numerics):
    array = np.array(values, dtype)
    found = through(dtype, data_format, array, numerics)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_bfloat16_comes_as_bits_or_numbers_and_returns_as_numbers():
    numbers = np.array([1.0, -2.5, 0.15625], np.float32)
    bits = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    for array in (numbers, bits):
        found = through("bfloat16", DL16, array)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, numbers)


def test_bfloat16_results_are_rounded_to_even():
    rounded = through("bfloat16", "IEEE_FP32", np.array([1 + 2**-8, 1 + 3 * 2**-8, np.inf], np.float32))
    np.testing.assert_array_equal(rounded, [1, 1 + 2**-6, np.inf])


@pytest.mark.parametrize(
    ("host_dtype", "data_format", "array", "message"),
    [
        ("float16", DL16, np.zeros(2, np.float32), "is float32, but the argument is float16"),
        ("bfloat16", DL16, np.zeros(2, np.float16), "is float16"),
        ("int64", INT32, np.array([2**31]), "outside the range"),
        ("float32", INT32, np.zeros(2, np.float32), "cannot become"),
    ],
)
def test_host_types_that_do_not_fit(host_dtype, data_format, array, message):
    with pytest.raises(SimulationError, match=message):
        through(host_dtype, data_format, array)


def test_a_wrong_shape():
    argument = make([120], [2, 64], [64, 1])
    with pytest.raises(SimulationError, match=r"shape \[2, 60\], but the argument has \[120\]"):
        check_array(argument, np.zeros((2, 60), np.float16))


@pytest.mark.parametrize(("host", "device"), [((1,), (0,)), ((0,), (70,)), ((-1,), (1,))])
def test_a_transfer_outside_host_or_device(host, device):
    argument = make([1], [1, 64], [64, 1], transfer=Transfer((2,), host, device))
    with pytest.raises(SimulationError, match="its transfer touches"):
        load_argument(Memory(128, 128), 0, argument, np.zeros(1, np.float16), IEEE)


def test_an_infinite_fill_is_the_lowest_number_of_the_format():
    memory = Memory(128, 128)
    argument = make([2], [1, 64], [64, 1], fill=-math.inf, bytes=128)
    load_argument(memory, 0, argument, np.zeros(2, np.float16), Numerics("dl16"))
    assert memory.data.view(np.uint16)[2] == 0xFFFE
