# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows written into a cache at positions of a call: the row alone is moved, with the numbers of PyTorch."""

import copy
import dataclasses
import random

import numpy as np
import pytest
import torch
from row_models import case, viewed_case
from torch import nn
from torch.utils import _pytree as pytree

import spyre_mlir
from spyre_mlir.bundle.folder import read_bundle
from spyre_mlir.bundle.validate import validate
from spyre_mlir.driver.program import Program
from spyre_mlir.errors import CompileError
from spyre_mlir.tools import spyre_run

torch.manual_seed(0)


@pytest.fixture(autouse=True)
def in_order():
    """With several threads PyTorch writes rows of one position in any order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Cache(nn.Module):
    """A cache of the model, of which a call changes one position."""

    def __init__(self, positions=128, columns=64):
        super().__init__()
        self.register_buffer("keys", torch.randn(2, 2, positions, columns).half())

    def forward(self, row, position):
        self.keys.index_copy_(2, position, row)
        return self.keys * 2


class Decode(nn.Module):
    """Attention of one token to a cache in which its key and value are."""

    def __init__(self, batch, groups, positions, columns):
        super().__init__()
        for name in ("keys", "values"):
            self.register_buffer(name, torch.randn(batch, groups, positions, columns).half())

    def forward(self, q, key, value, position):
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        mask = (torch.arange(self.keys.shape[2]) <= position)[None, None, None, :]
        return nn.functional.scaled_dot_product_attention(
            q, self.keys, self.values, attn_mask=mask, enable_gqa=True
        )


class Layers(nn.Module):
    """Layers with a cache each, all written at one position."""

    def __init__(self, count=4):
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(64, 128, bias=False) for _ in range(count))
        for number in range(count):
            self.register_buffer(f"cache{number}", torch.randn(2, 256, 64) / 8)

    def forward(self, x, position):
        for number, projection in enumerate(self.projections):
            query, row = projection(x).split(64, -1)
            cache = getattr(self, f"cache{number}")
            cache.index_copy_(1, position, row)
            x = torch.softmax(query @ cache.transpose(1, 2), -1) @ cache
        return x


def call(row_shape, position):
    return torch.randn(row_shape).half(), torch.tensor([position])


def writes(program, names):
    """Bytes that the executions read and write which write to some arguments."""
    total = [0, 0]
    for step in program.bundles:
        uses = step.bundle.manifest.uses
        for index, run in step.last_run.statistics.executes.items():
            if uses[index][-1] in names:
                total = [total[0] + run.read_bytes, total[1] + run.write_bytes]
    return total


@pytest.mark.parametrize("seed", range(200))
def test_random_rows(seed):
    model, inputs = case(seed)
    program = spyre_mlir.compile(model, tuple(inputs()), sencores=[1, 4, 32][seed % 3], verify_each=True)
    for _ in range(2):
        got = inputs()
        expected = pytree.tree_map(torch.clone, got)
        assert torch.equal(program(*got), model(*expected))
        assert all(map(torch.equal, pytree.tree_leaves(got), pytree.tree_leaves(expected)))
    for step in program.bundles:
        assert validate(step.bundle) == []


@pytest.mark.parametrize("seed", range(200))
def test_random_rows_through_a_view(seed):
    model, inputs = viewed_case(seed)
    program = spyre_mlir.compile(model, tuple(inputs()), sencores=[1, 4, 32][seed % 3], verify_each=True)
    for _ in range(2):
        got = inputs()
        expected = [tensor.clone() for tensor in got]
        assert torch.equal(program(*got), model(*expected))
        assert torch.equal(got[0], expected[0])


def transposed(cache, rows, index):
    """Rows of a cache that attention sees with its heads outermost."""
    cache.transpose(1, 2).index_copy_(2, index, rows.transpose(1, 2))
    return torch.relu(cache.transpose(1, 2))


def slots(cache, rows, index):
    """Rows at slots that are counted through all pages."""
    cache.view(-1, *cache.shape[2:])[index] = rows[0]
    return torch.relu(cache)


def computed_slots(cache, rows, index):
    """Slots that the host computes, so that it can check them only after computing them."""
    cache.flatten(0, 1)[index - 1] = rows[0]
    return torch.relu(cache)


def scattered(cache, rows, index):
    """Rows by an index that is repeated for each element."""
    cache.scatter_(1, index.view(1, -1, 1, 1).expand(2, -1, 4, 64), rows)
    return torch.relu(cache)


@pytest.mark.parametrize("seed", range(40))
def test_scatters(seed):
    """Scatters of whole rows, of parts of rows, and with an index per element that only looks repeated."""
    chosen = random.Random(seed)
    sizes, dim = [3, 5, 2, 64], chosen.randrange(3)
    rows = [2 if d == dim else size for d, size in enumerate(sizes)]
    kind = chosen.choice(["rows", "rows", "parts", "elements", "input"])
    if kind == "parts":
        rows[(dim + 1) % 3] = 1
    single = [size if d == dim or kind == "elements" else 1 for d, size in enumerate(rows)]

    def model(cache, values, index):
        cache.scatter_(dim, index if kind == "input" else index.expand(rows), values)
        return cache * 2

    def inputs():
        cache, values = torch.randn(sizes).half(), torch.randn(rows).half()
        index = torch.rand(*single[:dim], sizes[dim], *single[dim + 1 :]).argsort(dim).narrow(dim, 0, 2)
        return [cache, values, index.expand(rows) if kind == "input" else index]

    program = spyre_mlir.compile(model, tuple(inputs()))
    got = inputs()
    if kind == "input":
        got[2] = torch.rand(*rows[:dim], sizes[dim], *rows[dim + 1 :]).argsort(dim).narrow(dim, 0, 2)
    expected = [tensor.clone() for tensor in got]
    assert torch.equal(program(*got), model(*expected))
    assert torch.equal(got[0], expected[0])


@pytest.mark.parametrize("model", [transposed, scattered, slots, computed_slots])
def test_rows_through_a_view_are_moved_alone(model):
    cache, rows = torch.randn(2, 64, 4, 64).half(), torch.randn(2, 1, 4, 64).half()
    index = torch.tensor([7])
    program = spyre_mlir.compile(model, (cache, rows, index))
    assert torch.equal(program(cache, rows, index), model(cache.clone(), rows, index))
    moved = rows.numel() * 2 // (1 if model in (transposed, scattered) else 2)
    assert writes(program, {"cache"}) == [moved, moved]
    before = cache.clone()
    for wrong in (1 << 20, -(1 << 20), -128, 129) if model is computed_slots else (128, -129):
        with pytest.raises(CompileError, match=r"out of range|reads at index"):
            program(cache, rows, torch.tensor([wrong]))
        assert torch.equal(cache, before)


@pytest.mark.parametrize("position", [0, 63, 64, 127])
def test_one_row_is_written(position):
    model, row_bytes = Cache(), 2 * 2 * 64 * 2
    reference, x = copy.deepcopy(model), call((2, 2, 1, 64), position)
    program = spyre_mlir.compile(model, x)
    before = model.keys.clone()
    assert torch.equal(program(*x), reference(*x))
    assert torch.equal(model.keys, reference.keys)
    assert (model.keys != before).any(-1).any(0).any(0).nonzero().flatten().tolist() == [position]
    assert writes(program, {"keys"}) == [row_bytes, row_bytes]


def test_a_decoding_step_moves_the_rows_alone():
    """The caches hold 4 MB each, a row of both 4 KB."""
    batch, groups, positions, columns = 2, 4, 4096, 64
    model = Decode(batch, groups, positions, columns)
    reference = copy.deepcopy(model)
    shapes = (batch, 4 * groups, 1, columns), *[(batch, groups, 1, columns)] * 2
    example = (*(torch.randn(shape).half() for shape in shapes), torch.tensor([5]))
    program = spyre_mlir.compile(model, example)
    for position in (0, 4095, 1000):
        x = (*(torch.randn(shape).half() for shape in shapes), torch.tensor([position]))
        got, expected = program(*x), reference(*x)
        np.testing.assert_allclose(got.float(), expected.float(), atol=0.004, rtol=0.02)
        assert torch.equal(model.keys, reference.keys) and torch.equal(model.values, reference.values)
    row_bytes = batch * groups * columns * 2
    assert writes(program, {"keys", "values"}) == [2 * row_bytes, 2 * row_bytes]


@pytest.mark.parametrize("position", [128, -1, 1 << 40])
def test_an_index_out_of_range_changes_nothing(position):
    model = Cache()
    program = spyre_mlir.compile(model, call((2, 2, 1, 64), 3))
    before = model.keys.clone()
    with pytest.raises(CompileError, match=f"{position} is out of range: it is an index of aten.index_copy"):
        program(*call((2, 2, 1, 64), position))
    assert torch.equal(model.keys, before)


def test_a_negative_index_counts_from_the_end():
    def model(cache, row, position):
        cache[:, position] = row
        return cache + 1

    inputs = [torch.randn(4, 40, 64).half(), torch.randn(4, 1, 64).half(), torch.tensor([-1])]
    program = spyre_mlir.compile(model, inputs)
    for position in (-1, -40, 39):
        inputs[2] = torch.tensor([position])
        expected = [each.clone() for each in inputs]
        assert torch.equal(program(*inputs), model(*expected))
        assert torch.equal(inputs[0], expected[0])
    with pytest.raises(CompileError, match="-41 is out of range: it is an index of aten"):
        program(*inputs[:2], torch.tensor([-41]))


def test_an_index_that_the_host_computes():
    def model(cache, row, length):
        cache.index_copy_(0, length - 1, row)
        return torch.exp(cache)

    inputs = [torch.zeros(40, 64).half(), torch.ones(1, 64).half(), torch.tensor([40])]
    program = spyre_mlir.compile(model, inputs)
    program(*inputs)
    assert inputs[0].sum(1).nonzero().flatten().tolist() == [39]
    with pytest.raises(CompileError, match="40"):
        program(*inputs[:2], torch.tensor([41]))


def test_an_index_that_the_device_computes_is_compared():
    def model(cache, row, scores):
        cache.index_copy_(0, scores.argmax().reshape(1), row)
        return torch.exp(cache)

    inputs = [torch.zeros(40, 64).half(), torch.ones(1, 64).half(), torch.arange(40).half()]
    program = spyre_mlir.compile(model, inputs)
    program(*inputs)
    assert inputs[0].sum(1).nonzero().flatten().tolist() == [39]


def test_the_old_value_is_read_before_the_row_is_written():
    def model(cache, row, position):
        old = cache.sum(-1)
        cache.index_copy_(0, position, row)
        return old + cache.sum(-1)

    inputs = [torch.ones(40, 64).half(), torch.zeros(1, 64).half(), torch.tensor([7])]
    program = spyre_mlir.compile(model, inputs, verify_each=True)
    assert program(*inputs).tolist() == [64.0 if each == 7 else 128.0 for each in range(40)]
    assert inputs[0][7].sum() == 0


@torch.no_grad()
@pytest.mark.parametrize("options", [{}, {"bundle_operations": 3}, {"lx_planning": False}], ids=str)
def test_layers_with_a_cache_each(options):
    model = Layers().half()
    reference = copy.deepcopy(model)
    x = torch.randn(2, 1, 64).half() / 8, torch.tensor([9])
    program = spyre_mlir.compile(model, x, sencores=4, **options)
    for position in (9, 0, 255):
        x = torch.randn(2, 1, 64).half() / 8, torch.tensor([position])
        got, expected = program(*x), reference(*x)
        np.testing.assert_allclose(got.float(), expected.float(), atol=0.01, rtol=0.05)
        for name, cache in model.named_buffers():
            np.testing.assert_allclose(cache.float(), reference.get_buffer(name).float(), atol=0.02)
    # One row is 256 bytes; the row of the first layer is written from values in LX.
    assert writes(program, dict(model.named_buffers()))[1] == 4 * 256


def test_a_saved_program_is_given_the_index(tmp_path):
    def model(cache, row, position):
        cache.index_copy_(0, position, row)
        return cache * 2

    inputs = [torch.randn(40, 64).half(), torch.randn(1, 64).half(), torch.tensor([7])]
    program = spyre_mlir.compile(model, inputs)
    program.save(tmp_path / "program")
    assert validate(read_bundle(tmp_path / "program")) == []
    arrays = [each.numpy().copy() for each in inputs]
    expected = model(*(each.clone() for each in inputs))
    outputs = Program.load(tmp_path / "program")(*arrays)
    assert any(np.array_equal(each, expected) for each in outputs)
    names = [value.name for value in program.inputs]
    np.savez(tmp_path / "in.npz", **dict(zip(names, arrays, strict=True)))
    folder, given, taken = (str(tmp_path / name) for name in ("program", "in.npz", "out.npz"))
    assert spyre_run.main([folder, "--inputs", given, "--outputs", taken]) == 0
    with np.load(taken) as results:
        assert any(np.array_equal(each, expected) for each in results.values())
    np.savez(tmp_path / "in.npz", **dict(zip(names, [*arrays[:2], np.array([40])], strict=True)))
    assert spyre_run.main([folder, "--inputs", given, "--outputs", taken]) == 1


def test_parts_of_one_cache():
    """The key and the value of a layer are written into one tensor of all keys and values."""

    def model(cache, row, position):
        cache[0].index_copy_(1, position, row)
        cache[1, :, position] = row * 2
        return cache * 2

    inputs = [torch.randn(2, 3, 256, 64).half(), torch.randn(3, 1, 64).half(), torch.tensor([7])]
    program = spyre_mlir.compile(model, inputs)
    expected = [each.clone() for each in inputs]
    assert torch.equal(program(*inputs), model(*expected))
    assert torch.equal(inputs[0], expected[0])
    assert writes(program, {"cache"})[1] == 2 * 3 * 64 * 2


READ = """"sdsc.read_index"(%p) {element = ELEMENT : i64,
    sdsc.index_bounds = {lower = 0 : i64, upper = 62 : i64, operation = "slice"}} : (tensor<2xi64>) -> index"""

POINTWISE = """linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(VALUE : tensor<ROWSx128xf16>) outs(EMPTY : tensor<ROWSx128xf16>) {
  ^bb0(%a: f16, %o: f16):
    %n = math.NAME %a : f16
    linalg.yield %n : f16
  } -> tensor<ROWSx128xf16>"""


def pointwise(name, value, rows, empty):
    """An operation on all elements of some rows."""
    text = POINTWISE.replace("VALUE", value).replace("ROWS", str(rows))
    return text.replace("NAME", name).replace("EMPTY", empty)


SLICES = f"""
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<64x128xf16>, %p: tensor<2xi64> {{spyre.name = "p"}}) -> tensor<64x128xf16> {{
  %i = {READ.replace("ELEMENT", "0")}
  %j = {READ.replace("ELEMENT", "1")}
  %e = tensor.empty() : tensor<64x128xf16>
  %f = tensor.empty() : tensor<3x128xf16>
  %y = {pointwise("absf", "%x", 64, "%e")}
  %r = tensor.extract_slice %y[%i, 0] [3, 128] [1, 1] : tensor<64x128xf16> to tensor<3x128xf16>
  %s = {pointwise("sqrt", "%r", 3, "%f")}
  %w = tensor.insert_slice %s into %y[%j, 0] [3, 128] [1, 1] : tensor<3x128xf16> into tensor<64x128xf16>
  %z = {pointwise("floor", "%w", 64, "%e")}
  return %z : tensor<64x128xf16>
}}
"""


def test_slices_of_what_the_program_computes():
    """Slices at run-time positions of a computed value, which would otherwise fit LX as a whole."""
    program = spyre_mlir.compile(SLICES, verify_each=True)
    # Squares, whose roots are exact.
    x = (np.random.default_rng(0).integers(-8, 8, (64, 128)) ** 2).astype(np.float16)
    for first, second in ((0, 61), (5, 6), (6, 5), (9, 9)):
        expected = x.copy()
        expected[second : second + 3] = np.sqrt(x[first : first + 3])
        np.testing.assert_array_equal(program(x, np.array([first, second])), expected)
    assert validate(program.bundle) == []


def test_torch_compile():
    model = Cache()
    reference = copy.deepcopy(model)
    compiled = torch.compile(model, backend=spyre_mlir.torch_backend)
    for position in (3, 127):
        x = call((2, 2, 1, 64), position)
        assert torch.equal(compiled(*x), reference(*x))
        assert torch.equal(model.keys, reference.keys)


def broken(change):
    """The findings of a bundle with an index, with a change of its manifest or of its parameters."""
    bundle = spyre_mlir.compile(Cache(), call((2, 2, 1, 64), 3)).bundle
    assert validate(bundle) == []
    return [str(finding) for finding in validate(change(bundle))]


def with_index(bundle, **fields):
    (index,) = bundle.manifest.indices
    manifest = dataclasses.replace(bundle.manifest, indices=(dataclasses.replace(index, **fields),))
    return dataclasses.replace(bundle, manifest=manifest)


def with_largest(bundle, value):
    *others, parameter = bundle.parameters
    index = bundle.manifest.indices[0]
    bounds = dataclasses.replace(index.bounds, upper=value + 1)
    parameter = dataclasses.replace(parameter, max_value=value)
    return dataclasses.replace(with_index(bundle, bounds=bounds), parameters=(*others, parameter))


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda bundle: with_index(bundle, argument="row"), "is not an input of integers"),
        (lambda bundle: with_index(bundle, argument="none"), "is not an input of integers"),
        (lambda bundle: with_index(bundle, element=1), "has no element 1"),
        (lambda bundle: with_index(bundle, parameter="arg_0_base_addr"), "is not one of max_value=127"),
        (lambda bundle: with_largest(bundle, 128), "expected to be inside"),
        (
            lambda bundle: dataclasses.replace(
                bundle, manifest=dataclasses.replace(bundle.manifest, indices=())
            ),
            "is not an address",
        ),
    ],
)
def test_the_validator_checks_indices(change, finding):
    findings = broken(change)
    assert findings and any(finding in each for each in findings)
