# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions and poolings as one operation of the device: numbers, forms, designs and the rules on them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from programs import Apply, check_close
from test_convolution import check_exact, whole_numbers
from torch import nn
from torch.nn import functional as F

import spyre_mlir
from spyre_mlir.bundle.conformance import check_folder
from spyre_mlir.bundle.design_json import from_json, to_json
from spyre_mlir.bundle.model import Design
from spyre_mlir.bundle.rules_design import stick_rules, windows
from spyre_mlir.errors import CompileError
from spyre_mlir.target.sliding import Sliding
from spyre_mlir.target.target import packaged_target


def opcodes(program: spyre_mlir.Program) -> list[str]:
    return [opcode for opcode, *_ in program.traffic().by_op]


FORMS = {
    "conv2d": (nn.Conv2d(64, 130, 3, 2, 1), (1, 64, 9, 11)),
    "conv2d of a batch": (nn.Conv2d(17, 64, 3, padding=1), (2, 17, 7, 6)),
    "conv2d of few channels": (nn.Conv2d(3, 64, 7, 2, 3), (1, 3, 16, 16)),
    "conv2d of groups": (nn.Conv2d(128, 64, 3, padding=2, dilation=2, groups=2), (1, 128, 6, 7)),
    "conv2d in one dim": (nn.Conv1d(80, 64, 3, 2, 1), (1, 80, 30)),
    "depthwiseconv2dnative": (nn.Conv2d(130, 130, 3, 2, 1, groups=130), (1, 130, 9, 8)),
    "maxpoolfwd": (nn.MaxPool2d(3, 2, 1), (2, 64, 11, 10)),
    "avgpoolfwd": (nn.AvgPool2d(2), (1, 64, 8, 6)),
}


@pytest.mark.parametrize("name", FORMS)
def test_each_is_one_operation(name, tmp_path):
    """There is no padded copy and only one operation; the JSON conforms to the SuperDSC specification."""
    model, shape = FORMS[name]
    program = check_exact(*whole_numbers(model, *shape), sencores=8)
    assert opcodes(program).count(name.split()[0]) == 1
    assert not set(opcodes(program)) & {"batchmatmul", "maximum"}
    program.save(tmp_path / "program")
    count, findings = check_folder(tmp_path / "program")
    assert count and findings == []


STEMS = {
    "7 by steps of 2": (nn.Conv2d(3, 64, 7, 2, 3), (1, 3, 32, 32)),
    "3 by steps of 2, of a batch": (nn.Conv2d(3, 17, 3, 2, 1, bias=False), (2, 3, 16, 12)),
    "5 by steps of 4": (nn.Conv2d(2, 64, 5, 4, 2), (1, 2, 20, 16)),
    "other steps along columns": (nn.Conv2d(4, 32, (4, 3), (2, 1), (1, 1)), (1, 4, 12, 9)),
    "without padding": (nn.Conv2d(3, 64, 6, 2), (1, 3, 20, 18)),
    "in one dim": (nn.Conv1d(2, 64, 8, 4, 2), (1, 2, 64)),
}


@pytest.mark.parametrize("name", STEMS)
def test_few_channels_take_the_pixels_of_a_step(name):
    """The host writes pixels side by side as channels: no restickify of an image of 3 of 64 lanes."""
    model, shape = STEMS[name]
    program = check_exact(*whole_numbers(model, *shape), sencores=8)
    assert opcodes(program).count("conv2d") == 1
    assert "steps of pixels" in "".join(remark.reason for remark in program.remarks)


