# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dynamic dims: a program per multiple of the granularity, padded calls, refusals; numbers equal PyTorch."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import spyre_mlir
from spyre_mlir import CompileError, DynamicProgram
from spyre_mlir.bundle import read_bundle
from spyre_mlir.bundle.validate import validate

HIDDEN = 32


def named(tensor: torch.Tensor, *names: str) -> torch.Tensor:
    """A tensor with these dims, which are declared with its sizes."""
    for name, size in zip(names, tensor.shape, strict=True):
        spyre_mlir.declare_tensor_dim(name, size)
    spyre_mlir.name_tensor_dims(tensor, names)
    return tensor


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).half()


def close(got: torch.Tensor, exact: torch.Tensor) -> None:
    assert got.dtype == torch.float16
    torch.testing.assert_close(got.double(), exact.double(), atol=0.01, rtol=0.01)


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(HIDDEN, 16), nn.GELU()).half().requires_grad_(False)


def attention(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ x.transpose(-1, -2) / 8, -1) @ x


def compiled(model=None, example: torch.Tensor | None = None, **dynamic: tuple[int, int]) -> DynamicProgram:
    given = named(half(4, HIDDEN), "B", "H") if example is None else example
    return spyre_mlir.compile(model or linear(), (given,), sencores=2, dynamic=dynamic or {"B": (4, 12)})


def test_a_program_per_multiple() -> None:
    """Each multiple of the granularity has a program, compiled when a call first needs it."""
    model, program = linear(), compiled()
    assert program.sizes == [{"B": 4}]
    for rows in (12, 8, 12, 4):
        close(program(half(rows, HIDDEN)), model.double()(half(rows, HIDDEN).double()))
    assert program.sizes == [{"B": 4}, {"B": 12}, {"B": 8}]


def test_padded_calls() -> None:
    """Independent rows run in the program of the next multiple; results have the rows of the call."""
    model, program = linear(), compiled()
    for rows in (1, 3, 7):
        y = program(half(rows, HIDDEN))
        assert y.shape == (rows, 16)
        close(y, model.double()(half(rows, HIDDEN).double()))
    assert program.sizes == [{"B": 4}, {"B": 8}]


def test_an_example_that_is_padded() -> None:
    """The example need not have a size that is a multiple."""
    program = compiled(example=named(half(5, HIDDEN), "B", "H"))
    assert program.sizes == [{"B": 8}]
    assert program(half(6, HIDDEN)).shape == (6, 16)


def test_sequences_of_several_sizes() -> None:
    """Attention needs all positions: its reductions skip the padding, in a program with masks."""
    example = named(half(2, 16, HIDDEN), "B", "S", "H")
    program = compiled(attention, example, B=(2, 4), S=(16, 48))
    for shape in ((2, 16, HIDDEN), (1, 32, HIDDEN), (3, 16, HIDDEN)):
        close(program(half(*shape)), attention(half(*shape).double()))
    assert program.sizes == [{"B": 2, "S": 16}, {"B": 2, "S": 32}, {"B": 4, "S": 16}]
    sizes = program.sizes
    for shape in ((2, 20, HIDDEN), (1, 17, HIDDEN), (2, 31, HIDDEN)):
        close(program(half(*shape)), attention(half(*shape).double()))
    assert program.sizes == sizes and len(program.masked) == 1


def test_a_size_that_no_padding_has() -> None:
    """The first row of a flipped tensor is the last row of the call: such a size has its own program, with a remark."""
    program = compiled(lambda x: x.flip(0) * 2)
    for rows in (3, 4, 3):
        close(program(half(rows, HIDDEN)), half(rows, HIDDEN).double().flip(0) * 2)
    assert program.sizes == [{"B": 4}, {"B": 3}]
    assert any("B = 3 has a separate program" in remark.reason for remark in program.remarks)
    program(half(2, HIDDEN))
    with pytest.warns(spyre_mlir.RecompileWarning, match="3 sizes have separate programs, the last B = 5"):
        program(half(5, HIDDEN))


