# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments that stay in device memory between calls: ``Program.state``."""

import copy
import pickle
import warnings

import pytest
import torch
from row_models import case
from torch import nn
from torch.utils import _pytree as pytree

import spyre_mlir
from spyre_mlir.errors import CompileError, HostWorkWarning

torch.manual_seed(0)


@pytest.fixture(autouse=True)
def in_order():
    """With several threads PyTorch writes rows of one position in any order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Cache(nn.Module):
    """A cache of a model, of which a call changes one position."""

    def __init__(self, dtype=torch.float16):
        super().__init__()
        self.register_buffer("keys", torch.randn(2, 128, 64).to(dtype))

    def forward(self, row, position):
        self.keys.index_copy_(1, position, row)
        return self.keys * 2


class Prefill(nn.Module):
    """The first positions of a cache at once."""

    def __init__(self, keys):
        super().__init__()
        self.register_buffer("keys", keys)

    def forward(self, rows):
        self.keys[:, : rows.shape[1]] = rows
        return rows * 2


class Reader(nn.Module):
    """A model that reads the cache only."""

    def __init__(self, keys):
        super().__init__()
        self.register_buffer("keys", keys)

    def forward(self, x):
        return self.keys + x


def call(position, dtype=torch.float16):
    return torch.randn(2, 1, 64).to(dtype), torch.tensor([position])


def crossing(program):
    """Names of what calls transfer."""
    moved = [argument for step in program.transfers() for argument in (*step.to_device, *step.to_host)]
    return {argument.name for argument in moved}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32], ids=str)
def test_a_buffer_stays_on_the_device(dtype):
    model = Cache(dtype)
    reference, before = copy.deepcopy(model), model.keys.clone()
    program = spyre_mlir.compile(model, call(3, dtype), state=True)
    for position in (0, 127, 5):
        x = call(position, dtype)
        assert torch.equal(program(*x), reference(*x))
        assert torch.equal(program.state["keys"].cpu(), reference.keys)
    assert torch.equal(model.keys, before)
    assert crossing(program) == {"row", "position", "result1"}
    program.state.reset()
    assert torch.equal(program.state["keys"].cpu(), before)


def test_without_the_option_the_buffer_is_that_of_the_model():
    model = Cache()
    reference = copy.deepcopy(model)
    program = spyre_mlir.compile(model, call(3))
    x = call(9)
    program(*x)
    reference(*x)
    assert torch.equal(model.keys, reference.keys) and not program.state
    assert "keys" in crossing(program)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16], ids=str)
@pytest.mark.filterwarnings("ignore")
def test_a_buffer_of_a_dtype_without_a_form(dtype):
    """The state has the buffer's own dtype, whether functions of the host or bundles read the buffer."""

    class Codes(nn.Module):
        """Codes with a scale; a call may change a row of codes."""

        def __init__(self):
            super().__init__()
            self.register_buffer("codes", torch.randint(0, 256, (64, 64)).to(dtype))

        def forward(self, x, row, position):
            if row is not None:
                self.codes.index_copy_(0, position, row)
            return x @ self.codes.half()

    for row in (None, torch.randint(200, 256, (1, 64)).to(dtype)):
        model, x = Codes(), torch.ones(2, 64).half()
        reference = copy.deepcopy(model)
        program = spyre_mlir.compile(model, (x, row, torch.tensor([3])), state=["codes"])
        for position in (3, 5):
            operands = (x, row, torch.tensor([position]))
            assert torch.equal(program(*operands), reference(*operands))
        codes = program.state["codes"].cpu()
        assert codes.dtype == dtype and torch.equal(codes, reference.codes)
        restored = pickle.loads(pickle.dumps(program)).state["codes"].cpu()
        assert restored.dtype == dtype and torch.equal(restored, codes)
        program.state["codes"] = codes.flip(0)
        assert torch.equal(program.state["codes"].cpu(), codes.flip(0))
        program.state.reset()
        assert torch.equal(program.state["codes"].cpu(), model.codes)