LONG_STEPS = {
    "16 channels": (nn.Conv2d(16, 32, 3, 16), (1, 16, 64, 64)),
    "a kernel of 2": (nn.Conv2d(3, 32, 2, 4), (2, 3, 16, 24)),
    "as long as a padded kernel": (nn.Conv2d(3, 17, 3, 4, 1), (1, 3, 16, 12)),
    "along rows alone": (nn.Conv2d(4, 32, (2, 5), (4, 1), (0, 2)), (1, 4, 16, 9)),
    "one window": (nn.Conv2d(3, 64, 3, 4), (1, 3, 4, 8)),
    "dilated": (nn.Conv2d(3, 64, 2, 8, dilation=3), (1, 3, 16, 16)),
    "of groups": (nn.Conv2d(6, 64, 2, 4, groups=2), (1, 6, 16, 16)),
    "of each channel": (nn.Conv2d(64, 64, 2, 4, groups=64), (1, 64, 16, 16)),
    "in one dim": (nn.Conv1d(2, 64, 3, 8), (2, 2, 64)),
    "in three dims": (nn.Conv3d(3, 32, 2, 4), (1, 3, 8, 8, 8)),
}


@pytest.mark.parametrize("name", LONG_STEPS)
def test_steps_longer_than_the_kernel_are_exact(name):
    model, shape = LONG_STEPS[name]
    check_exact(*whole_numbers(model, *shape), sencores=8)


class SteppedSum(nn.Module):
    """Rows and columns by steps, of a tensor whose sticks change from columns to channels before."""

    def forward(self, x):
        return x.permute(0, 2, 3, 1)[:, ::7, ::3] + 1


#: Steps that the distance of rows in LX, 64 columns, is not a multiple of; windows in whole, between which steps jump.
STEPS_IN_LX = {
    "conv2d": (nn.Conv2d(24, 32, (3, 1), (8, 6), (1, 0)), (1, 24, 25, 13), 1),
    "conv2d of windows that do not touch": (nn.Conv2d(96, 32, (1, 3), (1, 6), (0, 1)), (2, 96, 35, 31), 3),
    "slice": (SteppedSum(), (2, 3, 11, 46), 1),
    "pooling of one position": (nn.MaxPool2d(1, (6, 5)), (2, 3, 37, 54), 1),
}


@pytest.mark.parametrize("name", STEPS_IN_LX)
def test_steps_that_lx_cannot_address_go_by_memory(name):
    model, shape, cores = STEPS_IN_LX[name]
    check_exact(*whole_numbers(model, *shape), sencores=cores, fallback=False)


GROUPS = {
    "32 of 8": (nn.Conv2d(256, 256, 3, padding=1, groups=32), (1, 256, 6, 7)),
    "3 of 4, more features": (nn.Conv2d(12, 48, 3, 2, 1, groups=3), (2, 12, 9, 8)),
    "one channel each, two features": (nn.Conv2d(130, 260, 3, padding=1, groups=130), (1, 130, 5, 6)),
    "in one dim": (nn.Conv1d(96, 32, 5, groups=8, dilation=2), (1, 96, 20)),
}


@pytest.mark.parametrize("name", GROUPS)
def test_small_groups_are_large_ones_with_zeros(name):
    """A stick of channels holds several groups."""
    model, shape = GROUPS[name]
    program = check_exact(*whole_numbers(model, *shape), sencores=8)
    assert opcodes(program).count("conv2d") == 1 and "mul" in opcodes(program)


def test_the_option_turns_them_off():
    model, shape = FORMS["conv2d"]
    program = check_exact(*whole_numbers(model, *shape), sencores=8, native_windows=False)
    assert "conv2d" not in opcodes(program) and "batchmatmul" in opcodes(program)


