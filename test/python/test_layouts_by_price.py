# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Large inputs in the layouts that cost least: decoding over caches on the simulator, against PyTorch."""

import random

import numpy as np
import pytest
import torch
from programs import check_close

import spyre_mlir
from spyre_mlir.errors import CompileError

torch.manual_seed(0)


class Model(torch.nn.Module):
    """A function as a model, for ``check_close``."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def attention(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1])


def rows_first(q, k, v):
    """The caches as [batch, positions, heads, columns]."""
    return attention(*(each.transpose(1, 2) for each in (q, k, v))).transpose(1, 2)


def masked(q, k, v, mask):
    groups = k.shape[1]
    folded = q.reshape(q.shape[0], groups, -1, q.shape[-1])
    weights = torch.softmax(folded @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + mask, -1)
    return (weights @ v).reshape(q.shape)


def tensors(batch, heads, groups, positions, columns, *, is_rows_first=False):
    shapes = [(batch, heads, 1, columns), *[(batch, groups, positions, columns)] * 2]
    if is_rows_first:
        shapes = [(shape[0], shape[2], shape[1], shape[3]) for shape in shapes]
    return [torch.randn(shape).half() / 2 for shape in shapes]


def sticks(program):
    """Return the stick dim of each input, in the layout of the program."""
    return [
        program.to_device(each.name, np.zeros(each.host_shape, each.host_dtype)).layout.stick_dim
        for each in program.inputs
    ]


def opcodes(program):
    return [execution.opcode for execution in program.timeline().executions]


#: Attention over caches of at least 512 KiB: batch, heads, groups, positions, columns.
SHAPES = {
    "grouped": (2, 8, 2, 1024, 64),
    "multi-query": (2, 4, 1, 2048, 64),
    "all heads": (2, 4, 4, 1024, 64),
    "odd positions": (1, 4, 2, 2100, 64),
    "odd columns": (1, 4, 4, 1024, 72),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("model", [attention, rows_first])
def test_numbers_are_those_of_torch(name, model):
    inputs = tensors(*SHAPES[name], is_rows_first=model is rows_first)
    program = spyre_mlir.compile(model, inputs)
    assert "ReStickifyOpHBM" not in opcodes(program)
    check_close(model.__name__, program(*inputs), Model(model), inputs)


def test_default_layouts_by_the_flag_and_faster_without():
    inputs = tensors(*SHAPES["grouped"])
    priced = spyre_mlir.compile(attention, inputs)
    default = spyre_mlir.compile(attention, inputs, argument_layouts="default")
    assert sticks(priced) == [3, 2, 3] and sticks(default) == [3, 3, 3]
    assert priced.timeline().total_ns < default.timeline().total_ns
    (remark,) = [each for each in priced.remarks if each.kind == "argument layout" and "'k'" in each.reason]
    assert "d2 in the stick" in remark.reason


def test_a_layout_of_the_caller_holds():
    inputs = tensors(*SHAPES["grouped"])
    program = spyre_mlir.compile(attention, inputs, layouts={"k": {"stick_dims": [3]}})
    assert sticks(program) == [3, 3, 3]
    check_close("pinned", program(*inputs), Model(attention), inputs)


def test_small_inputs_stay():
    """Keys and values of 64 KiB: on the device they are converted in two microseconds."""
    inputs = tensors(1, 4, 2, 256, 64)
    assert sticks(spyre_mlir.compile(attention, inputs)) == [3, 3, 3]


def test_masks_and_tensors_on_the_device():
    """All calls accept a cache that is laid out once; a cache in another layout is an error with the remedy."""
    inputs = [*tensors(*SHAPES["grouped"]), torch.zeros(2, 1, 1, 1024).half()]
    inputs[-1][..., 900:] = -60000
    program = spyre_mlir.compile(masked, inputs)
    cache = {
        each.name: program.to_device(each.name, array)
        for each, array in zip(program.inputs, inputs, strict=True)
    }
    assert cache["k"].layout.stick_dim == 2
    for _ in range(2):
        check_close("masked", program(inputs[0], cache["k"], cache["v"], inputs[3]), Model(masked), inputs)
    with pytest.raises(CompileError, match=r"convert the input with Program\.to_device"):
        program(inputs[0], spyre_mlir.to_device(inputs[1]), cache["v"], inputs[3])
    with pytest.raises(CompileError, match="has no input 'keys' on the device; its inputs are q, k, v, mask"):
        program.to_device("keys", inputs[1])
    laid_out = spyre_mlir.compile(masked, [inputs[0], spyre_mlir.to_device(inputs[1]), *inputs[2:]])
    assert sticks(laid_out)[1] == 3


def test_a_saved_program_takes_what_it_took(tmp_path):
    inputs = tensors(*SHAPES["grouped"])
    program = spyre_mlir.compile(attention, inputs, sencores=8)
    program.save(tmp_path / "program")
    loaded = spyre_mlir.Program.load(tmp_path / "program")
    assert sticks(loaded) == sticks(program)
    arrays = [each.numpy() for each in inputs]
    np.testing.assert_array_equal(
        np.asarray(loaded(*arrays)).reshape(-1), program(*inputs).numpy().reshape(-1)
    )


def test_plans_keep_them():
    inputs = tensors(*SHAPES["grouped"])
    plan = spyre_mlir.compile(attention, inputs, argument_layouts="default").plan()
    assert sticks(spyre_mlir.compile(attention, inputs, plan=plan)) == [3, 3, 3]
    plan = spyre_mlir.compile(attention, inputs).plan()
    assert sticks(spyre_mlir.compile(attention, inputs, plan=plan, argument_layouts="default")) == [3, 2, 3]


@pytest.mark.parametrize("seed", range(8))
def test_random_decoding(seed):
    chosen = random.Random(seed)
    groups, columns = chosen.choice([1, 2, 4]), chosen.choice([32, 64, 80])
    batch, heads = chosen.choice([1, 2, 3]), groups * chosen.choice([1, 2, 3])
    positions = chosen.randrange(256, 1500)
    model = chosen.choice([attention, rows_first])
    inputs = tensors(batch, heads, groups, positions, columns, is_rows_first=model is rows_first)
    program = spyre_mlir.compile(model, inputs, sencores=chosen.choice([1, 4, 32]))
    check_close(model.__name__, program(*inputs), Model(model), inputs)


class AddTransposed(torch.nn.Module):
    def forward(self, x, y):
        return torch.exp(x).T + y


class OfOneTensor(torch.nn.Module):
    def forward(self, x):
        return attention(x, x, x)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("model", "shapes"),
    [
        (AddTransposed(), ((512, 1024), (1024, 512))),
        (Model(attention), ((1, 32, 2048, 128), (1, 8, 2048, 128), (1, 8, 2048, 128))),
        (OfOneTensor(), ((2, 32, 2048, 128),)),
        (Model(attention), ((8, 32, 1, 128), (8, 8, 4096, 128), (8, 8, 4096, 128))),
    ],
    ids=["add", "prefill", "one tensor", "decode"],
)
def test_no_layout_of_an_input_makes_a_program_slower(model, shapes):
    """Fewer conversions may give worse divisions and loads that wait: the timeline of the program decides."""
    inputs = [torch.empty(shape, dtype=torch.float16, device="meta") for shape in shapes]
    by_price = spyre_mlir.compile(model, inputs)
    default = spyre_mlir.compile(model, inputs, argument_layouts="default")
    assert by_price.timeline().total_ns <= 1.001 * default.timeline().total_ns


class Skip(torch.nn.Module):
    """A coarse image of twice the size and a fine image, concatenated, through a convolution."""

    def __init__(self, coarse, fine):
        super().__init__()
        self.convolution = torch.nn.Conv2d(coarse + fine, fine, 3, padding=1)

    def forward(self, x, skip):
        wide = torch.nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
        return self.convolution(torch.cat((wide, skip), 1))


def test_parts_of_whole_sticks_are_written_in_one_piece():
    """Channels of two images side by side: with their sticks outermost no part is written stick by stick."""
    model = Skip(128, 64).half().eval()
    inputs = [torch.empty(shape, dtype=torch.float16) for shape in ((1, 128, 64, 64), (1, 64, 128, 128))]
    program = spyre_mlir.compile(model, inputs)
    copies = [each for each in program.timeline().executions if each.opcode == "identity"]
    written = [each.work.operands[-1] for each in copies]
    assert written and all(operand.run_bytes >= 4096 for operand in written)
    assert "ReStickifyOpHBM" not in opcodes(program)


def test_images_side_by_side_on_the_simulator():
    model = Skip(64, 64).half().eval()
    inputs = [torch.randn(shape).half() for shape in ((1, 64, 32, 32), (1, 64, 64, 64))]
    check_close("images side by side", (spyre_mlir.compile(model, inputs)(*inputs),), model, inputs)


def test_a_run_is_tiled_only_where_it_pays_among_its_neighbours():
    """Two cores compute a wide softmax in tiles in less time than one core, and in less than without tiles."""

    def model(x):
        return torch.softmax(x, -1)

    inputs = [torch.empty(8, 128256, dtype=torch.float16)]
    program, single = (spyre_mlir.compile(model, inputs, sencores=cores) for cores in (2, 1))
    reasons = [each.reason for each in program.remarks if each.pass_name == "auto-tiling"]
    assert any(" tiles, whose intermediates then fit" in reason for reason in reasons)
    untiled = spyre_mlir.compile(model, inputs, sencores=2, tile_for_lx=False)
    times = [each.timeline().total_ns for each in (program, single, untiled)]
    assert min(times) == times[0]
    assert 3 * times[0] < times[2]
