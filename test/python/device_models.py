# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small models of random weights for the device: ``DEVICE_MODELS`` maps names to functions that return a case."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import transformers as T
from torch import Tensor, nn

logging.getLogger("transformers").setLevel(logging.ERROR)

_VOCABULARY = 96

_SIZES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "vocab_size": _VOCABULARY, "max_position_embeddings": 64, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_HEAD: dict[str, Any] = {**_SIZES, "head_dim": 16}
_IMAGE: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 16,
    "patch_size": 8,
}  # fmt: skip


@dataclass
class DeviceModel:
    """A model with the inputs of its forward by name; it generates tokens from ``prompt``, if that is not empty."""

    model: nn.Module
    inputs: dict[str, Tensor]
    prompt: str = ""
    caches: tuple[str, ...] = ("dynamic", "static")


def _ids(length: int = 6) -> Tensor:
    return torch.randint(3, _VOCABULARY, (1, length))


def _decoder(name: str, sizes: Mapping[str, Any] = _SIZES, **more: Any) -> DeviceModel:
    model = getattr(T, f"{name}ForCausalLM")(getattr(T, f"{name}Config")(**{**sizes, **more}))
    return DeviceModel(model, {"input_ids": _ids()}, "input_ids")


def _t5() -> DeviceModel:
    config = T.T5Config(
        d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, vocab_size=_VOCABULARY, decoder_start_token_id=0,
        eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    inputs = {"input_ids": _ids(), "decoder_input_ids": _ids(4)}
    return DeviceModel(T.T5ForConditionalGeneration(config), inputs, "input_ids")


def _whisper() -> DeviceModel:
    config = T.WhisperConfig(
        vocab_size=_VOCABULARY, num_mel_bins=8, d_model=32, encoder_layers=1, decoder_layers=2,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64,
        max_source_positions=10, max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1,
    )  # fmt: skip
    inputs = {"input_features": torch.randn(1, 8, 20), "decoder_input_ids": _ids(4)}
    return DeviceModel(T.WhisperForConditionalGeneration(config), inputs, "input_features")


def _clip() -> DeviceModel:
    text = T.CLIPTextConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=_VOCABULARY,
        max_position_embeddings=16, eos_token_id=2, bos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    vision = T.CLIPVisionConfig(**{**_IMAGE, "num_hidden_layers": 1})
    config = T.CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=16)
    inputs = {"input_ids": torch.cat([_ids(), _ids()]), "pixel_values": torch.randn(2, 3, 16, 16)}
    return DeviceModel(T.CLIPModel(config), inputs)


