# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.spyre`` and ``torch.accelerator``: memory, streams, events, random numbers, files, autocast and factories."""

from __future__ import annotations

import copy
import gc
import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo import trace_rules
from torch.utils.data import DataLoader, TensorDataset

import spyre_mlir
import spyre_mlir.frontend
from spyre_mlir.errors import CompileError

spyre: Any = torch.spyre  # pyright: ignore[reportAttributeAccessIssue]
factory: Any = torch


def test_the_device_is_the_accelerator():
    assert torch.accelerator.current_accelerator() == torch.device("spyre")
    assert (torch.accelerator.device_count(), spyre.device_count(), spyre.is_available()) == (1, 1, True)
    torch.accelerator.synchronize()
    spyre.synchronize("spyre:0")
    with spyre.device(0), torch.accelerator.device_index(0):
        assert spyre.current_device() == torch.accelerator.current_device_index() == 0
    assert spyre.mem_get_info()[1] == spyre.get_device_properties().total_memory > 2**36


CHOICES: list[Callable[[int], Any]] = [
    spyre.set_device,
    torch.accelerator.set_device_index,
    spyre.device,
    lambda index: torch.ones(2, device=f"spyre:{index}"),
    lambda index: torch.empty_strided((2,), (1,), device=f"spyre:{index}"),
    lambda index: torch.zeros(2).to(f"spyre:{index}"),
    lambda index: torch.zeros(2, device="spyre").to(f"spyre:{index}"),
    lambda index: torch.zeros(2, device="spyre").new_ones(2, device=f"spyre:{index}"),
    lambda index: torch.rand_like(torch.zeros(2), device=f"spyre:{index}"),
    lambda index: torch.nn.Linear(2, 2).to(f"spyre:{index}"),
]


@pytest.mark.parametrize("choose", CHOICES)
def test_there_is_one_device(choose: Callable[[int], Any]):
    with pytest.raises(RuntimeError, match="There is one device, 'spyre:0', but this names 'spyre:1'"):
        choose(1)


# Memory.


def test_memory_is_that_of_live_storages():
    """Views share a storage, and a copy of a storage counts; 64 x 64 of fp16 have no padding."""
    gc.collect()
    before = spyre.memory_allocated()
    x = torch.zeros(64, 64, dtype=torch.float16, device="spyre")
    view = x.t()[3:]
    assert spyre.memory.memory_allocated() == torch.accelerator.memory_allocated() == before + 8192
    copied = copy.deepcopy(x)
    assert spyre.memory_allocated() == before + 2 * 8192
    del copied
    spyre.memory.reset_peak_memory_stats()
    del x
    assert spyre.memory_allocated() == before + 8192
    del view
    torch.accelerator.empty_cache()
    assert (spyre.memory_allocated(), spyre.max_memory_allocated()) == (before, before + 8192)
    assert torch.accelerator.memory_stats()["allocated_bytes.all.peak"] == before + 8192


# Streams and events.


def test_events_measure_the_predicted_time_of_programs():
    x = torch.randn(64, 256, device="spyre").half()
    marks = [
        spyre.Event(enable_timing=True),
        torch.Event(enable_timing=True),
        torch.Event("spyre", enable_timing=True),
    ]
    marks[0].record()
    x + x
    marks[1].record(spyre.current_stream())
    x.view(256, 64)
    marks[2].record()
    program = spyre_mlir.compile(lambda x: x + x, (x.cpu(),))
    assert marks[0].elapsed_time(marks[1]) * 1000 == pytest.approx(program.metrics()["predicted_us"])
    assert marks[1].elapsed_time(marks[2]) == 0 and marks[2].query()


def test_events_without_times():
    timed, untimed = torch.Event("spyre", enable_timing=True), spyre.Event()
    with pytest.raises(ValueError, match="enable_timing=True"):
        timed.elapsed_time(untimed)
    with pytest.raises(ValueError, match="must be recorded"):
        timed.elapsed_time(spyre.Event(enable_timing=True))


