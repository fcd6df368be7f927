# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bundles of run-time sizes: one plan, right at every size; numbers by numpy and PyTorch."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
import torch
from foreign_data import SCHEMA
from public_schema import public_schema
from symbolic_programs import SymbolicProgramText
from torch import nn
from torch.export import Dim

import spyre_mlir
from spyre_mlir import CompileError
from spyre_mlir.bundle import read_bundle
from spyre_mlir.bundle.design_json import from_json, to_json
from spyre_mlir.bundle.instances import instance, sizes_to_check
from spyre_mlir.bundle.validate import validate
from spyre_mlir.driver.program import Program
from spyre_mlir.simulator import run
from spyre_mlir.tools import spyre_run

PARTS = 10


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).half()


class Block(nn.Module):
    """A block of a Llama: norms, rotated queries and keys, causal attention, a gated MLP."""

    def __init__(self, width: int = 128, heads: int = 2, hidden: int = 192, most: int = 256) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.heads, head = heads, width // heads
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkvo = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up, self.down = (
            nn.Linear(*pair, bias=False) for pair in ((width, hidden), (width, hidden), (hidden, width))
        )
        angles = torch.arange(most)[:, None] * 100.0 ** (-torch.arange(0, head, 2) / head)
        self.register_buffer("cos", torch.cat([angles.cos()] * 2, -1))
        self.register_buffer("sin", torch.cat([angles.sin()] * 2, -1))

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        positions = x.shape[2]
        return x * self.cos[:positions] + torch.cat([-second, first], -1) * self.sin[:positions]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, positions, width = x.shape
        normed = self.norms[0](x)
        q, k, v = (
            linear(normed).view(batch, positions, self.heads, -1).transpose(1, 2) for linear in self.qkvo[:3]
        )
        attended = nn.functional.scaled_dot_product_attention(
            self.rotated(q), self.rotated(k), v, is_causal=True
        )
        x = x + self.qkvo[3](attended.transpose(1, 2).reshape(batch, positions, width))
        normed = self.norms[1](x)
        return x + self.down(nn.functional.silu(self.gate(normed)) * self.up(normed))


def prefill(**options):
    """The block for prompts of 64 to 256 tokens, and the model."""
    model, x = Block().half().requires_grad_(False), half(1, 128, 128)
    torch._dynamo.mark_dynamic(x, 1, min=64, max=256)
    return spyre_mlir.compile(model, (x,), sencores=8, **options), model


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)).half().requires_grad_(False)


def compiled(model=None, most: int = 256, **options):
    return spyre_mlir.compile(
        model or linear(), (half(128, 64),), dynamic=({0: Dim("S", max=most)},), sencores=4, **options
    )


