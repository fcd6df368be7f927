# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Equal layers: the layers that are left out, copies equal planned layers, and results of whole programs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import spyre_mlir
from spyre_mlir.analysis.aliasing import all_ops, functions
from spyre_mlir.analysis.repeated_layers import PeriodicRun, periodic_runs
from spyre_mlir.dialects import context, sdsc
from spyre_mlir.frontend import import_torch
from spyre_mlir.passes.unfold_repeated_layers import LayerUnfolding
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline

HIDDEN, ROWS = 128, 64


class Layer(nn.Module):
    """A small transformer layer."""

    def __init__(self, inner: int = 256, activation: Callable[[Tensor], Tensor] = F.silu) -> None:
        super().__init__()
        self.norm, self.other_norm = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.q, self.k, self.v, self.o = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(HIDDEN, inner, bias=False), nn.Linear(inner, HIDDEN, bias=False)
        self.activation = activation

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the result, and the keys and values that a cache would keep."""
        y = self.norm(x)
        q, k, v = (part(y).view(ROWS, 2, HIDDEN // 2).transpose(0, 1) for part in (self.q, self.k, self.v))
        scores = q @ k.transpose(1, 2) * (HIDDEN // 2) ** -0.5
        if mask is not None:
            scores = scores + mask
        attended = (scores.softmax(-1) @ v).transpose(0, 1).reshape(ROWS, HIDDEN)
        x = x + self.o(attended)
        return x + self.down(self.activation(self.up(self.other_norm(x)))), k, v


class Stack(nn.Module):
    """Layers in a row."""

    def __init__(self, layers: Sequence[nn.Module], caches: bool = False) -> None:
        super().__init__()
        self.layers, self.caches = nn.ModuleList(layers), caches

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return the result of the last layer, and with ``caches`` the keys and values of all."""
        kept: list[Tensor] = []
        for layer in self.layers:
            x, k, v = layer(x, mask)
            kept += [k, v]
        return (x, *kept) if self.caches else (x,)


class EncoderAndDecoder(nn.Module):
    """Layers whose result all other layers read."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.encoder = Stack([Layer() for _ in range(count)])
        self.decoder = nn.ModuleList([Layer(inner=384) for _ in range(count)])

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the result of the last layer for both inputs."""
        (encoded,) = self.encoder(x)
        for layer in self.decoder:
            y = layer(y + encoded)[0]
        return y


class CachedLayers(nn.Module):
    """Layers that each write rows into a separate cache and read all of it."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(count)])

    def forward(self, x: Tensor, *caches: Tensor) -> Tensor:
        """Return the result of the last layer; the caches change in place."""
        for layer, cache in zip(self.layers, caches, strict=True):
            y = layer.norm(x)
            cache[ROWS:] = layer.k(y)
            x = x + layer.o((layer.q(y) @ cache.T * 0.1).softmax(-1) @ cache)
            x = x + layer.down(F.relu(layer.up(layer.other_norm(x))))
        return x


class Shared(nn.Module):
    """One layer, called many times."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.layer, self.count = Layer(), count

    def forward(self, x: Tensor) -> Tensor:
        """Return the result of the last call of the layer."""
        for _ in range(self.count):
            x = self.layer(x)[0]
        return x


def _layers(count: int, **odd: Layer) -> list[nn.Module]:
    """Equal layers except for the layers of ``odd``, by number (``at_6``)."""
    layers: list[nn.Module] = [Layer() for _ in range(count)]
    for name, layer in odd.items():
        layers[int(name.removeprefix("at_"))] = layer
    return layers


def _with_another_epsilon() -> Layer:
    layer = Layer()
    layer.norm.eps = 0.5
    return layer


def _with_a_shared_weight() -> list[nn.Module]:
    layers = _layers(13)
    layers[5].q = layers[4].q
    return layers


X = (ROWS, HIDDEN)

#: Models, the shapes of their inputs, and how many layers are copies at least.
MODELS: dict[str, tuple[Callable[[], nn.Module], Sequence[tuple[int, ...]], int]] = {
    "plain": (lambda: Stack(_layers(9)), [X], 5),
    "mask": (lambda: Stack(_layers(9)), [X, (ROWS, ROWS)], 5),
    "caches": (lambda: Stack(_layers(9), caches=True), [X], 5),
    # The cheapest plan keeps the one weight in LX in other divisions for some layers, so all layers are planned.
    "one_weight_for_all": (lambda: Shared(9), [X], 0),
    "two_kinds": (lambda: Stack([Layer(activation=(F.silu, F.gelu)[n % 2]) for n in range(14)]), [X], 3),
    "encoder_and_decoder": (lambda: EncoderAndDecoder(8), [X, X], 8),
    "one_activation_differs": (lambda: Stack(_layers(12, at_6=Layer(activation=F.gelu))), [X], 2),
    "one_size_differs": (lambda: Stack(_layers(12, at_6=Layer(inner=384))), [X], 4),
    "one_number_differs": (lambda: Stack(_layers(11, at_5=_with_another_epsilon())), [X], 2),
    "two_share_a_weight": (lambda: Stack(_with_a_shared_weight()), [X], 3),
    "few": (lambda: Stack(_layers(4)), [X], 0),
}  # fmt: skip


