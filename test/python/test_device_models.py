# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole models on the device: forward, ``torch.compile``, tokens, saved states and a training step as on the CPU."""

from __future__ import annotations

import copy
import io
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from device_models import DEVICE_MODELS, DeviceModel
from torch import Tensor
from transformers import StoppingCriteria

import spyre_mlir.frontend  # noqa: F401  registers the device
from spyre_mlir.tensors.device_activity import Listener, listening

pytestmark = [pytest.mark.exhaustive, pytest.mark.filterwarnings("ignore")]

TOLERANCE: dict[str, float] = {"rtol": 2e-2, "atol": 2e-2}

WITH_TOKENS = [name for name, make in DEVICE_MODELS.items() if name in {
    "llama", "granite", "mistral", "qwen3", "phi", "gemma2", "gpt_oss", "granite_hybrid", "mamba", "t5", "whisper",
}]  # fmt: skip


@pytest.fixture(autouse=True)
def _new_graphs() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def case_of(name: str, dtype: torch.dtype = torch.float16) -> DeviceModel:
    torch.manual_seed(0)
    case = DEVICE_MODELS[name]()
    case.model.to(dtype).eval()
    case.inputs = {key: x.to(dtype) if x.is_floating_point() else x for key, x in case.inputs.items()}
    return case


def moved(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: x.to("spyre") for name, x in inputs.items()}


def tensors_of(outputs: Any) -> list[Tensor]:
    """The numbers of the outputs of a model; not its caches."""
    if isinstance(outputs, Tensor):
        return [outputs]
    if isinstance(outputs, Mapping):
        outputs = [value for key, value in outputs.items() if "past" not in key and "cache" not in key]
    return [x for value in outputs or () if isinstance(value, Tensor | Mapping) for x in tensors_of(value)]


def compare(made: Any, expected: Any) -> None:
    results, wanted = tensors_of(made), tensors_of(expected)
    assert len(results) == len(wanted) > 0
    assert {x.device.type for x in results} == {"spyre"}
    for result, other in zip(results, wanted, strict=True):
        assert result.shape == other.shape and result.dtype == other.dtype
        assert result.stride() == other.stride()
        torch.testing.assert_close(result.cpu().float(), other.float(), equal_nan=True, **TOLERANCE)


@pytest.mark.parametrize("name", DEVICE_MODELS)
def test_forwards(name: str) -> None:
    case = case_of(name)
    with torch.no_grad():
        expected = case.model(**case.inputs)
        model = copy.deepcopy(case.model).to("spyre")
        compare(model(**moved(case.inputs)), expected)
        compare(torch.compile(model)(**moved(case.inputs)), expected)


class _Steps(StoppingCriteria, Listener):
    """The programs that were compiled, by the step of ``generate``."""

    def __init__(self) -> None:
        self.steps = [Counter[str]()]

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        self.steps.append(Counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)

    def on_compilation(self, operation: str, program: Any) -> None:
        self.steps[-1][operation] += 1


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", WITH_TOKENS)
def test_tokens(name: str, cache: str) -> None:
    """Greedy and sampled; nothing is compiled after the first steps."""
    case = case_of(name)
    if cache not in case.caches:
        pytest.skip("The model has no such cache.")
    model, prompt = copy.deepcopy(case.model).to("spyre"), case.inputs[case.prompt]
    options: dict[str, Any] = {"max_new_tokens": 5, "eos_token_id": None, "pad_token_id": 0}
    if cache == "static":
        options["cache_implementation"] = "static"
    for sampled in (False, True):
        torch.manual_seed(1)
        expected = case.model.generate(prompt, do_sample=sampled, **options)
        torch.manual_seed(1)
        with listening(steps := _Steps()):
            made = model.generate(prompt.to("spyre"), do_sample=sampled, stopping_criteria=[steps], **options)
        assert made.tolist() == expected.tolist()
        # Whisper joins its segments after the last step.
        later = steps.steps[2:-1]
        assert not any(later), later


@pytest.mark.parametrize("name", DEVICE_MODELS)
def test_states_and_a_training_step(name: str) -> None:
    """After a step of SGD, the weights and the state saved by the device equal the CPU."""
    case = case_of(name, torch.float32)
    models = [case.model, copy.deepcopy(case.model).to("spyre")]
    for model, inputs in zip(models, (case.inputs, moved(case.inputs)), strict=True):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = sum(x.float().square().mean() for x in tensors_of(model(**inputs)) if x.is_floating_point())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    saved = io.BytesIO()
    torch.save(models[1].state_dict(), saved)
    saved.seek(0)
    state = torch.load(saved, map_location="cpu")
    assert state.keys() == case.model.state_dict().keys()
    for key, weight in case.model.state_dict().items():
        torch.testing.assert_close(state[key], weight, rtol=1e-3, atol=1e-4)
    models[1].load_state_dict(state)
