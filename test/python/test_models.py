# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of transformers and a convolutional network, small, as users bring them: imported, compiled and run."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers
from cpu_reference import CpuReference
from deviations import call, deviations
from torch.utils import _pytree as pytree
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

import spyre_mlir
from spyre_mlir.dialects import context
from spyre_mlir.driver.program import Program
from spyre_mlir.frontend import Imported, import_torch
from spyre_mlir.frontend.experts import dense_experts, grouped_products
from spyre_mlir.frontend.importer import operations
from spyre_mlir.zoo.models import MODELS, REDUCED, Inputs, model

#: The part of the floating-point work that the host may have.
HOST = 0.05


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", MODELS)
def test_model_runs(name):
    """The error is at most 4 times the error of eager fp16 against float32; the device does the work."""
    module, inputs = model(name, REDUCED)
    program = spyre_mlir.compile(module, inputs, sencores=2)
    assert isinstance(program, Program)
    for deviation in deviations(program, module, inputs):
        assert deviation.error <= deviation.allowed
    everything = sum(step.float_operations for step in program.steps)
    assert sum(step.float_operations for step in program.bundles) >= (1 - HOST) * everything


def imported(name: str) -> Imported:
    module, inputs = model(name, REDUCED)
    return import_torch(module, inputs, context=context())


def on_the_cpu(program: Imported, inputs: Inputs) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        bound = program.bind(*args, **kwargs)
        return bound.finish(CpuReference(program.module)(*bound.operands()))

    return call(run, inputs)


def test_masks_are_constants():
    """Values that transformers computes from positions alone are data: the program has no sums and gathers of masks."""
    program = imported("llama")
    names = [op.name for op in operations(program.module.operation)]
    assert not [name for name in names if name.startswith("tm_tensor.")]
    assert names.count("tensor.extract") == 1  # the embedding
    assert len([argument for argument in program.arguments if argument.kind == "constant"]) == 3


def test_outputs_of_transformers():
    """Outputs by name and by attribute, with a cache that the model accepts again."""
    module, inputs = model("llama", REDUCED)
    got, wanted = on_the_cpu(imported("llama"), inputs), call(module, inputs)
    assert type(got) is type(wanted) and list(got) == list(wanted)
    torch.testing.assert_close(got.logits, wanted.logits, rtol=1e-2, atol=1e-2)
    caches = [copy.deepcopy(each.past_key_values) for each in (got, wanted)]
    assert type(caches[0]) is transformers.DynamicCache
    tokens = inputs[0][:, :1]
    following = [call(module, {"input_ids": tokens, "past_key_values": cache}).logits for cache in caches]
    torch.testing.assert_close(*following, rtol=1e-2, atol=1e-2)


def test_a_cache_of_two_parts():
    """The cache of an encoder and a decoder, with a flag per layer, equals the cache of PyTorch."""
    module, inputs = model("t5", REDUCED)
    got = on_the_cpu(imported("t5"), inputs).past_key_values
    wanted = call(module, inputs).past_key_values
    assert type(got) is type(wanted) and got.is_updated == wanted.is_updated
    for mine, eager in zip(pytree.tree_leaves(got), pytree.tree_leaves(wanted), strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-2, atol=1e-2)


def test_a_cache_is_changed_in_place():
    """Each step writes a token into the caller's cache, after the token of the step before."""
    program = imported("llama_decode")
    module, inputs = model("llama_decode", REDUCED)
    eager = copy.deepcopy(inputs)
    layer, expected = inputs["past_key_values"].layers[0], eager["past_key_values"].layers[0]
    keys = layer.keys
    for _ in range(2):
        result, wanted = on_the_cpu(program, inputs), call(module, eager)
        torch.testing.assert_close(result.logits, wanted.logits, rtol=1e-2, atol=1e-2)
    assert result.past_key_values.layers[0].keys is keys
    assert layer.cumulative_length == expected.cumulative_length == REDUCED.cache // 2 + 2
    torch.testing.assert_close(keys, expected.keys, rtol=1e-2, atol=1e-2)


