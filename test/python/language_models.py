# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of transformers, of tiny random configurations, in float32: ``LANGUAGE_MODELS`` maps names to functions.

Each makes a model and its inputs by name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers
from torch import Tensor, nn

logging.getLogger("transformers").setLevel(logging.ERROR)

_VOCABULARY, _SEQUENCE = 99, 12

_SIZES: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2,
    "vocab_size": _VOCABULARY, "max_position_embeddings": 64,
}  # fmt: skip
_DECODER: dict[str, Any] = {**_SIZES, "num_key_value_heads": 1}
_IMAGE: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip


def _ids(length: int = _SEQUENCE) -> Tensor:
    return torch.randint(2, _VOCABULARY, (1, length))


def _of_tokens(model: str, config: str, **sizes: Any) -> tuple[nn.Module, dict[str, Any]]:
    made = getattr(transformers, model)(getattr(transformers, config)(**sizes))
    return made, {"input_ids": _ids(), "use_cache": False}


def _encoder(model: str, config: str) -> tuple[nn.Module, dict[str, Any]]:
    """Return an encoder whose inputs are padded after two thirds of the tokens."""
    made, inputs = _of_tokens(model, config, **_SIZES)
    mask = (torch.arange(_SEQUENCE) < _SEQUENCE * 2 // 3).long()[None]
    return made, {"input_ids": inputs["input_ids"], "attention_mask": mask}


def _gpt2() -> tuple[nn.Module, dict[str, Any]]:
    return _of_tokens(
        "GPT2LMHeadModel",
        "GPT2Config",
        n_embd=64,
        n_layer=2,
        n_head=2,
        n_positions=64,
        vocab_size=_VOCABULARY,
    )


def _t5() -> tuple[nn.Module, dict[str, Any]]:
    config = transformers.T5Config(
        d_model=64,
        d_kv=32,
        d_ff=96,
        num_layers=2,
        num_heads=2,
        vocab_size=_VOCABULARY,
        decoder_start_token_id=0,
    )
    inputs = {"input_ids": _ids(), "decoder_input_ids": _ids(5), "use_cache": False}
    return transformers.T5ForConditionalGeneration(config), inputs


def _vit() -> tuple[nn.Module, dict[str, Any]]:
    return transformers.ViTForImageClassification(transformers.ViTConfig(**_IMAGE)), {
        "pixel_values": torch.randn(1, 3, 32, 32)
    }


def _whisper() -> tuple[nn.Module, dict[str, Any]]:
    config = transformers.WhisperConfig(
        vocab_size=_VOCABULARY, num_mel_bins=16, d_model=64, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=96, decoder_ffn_dim=96,
        max_source_positions=20, max_target_positions=20, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1,
    )  # fmt: skip
    inputs = {"input_features": torch.randn(1, 16, 40), "decoder_input_ids": _ids(5), "use_cache": False}
    return transformers.WhisperForConditionalGeneration(config), inputs


def _clip() -> tuple[nn.Module, dict[str, Any]]:
    text = transformers.CLIPTextConfig(**{**_SIZES, "eos_token_id": 98, "bos_token_id": 0, "pad_token_id": 1})
    vision = transformers.CLIPVisionConfig(**_IMAGE)
    config = transformers.CLIPConfig(
        text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=32
    )
    # Several of both: one product of two unit vectors may be as small as its rounding.
    inputs = {"input_ids": torch.cat([_ids() for _ in range(3)]), "pixel_values": torch.randn(4, 3, 32, 32)}
    return transformers.CLIPModel(config), inputs


def _mamba() -> tuple[nn.Module, dict[str, Any]]:
    return _of_tokens(
        "MambaForCausalLM", "MambaConfig", hidden_size=32, state_size=4, num_hidden_layers=1,
        vocab_size=_VOCABULARY, time_step_rank=2,
    )  # fmt: skip


LANGUAGE_MODELS: Mapping[str, Callable[[], tuple[nn.Module, dict[str, Any]]]] = {
    "bert": lambda: _encoder("BertModel", "BertConfig"),
    "roberta": lambda: _encoder("RobertaModel", "RobertaConfig"),
    "gpt2": _gpt2,
    "llama": lambda: _of_tokens("LlamaForCausalLM", "LlamaConfig", **_DECODER),
    "mistral": lambda: _of_tokens("MistralForCausalLM", "MistralConfig", **_DECODER, sliding_window=4),
    "mixtral": lambda: _of_tokens("MixtralForCausalLM", "MixtralConfig", **_DECODER, num_local_experts=3),
    "phi": lambda: _of_tokens("PhiForCausalLM", "PhiConfig", **_SIZES),
    "falcon": lambda: _of_tokens(
        "FalconForCausalLM", "FalconConfig", hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
        vocab_size=_VOCABULARY,
    ),
    "t5": _t5,
    "vit": _vit,
    "whisper": _whisper,
    "clip": _clip,
    "mamba": _mamba,
}  # fmt: skip