def _model(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(len(name))
    model, shapes, _ = MODELS[name]
    return model().half().eval(), tuple(torch.randn(shape).half() for shape in shapes)


def _copies(program: spyre_mlir.Program) -> int:
    """Layers that are copies, by the remark of the pass that makes them."""
    remarks = [one for one in program.remarks if one.pass_name == "unfold-repeated-layers"]
    return sum(int(remark.reason.split()[0]) for remark in remarks)


def _digest(program: spyre_mlir.Program, folder: Path) -> str:
    program.save(folder)
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        if path.name == "manifest.json":
            # The options of a compilation are not part of its plan.
            manifest = json.loads(content)
            manifest["made"].pop("options", None)
            content = json.dumps(manifest).encode()
        digest.update(f"{path.relative_to(folder)}\n".encode() + content)
    return digest.hexdigest()


@pytest.mark.parametrize("name", MODELS)
def test_whole_programs(name: str) -> None:
    """Layers are copies if there are enough equal ones, and the program has the results of the model."""
    model, inputs = _model(name)
    program = spyre_mlir.compile(model, inputs)
    least = MODELS[name][2]
    assert _copies(program) >= least and (least > 0 or _copies(program) == 0)
    results = program(*inputs)
    with torch.no_grad():
        expected = model.double()(*(value.double() for value in inputs))
    pairs = [(results, expected)] if isinstance(results, Tensor) else zip(results, expected, strict=True)
    for result, reference in pairs:
        assert (result.double() - reference).abs().max() < 0.01 * reference.abs().max()


@pytest.mark.parametrize("name", ["plain", "caches", "encoder_and_decoder", "one_size_differs"])
def test_reuse(name: str, tmp_path: Path) -> None:
    """Each layer planned by itself gives the same bytes as the copies: bundle, manifest and remarks."""
    model, inputs = _model(name)
    digests = [
        _digest(spyre_mlir.compile(model, inputs, reuse=reuse), tmp_path / str(reuse))
        for reuse in (True, False)
    ]
    assert digests[0] == digests[1]


@pytest.mark.parametrize(("failures", "copies"), [(1, 8), (9, 0)])
def test_more_layers_stay(failures: int, copies: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no two of 3 layers have equal plans, 4 layers stay; if that never happens, all layers stay."""
    unfolding, unfoldings = LayerUnfolding.of, list[object]()

    def of(*arguments: Any) -> LayerUnfolding | None:
        unfoldings.append(arguments)
        return None if len(unfoldings) <= failures else unfolding(*arguments)

    monkeypatch.setattr(LayerUnfolding, "of", of)
    torch.manual_seed(0)
    model, x = Stack(_layers(15)).half().eval(), torch.randn(X).half()
    program = spyre_mlir.compile(model, (x,), cache=False)
    assert len(unfoldings) > 1
    assert _copies(program) >= copies and (copies > 0 or _copies(program) == 0)
    (result,) = program(x)
    with torch.no_grad():
        (expected,) = model.double()(x.double())
    assert (result.double() - expected).abs().max() < 0.01 * expected.abs().max()


def test_caches_in_place() -> None:
    """Each layer writes its own cache, the copies too."""
    torch.manual_seed(3)
    model, x = CachedLayers(9).half().eval(), torch.randn(ROWS, HIDDEN).half()
    caches = [torch.randn(2 * ROWS, HIDDEN).half() for _ in range(9)]
    program = spyre_mlir.compile(model, (x, *(cache.clone() for cache in caches)))
    assert _copies(program) >= 4
    changed, expected = [cache.clone() for cache in caches], [cache.double() for cache in caches]
    result = program(x, *changed)
    with torch.no_grad():
        reference = model.double()(x.double(), *expected)
    for one, other in zip((result, *changed), (reference, *expected), strict=True):
        assert (one.double() - other).abs().max() < 0.01 * other.abs().max()


def test_plan() -> None:
    """The plan of a program with copies names all operations, and gives the same program again."""
    model, inputs = _model("caches")
    program = spyre_mlir.compile(model, inputs)
    again = spyre_mlir.compile(model, inputs, plan=program.plan())
    assert (_copies(program), _copies(again)) == (5, 0)
    assert again.metrics()["predicted_us"] == program.metrics()["predicted_us"]


def test_locations() -> None:
    """Each copy has the source lines of its own layer, so products of a layer follow products of the layer before."""
    model, inputs = _model("plain")
    module = import_torch(model, inputs, context=context()).module
    assert module is not None
    run_pipeline(module, SpyrePipeline().pipeline("placed"))
    (func,) = functions(module.operation)
    products = [op for op in all_ops(func) if sdsc.opcode_of(op) == "batchmatmul"]
    layers = [re.findall(r'module = "layers\.(\d+)', str(op.location)) for op in products]
    assert [int(numbers[0]) for numbers in layers] == sorted(list(range(9)) * (len(products) // 9))


def test_periodic_runs() -> None:
    """Runs are as long as they can be; of one run the least period comes first."""
    assert periodic_runs([7, 1, 2, 3, 1, 2, 3, 1, 2, 9])[0] == PeriodicRun(1, 3, 8)
    assert periodic_runs([5] * 6)[0] == PeriodicRun(0, 1, 6)
    assert periodic_runs([1, 2, 3, 4]) == periodic_runs([]) == periodic_runs([1]) == []
    assert [run for run in periodic_runs([1, 1, 2, 2, 1, 1, 2, 2]) if run.period == 4] == [
        PeriodicRun(0, 4, 8)
    ]