def random_model(rng: random.Random) -> tuple[nn.Module, tuple[int, ...]]:
    """A convolution or a pooling of any steps, padding and sizes."""
    kernel, dilation = [(rng.randint(1, 5), rng.randint(1, 3)) for _ in range(2)], [1, 1]
    sizes, steps = [size for size, _ in kernel], [step for _, step in kernel]
    channels = rng.choice((3, 17, 64, 130))
    padding = [rng.randint(0, size // 2) for size in sizes]
    kind = rng.choice(("conv", "conv", "depthwise", "max", "mean"))
    if kind in ("conv", "depthwise"):
        dilation = [rng.randint(1, 2) for _ in range(2)]
    reach = [step * (size - 1) + 1 for step, size in zip(dilation, sizes, strict=True)]
    shape = (rng.randint(1, 3), channels, *(least + rng.randint(1, 12) for least in reach))
    if kind == "max":
        return nn.MaxPool2d(sizes, steps, padding), shape
    if kind == "mean":
        return Apply(lambda x: F.avg_pool2d(x, 2, steps) * 4), shape
    groups, features = (channels, channels) if kind == "depthwise" else (1, rng.choice((2, 64, 130)))
    return nn.Conv2d(channels, features, sizes, steps, padding, dilation, groups), shape


@pytest.mark.parametrize("seed", range(24))
def test_random_windows_are_exact(seed):
    rng = random.Random(seed)
    model, shape = random_model(rng)
    check_exact(*whole_numbers(model, *shape, seed=seed), sencores=rng.choice((1, 4, 7, 32)))


ONE_ROW = {
    "conv2d": (nn.Conv2d(64, 130, 3, padding=2), (1, 64, 1, 6)),
    "depthwise": (nn.Conv2d(64, 64, 3, 2, 2, groups=64), (2, 64, 7, 1)),
    "max_pool2d": (nn.MaxPool2d(5, 1, 2), (1, 64, 1, 9)),
    "conv_transpose2d": (nn.ConvTranspose2d(3, 3, 3, 2, groups=3), (1, 3, 1, 2)),
    "conv_transpose1d": (nn.ConvTranspose1d(4, 2, 3, 2), (1, 4, 1)),
    "one pixel": (nn.ConvTranspose2d(64, 2, 3, 2), (1, 64, 1, 1)),
}


@pytest.mark.parametrize("name", ONE_ROW)
def test_windows_along_a_dim_of_one_element_are_exact(name):
    """The padding of the source has the other elements of the windows."""
    model, shape = ONE_ROW[name]
    check_exact(*whole_numbers(model, *shape), sencores=4)


def test_means_in_f32_are_sums_of_16_bits():
    """The importer adds up in f32; the device does that by itself, of any padding."""
    for model in (nn.AvgPool2d(3, 2, 1), nn.AvgPool2d(3, 1, 1, count_include_pad=False)):
        x = torch.randn(1, 64, 9, 7).half()
        program = spyre_mlir.compile(model, (x,), sencores=4)
        check_close("mean", program(x), model, (x,))


def test_a_bottleneck_in_the_numbers_of_the_device():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(64, 32, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 1)
    )
    model, x = model.half().eval(), torch.randn(2, 64, 10, 10).half()
    program = spyre_mlir.compile(model, (x,), sencores=8, verify_each=True, numerics="dl16")
    check_close("bottleneck", program(x), model, (x,), floor=4e-3)


# -- designs --------------------------------------------------------------------------------------


def design_of(name: str) -> Design:
    model, shape = FORMS[name]
    model, x = whole_numbers(model, *shape)
    program = spyre_mlir.compile(model, (x,), sencores=8)
    return next(design for design in program.bundle.designs.values() if design.operands[0].windows)


def test_a_design_says_its_windows_as_the_public_format_does():
    """``paddingSizes_``: whole for all cores with padding, -1 for what depends on the core ("SuperDSC Semantics")."""
    design = design_of("conv2d")
    value = to_json(design)
    ((_, body),) = value.items()
    ((_, dsc),) = body["dscs_"][0].items()
    pad = dsc["N_"]["paddingSizes_"]["i"]
    assert (pad["padFront_"], pad["padBack_"], pad["stride_"], pad["windowDim_"]) == (1, 1, 2, "ki")
    assert pad["totalSize_"] == 9 + 1 + 1
    node = dsc["scheduleTree_"][0]
    assert set(node["padding_"].values()) == {"padded_nozeropad"}
    assert node["coordinates_"]["coordInfo"]["i"]["padding"] == "padded_nozeropad"
    if design.slices["i"] > 1:
        assert dsc["dataStageParam_"]["0"]["ss_"]["paddingSizes_"]["i"]["padFront_"] == -1
    assert from_json(value, "x.json", design.target) == replace(design, padding={})


@pytest.mark.parametrize("name", ["conv2d", "maxpoolfwd"])
def test_designs_that_count_positions_in_memory_are_read(name):
    """Designs of this package had the total without padding, and coordinates without a type of padding."""
    design = design_of(name)
    value = to_json(design)
    ((_, body),) = value.items()
    ((_, dsc),) = body["dscs_"][0].items()
    del dsc["scheduleTree_"][0]["padding_"]
    for dim, pad in dsc["N_"]["paddingSizes_"].items():
        dsc["scheduleTree_"][0]["coordinates_"]["coordInfo"][dim]["padding"] = "nopad"
        pad.pop("unneededPad_", None)
        pad.pop("unneededPadFront_", None)
        pad.update(
            totalSize_=design.operands[0].windows[dim].size,
            unneededPadBack_=0,
            windowDim_=f"{pad['windowDim_']}_",
        )
    assert from_json(value, "x.json", design.target) == replace(design, padding={})


BROKEN = {
    "a window on another operand": (
        lambda d: replace(d, operands=(d.operands[0], _slid(d, d.operands[1]), d.operands[2])),
        windows,
        "expected them over Tensor0",
    ),
    "no window": (
        lambda d: replace(d, operands=(replace(d.operands[0], windows={}), *d.operands[1:])),
        windows,
        "No window slides over Tensor0",
    ),
    "a divided window": (
        lambda d: replace(d, slices={**d.slices, "ki": 3}),
        windows,
        "The window ki of i is divided",
    ),
    "a window of padding": (
        lambda d: _with_window(d, "i", before=4),
        windows,
        "A window of i is padding alone",
    ),
    "channels that are not contracted": (
        lambda d: replace(
            d, operands=(d.operands[0], _without(d.operands[1], "in"), d.operands[2])
        ),
        stick_rules,
        "Tensor1 has the dims ['ki', 'kj'] that the output lacks",
    ),
    "features outside of the stick": (
        lambda d: replace(d, operands=(*d.operands[:2], replace(d.operands[2], stick_dim="i"))),
        stick_rules,
        "the result has dim i in the stick; expected dim out as in input 2",
    ),
}  # fmt: skip


def _with_window(design: Design, dim: str, **changes) -> Design:
    first, *others = design.operands
    slid = {**first.windows, dim: replace(first.windows[dim], **changes)}
    return replace(design, operands=(replace(first, windows=slid), *others))


def _slid(design: Design, operand):
    return replace(operand, windows=design.operands[0].windows)


def _without(operand, dim: str):
    order = tuple(label for label in operand.dim_order if label != dim)
    return replace(operand, dim_order=order, scale={label: operand.scale[label] for label in order})


@pytest.mark.parametrize("case", BROKEN)
def test_wrong_designs_are_refused(case):
    change, rule, sentence = BROKEN[case]
    design = design_of("conv2d")
    assert not list(rule(design))
    assert any(sentence in problem for problem in rule(change(design)))


def test_a_window_in_the_stick_of_a_pooling_is_refused():
    design = design_of("maxpoolfwd")
    assert not list(stick_rules(design))
    wrong = replace(design, operands=tuple(replace(operand, stick_dim="j") for operand in design.operands))
    assert any("never a window dim" in problem for problem in stick_rules(wrong))


def test_negative_padding_is_refused_by_the_reader():
    value = to_json(design_of("conv2d"))
    ((_, body),) = value.items()
    ((_, dsc),) = body["dscs_"][0].items()
    dsc["N_"]["paddingSizes_"]["i"]["padFront_"] = -2
    with pytest.raises(CompileError):
        from_json(value, "x.json", packaged_target())


def test_windows_touch_what_is_in_memory():
    window = Sliding(extent=3, stride=2, dilation=1, before=1, size=9)
    assert [window.accessed(first, 2) for first in (0, 2)] == [(0, 4), (3, 5)]
    assert window.end(5) == 10 and window.is_padded(5) and not window.has_empty(5)
    assert window.most_accessed(2) == 5 and window.most_accessed(5) == 9