class _Residual(nn.Module):
    """A residual block of a diffusion model: group norms, convolutions, the embedding of the time step."""

    def __init__(self, features: int, to: int, time: int) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(4, features), nn.GroupNorm(4, to)
        self.convolve, self.again = nn.Conv2d(features, to, 3, padding=1), nn.Conv2d(to, to, 3, padding=1)
        self.time, self.dropout = nn.Linear(time, to), nn.Dropout(0.0)
        self.shortcut = nn.Conv2d(features, to, 1) if features != to else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        inner = self.convolve(F.silu(self.first(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.again(self.dropout(F.silu(self.second(inner))))


class _SpatialAttention(nn.Module):
    """Attention of the positions of an image to each other and to a text."""

    def __init__(self, features: int, text: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(4, features)
        self.to_query, self.out = nn.Linear(features, features), nn.Linear(features, features)
        self.to_key, self.to_value = nn.Linear(text, features), nn.Linear(text, features)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        batch, features, height, width = x.shape
        places = self.norm(x).flatten(2).transpose(1, 2)
        heads = [
            projected.unflatten(-1, (2, features // 2)).transpose(1, 2)
            for projected in (self.to_query(places), self.to_key(text), self.to_value(text))
        ]
        attended = F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        return x + self.out(attended).transpose(1, 2).reshape(batch, features, height, width)


class UNet(nn.Module):
    """A U-Net in the style of diffusers: down, middle and up blocks with skips, time step and text conditions."""

    def __init__(self, features: int = 8, text: int = 16) -> None:
        super().__init__()
        self.features, time = features, 4 * features
        self.embed = nn.Sequential(nn.Linear(features, time), nn.SiLU(), nn.Linear(time, time))
        self.stem = nn.Conv2d(4, features, 3, padding=1)
        self.down = _Residual(features, features, time)
        self.smaller = nn.Conv2d(features, features, 3, stride=2, padding=1)
        self.middle, self.attention = (
            _Residual(features, 2 * features, time),
            _SpatialAttention(2 * features, text),
        )
        self.up = _Residual(3 * features, features, time)
        self.norm, self.out = nn.GroupNorm(4, features), nn.Conv2d(features, 4, 3, padding=1)

    def forward(self, sample: Tensor, timestep: Tensor, text: Tensor) -> Tensor:
        half = self.features // 2
        rates = torch.exp(-torch.arange(half, dtype=torch.float32, device=sample.device) * (9.21 / half))
        angles = timestep[:, None].float() * rates[None]
        time = self.embed(torch.cat([angles.sin(), angles.cos()], -1).to(sample.dtype))
        skip = self.down(self.stem(sample), time)
        inner = self.attention(self.middle(self.smaller(skip), time), text)
        larger = F.interpolate(inner, scale_factor=2.0, mode="nearest")
        return self.out(F.silu(self.norm(self.up(torch.cat([larger, skip], 1), time))))


def _u_net() -> DeviceModel:
    inputs = {
        "sample": torch.randn(2, 4, 8, 8), "timestep": torch.tensor([3, 700]), "text": torch.randn(2, 5, 16)
    }  # fmt: skip
    return DeviceModel(UNet(), inputs)


class _Classifier(nn.Module):
    """Words, an LSTM in both directions, and a class."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(_VOCABULARY, 16)
        self.lstm = nn.LSTM(16, 16, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.classes = nn.Linear(32, 4)

    def forward(self, input_ids: Tensor) -> Tensor:
        states, (hidden, _) = self.lstm(self.words(input_ids))
        return self.classes(states.mean(1) + torch.cat([hidden[-2], hidden[-1]], -1))


class _Translator(nn.Module):
    """``nn.Transformer`` between two embeddings, with a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(_VOCABULARY, 32)
        self.transformer = nn.Transformer(32, 2, 1, 1, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, _VOCABULARY)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(
            target.shape[1], device=target.device, dtype=self.head.weight.dtype
        )
        return self.head(self.transformer(self.words(source), self.words(target), tgt_mask=mask))


def _resnet() -> DeviceModel:
    config = T.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=4
    )
    return DeviceModel(T.ResNetForImageClassification(config), {"pixel_values": torch.randn(2, 3, 32, 32)})


DEVICE_MODELS: Mapping[str, Callable[[], DeviceModel]] = {
    "llama": lambda: _decoder("Llama"),
    "granite": lambda: _decoder("Granite"),
    "mistral": lambda: _decoder("Mistral", sliding_window=4),
    "qwen3": lambda: _decoder("Qwen3", _HEAD),
    "phi": lambda: _decoder("Phi", num_key_value_heads=2),
    "gemma2": lambda: _decoder("Gemma2", _HEAD, sliding_window=4),
    "gpt_oss": lambda: _decoder(
        "GptOss", _HEAD, num_local_experts=4, num_experts_per_tok=2, sliding_window=4, rope_scaling=None,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "granite_hybrid": lambda: _decoder(
        "GraniteMoeHybrid", layer_types=["mamba", "attention"], mamba_n_heads=4, mamba_d_head=16, mamba_d_state=8,
        mamba_n_groups=1, mamba_chunk_size=8, shared_intermediate_size=32, num_local_experts=2, num_experts_per_tok=1,
    ),
    "mamba": lambda: DeviceModel(
        T.MambaForCausalLM(
            T.MambaConfig(hidden_size=16, state_size=4, num_hidden_layers=1, vocab_size=_VOCABULARY, time_step_rank=2)
        ), {"input_ids": _ids()}, "input_ids", ("dynamic",),
    ),
    "bert": lambda: DeviceModel(
        T.BertModel(T.BertConfig(**{k: v for k, v in _SIZES.items() if k != "num_key_value_heads"})),
        {"input_ids": _ids(), "attention_mask": torch.tensor([[1, 1, 1, 1, 0, 0]])},
    ),
    "t5": _t5,
    "whisper": _whisper,
    "clip": _clip,
    "vit": lambda: DeviceModel(
        T.ViTForImageClassification(T.ViTConfig(**_IMAGE)), {"pixel_values": torch.randn(2, 3, 16, 16)}
    ),
    "dinov2": lambda: DeviceModel(
        T.Dinov2Model(T.Dinov2Config(**{k: v for k, v in _IMAGE.items() if k != "intermediate_size"})),
        {"pixel_values": torch.randn(2, 3, 16, 16)},
    ),
    "u_net": _u_net,
    "resnet": _resnet,
    "lstm": lambda: DeviceModel(_Classifier(), {"input_ids": torch.cat([_ids(), _ids()])}),
    "transformer": lambda: DeviceModel(_Translator(), {"source": _ids(), "target": _ids(5)}),
}  # fmt: skip