def test_streams_are_current_in_their_context():
    stream, other = spyre.Stream(), torch.Stream("spyre")
    torch.zeros(2, device="spyre").record_stream(stream)
    assert isinstance(other, spyre.Stream) and isinstance(stream, torch.Stream) and stream != other
    with spyre.stream(stream):
        with other:
            assert spyre.current_stream() == torch.accelerator.current_stream() == other
            other.wait_stream(stream)
            other.wait_event(stream.record_event())
        assert spyre.current_stream() == stream
    assert spyre.current_stream() == spyre.default_stream()


def test_classes_of_pytorch_keep_their_objects():
    assert type(torch.Generator()) is type(torch.default_generator)
    assert isinstance(torch.default_generator, torch.Generator)
    assert issubclass(torch.Stream, torch.Stream) and not isinstance(3, torch.Event)
    assert torch.Generator().device == torch.device("cpu")


# Random numbers.

DRAWS: dict[str, Callable[..., torch.Tensor]] = {
    "randn": lambda device, x, g: torch.randn(4, 70, device=device, generator=g),
    "randint": lambda device, x, g: torch.randint(3, 90, (5, 3), device=device, generator=g),
    "randperm": lambda device, x, g: torch.randperm(40, device=device, generator=g),
    "bernoulli_": lambda device, x, g: x.clone().bernoulli_(0.3, generator=g),
    "uniform_": lambda device, x, g: x.clone().uniform_(-1, 2, generator=g),
    "random_": lambda device, x, g: x.clone().random_(5, 9, generator=g),
    "exponential_": lambda device, x, g: x.clone().exponential_(generator=g),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_generator_of_the_device_draws_what_one_of_the_host_draws(name: str):
    x = torch.linspace(0, 1, 60).reshape(6, 10)
    made, expected = (
        DRAWS[name](device, x.to(device), torch.Generator(device).manual_seed(7))
        for device in ("spyre", "cpu")
    )
    assert made.device.type == "spyre" and torch.equal(made.cpu(), expected)


def test_seeds():
    """A seed of the device, and of PyTorch, gives the numbers of the CPU, for dropout too."""
    x = torch.ones(8, 64)
    for seed in (torch.manual_seed, spyre.manual_seed, spyre.manual_seed_all):
        results = []
        for operand in (x.to("spyre"), x):
            seed(5)
            results += [torch.nn.functional.dropout(operand).cpu(), torch.rand_like(operand).cpu()]
        assert spyre.initial_seed() == 5
        assert torch.equal(results[0], results[2]) and torch.equal(results[1], results[3])


def test_states_of_generators():
    state = spyre.get_rng_state()
    first = torch.rand(3, device="spyre")
    spyre.set_rng_state(state)
    with torch.random.fork_rng(device_type="spyre"):
        assert torch.equal(torch.rand(3, device="spyre").cpu(), first.cpu())
    assert torch.equal(torch.rand(3, device="spyre").cpu(), first.cpu())
    own = torch.Generator("spyre").manual_seed(2)
    copies = (copy.deepcopy(own), pickle.loads(pickle.dumps(own)), own.clone_state())
    expected = torch.rand(3, generator=own)
    for each in copies:
        assert each.device == torch.device("spyre:0") and torch.equal(torch.rand(3, generator=each), expected)


# Host memory, files and loaders.


def test_pinned_memory():
    x = torch.arange(6.0)
    pinned = x.pin_memory()
    assert (x.is_pinned(), pinned.is_pinned(), pinned.view(2, 3).is_pinned()) == (False, True, True)
    assert torch.zeros(3, pin_memory=True).is_pinned() and torch.equal(pinned, x)
    moved = pinned.to("spyre", non_blocking=True)
    assert torch.equal(moved.to("cpu", non_blocking=True), x)
    assert torch.equal(torch.empty(6, device="spyre").copy_(pinned, non_blocking=True).cpu(), x)


def test_loaders_with_workers_feed_the_device():
    numbers = torch.arange(24.0).reshape(12, 2)
    loader = DataLoader(TensorDataset(numbers), 5, num_workers=2, pin_memory=True)
    batches = [batch for (batch,) in loader]
    assert all(batch.is_pinned() for batch in batches)
    assert torch.equal(torch.cat([batch.to("spyre", non_blocking=True) for batch in batches]).cpu(), numbers)


def test_files_name_the_device():
    model = torch.nn.Linear(4, 3)
    file = io.BytesIO()
    torch.save(copy.deepcopy(model).to("spyre").state_dict(), file)
    for place in (None, "cpu", "spyre", torch.device("spyre", 0)):
        file.seek(0)
        loaded = torch.load(file, map_location=place)
        assert {value.device.type for value in loaded.values()} == {"cpu" if place == "cpu" else "spyre"}
        assert all(torch.equal(loaded[name].cpu(), value) for name, value in model.state_dict().items())
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file, map_location="spyre")
    assert {value.device.type for value in loaded.values()} == {"spyre"}


