# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Caches of transformers: a prompt and five tokens give PyTorch's logits, and PyTorch's cache after each."""

from __future__ import annotations

import copy
import gc
import warnings
from typing import Any

import pytest
import torch
import transformers as T
from torch import Tensor

import spyre_mlir

STEPS = 5
SMALL: dict[str, Any] = {"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2}
ATTENTION: dict[str, Any] = {"num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 64}
HEADS: dict[str, Any] = {
    "mamba_n_heads": 4,
    "mamba_d_head": 32,
    "mamba_d_state": 16,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 8,
}


CONFIGS = {
    "mamba": lambda: T.MambaConfig(**SMALL, state_size=8, time_step_rank=8),
    "mamba2": lambda: T.Mamba2Config(**SMALL, num_heads=4, head_dim=32, state_size=16, n_groups=1, chunk_size=8),
    "falcon_mamba": lambda: T.FalconMambaConfig(**SMALL, state_size=8, time_step_rank=8),
    "lfm2": lambda: T.Lfm2Config(**SMALL, **ATTENTION, layer_types=["conv", "full_attention"]),
    "jamba": lambda: T.JambaConfig(
        **SMALL, **ATTENTION, num_experts=1, attn_layer_period=2, attn_layer_offset=1, use_mamba_kernels=False,
        mamba_d_state=8, mamba_dt_rank=8,
    ),
    "bamba": lambda: T.BambaConfig(**SMALL, **ATTENTION, **HEADS, attn_layer_indices=[1]),
    "granite": lambda: T.GraniteMoeHybridConfig(
        **SMALL, **ATTENTION, **HEADS, layer_types=["mamba", "attention"], num_local_experts=0,
        shared_intermediate_size=64,
    ),
    "sliding": lambda: T.Gemma2Config(
        **SMALL, **ATTENTION, head_dim=32, sliding_window=4, query_pre_attn_scalar=32,
        layer_types=["sliding_attention", "full_attention"],
    ),
}  # fmt: skip


def tensors(value: Any) -> list[Any]:
    """Tensors and numbers of a cache, by the names of its attributes."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        return [leaf for key in value for leaf in tensors(value[key])]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in tensors(item)]
    if hasattr(value, "__dict__") and type(value).__module__ == "transformers.cache_utils":
        return [leaf for name in sorted(vars(value)) for leaf in tensors(vars(value)[name])]
    return [value] if isinstance(value, bool | int) else []


def model(name: str) -> Any:
    torch.manual_seed(0)
    return T.AutoModelForCausalLM.from_config(CONFIGS[name]()).half().eval()


def compiled(module: Any, inputs: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return spyre_mlir.compile(module, inputs, sencores=2)


def cache_of(result: Any) -> Any:
    return result.get("past_key_values", result.get("cache_params"))


def check(got: Any, expected: Any, mine: Any, eager: Any) -> None:
    torch.testing.assert_close(got.logits, expected.logits, rtol=2e-2, atol=2e-2)
    assert type(mine) is type(eager)
    for one, other in zip(tensors(mine), tensors(eager), strict=True):
        assert type(one) is type(other)
        if isinstance(one, Tensor):
            torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)
        else:
            assert one == other


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CONFIGS)
def test_a_prompt_and_five_tokens(name):
    module = model(name)
    named = "cache_params" if name in ("mamba", "mamba2", "falcon_mamba") else "past_key_values"
    prompt, *tokens = torch.randint(3, 120, (1, 7 + STEPS)).split([7] + [1] * STEPS, 1)
    with torch.no_grad():
        expected = module(input_ids=prompt, use_cache=True)
        got = compiled(module, {"input_ids": prompt, "use_cache": True})(input_ids=prompt, use_cache=True)
        mine, eager = cache_of(got), cache_of(expected)
        check(got, expected, mine, eager)
        for token in tokens:
            inputs = {"input_ids": token, "use_cache": True}
            step = compiled(module, {**inputs, named: copy.deepcopy(mine)})
            got, expected = step(**inputs, **{named: mine}), module(**inputs, **{named: eager})
            assert cache_of(got) is mine
            check(got, expected, mine, eager)
    gc.collect()


def test_a_static_cache_with_a_window_steps_on():
    """One program is called with a cache whose length is a Python number, which grows."""
    module = model("sliding")
    config = module.config

    def cache() -> Any:
        made = T.StaticCache(config=config, max_cache_len=20)
        made.early_initialization(1, [2, 2], [32, 32], torch.float16, torch.device("cpu"))
        return made

    prompt, token = torch.randint(3, 120, (1, 3)), torch.randint(3, 120, (1, 1))
    mine, eager = cache(), cache()
    with torch.no_grad():
        prefill = compiled(module, {"input_ids": prompt, "past_key_values": cache()})
        got = prefill(input_ids=prompt, past_key_values=mine)
        check(got, module(input_ids=prompt, past_key_values=eager), mine, eager)
        step = compiled(module, {"input_ids": token, "past_key_values": copy.deepcopy(mine)})
        for _ in range(STEPS):
            got = step(input_ids=token, past_key_values=mine)
            check(got, module(input_ids=token, past_key_values=eager), mine, eager)
        # One program for the first length, one with the length as an input, and these again for a full window.
        assert step.compilations <= 4
