# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole models, as users bring them: ``model(name, sizes)`` returns a seeded fp16 module in eval mode, and its inputs.

Models of transformers are built from their configurations with random weights. They take token ids or pixels, and
return their usual outputs. Inputs are a tuple, or a mapping from the names of keyword inputs.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass

Inputs = tuple[Any, ...] | Mapping[str, Any]


@dataclass(frozen=True)
class ModelSizes:
    """Sizes of models; ``cache`` is the length of a cache of keys, ``pixels`` the length of an image's side.

    ``stages`` is the number of stages of a ResNet, each with two blocks at half the size of the previous stage.
    """

    layers: int
    hidden: int
    heads: int
    key_heads: int
    inner: int
    experts: int
    vocabulary: int
    sequence: int
    cache: int
    pixels: int
    patch: int
    channels: int
    stages: int


FULL = ModelSizes(
    layers=2, hidden=256, heads=8, key_heads=4, inner=512, experts=4, vocabulary=1000, sequence=128, cache=128,
    pixels=64, patch=16, channels=64, stages=4,
)  # fmt: skip
REDUCED = ModelSizes(
    layers=1, hidden=128, heads=2, key_heads=1, inner=128, experts=3, vocabulary=130, sequence=9, cache=16,
    pixels=16, patch=8, channels=8, stages=2,
)  # fmt: skip


def model(name: str, sizes: ModelSizes = FULL) -> tuple[nn.Module, Inputs]:
    """Return a model and its inputs, equal in every process and order; ``CompileError`` if transformers is missing."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(zlib.crc32(name.encode()))
        module, inputs = MODELS[name](sizes)
    return module.eval().half(), inputs


def _transformers() -> Any:
    """Return the package transformers, which is needed only for its models."""
    try:
        import transformers
    except ImportError:
        raise CompileError(
            "This model of the zoo is one of transformers, which is not installed: pip install 'spyre-mlir[zoo]'."
        ) from None
    # It warns of configurations that no trained model has.
    logging.getLogger("transformers").setLevel(logging.ERROR)
    return transformers


class BasicBlock(nn.Module):
    """Two convolutions of 3 x 3 with a residual connection; the first convolution may halve the image."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.first_norm, self.second_norm = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(inner)) + self.shortcut(x))


class ResNet(nn.Module):
    """A convolution of 7 x 7 and a pooling, stages of two blocks, a mean over the image, and a classifier."""

    def __init__(self, channels: int, stages: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 7, 2, 3, bias=False)
        self.stem_norm, self.pooling = nn.BatchNorm2d(channels), nn.MaxPool2d(3, 2, 1)
        blocks, width = [], channels
        for stage in range(stages):
            wider = channels * 2**stage
            blocks += [BasicBlock(width, wider, 1 if stage == 0 else 2), BasicBlock(wider, wider, 1)]
            width = wider
        self.stages = nn.Sequential(*blocks)
        self.mean, self.classifier = nn.AdaptiveAvgPool2d(1), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pooling(torch.relu(self.stem_norm(self.stem(x))))
        return self.classifier(self.mean(self.stages(x)).flatten(1))


def _ids(sizes: ModelSizes, length: int | None = None) -> Tensor:
    return torch.randint(0, sizes.vocabulary, (1, length or sizes.sequence))


def _decoder_config(sizes: ModelSizes) -> dict[str, Any]:
    """Return the common fields of the configurations of Llama and its relatives."""
    return {
        **_encoder_config(sizes), "num_key_value_heads": sizes.key_heads, "vocab_size": sizes.vocabulary,
    }  # fmt: skip


def _encoder_config(sizes: ModelSizes) -> dict[str, Any]:
    """Return the common fields of the configurations of BERT and ViT."""
    return {
        "hidden_size": sizes.hidden, "intermediate_size": sizes.inner, "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
    }  # fmt: skip


