# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names of the programs of the zoo, to list them without torch; a test compares the names with the programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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

#: Names by group.
NAMES: Mapping[str, Sequence[str]] = {
    "linalg": _LINALG,
    "suite": _SUITE,
    f"suite{REDUCED}": _SUITE,
    "families": _FAMILIES,
    "models": _MODELS,
    f"models{REDUCED}": _MODELS,
}