class Experts(torch.nn.Module):
    """Experts as ``use_experts_implementation`` of transformers describes them, in each of its variants."""

    def __init__(self, *, has_gate: bool, has_bias: bool, is_transposed: bool, has_norm: bool) -> None:
        super().__init__()
        self.num_experts, hidden, inner = 3, 8, 16
        self.has_gate, self.has_bias, self.is_transposed = has_gate, has_bias, is_transposed
        self.has_post_expert_norm = has_norm
        self._is_expert_parallel = False
        width = 2 * inner if has_gate else inner
        name = "gate_up_proj" if has_gate else "up_proj"
        shapes = {name: (hidden, width), "down_proj": (inner, hidden)}
        for key, (rows, columns) in shapes.items():
            shape = (rows, columns) if is_transposed else (columns, rows)
            setattr(self, key, torch.nn.Parameter(torch.randn(3, *shape)))
            if has_bias:
                setattr(self, f"{key}_bias", torch.nn.Parameter(torch.randn(3, columns)))
        self.act_fn = torch.nn.SiLU()
        self.post_expert_norm = torch.nn.LayerNorm(hidden)

    def _apply_gate(self, both: torch.Tensor) -> torch.Tensor:
        gate, up = both.chunk(2, dim=-1)
        return self.act_fn(gate) * up


@pytest.mark.parametrize("has_gate", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("has_norm", [False, True])
def test_dense_experts(has_gate, has_bias, is_transposed, has_norm):
    """The numbers equal transformers' experts, which take the weights of each token's experts."""
    torch.manual_seed(0)
    experts = Experts(has_gate=has_gate, has_bias=has_bias, is_transposed=is_transposed, has_norm=has_norm)
    chosen = torch.tensor([[0, 2], [1, 0], [2, 1], [2, 0], [1, 2]])
    operands = experts, torch.randn(5, 8), chosen, torch.rand(5, 2)
    wanted = ALL_EXPERTS_FUNCTIONS.get_interface("batched_mm", None)(*operands)
    with dense_experts():
        dense = ALL_EXPERTS_FUNCTIONS.get_interface("batched_mm", None)
    torch.testing.assert_close(dense(*operands), wanted)


def test_experts_stay_dense_in_a_program():
    """Only embeddings are gathered, and tokens are not sorted by expert."""
    names = [op.name for op in operations(imported("mixtral").module.operation)]
    assert names.count("tensor.extract") == 1


def test_forms_of_sorted_tokens():
    """Histograms with numbers outside and at both ends, and groups of which one is empty and one does not count."""
    torch.manual_seed(0)
    table = grouped_products()
    histogram = table[torch.ops.aten.histc.default]
    for x in (
        torch.tensor([-1.0, 0, 0.4, 2, 2.6, 3, 4]),
        torch.randint(0, 4, (5, 7)).float(),
        torch.randn(99),
    ):
        assert torch.equal(histogram(x, 4, 0, 3), torch.histc(x, 4, 0, 3))
    grouped = torch.ops.transformers.grouped_mm_fallback.default
    operands = torch.randn(9, 5), torch.randn(4, 5, 6), torch.tensor([2, 2, 6, 7], dtype=torch.int32)
    for form in (table[grouped], table[torch.ops.aten._grouped_mm.default]):
        torch.testing.assert_close(form(*operands), grouped(*operands))


def test_experts_in_a_graph_of_dynamo():
    """With Dynamo the host sorts tokens, and the device computes the products of their groups."""
    torch.manual_seed(0)
    experts = Experts(has_gate=True, has_bias=False, is_transposed=True, has_norm=False).half()
    function = ALL_EXPERTS_FUNCTIONS.get_interface("grouped_mm", None)
    operands = (
        torch.randn(5, 8).half(),
        torch.tensor([[0, 2], [1, 0], [2, 1], [2, 0], [1, 2]]),
        torch.rand(5, 2),
    )

    def model(*operands):
        return function(experts, *operands)

    with torch.no_grad():
        got = torch.compile(model, backend=spyre_mlir.torch_backend)(*operands)
        torch.testing.assert_close(got, model(*operands), rtol=1e-2, atol=1e-2)