def test_programs_share_a_state():
    """Prefill lays the cache out, decoding writes rows of it, and a third program reads what both wrote."""
    keys = torch.zeros(2, 128, 64).half()
    models = [Prefill(keys), Cache(), Reader(keys)]
    models[1].keys = keys
    rows, x = torch.randn(2, 64, 64).half(), torch.ones(64).half()
    prefill = spyre_mlir.compile(models[0], (rows,), state=True)
    decode = spyre_mlir.compile(models[1], call(64), state=prefill.state)
    reader = spyre_mlir.compile(models[2], (x,), state=decode.state)
    assert reader.state["keys"] is prefill.state["keys"]
    expected = [copy.deepcopy(model) for model in models]
    for model in expected:
        model.keys = expected[0].keys
    assert torch.equal(prefill(rows), expected[0](rows))
    for position in (64, 65, 0):
        step = call(position)
        assert torch.equal(decode(*step), expected[1](*step))
        assert torch.equal(reader(x), expected[2](x))
    assert crossing(reader) == {"x", "result0"} and "keys" not in crossing(prefill) | crossing(decode)


@pytest.mark.parametrize("cache", [True, False])
def test_an_error_leaves_the_state(cache):
    model = Cache()
    program = spyre_mlir.compile(model, call(3), state=True, cache=cache)
    program(*call(4))
    before = program.state["keys"].cpu()
    for wrong in (call(128), (torch.randn(2, 2, 64).half(), torch.tensor([1]))):
        with pytest.raises(CompileError):
            program(*wrong)
        assert torch.equal(program.state["keys"].cpu(), before)


def test_an_argument_of_the_call():
    """A tensor of the device is changed where it is, whether it is the state or not."""

    def model(cache, row, position):
        cache.index_copy_(0, position, row)
        return cache.sum(-1)

    cache, row = torch.randn(40, 64).half(), torch.ones(1, 64).half()
    program = spyre_mlir.compile(model, (cache, row, torch.tensor([0])), state=["cache"])
    other = program.to_device("cache", cache * 2)
    for tensor, host in ((program.state["cache"], cache.clone()), (other, cache * 2)):
        for position in (7, 39):
            index = torch.tensor([position])
            expected = model(host, row, index)
            assert torch.allclose(program(tensor, row, index), expected, atol=0.02)
            assert torch.equal(tensor.cpu(), host)
    assert "cache" not in crossing(program)
    with pytest.raises(CompileError, match="changes 'cache' in place, but 'row' lies in the same memory"):
        same = spyre_mlir.to_device(torch.ones(1, 64).half())
        one = spyre_mlir.compile(model, (row, row.clone(), torch.tensor([0])))
        one(same, same, torch.tensor([0]))


def test_torch_compile_changes_a_tensor_of_the_device():
    def model(cache, row, position):
        cache.index_copy_(0, position, row)
        return cache * 2

    host, row, position = torch.randn(40, 64).half(), torch.ones(1, 64).half(), torch.tensor([3])
    cache = host.to("spyre")
    for part in (slice(0, 40), slice(2, 10)):
        compiled = torch.compile(model, dynamic=False)
        got = compiled(cache[part], row.to("spyre"), position.to("spyre"))
        assert torch.equal(got.cpu(), model(host[part], row, position))
        assert torch.equal(cache.cpu(), host)


def test_assignment():
    program = spyre_mlir.compile(Cache(), call(3), state={"keys": torch.ones(2, 128, 64).half()})
    assert program.state["keys"].numpy().min() == 1
    program.state["keys"] = torch.zeros(2, 128, 64).half()
    assert program.state["keys"].numpy().max() == 0
    with pytest.raises(CompileError, match=r"has shape \[2, 128, 64\], so it cannot become \[2, 64\]"):
        program.state["keys"] = torch.zeros(2, 64).half()
    with pytest.raises(CompileError, match="There is no state 'values'"):
        program.state["values"] = torch.zeros(2, 64).half()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("kyes", "There is no argument 'kyes' to keep as state"),
        (3, "The option 'state' is True, names"),
        ({"keys": spyre_mlir.zeros(2, 128, 32, dtype="float16")}, r"one of \[2, 128, 32\] f16, but"),
        ({"keys": spyre_mlir.zeros(2, 128, 64, dtype="float32")}, "f32, but the tensor is"),
        ({"keys": spyre_mlir.zeros(2, 128, 64, dtype="bfloat16")}, "bfloat16|bf16"),
        ({"keys": torch.zeros(2, 3).half()}, r"'keys' has shape \[2, 128, 64\], not \[2, 3\]"),
    ],
    ids=str,
)
def test_what_cannot_be_the_state(option, message):
    with pytest.raises(CompileError, match=message):
        spyre_mlir.compile(Cache(), call(3), state=option)