def test_the_default_device():
    try:
        torch.set_default_device("spyre")
        layer = torch.nn.Linear(8, 4)
        made = [torch.ones(3), torch.tensor([1, 2]), torch.full((2,), 7), torch.arange(3), layer.weight]
    finally:
        torch.set_default_device(None)
    with torch.device("spyre"):
        made.append(torch.zeros(2))
    assert {each.device.type for each in made} == {"spyre"} and torch.zeros(2).device.type == "cpu"


# Layouts of factories.

FACTORIES: dict[str, Callable[..., torch.Tensor]] = {
    "empty": lambda **how: factory.empty(70, 64, dtype=torch.float16, **how),
    "zeros": lambda **how: factory.zeros((70, 64), **how),
    "full": lambda **how: factory.full((70, 64), 3, **how),
    "randn": lambda **how: factory.randn(70, 64, **how),
    "tensor": lambda **how: factory.tensor([[1, 2], [3, 4]], **how),
    "ones_like": lambda **how: factory.ones_like(torch.zeros(70, 64), **how),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_factories_take_stick_dims(name: str):
    made: Any = FACTORIES[name](device="spyre", stick_dims=[0], requires_grad=name == "zeros")
    plain = FACTORIES[name](device="cpu")
    assert made.device_tensor.layout.stick_dims == (0,)
    assert (made.shape, made.dtype, made.requires_grad) == (plain.shape, plain.dtype, name == "zeros")
    assert made.is_leaf and (name in ("empty", "randn") or torch.equal(made.detach().cpu(), plain))
    with pytest.raises(CompileError, match=f"torch.{name} makes one on cpu; give it device='spyre'"):
        FACTORIES[name](stick_dims=[0])


def test_torchscript_knows_factories():
    """PyTorch scripts the decompositions of forward-mode derivatives when it imports them."""

    def function(count: int) -> list[torch.Tensor]:
        return [torch.zeros([count]), torch.arange(count), torch.full_like(torch.ones([count]), 2.0)]

    scripted: Any = torch.jit.script(function)
    assert [each.tolist() for each in scripted(2)] == [[0, 0], [0, 1], [2, 2]]


@pytest.mark.parametrize("backend", [spyre_mlir.torch_backend, "inductor", "aot_eager"])
def test_dynamo_traces_factories(backend: Any):
    def function(x: torch.Tensor) -> torch.Tensor:
        sizes = torch.full((x.shape[0], 1), 2.0) + torch.arange(x.shape[0]).unsqueeze(1)
        return x * sizes + torch.zeros_like(x) + torch.tensor(1.0) + torch.ones(x.shape[1], device=x.device)

    torch._dynamo.reset()
    x = torch.randn(4, 64)
    made = torch.compile(function, backend=backend, fullgraph=True)(x)
    torch.testing.assert_close(made, function(x))


# Autocast.


def steps(x: torch.Tensor) -> list[torch.Tensor]:
    """Operations that autocast makes shorter, wider, and promotes; and some that keep their type."""
    y = x @ x.T
    return [
        y,
        torch.nn.functional.mse_loss(y, y * 0.5),
        torch.cat([y, x[:, :8]]),
        y.softmax(-1),
        y + x[:, :8],
    ]


@pytest.mark.parametrize("dtype", spyre.get_amp_supported_dtype())
def test_autocast_casts_as_on_the_cpu(dtype: torch.dtype):
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", dtype):
        expected = steps(x)
    torch._dynamo.reset()
    for call in (steps, torch.compile(steps)):
        with torch.autocast("spyre", dtype):
            made = call(x.to("spyre"))
        for result, wanted in zip(made, expected, strict=True):
            assert result.dtype == wanted.dtype
            torch.testing.assert_close(result.cpu(), wanted, atol=0.05, rtol=0.01)


def test_a_region_of_autocast_without_a_type_casts_to_the_type_of_the_device():
    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autocast("spyre"):
            return x @ y

    torch._dynamo.reset()
    x = torch.rand(8, 64).to("spyre")
    assert torch.compile(product)(x, x.mT).dtype == product(x, x.mT).dtype == torch.float16


def test_autocast_has_gradients_in_the_type_of_the_weights():
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(64, 32), torch.randn(4, 64)
    gradients = []
    for device in ("cpu", "spyre"):
        weight = copy.deepcopy(layer).to(device)
        with torch.autocast(device, torch.float16):
            loss = weight(x.to(device)).float().square().sum()
        loss.backward()
        gradients.append(weight.weight.grad)
    assert gradients[1] is not None and gradients[1].dtype == torch.float32
    torch.testing.assert_close(gradients[1].cpu(), gradients[0], atol=0.05, rtol=0.01)


# Profiles.


def test_a_profile_has_the_programs_of_the_device(tmp_path: Path):
    x = torch.ones(64, 256, dtype=torch.float16, device="spyre")
    x + x
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.PrivateUse1]
    with torch.profiler.profile(activities=activities) as profile:
        x + x
        x + x
    predicted = spyre_mlir.compile(lambda x: x + x, (x.cpu(),)).metrics()["predicted_us"]
    (row,) = (each for each in profile.key_averages() if each.key.startswith("spyre::aten.add.Tensor"))
    assert row.count == 2 and row.device_time_total == pytest.approx(2 * predicted, rel=1e-3)
    assert "SPYRE total" in profile.key_averages().table(sort_by="self_device_time_total")
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    on_device = [event for event in events if event.get("pid") == "spyre:0"]
    assert [event["name"] for event in on_device] == ["aten.add.Tensor"] * 2
    assert on_device[0]["dur"] == pytest.approx(predicted, rel=1e-3)


