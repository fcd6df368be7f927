# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs for reproducible results: a name for each, and its model or MLIR text with inputs.

``names()`` lists the names; ``load(name)`` returns a program as arguments of ``compile``. The groups are

- ``linalg/``: texts of linalg, which need no torch; their weights are arguments (``Program.arrays``);
- ``suite/`` and ``suite-reduced/``: layers of models, at full and at reduced size;
- ``families/``: programs at full size that no plans were tuned for, without numbers;
- ``models/`` and ``models-reduced/``: whole models, from configurations of transformers, and a ResNet.

All programs are seeded by their names. ``reference(name)`` returns a picklable function that loads a program. The
attribute of that name is such a function too: ``spyre_mlir.zoo:suite/mlp`` is an import path.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np

from spyre_mlir.errors import CompileError, listed, with_suggestion

#: Suffix of the name of a group that has another group's programs at reduced size.
REDUCED = "-reduced"

_LINALG = """
    attention_512 conv_block decode_4096 layer_64 layer_norm mlp rms_norm softmax
""".split()

_SUITE = """
    softmax rms_norm layer_norm mlp attention_512 attention_4096 decode_4096 moe_mlp layer_64 layer_512
    layers_12 conv_block
""".split()

_FAMILIES = """
    prefill_512_all prefill_2048_causal_all prefill_2048_causal_grouped prefill_2048_causal_multi_query
    prefill_8192_causal_grouped prefill_512_batch_8_grouped prefill_128_batch_64_grouped
    window_1024_of_4096_all window_1024_of_4096_grouped cross_448_of_1500 decode_1_cache_4096_all
    decode_1_cache_32768_grouped decode_1_cache_32768_multi_query decode_8_cache_4096_grouped
    decode_8_cache_4096_all decode_8_cache_32768_grouped decode_64_cache_4096_grouped
    decode_64_cache_4096_multi_query scores_64_cache_4096 decode_layer_1_cache_4096
    decode_layer_8_cache_32768 prefill_layer_2048 qkv_rotary_1 qkv_rotary_512 swiglu_1 swiglu_512 lora_1
    lora_512 lm_head_1_of_50257 lm_head_64_of_50257 lm_head_1_of_128256 lm_head_64_of_128256
    cross_entropy_512_of_50257 cross_entropy_512_of_128256 moe_top_2_64 moe_in_turn_512 dlrm_2048
    fp8_linear_1 fp8_linear_64 int8_linear_1 int8_linear_64 layer_norm_of_channels layer_norm_of_images
    layer_norm_of_dim_0 transpose_4096 transpose_batches transpose_heads lstm_1_step lstm_16_steps
    mamba_step rwkv_step ssd_chunks resnet50_stage_1 resnet50_stage_2 resnet50_stage_3 resnet50_stage_4
    resnet50 mobilenet_block_56 mobilenet_block_14 mobilenet unet_level unet_up vit_layer_1 vit_layer_8
    vit whisper_stem whisper_layer
""".split()

_MODELS = """
    llama granite bert gpt2 vit t5_encoder t5 mixtral llama_decode resnet
""".split()

#: Names by group, to list them without torch; a test compares the names with the programs.
NAMES: Mapping[str, Sequence[str]] = {
    "linalg": _LINALG,
    "suite": _SUITE,
    f"suite{REDUCED}": _SUITE,
    "families": _FAMILIES,
    "models": _MODELS,
    f"models{REDUCED}": _MODELS,
}

_SEED = 0
_INPUT = re.compile(r'%\w+: tensor<([\dx]+)xf16> \{spyre\.kind = "input"')


def names(group: str = "") -> tuple[str, ...]:
    """Return all names, or the names of one group, such as "suite"; torch is not needed."""
    return tuple(f"{key}/{name}" for key, members in NAMES.items() for name in members if group in ("", key))


def load(name: str, *, weights: bool = True) -> tuple[Any, Any]:
    """Return a program and its inputs: ``compile(*load(name))``.

    Args:
        name: A name from ``zoo.names()``, such as ``"linalg/softmax"``.
        weights: If false, a program of the suite needs no memory and has the same plan, but all its numbers are zero.

    Raises:
        CompileError: The name is unknown, or the program needs PyTorch, which is not installed.
    """
    if name not in names():
        sentence = f"The zoo has no '{name}'; it has {listed(names(), name)}."
        raise CompileError(with_suggestion(sentence, name, names()))
    group, _, member = name.partition("/")
    if group == "linalg":
        folder = resources.files("spyre_mlir.zoo").joinpath("linalg")
        text = folder.joinpath(f"{member}.mlir").read_text(encoding="utf-8")
        numbers = np.random.default_rng(_SEED)
        shapes = [tuple(map(int, sizes.split("x"))) for sizes in _INPUT.findall(text)]
        return text, tuple(numbers.standard_normal(shape, np.float32).astype(np.float16) for shape in shapes)
    try:
        importlib.import_module("torch")
    except ImportError:
        raise CompileError(
            f"'{name}' needs PyTorch, which is not installed: pip install 'spyre-mlir[torch]'."
        ) from None
    module = importlib.import_module(f"spyre_mlir.zoo.{group.removesuffix(REDUCED)}")
    sizes = module.REDUCED if group.endswith(REDUCED) else getattr(module, "FULL", None)
    if group == "families":
        return module.program(member)
    if group.startswith("models"):
        return module.model(member, sizes)
    return module.program(member, sizes, weights=weights)


def reference(name: str, *, weights: bool = False) -> Callable[[], tuple[Any, Any]]:
    """Return a picklable function without arguments that loads the program when it is called."""
    return functools.partial(load, name, weights=weights)


def __getattr__(name: str) -> Callable[[], tuple[Any, Any]]:
    if name in names():
        return reference(name)
    raise AttributeError(f"module 'spyre_mlir.zoo' has no attribute '{name}'")