def test_a_flattened_dim() -> None:
    """A dynamic dim may have others inside of it in a dim of a tensor."""
    spyre_mlir.declare_tensor_dim("B", 4)
    spyre_mlir.declare_tensor_dim("H", HIDDEN)
    flat = half(4 * HIDDEN)
    spyre_mlir.name_tensor_dims(flat, ["B", "H"])
    program = compiled(lambda x: x.view(-1, HIDDEN).softmax(-1), flat)
    close(program(half(3 * HIDDEN)), half(3 * HIDDEN).double().view(-1, HIDDEN).softmax(-1))
    with pytest.raises(CompileError, match=f"does not have {HIDDEN} elements for each position of 'B'"):
        program(half(3 * HIDDEN + 1))


def test_keyword_inputs() -> None:
    """Inputs given by name; both have the dim, and must agree."""
    x, y = named(half(4, HIDDEN), "B", "H"), half(4, HIDDEN)
    spyre_mlir.name_tensor_dims(y, ["B", "H"])
    program = spyre_mlir.compile(lambda x, y: x - y, {"x": x, "y": y}, sencores=2, dynamic={"B": (4, 8)})
    one, other = half(3, HIDDEN), half(3, HIDDEN) * 2
    close(program(y=other, x=one), one - other)
    with pytest.raises(CompileError, match="Dim 'B' has size 4 in input 1 and 3 in another input"):
        program(x=one, y=half(4, HIDDEN))


def test_inputs_that_change_in_place() -> None:
    """A padded call changes the rows of the caller's tensor, and no others."""

    def model(cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        cache.add_(x)
        return cache * 2

    example = named(half(4, HIDDEN), "B", "H"), half(4, HIDDEN)
    spyre_mlir.name_tensor_dims(example[1], ["B", "H"])
    program = spyre_mlir.compile(model, example, sencores=2, dynamic={"B": (4, 8)})
    cache, x = half(3, HIDDEN), half(3, HIDDEN) / 2
    expected = cache.double() + x.double()
    close(program(cache, x), expected * 2)
    close(cache, expected)


def test_programs_with_host_functions() -> None:
    """Results of host functions on each row are padded and cut like other results."""

    def model(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).float().cumsum(1).half() + 1

    program = compiled(model)
    assert [step.name for step in program.program(B=4).steps] == ["device_0", "host_0", "device_1"]
    close(program(half(3, HIDDEN)), (half(3, HIDDEN).double() * 2).cumsum(1) + 1)


def test_what_is_saved(tmp_path) -> None:
    """A folder per size, each a bundle that runs by itself, and an index; another one may take its place."""
    example = named(half(4, HIDDEN), "B", "H")
    program = spyre_mlir.compile(linear(), (example,), sencores=2, dynamic={"B": (4, 12)}, one_bundle=False)
    program(half(8, HIDDEN))
    program.save(tmp_path / "model")
    program.save(tmp_path / "model")
    index = json.loads((tmp_path / "model" / "sizes.json").read_text())
    assert index["dims"] == [{"name": "B", "granularity": 4, "max_value": 12}]
    assert index["programs"] == [{"sizes": {"B": 4}, "folder": "4"}, {"sizes": {"B": 8}, "folder": "8"}]
    for each in index["programs"]:
        assert validate(read_bundle(tmp_path / "model" / each["folder"])) == []


def test_summary() -> None:
    """The page of each program has its sizes above."""
    program = compiled()
    program.compile_all()
    lines = program.summary().splitlines()
    assert [line for line in lines if line.startswith("B = ")] == ["B = 4", "B = 8", "B = 12"]
    assert sum(line.startswith("operations") for line in lines) == 3


def test_names_outside_stay() -> None:
    """Compiling for another size does not declare dims again."""
    program = compiled()
    program(half(8, HIDDEN))
    spyre_mlir.declare_tensor_dim("B", 4)


# -- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dynamic", "message"),
    [
        ({}, "The option 'dynamic' names at least one dim."),
        ({"B": 4}, "takes two positive numbers, granularity and largest size, not 4."),
        ({"B": (0, 4)}, "takes two positive numbers, granularity and largest size, not (0, 4)."),
        ({"B": (4, 10)}, "The largest size 10 of dim 'B' is not a multiple of its granularity 4."),
        ({"T": (4, 8)}, "No example input has the dynamic dim 'T' with more than one element;"),
    ],
)
def test_options(dynamic, message: str) -> None:
    """Each mistake in ``dynamic`` is a sentence."""
    with pytest.raises(CompileError) as caught:
        spyre_mlir.compile(linear(), (named(half(4, HIDDEN), "B", "H"),), dynamic=dynamic)
    assert message in caught.value.message