def _decoder(name: str, sizes: ModelSizes, **fields: Any) -> tuple[nn.Module, Inputs]:
    """Return a model of transformers like Llama, such as "Granite", with more ``fields`` of its configuration."""
    config = getattr(_transformers(), f"{name}Config")(**_decoder_config(sizes), **fields)
    return getattr(_transformers(), f"{name}ForCausalLM")(config), (_ids(sizes),)


def _gpt2(sizes: ModelSizes) -> tuple[nn.Module, Inputs]:
    config = _transformers().GPT2Config(
        n_embd=sizes.hidden, n_layer=sizes.layers, n_head=sizes.heads, n_inner=sizes.inner,
        vocab_size=sizes.vocabulary,
    )  # fmt: skip
    return _transformers().GPT2LMHeadModel(config), (_ids(sizes),)


def _bert(sizes: ModelSizes) -> tuple[nn.Module, Inputs]:
    """Return BERT with an attention mask: the last third of the sequence is padding."""
    config = _transformers().BertConfig(**_encoder_config(sizes), vocab_size=sizes.vocabulary)
    mask = (torch.arange(sizes.sequence) < sizes.sequence * 2 // 3).long()[None]
    return _transformers().BertModel(config), {"input_ids": _ids(sizes), "attention_mask": mask}


def _vit(sizes: ModelSizes) -> tuple[nn.Module, Inputs]:
    config = _transformers().ViTConfig(
        **_encoder_config(sizes), image_size=sizes.pixels, patch_size=sizes.patch
    )
    return _transformers().ViTModel(config), (torch.randn(1, 3, sizes.pixels, sizes.pixels).half(),)


def _t5(sizes: ModelSizes, *, encoder: bool = False) -> tuple[nn.Module, Inputs]:
    config = _transformers().T5Config(
        d_model=sizes.hidden, d_kv=sizes.hidden // sizes.heads, d_ff=sizes.inner, num_layers=sizes.layers,
        num_heads=sizes.heads, vocab_size=sizes.vocabulary,
    )  # fmt: skip
    if encoder:
        return _transformers().T5EncoderModel(config), (_ids(sizes),)
    inputs = {"input_ids": _ids(sizes), "decoder_input_ids": _ids(sizes, sizes.sequence // 2)}
    return _transformers().T5ForConditionalGeneration(config), inputs


def _llama_decode(sizes: ModelSizes) -> tuple[nn.Module, Inputs]:
    """Return Llama with one new token and a half-full cache, to which the model appends the token in place."""
    config = _transformers().LlamaConfig(**_decoder_config(sizes))
    cache = _transformers().StaticCache(config=config, max_cache_len=sizes.cache)
    head = sizes.hidden // sizes.heads
    cache.early_initialization(
        1, [sizes.key_heads] * sizes.layers, [head] * sizes.layers, torch.float16, torch.device("cpu")
    )
    filled = sizes.cache // 2
    for layer in cache.layers:
        layer.keys[:, :, :filled].normal_()
        layer.values[:, :, :filled].normal_()
        layer.cumulative_length.fill_(filled)
    return _transformers().LlamaForCausalLM(config), {"input_ids": _ids(sizes, 1), "past_key_values": cache}


def _resnet(sizes: ModelSizes) -> tuple[nn.Module, Inputs]:
    image = torch.randn(1, 3, sizes.pixels, sizes.pixels).half()
    return ResNet(sizes.channels, sizes.stages, sizes.vocabulary), (image,)


MODELS: Mapping[str, Callable[[ModelSizes], tuple[nn.Module, Inputs]]] = {
    "llama": partial(_decoder, "Llama"),
    "granite": partial(_decoder, "Granite"),
    "bert": _bert,
    "gpt2": _gpt2,
    "vit": _vit,
    "t5_encoder": partial(_t5, encoder=True),
    "t5": _t5,
    "mixtral": lambda sizes: _decoder("Mixtral", sizes, num_local_experts=sizes.experts),
    "llama_decode": _llama_decode,
    "resnet": _resnet,
}
