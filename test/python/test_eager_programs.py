# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs of eager operations: views, writes in place and operations of the host, as PyTorch runs them."""

from __future__ import annotations

import os
import random
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import device_chains
import pytest
import torch

from spyre_mlir import FallbackWarning
from spyre_mlir.frontend import eager, host_operations
from spyre_mlir.frontend.growing_sizes import GrowingSizes
from spyre_mlir.tensors.device_activity import Listener, listening

#: Seeds of the programs; SPYRE_EAGER_SEEDS runs more.
SEEDS = int(os.environ.get("SPYRE_EAGER_SEEDS", "3"))

OPERATIONS = 500

DTYPES = (torch.float16, torch.float32, torch.int32, torch.int64, torch.bool, torch.uint8, torch.int16)

#: The tensors of a program: the oldest is forgotten first.
POOL = 8

Operation = Callable[[torch.Tensor, torch.Tensor], Any]

#: Operations with one program on the device for each view.
COMPUTED: tuple[Operation, ...] = (
    lambda x, y: x + y,
    lambda x, y: -x,
    lambda x, y: x.clone(),
    lambda x, y: torch.maximum(x, y),
)

#: Operations that the host runs.
OF_THE_HOST: tuple[Operation, ...] = (
    lambda x, y: x.nonzero(),
    lambda x, y: x[x > 0],
    lambda x, y: torch.where(x > y)[0] if x.dim() else x,
    lambda x, y: x.unique(),
    lambda x, y: x.to(torch.uint8),
    lambda x, y: x.view(torch.uint8)[..., :4] if x.dim() else x,
    lambda x, y: x.short() * 2,
    lambda x, y: torch.cat([x[:0], y]) if x.dim() else x,
    lambda x, y: x.flatten()[:0],
    lambda x, y: x.double().sum().float(),
    lambda x, y: torch.cat([x.flatten(), x.flatten()[:0]]),
)

IN_PLACE: tuple[Operation, ...] = (
    lambda x, y: x.fill_(3),
    lambda x, y: x.zero_(),
    lambda x, y: x.copy_(y),
    lambda x, y: x.add_(y),
    lambda x, y: x.mul_(2),
    lambda x, y: x.neg_(),
    lambda x, y: x.masked_fill_(y > 1, 1),
    lambda x, y: x.flatten().sub_(1),
    lambda x, y: x.add_(1.5),
    lambda x, y: x.resize_(1) if x.numel() else x,
    lambda x, y: x.unsqueeze_(0),
    lambda x, y: x.squeeze_(),
    lambda x, y: torch.add(x, y, out=x),
    lambda x, y: x.copy_(y.cpu().flip(0)) if y.dim() else x,
)


def made(rng: random.Random) -> torch.Tensor:
    """A new tensor of the host; few shapes, so that programs are used again."""
    shape = rng.choice(((4, 6), (2, 3, 4), (8,), (), (0, 3), (1, 1)))
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    return torch.randint(-8, 9, shape, generator=generator).to(rng.choice(DTYPES))


def outcome(operation: Operation, x: torch.Tensor, y: torch.Tensor) -> Any:
    """Result of an operation, or the type of its error."""
    try:
        return operation(x, y)
    except (RuntimeError, IndexError) as error:
        return type(error)


def operation_for(rng: random.Random, x: torch.Tensor) -> Operation:
    """Return a random operation for a tensor: views are frequent, because they compile nothing."""
    kinds = rng.choices(("view", "computed", "host", "in place"), (8, 1, 3, 4))
    if kinds == ["view"] and x.numel():
        name, arguments = device_chains.random_view(rng, x)
        return lambda x, y: device_chains.viewed(x, name, arguments)
    return rng.choice({"computed": COMPUTED, "host": OF_THE_HOST}.get(kinds[0], IN_PLACE))