def test_sizes_that_are_too_large() -> None:
    """The largest size is a bound for examples and calls."""
    program = compiled()
    with pytest.raises(CompileError, match=r"Dim 'B' has size 13, but at most 12\."):
        program(half(13, HIDDEN))


def test_dims_that_are_cut() -> None:
    """A dynamic dim inside of another one, or cut by the shape, is refused."""
    x = named(half(4, HIDDEN), "B", "H")
    with pytest.raises(CompileError, match="Dim 0 of input 0 is not made of the dynamic dim 'H'"):
        flat = x.flatten().clone()
        spyre_mlir.name_tensor_dims(flat, ["B", "H"])
        spyre_mlir.compile(lambda x: x * 2, (flat,), dynamic={"H": (16, 64)})
    with pytest.raises(CompileError, match="Dim 0 of input 0 is not made of the dynamic dim 'B'"):
        cut = x.reshape(2, 2 * HIDDEN).clone()
        spyre_mlir.name_tensor_dims(cut, ["B", "H"])
        spyre_mlir.compile(lambda x: x * 2, (cut,), dynamic={"B": (4, 8)})


def test_sources_of_one_size() -> None:
    """A module in MLIR and a program of torch.export have one size; a tensor on the device has its layout."""
    with pytest.raises(CompileError, match="Only a PyTorch model has dynamic dims"):
        spyre_mlir.compile("func.func @main() {\n return }", dynamic={"B": (4, 8)})
    x = named(half(4, HIDDEN), "B", "H")
    exported = torch.export.export(linear(), (x,))
    with pytest.raises(CompileError, match=r"A program that torch\.export has made has static dims"):
        spyre_mlir.compile(exported, (x,), dynamic={"B": (4, 8)})
    on_device = spyre_mlir.to_device(x)
    spyre_mlir.name_tensor_dims(on_device, ["B", "H"])
    with pytest.raises(
        CompileError, match="Input 0 has a dynamic dim, so it cannot be on the device already"
    ):
        spyre_mlir.compile(linear(), (on_device,), dynamic={"B": (4, 8)})


def test_programs_by_their_sizes() -> None:
    """``program`` accepts a multiple of each dim."""
    program = compiled()
    assert program.program(B=4) is program.programs[(4,)]
    with pytest.raises(CompileError, match=r"The size 5 of dim 'B' is not a multiple of its granularity 4\."):
        program.program(B=5)
    with pytest.raises(CompileError, match=r"A program needs a size of each dynamic dim: B\."):
        program.program(S=4)


def test_a_size_at_which_a_result_is_empty():
    """PyTorch's result of no elements, although the program of the padded size has some."""
    program = spyre_mlir.compile(
        lambda x: (torch.softmax(x, -1)[1:], x * 2, x[:0]),
        (torch.randn(16, 64).half(),),
        dynamic={"x": {0: torch.export.Dim("n", max=64)}},
        sencores=4,
    )
    for count in (5, 1, 2, 1):
        x = torch.randn(count, 64).half()
        rest, double, none = program(x)
        assert rest.shape == (count - 1, 64) and rest.dtype == torch.float16 and none.shape == (0, 64)
        assert torch.equal(double, x * 2)
        torch.testing.assert_close(rest, torch.softmax(x, -1)[1:], atol=2e-3, rtol=2e-3)
    with pytest.raises(CompileError, match="no names for dynamic dims; give a Python function"):
        spyre_mlir.compile(torch.exp, (x,), dynamic={"x": {0: torch.export.Dim("n", max=64)}})