@pytest.mark.parametrize("name", ["ones", "eye", "arange", "full", "randn"])
def test_factories_under_a_default_device(name: str) -> None:
    """Dynamo gives the factories of PyTorch the default device, too."""
    arguments = {"full": ((8,), 1.0)}.get(name, (8,))

    def model(x: torch.Tensor) -> torch.Tensor:
        return getattr(torch, name)(*arguments) + x

    with torch.device("spyre"):
        x = torch.ones(8, 8)
        traced = torch.compile(model, backend="aot_eager", fullgraph=True)
        assert traced(x).device.type == model(x).device.type == "spyre"


def test_factories_after_dynamo_collects_its_rules_again() -> None:
    """Dynamo collects its rules again after a process group was created."""
    trace_rules.clear_lru_cache()
    torch._dynamo.reset()
    test_factories_under_a_default_device("ones")


def test_a_graph_under_a_default_device() -> None:
    """A program makes its results on the host first, whatever the user's default device is."""

    def model(x: torch.Tensor) -> torch.Tensor:
        return (x * 2)[1:, ::2]

    with torch.device("spyre"):
        x = torch.ones(4, 8, dtype=torch.bfloat16)
        result = torch.compile(model, backend="inductor")(x)
    assert result.device.type == "spyre" and result.stride() == (8, 2)
    assert result.cpu().eq(2).all()