def seen(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Type, sizes, strides and offset of a tensor; the stride of a dim of one element differs by kernel."""
    strides = [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1]
    return tensor.dtype, tensor.shape, strides, tensor.storage_offset()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_program_is_one_of_pytorch(seed: int) -> None:
    rng = random.Random(seed)
    pool: list[tuple[torch.Tensor, torch.Tensor]] = []
    for number in range(OPERATIONS):
        if len(pool) < 3 or rng.random() < 0.03:
            host = made(rng)
            pool.append((host, host.to("spyre")))
        x, on_device = rng.choice(pool)
        partners = [pair for pair in pool if pair[0].shape == x.shape and pair[0].dtype == x.dtype]
        y, other = rng.choice(partners)
        operation = operation_for(rng, x)
        expected, result = outcome(operation, x, y), outcome(operation, on_device, other)
        assert isinstance(expected, type) == isinstance(result, type), (number, expected, result)
        if isinstance(expected, type):
            assert expected is result
        elif expected.numel() <= 64:
            pool = [*pool[-POOL:], (expected, result)]
        for index, (host, device) in enumerate(pool):
            assert seen(host) == seen(device), (number, index)
            if not torch.equal(copied := device.cpu(), host):
                torch.testing.assert_close(copied, host, rtol=0, atol=0, equal_nan=True, msg=f"{number}")


class Programs(Listener):
    """The names of the operations for which programs were compiled."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_compilation(self, operation: str, program: Any) -> None:
        self.names.append(operation)


def test_operations_on_a_tensor_that_grows_with_each_call_are_compiled_for_two_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each step adds a position to a cache; host operations read it, with one warning for each operation."""
    monkeypatch.setattr(host_operations, "reasons", {})
    monkeypatch.setattr(eager, "growing", GrowingSizes())
    monkeypatch.setattr(eager, "programs", OrderedDict())
    query = torch.randn(1, 2, 1, 8, generator=torch.Generator().manual_seed(0)).half()
    ids, cache = torch.arange(3)[None], query.repeat(1, 1, 3, 1)
    counts, warned = [], []
    state = [(value.to("spyre"), value) for value in (ids, cache)]
    for _ in range(5):
        with listening(programs := Programs()), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", FallbackWarning)
            (on_device, ids), (keys, cache) = state
            results = []
            for ids_, keys_, query_ in ((on_device, keys, query.to("spyre")), (ids, cache, query)):
                joined = torch.cat([ids_, ids_[:, -1:]], 1), torch.cat([keys_, query_ * 2], 2)
                attended = torch.nn.functional.scaled_dot_product_attention(query_, joined[1], joined[1])
                results.append((*joined, (attended @ query_.mT).flatten(1)))
        torch.testing.assert_close([x.cpu() for x in results[0]], list(results[1]), rtol=1e-2, atol=1e-2)
        state = list(zip(results[0][:2], results[1][:2], strict=True))
        counts.append(len(programs.names))
        warned += [str(each.message).split()[0] for each in caught if each.category is FallbackWarning]
    assert counts[0] and not any(counts[2:]), counts
    assert sorted(warned) == ["aten.cat.default", "aten.scaled_dot_product_attention.default"]


# Positions are 32-bit integers, and the concatenation of the last position runs on the host.
@pytest.mark.filterwarnings("ignore::spyre_mlir.PassWarning", "ignore::spyre_mlir.FallbackWarning")
def test_a_longer_prompt_has_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A size that a cache had does not send other operations of this size to the host."""
    monkeypatch.setattr(eager, "growing", GrowingSizes())
    monkeypatch.setattr(eager, "programs", OrderedDict())
    ids, names = torch.arange(3, device="spyre")[None], []
    for size in (3, 6):
        with listening(programs := Programs()):
            torch.ones(size, 8, dtype=torch.float16, device="spyre") * 3
        names += programs.names
        for _ in range(4):
            ids = torch.cat([ids, ids[:, :1]], 1)
    assert names == ["aten.mul.Tensor"] * 2


class _Decoder(torch.nn.Module):
    """A cache of keys that grows by a position, or that has a window of them."""

    def __init__(self, window: int = 0) -> None:
        super().__init__()
        self.window = window

    def forward(self, cache: torch.Tensor) -> torch.Tensor:
        keys = cache[:, 1 - self.window :] if self.window else cache
        joined = torch.cat([keys, cache[:, -1:] * 0.5], 1)
        joined @ joined.mT
        return joined


def compilations(model: torch.nn.Module, prompt: int, steps: int = 5) -> list[int]:
    """Return the number of compiled programs in each step of a model, and compare the results with the CPU."""
    cache = torch.ones(1, prompt, 8, dtype=torch.float16)
    on_device, counts = torch.cat([cache.to("spyre")[:, :1], cache.to("spyre")[:, 1:]], 1), []
    for _ in range(steps):
        with listening(programs := Programs()):
            on_device, cache = model(on_device), model(cache)
        counts.append(len(programs.names))
        torch.testing.assert_close(on_device.cpu(), cache)
    return counts


@pytest.mark.filterwarnings("ignore::spyre_mlir.FallbackWarning")
def test_sizes_grow_for_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another model has programs for its prompt, whose size the cache of the first model had."""
    monkeypatch.setattr(eager, "growing", GrowingSizes())
    monkeypatch.setattr(eager, "programs", OrderedDict())
    for prompt in (3, 6):
        counts = compilations(_Decoder(), prompt)
        assert counts[0] >= 2 and not any(counts[2:]), counts


@pytest.mark.filterwarnings("ignore::spyre_mlir.FallbackWarning")
def test_a_window_of_a_cache_is_compiled_for_the_prompt_and_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(eager, "growing", GrowingSizes())
    monkeypatch.setattr(eager, "programs", OrderedDict())
    for prompt in (6, 9):
        counts = compilations(_Decoder(4), prompt)
        assert counts[0] and not any(counts[2:]), counts


def test_layers_that_join_features_have_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A size that grows by several positions is not a cache of a decoder."""
    monkeypatch.setattr(eager, "growing", GrowingSizes())
    monkeypatch.setattr(eager, "programs", OrderedDict())
    with listening(programs := Programs()):
        x = torch.ones(2, 16, dtype=torch.float16, device="spyre")
        for _ in range(4):
            x = torch.cat([x, x[:, :8] * 0.5], 1)
    assert programs.names.count("aten.cat.default") == 4


def test_programs_of_bfloat16_on_the_host_have_results() -> None:
    """A program may have no part on the device, whatever the type."""
    x = torch.tensor([0.5, -1.5, 3.0]).bfloat16()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for function in (torch.special.i0, torch.lgamma, torch.sin, torch.erfinv):
            result = function(x.to("spyre")).cpu()
            torch.testing.assert_close(result, function(x), equal_nan=True)