# -- numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", range(PARTS))
def test_random_programs(part) -> None:
    """200 programs of up to two sizes, each at two of them: valid, and with the numbers of numpy."""
    for seed in range(part, 200, PARTS):
        program = SymbolicProgramText.of_seed(seed)
        cores = (1, 3, 8, 32)[seed % 4]
        built = spyre_mlir.compile(program.module(), cache=False, fallback=False, sencores=cores)
        for attempt in range(2):
            rng = np.random.default_rng(1000 * seed + attempt)
            sizes = {
                name: int(rng.integers(1, most // 64 + 1)) * 64 for name, most in program.largest.items()
            }
            arrays = program.arrays(sizes, rng)
            at_size = instance(built.bundle, sizes)
            assert not validate(at_size), (seed, sizes)
            (result,) = run(built.bundle, {**built.bundles[0].arrays, **arrays}).outputs.values()
            expected = program.expected(arrays)
            assert result.shape == expected.shape, (seed, sizes)
            error = np.abs(result - expected).max() / max(1, np.abs(expected).max())
            assert error < 0.03, (seed, sizes, error)


def test_a_prefill() -> None:
    """Attention with a causal mask and tables of positions, at every length, is PyTorch's; padding is NaN."""
    program, model = prefill()
    assert program.symbolic is not None
    for length in (64, 128, 192, 256):
        x = half(1, length, 128)
        torch.testing.assert_close(program(x).float(), model(x).float(), atol=0.02, rtol=0.02)
    assert all(at_size.is_instance for at_size in program.programs.values())
    assert not validate(program.symbolic.bundle)


class Grouped(nn.Module):
    """Grouped attention with a given mask, a causal mask, or none, after a norm and with positions."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.words, self.positions = nn.Embedding(300, 128), nn.Embedding(256, 128)
        self.norm, self.queries, self.rows = nn.LayerNorm(128), nn.Linear(128, 128), nn.Linear(128, 128)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if self.kind == "positions":
            x = self.words(x) + self.positions(torch.arange(x.shape[1]))
        batch, size, _ = x.shape
        normed = self.norm(x)
        queries = self.queries(normed).view(batch, size, 4, 32).transpose(1, 2)
        keys, values = self.rows(normed).view(batch, size, 2, 2, 32).permute(2, 0, 3, 1, 4)
        is_causal = self.kind in ("causal", "positions")
        return x + nn.functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, is_causal=is_causal, enable_gqa=True
        ).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("kind", ["none", "causal", "mask", "positions"])
def test_attention(kind) -> None:
    """Attention with all kinds of masks is one program of all lengths."""

    def inputs(size: int) -> tuple[torch.Tensor, ...]:
        if kind == "positions":
            return (torch.arange(size)[None] * 7 % 300,)
        return (half(1, size, 128), half(1, 1, size, size)) if kind == "mask" else (half(1, size, 128),)

    model, example = Grouped(kind).half().eval().requires_grad_(False), inputs(128)
    for tensor in example:
        for dim, size in enumerate(tensor.shape):
            if size == 128 and (tensor.ndim == 4 or dim == 1):
                torch._dynamo.mark_dynamic(tensor, dim, min=64, max=256)
    program = spyre_mlir.compile(model, example, sencores=8)
    assert program.symbolic is not None
    for size in (64, 192, 256):
        given = inputs(size)
        torch.testing.assert_close(program(*given).float(), model(*given).float(), atol=0.02, rtol=0.02)


@pytest.mark.parametrize(
    ("model", "granularity", "most", "cores"),
    [
        (lambda x: torch.softmax(x, -1), 1, 17, 32),
        (lambda x: x.amax(0) * 2, 5, 35, 7),
        (lambda x: x.sum(0), 2, 64, 32),
        (lambda x: (x * 3).int() + 1, 2, 12, 8),
        (lambda x: (x.float() * 3).exp().sum(-1), 3, 12, 5),
        (lambda x: x.argmax(-1).half(), 2, 12, 8),
    ],
)
def test_odd_sizes(model, granularity, most, cores) -> None:
    """Granularities that are not whole sticks, rows of odd length, more cores than rows: right at every size."""
    example = half(2 * granularity, 37)
    spyre_mlir.declare_tensor_dim("S", 2 * granularity)
    spyre_mlir.declare_tensor_dim("D", 37)
    spyre_mlir.name_tensor_dims(example, ["S", "D"])
    program = spyre_mlir.compile(model, (example,), sencores=cores, dynamic={"S": (granularity, most)})
    assert program.symbolic is not None
    middle = most // granularity // 2 * granularity
    for rows in dict.fromkeys((granularity, middle, most - most % granularity)):
        x = half(rows, 37)
        torch.testing.assert_close(program(x).float(), model(x).float(), atol=0.01, rtol=0.01)


def test_what_moves_follows_the_size() -> None:
    """Of inputs and results only the rows of the size are read and written."""
    program = compiled()
    moved = {}
    for rows in (64, 256):
        program(half(rows, 64))
        traffic = program.last.traffic()
        moved[rows] = traffic.read_bytes, traffic.written_bytes
    weights = 2 * 64 * 128 * 2 + 2 * 128 + 2 * 64
    assert moved[64][1] == 64 * 64 * 2 and moved[256][1] == 256 * 64 * 2
    assert moved[256][0] - moved[64][0] == 192 * 64 * 2
    assert moved[64][0] >= 64 * 64 * 2 + weights


def test_two_sizes_of_several_inputs() -> None:
    """Sizes of two inputs, of which products have both."""

    def model(x, y):
        return torch.softmax(x @ y.transpose(0, 1) / 8, -1) @ y

    sizes = ({0: Dim("S", max=128)}, {0: Dim("T", max=256)})
    program = spyre_mlir.compile(model, (half(64, 64), half(192, 64)), dynamic=sizes, sencores=4)
    for shape in ((128, 64), (64, 256), (128, 192)):
        x, y = half(shape[0], 64), half(shape[1], 64)
        torch.testing.assert_close(program(x, y).float(), model(x, y).float(), atol=0.02, rtol=0.02)
    assert program.symbolic is not None


def test_a_reduction_over_the_size() -> None:
    """A maximum over all rows is one over the rows of the size."""
    program = compiled(lambda x: x.amax(0))
    for rows in (64, 192):
        x = half(rows, 64)
        torch.testing.assert_close(program(x), x.amax(0))
    assert program.symbolic is not None


def test_more_rows_for_each_position() -> None:
    """A dim with others inside of it grows by their number."""
    program = compiled(lambda x: torch.relu(x.reshape(-1)).reshape(-1, 32))
    x = half(192, 64)
    torch.testing.assert_close(program(x), torch.relu(x.reshape(-1)).reshape(-1, 32))
    assert program.symbolic is not None


def test_updated_inputs() -> None:
    """An input that the model changes in place has its new rows."""

    def model(cache, x):
        cache.add_(x)
        return cache * 2

    sizes = ({0: Dim("S", max=128)}, {0: Dim("S", max=128)})
    program = spyre_mlir.compile(model, (half(64, 64), half(64, 64)), dynamic=sizes, sencores=4)
    cache, x = half(128, 64), half(128, 64) / 2
    expected = cache + x
    torch.testing.assert_close(program(cache, x), expected * 2)
    torch.testing.assert_close(cache, expected)


@pytest.mark.parametrize("columns", [16, 17, 33])
def test_rows_shorter_than_a_stick(columns: int) -> None:
    """Padding of a row of f32 is longer than the row, and so is the stride to the next row."""
    x = torch.randn(6, columns, generator=torch.Generator().manual_seed(0))
    program = spyre_mlir.compile(
        lambda x: x.half() * 2, (x,), dynamic=({0: Dim("n", min=1, max=72)},), sencores=8
    )
    for size in (6, 3, 24, 65, 72):
        x = torch.arange(size * columns).reshape(size, columns).float() / 4
        assert torch.equal(program(x), x.half() * 2)


def test_constants_that_follow_the_size() -> None:
    """A result that is computed of no input has the size of the call, and so has an input that is overwritten."""

    def model(x, y):
        x.fill_(3)
        return y * 2, torch.arange(x.shape[0]) - 1, torch.zeros_like(y)

    sizes = ({0: Dim("S", max=128)}, {0: Dim("S", max=128)})
    program = spyre_mlir.compile(model, (half(64, 64), half(64, 64)), dynamic=sizes, sencores=4)
    for size in (64, 96, 128):
        x, y = half(size, 64), half(size, 64)
        expected = model(x.clone(), y)
        for got, right in zip(program(x, y), expected, strict=True):
            assert torch.equal(got, right)
        assert torch.equal(x, torch.full_like(x, 3))


def test_the_begin_of_a_cache() -> None:
    """A prompt of any length is written at the begin of a cache, of which the rest stays as it was."""

    class Prefill(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", half(2, 384, 64))

        def forward(self, x):
            self.cache[:, : x.shape[1]] = x * 2
            return x + 1

    model, x = Prefill(), half(2, 128, 64)
    torch._dynamo.mark_dynamic(x, 1, min=64, max=256)
    program = spyre_mlir.compile(model, (x,), sencores=4)
    assert program.symbolic is not None
    for length in (192, 64, 256):
        given, expected = half(2, length, 64), model.cache.clone()
        expected[:, :length] = given * 2
        torch.testing.assert_close(program(given), given + 1)
        torch.testing.assert_close(model.cache, expected)


def test_a_state() -> None:
    """The program of all sizes keeps its cache on the device, which programs of other sizes share."""

    class Prefill(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", half(2, 384, 64))

        def forward(self, x):
            self.cache[:, : x.shape[1]] = x * 2
            return x + 1

    model, x = Prefill(), half(2, 128, 64)
    torch._dynamo.mark_dynamic(x, 1, min=64, max=256)
    program, expected = spyre_mlir.compile(model, (x,), sencores=4, state=True), model.cache.clone()
    assert program.symbolic is not None and list(program.state) == ["cache"]
    for length in (192, 64):
        given = half(2, length, 64)
        expected[:, :length] = given * 2
        torch.testing.assert_close(program(given), given + 1)
        np.testing.assert_array_equal(program.state["cache"].numpy(), expected.numpy())
    assert program.last.state is program.state


# -- programs that do not have all sizes ---------------------------------------------------------------


def branching(x):
    return x * 2 if x.shape[0] > 128 else x + 1


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda x: x.float().mean(0).half(), "has other numbers at another size"),
        (lambda x: x[-1] * 2, "takes other positions at another size"),
        (lambda x: torch.cat([x, x * 2]), "is concatenated|joins tensors"),
        (lambda x: x[: x.shape[0] // 2] * 2, "multiple of exactly one size|other positions|does not follow"),
        (branching, "at another size"),
        (lambda x: x.new_ones(x.shape[0]).sum() + x, "at another size|counts its elements"),
    ],
)
def test_other_programs_at_other_sizes(model, reason) -> None:
    """A model with different programs at different sizes has a bundle for each, and reports the reason."""
    program = compiled(model)
    assert program.symbolic is None
    (remark,) = program.remarks
    assert remark.kind == "size" and "each size has a separate bundle" in remark.reason
    assert re.search(reason, remark.reason), remark.reason
    for rows in (64, 192, 256):
        x = half(rows, 64)
        torch.testing.assert_close(program(x).float(), model(x).float(), atol=0.01, rtol=0.01)


def test_a_branch_between_the_sizes() -> None:
    """A model with a different program at one size, between smallest and largest, has a separate bundle there."""

    def model(x):
        return x + 1 if x.shape[0] == 128 else x * 2

    program = compiled(model)
    for rows in (64, 128, 192):
        torch.testing.assert_close(program(half(rows, 64)), model(half(rows, 64)))
    assert program.symbolic is not None
    assert [at_size.is_instance for at_size in program.programs.values()] == [False, True, True]
    assert "at S = 128 the model has a separate bundle" in program.remarks[0].reason


def test_a_bundle_for_each_size() -> None:
    """The choice of a bundle for each size."""
    program = compiled(one_bundle=False)
    assert program.symbolic is None and program.remarks == []
    assert not program.program(S=64).is_instance


# -- sizes of calls ------------------------------------------------------------------------------------


def test_marks_of_pytorch() -> None:
    """Marks of inputs, dims of torch.export, and an exported program, say the same."""
    x = half(128, 64)
    exported = torch.export.export(linear(), (x,), dynamic_shapes=({0: Dim("S", min=64, max=256)},))
    marked = half(128, 64)
    torch._dynamo.mark_dynamic(marked, 0, min=64, max=256)
    programs = [
        compiled(),
        spyre_mlir.compile(linear(), (marked,), sencores=4),
        spyre_mlir.compile(exported, (x,), sencores=4),
        spyre_mlir.compile(exported, sencores=4),
        spyre_mlir.compile(linear(), {"input": x}, dynamic={"input": {0: Dim("S", max=256)}}, sencores=4),
    ]
    for program in programs:
        ((dim,), given) = program.dims.values(), half(192, 64)
        assert (dim.granularity, dim.max_value) == (64, 256)
        y = program(input=given) if program is programs[-1] else program(given)
        torch.testing.assert_close(y.float(), linear()(given).float(), atol=0.01, rtol=0.01)


def test_inputs_that_nothing_reads() -> None:
    """An input without a reader has the sizes of the call, too."""
    sizes = ({0: Dim("S", max=128)}, {0: Dim("S", max=128)})
    program = spyre_mlir.compile(
        lambda x, y: torch.relu(x), (half(64, 64), half(64, 64)), dynamic=sizes, sencores=2
    )
    x = half(128, 64)
    torch.testing.assert_close(program(x, x), torch.relu(x))
    assert program.symbolic is not None


def test_marks_under_torch_compile() -> None:
    """One program of torch.compile for all sizes of a marked dim, with the parameters of each call."""
    model = linear()
    compiled_model = torch.compile(model, backend=spyre_mlir.torch_backend, options={"sencores": 4})
    spyre_mlir.torch_backend.programs.clear()
    with torch.no_grad():
        for rows in (128, 64, 192):
            x = half(rows, 64)
            torch._dynamo.mark_dynamic(x, 0, min=64, max=256)
            torch.testing.assert_close(compiled_model(x).float(), model(x).float(), atol=0.01, rtol=0.01)
            model[0].bias += 1
    (program,) = spyre_mlir.torch_backend.programs
    assert program.symbolic is not None
    assert [list(sizes.values()) for sizes in program.sizes] == [[128], [64], [192]]


def test_errors_of_sizes() -> None:
    """A size that is too large, a program of a size between multiples, and a mark without a largest size are errors."""
    program = compiled(lambda x: torch.softmax(x, 0))
    with pytest.raises(CompileError, match="Dim 'S' has size 320, but at most 256"):
        program(half(320, 64))
    with pytest.raises(CompileError, match="size 65 of dim 'S' is not a multiple of its granularity 64"):
        program.program(S=65)
    marked = half(128, 64)
    torch._dynamo.mark_dynamic(marked, 0)
    with pytest.raises(CompileError, match="dynamic without a largest size"):
        spyre_mlir.compile(linear(), (marked,), sencores=4)
    with pytest.raises(CompileError, match=r"a torch\.export\.Dim with a largest size by dim"):
        spyre_mlir.compile(linear(), (half(128, 64),), dynamic={"input": {0: Dim("S")}}, sencores=4)
    for sizes, text in (
        ({}, "needs the run-time size 'S'"),
        ({"S": 64, "T": 1}, "no run-time size 'T'"),
        ({"S": 0}, "size 0, but at most 256"),
        ({"S": 100}, "The size 100 of dim 'S' is not a multiple of its granularity 64"),
    ):
        with pytest.raises(CompileError, match=text):
            program.symbolic.at(**sizes)


# -- the bundle ----------------------------------------------------------------------------------------


def test_the_public_form(tmp_path) -> None:
    """Parameters have granularity and largest value; designs name the symbols of their dims; all comes back."""
    program = compiled()
    program.save(tmp_path / "b")
    text = (tmp_path / "b" / "bundle.mlir").read_text()
    assert "!sdscbundle.input_arg<index, granularity=64, max_value=256>" in text
    bundle = read_bundle(tmp_path / "b")
    assert bundle == program.symbolic.bundle and not validate(bundle)
    described = json.loads((tmp_path / "b" / "sdsc_0.json").read_text())
    if SCHEMA.is_file():
        assert not list(public_schema().iter_errors(described))
    (body,) = described.values()
    (design,) = body["dscs_"][0].values()
    ((dim, (symbol,)),) = design["dimToSymbolMapping_"].items()
    assert body["inputSymbolsAndTags_"] == {symbol: "S"} and body["symbolDefinitions_"] == {}
    share = design["dataStageParam_"]["0"]["ss_"]
    assert share["symbolicDimInfo_"][dim] == {
        "maxSize_": share[f"{dim}_"],
        "granularity_": 64 // body["numWkSlicesPerDim_"][dim],
    }
    assert all(volume > 0 for volume in share["maxSymbolicVolume_"].values())
    assert int(symbol) in next(
        statement.symbol_ids for statement in bundle.statements if hasattr(statement, "symbol_ids")
    )


def test_designs_without_names_of_sizes_are_read() -> None:
    """The form of earlier folders: the symbols of the dims stay."""
    for design in compiled().symbolic.bundle.designs.values():
        described = to_json(design)
        (body,) = described.values()
        for member in ("inputSymbolsAndTags_", "dimToSymbolMappingOpcodeCorrection_", "symbolDefinitions_"):
            del body[member]
        read = from_json(described, design.filename, design.target)
        unnamed = {dim: dataclasses.replace(size, tag="") for dim, size in design.symbolic.items()}
        assert read.symbolic == unnamed and to_json(read) == described


def test_a_folder_runs_at_any_size(tmp_path, capsys) -> None:
    """A saved bundle reads its sizes from the arrays; an unsupported size is one error with status 1."""
    model, program = linear(), compiled()
    program.save(tmp_path / "b")
    loaded = Program.load(tmp_path / "b")
    for rows in (64, 192):
        x = half(rows, 64)
        np.testing.assert_allclose(loaded(x.numpy()), model(x).numpy(), atol=0.01)
    np.savez(tmp_path / "in.npz", input=half(192, 64).numpy())
    command = [str(tmp_path / "b"), "--inputs", str(tmp_path / "in.npz")]
    assert spyre_run.main([*command, "--outputs", str(tmp_path / "out.npz")]) == 0
    assert next(iter(np.load(tmp_path / "out.npz").values())).shape == (192, 64)
    capsys.readouterr()
    for rows, text in ((100, "multiple of its granularity 64"), (512, "at most 256")):
        np.savez(tmp_path / "in.npz", input=half(rows, 64).numpy())
        assert spyre_run.main(command) == 1
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert text in line


def test_the_rules_of_sizes() -> None:
    """The validator checks several sizes, and reports a design without its symbol, and slices that are not subviews."""
    bundle = compiled().symbolic.bundle
    assert sizes_to_check(bundle) == [{"S": 256}, {"S": 64}, {"S": 128}]
    name, design = next(iter(bundle.designs.items()))
    ((dim, size),) = design.symbolic.items()

    def broken(**changes):
        changed = dataclasses.replace(design, symbolic={dim: dataclasses.replace(size, **changes)})
        return validate(dataclasses.replace(bundle, designs={**bundle.designs, name: changed}))

    (finding,) = broken(symbol=-999)
    assert finding.rule == "sizes" and "No execute binds the symbol -999" in finding.message
    (finding,) = broken(granularity=design.slices[dim] + 1)
    assert finding.rule == "sizes" and "is not a multiple of" in finding.message


def test_prices() -> None:
    """The cost of one bundle for all sizes is reported at each size of the calls."""
    program, _ = prefill()
    program.program(dim1_of_input0=256)
    prices = program.prices()
    assert [price.sizes["dim1_of_input0"] for price in prices] == [128, 256]
    for price in prices:
        assert price.us > 0 and price.own_us > 0
        assert f"at dim1_of_input0 = {price.sizes['dim1_of_input0']} the bundle" in str(price)
    dear = [price for price in prices if price.ratio > 1.1]
    assert [remark.reason for remark in program.remarks] == list(map(str, dear))
    assert all("most of it is" in price.reason for price in dear)


def test_figures_at_a_size() -> None:
    """The program of all sizes has the figures of the largest size; a smaller size takes less time."""
    program = compiled().symbolic
    small, large = program.at(S=64), program.at(S=256)
    assert program.metrics()["predicted_us"] == large.metrics()["predicted_us"]
    assert small.metrics()["predicted_us"] < large.metrics()["predicted_us"]