def test_a_layout_is_chosen_once():
    program = spyre_mlir.compile(Cache(), call(3), state=True, layouts={"keys": {"stick_dims": [2]}})
    with pytest.raises(CompileError, match="The layout of 'keys' is fixed by the state"):
        spyre_mlir.compile(Cache(), call(3), state=program.state, layouts={"keys": {"stick_dims": [2]}})
    with pytest.raises(CompileError, match="a module in MLIR has none"):
        spyre_mlir.compile("module {}", state=True)
    with pytest.raises(CompileError, match="in KTIR has no state"):
        spyre_mlir.compile(Cache(), call(3), state=True, target="ktir")


def test_pickles_have_the_state():
    program = spyre_mlir.compile(Cache(), call(3), state=True)
    program(*call(3))
    restored = pickle.loads(pickle.dumps(program))
    x = call(5)
    assert torch.equal(restored(*x), program(*x))
    assert torch.equal(restored.state["keys"].cpu(), program.state["keys"].cpu())
    assert restored.state["keys"] is not program.state["keys"]


def test_work_of_the_host_between_transfers_it():
    """The host computes with the cache, so it is transferred; the numbers are right all the same."""

    class Sines(Cache):
        def forward(self, row, position):
            old = torch.special.bessel_j0(self.keys.float()).half()
            self.keys.index_copy_(1, position, row)
            return self.keys + old

    model = Sines()
    reference = copy.deepcopy(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HostWorkWarning)
        program = spyre_mlir.compile(model, call(3), state=True)
    for position in (3, 4):
        x = call(position)
        assert torch.allclose(program(*x), reference(*x), atol=0.01)
        assert torch.equal(program.state["keys"].cpu(), reference.keys)
    assert not program.is_one_bundle


def test_dynamic_sizes_share_the_state():
    spyre_mlir.declare_tensor_dim("S", 32)
    rows = torch.randn(2, 32, 64).half()
    for name, size in (("B", 2), ("H", 64)):
        spyre_mlir.declare_tensor_dim(name, size)
    spyre_mlir.name_tensor_dims(rows, ["B", "S", "H"])
    keys = torch.zeros(2, 128, 64).half()
    program = spyre_mlir.compile(Prefill(keys), (rows,), dynamic={"S": (32, 128)}, state=True)
    expected = Prefill(keys.clone())
    for size in (32, 64, 32):
        rows = torch.randn(2, size, 64).half()
        assert torch.equal(program(rows), expected(rows))
        assert torch.equal(program.state["keys"].cpu(), expected.keys)


@pytest.mark.parametrize("seed", range(200))
def test_random_rows_of_a_state(seed):
    """Three calls in sequence, each begins with the state after the previous call."""
    model, inputs = case(seed)
    example = inputs()
    leaves = len(pytree.tree_leaves(example[0]))
    names = ["cache"] if leaves == 1 else [f"cache_{number}" for number in range(leaves)]
    program = spyre_mlir.compile(model, tuple(example), sencores=[1, 4, 32][seed % 3], state=names)
    tree = pytree.tree_structure(example[0])
    cache = pytree.tree_map(torch.clone, example[0])
    state = pytree.tree_unflatten([program.state[name] for name in names], tree)
    for _ in range(3):
        others = inputs()[1:]
        assert torch.equal(program(state, *others), model(cache, *others))
        for name, tensor in zip(names, pytree.tree_leaves(cache), strict=True):
            assert torch.equal(program.state[name].cpu(), tensor)
    assert not crossing(program) & {*names} or len(program.steps) > 1
