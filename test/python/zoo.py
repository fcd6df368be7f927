"""Models as users bring them: ``model(name, sizes)`` is a seeded fp16 module in eval mode, and its inputs.

Those of transformers are made of their configurations with random weights; they take token ids or pixels and
return what they return to everybody. Inputs are a tuple, or a mapping from the names of keyword inputs.
"""

from __future__ import annotations

import copy
import logging
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from programs import FLOOR
from torch import Tensor, nn
from torch.utils import _pytree as pytree

Inputs = tuple[Any, ...] | Mapping[str, Any]

#: transformers warns of configurations that no trained model has.
logging.getLogger("transformers").setLevel(logging.ERROR)


@dataclass(frozen=True)
class Sizes:
    """What models are made of; ``cache`` is the length of a cache of keys, ``pixels`` that of an image's side.

    ``stages`` are those of a ResNet, each of two blocks at half the size of the one before.
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


FULL = Sizes(
    layers=2, hidden=256, heads=8, key_heads=4, inner=512, experts=4, vocabulary=1000, sequence=128, cache=128,
    pixels=64, patch=16, channels=64, stages=4,
)  # fmt: skip
REDUCED = Sizes(
    layers=1, hidden=128, heads=2, key_heads=1, inner=128, experts=3, vocabulary=130, sequence=9, cache=16,
    pixels=16, patch=8, channels=8, stages=2,
)  # fmt: skip


def model(name: str, sizes: Sizes = FULL) -> tuple[nn.Module, Inputs]:
    """A model of the zoo and its inputs, the same in every process and order."""
    torch.manual_seed(zlib.crc32(name.encode()))
    module, inputs = ZOO[name](sizes)
    return module.eval().half(), inputs


def call(function: Callable, inputs: Inputs) -> Any:
    """What a model or a program returns for its inputs, which it may change."""
    with torch.no_grad():
        return function(**inputs) if isinstance(inputs, Mapping) else function(*inputs)


def copied(inputs: Inputs) -> Inputs:
    """The same inputs in memory of their own."""
    return copy.deepcopy(inputs)


@dataclass(frozen=True)
class Deviation:
    """How far the numbers of one tensor are from float32, and how far they may be; parts of its largest number."""

    error: float
    allowed: float


def deviations(program: Callable, module: nn.Module, inputs: Inputs) -> list[Deviation]:
    """Of all that a program returns or changes in place: four times the error of eager fp16 is allowed.

    What is no floating-point number has to be equal, and everything has to have its type and shape: else it is an
    AssertionError.
    """
    exact = copy.deepcopy(module).float()
    got, own, wanted = (
        _tensors(run, given)
        for run, given in (
            (program, copied(inputs)),
            (module, copied(inputs)),
            (exact, pytree.tree_map(_to_float, inputs)),
        )
    )
    return [_deviation(*each) for each in zip(got, own, wanted, strict=True)]


def _tensors(function: Callable, inputs: Inputs) -> list[Tensor]:
    """What a call returns, and its inputs as it leaves them."""
    leaves = pytree.tree_leaves((call(function, inputs), inputs))
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def _to_float(value: Any) -> Any:
    """A copy, in float32 if that is what it is."""
    if not isinstance(value, Tensor):
        return value
    return value.float() if value.is_floating_point() else value.clone()


def _deviation(got: Tensor, own: Tensor, exact: Tensor) -> Deviation:
    assert got.dtype == own.dtype and got.shape == own.shape, (
        f"{got.dtype} {got.shape} instead of {own.dtype}"
    )
    if not got.is_floating_point():
        assert torch.equal(got, own), "Integers differ."
        return Deviation(0, FLOOR)
    largest = exact.abs().max()
    errors = [((each.float() - exact).abs().max() / largest).item() for each in (got, own)]
    return Deviation(errors[0], max(4 * errors[1], FLOOR))


class BasicBlock(nn.Module):
    """Two convolutions of 3 x 3 around which the input is added; the first one may halve the image."""

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
    """A convolution of 7 x 7 and a pooling, stages of two blocks, a mean over the image, a classifier."""

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


def _ids(sizes: Sizes, length: int | None = None) -> Tensor:
    return torch.randint(0, sizes.vocabulary, (1, length or sizes.sequence))


def _decoder_config(sizes: Sizes) -> dict[str, Any]:
    """What the configurations of Llama and its relatives share."""
    return {
        "hidden_size": sizes.hidden, "intermediate_size": sizes.inner, "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads, "num_key_value_heads": sizes.key_heads,
        "vocab_size": sizes.vocabulary,
    }  # fmt: skip


def _encoder_config(sizes: Sizes) -> dict[str, Any]:
    """What the configurations of BERT and ViT share."""
    return {
        "hidden_size": sizes.hidden, "intermediate_size": sizes.inner, "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
    }  # fmt: skip


def _t5_config(sizes: Sizes) -> transformers.T5Config:
    return transformers.T5Config(
        d_model=sizes.hidden, d_kv=sizes.hidden // sizes.heads, d_ff=sizes.inner, num_layers=sizes.layers,
        num_heads=sizes.heads, vocab_size=sizes.vocabulary,
    )  # fmt: skip


def _llama(sizes: Sizes) -> tuple[nn.Module, Inputs]:
    config = transformers.LlamaConfig(**_decoder_config(sizes))
    return transformers.LlamaForCausalLM(config), (_ids(sizes),)


def _granite(sizes: Sizes) -> tuple[nn.Module, Inputs]:
    config = transformers.GraniteConfig(**_decoder_config(sizes))
    return transformers.GraniteForCausalLM(config), (_ids(sizes),)


def _mixtral(sizes: Sizes) -> tuple[nn.Module, Inputs]:
    config = transformers.MixtralConfig(**_decoder_config(sizes), num_local_experts=sizes.experts)
    return transformers.MixtralForCausalLM(config), (_ids(sizes),)


def _gpt2(sizes: Sizes) -> tuple[nn.Module, Inputs]:
    config = transformers.GPT2Config(
        n_embd=sizes.hidden, n_layer=sizes.layers, n_head=sizes.heads, n_inner=sizes.inner,
        vocab_size=sizes.vocabulary,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config), (_ids(sizes),)


def _bert(sizes: Sizes) -> tuple[nn.Module, Inputs]:
    """With an attention mask: the last third of the sequence is padding."""
    config = transformers.BertConfig(**_encoder_config(sizes), vocab_size=sizes.vocabulary)
    mask = (torch.arange(sizes.sequence) < sizes.sequence * 2 // 3).long()[None]
    return transformers.BertModel(config), {"input_ids": _ids(sizes), "attention_mask": mask}


def _vit(sizes: Sizes) -> tuple[nn.Module, Inputs]:
    config = transformers.ViTConfig(**_encoder_config(sizes), image_size=sizes.pixels, patch_size=sizes.patch)
    return transformers.ViTModel(config), (torch.randn(1, 3, sizes.pixels, sizes.pixels).half(),)


def _t5_encoder(sizes: Sizes) -> tuple[nn.Module, Inputs]:
    return transformers.T5EncoderModel(_t5_config(sizes)), (_ids(sizes),)


def _t5(sizes: Sizes) -> tuple[nn.Module, Inputs]:
    inputs = {"input_ids": _ids(sizes), "decoder_input_ids": _ids(sizes, sizes.sequence // 2)}
    return transformers.T5ForConditionalGeneration(_t5_config(sizes)), inputs


def _llama_decode(sizes: Sizes) -> tuple[nn.Module, Inputs]:
    """One token behind those of a cache that is half full; the model puts it there in place."""
    config = transformers.LlamaConfig(**_decoder_config(sizes))
    cache = transformers.StaticCache(config=config, max_cache_len=sizes.cache)
    head = sizes.hidden // sizes.heads
    cache.early_initialization(
        1, [sizes.key_heads] * sizes.layers, [head] * sizes.layers, torch.float16, torch.device("cpu")
    )
    filled = sizes.cache // 2
    for layer in cache.layers:
        layer.keys[:, :, :filled].normal_()
        layer.values[:, :, :filled].normal_()
        layer.cumulative_length.fill_(filled)
    return transformers.LlamaForCausalLM(config), {"input_ids": _ids(sizes, 1), "past_key_values": cache}


def _resnet(sizes: Sizes) -> tuple[nn.Module, Inputs]:
    image = torch.randn(1, 3, sizes.pixels, sizes.pixels).half()
    return ResNet(sizes.channels, sizes.stages, sizes.vocabulary), (image,)


ZOO: Mapping[str, Callable[[Sizes], tuple[nn.Module, Inputs]]] = {
    "llama": _llama,
    "granite": _granite,
    "bert": _bert,
    "gpt2": _gpt2,
    "vit": _vit,
    "t5_encoder": _t5_encoder,
    "t5": _t5,
    "mixtral": _mixtral,
    "llama_decode": _llama_decode,
    "resnet": _resnet,
}
