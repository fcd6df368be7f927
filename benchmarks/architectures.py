# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small model of each of many architectures of transformers, against PyTorch."""

from __future__ import annotations

import inspect
import multiprocessing
import re
import time
import warnings
import zlib
from collections import Counter
from typing import Any

from benchmarks.programs import deviations
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.errors import CompileError

COLUMNS = ("right", "pieces", "bundles", "host_operations", "host_work_percent", "compile_s")

#: Model types of transformers, in the spelling of its configurations.
NAMES = """
afmoe albert apertus arcee aya_vision bamba bart beit bert big_bird biogpt bitnet blenderbot blip bloom canine clip
codegen cohere cohere2 convbert convnext convnextv2 cvt deberta deberta-v2 deepseek_v3 deit diffllama dinov2
dinov3_vit distilbert doge dpt electra ernie4_5 eurobert exaone4 falcon falcon_h1 falcon_mamba florence2 focalnet
funnel gemma gemma2 gemma3 git glm4 gpt2 gpt_bigcode gpt_neox gpt_oss gptj granite granitemoe granitemoehybrid
groupvit helium hiera hubert imagegpt internvl jamba jetmoe kimi_linear layoutlm lfm2 llama llava longformer longt5
m2m_100 mamba mamba2 marian mbart minimax ministral3 mistral mixtral mobilebert mobilenet_v2 mobilevit modernbert
mpnet mpt nemotron_h nystromformer olmo2 olmoe opt pegasus phi phi3 pvt_v2 qwen2 qwen2_moe qwen3 qwen3_moe
qwen3_next regnet resnet roberta rwkv segformer siglip smollm3 stablelm starcoder2 swin t5 vit wav2vec2 whisper
xlm-roberta
""".split()

#: Fields that stay as they are.
_KEPT = r"version|id2label|label2id|feat_extract_layers|conv_layers|conv_kernel|conv_stride"

#: Patterns of the names of numbers in a configuration, with the number of a small model; the first match decides.
_SIZES: tuple[tuple[str, int], ...] = (
    (r"vocab", 256),
    (r"tokens_per_image", 4),
    (r"experts_per_tok|_top_?k$|^topk$|^top_k$|moe_k$", 2),
    (r"n_group|topk_group|expert_groups", 1),
    (r"shared_experts", 1),
    (r"experts", 4),
    (r"(key_value|kv)_heads|head_kv|kv_head|query_groups|num_key_value|n_kv", 2),
    (r"rope_head_dim|nope_head_dim|rotary_dim", 16),
    (r"heads?$|n_head|head_num|num_heads", 4),
    (r"head_dim|head_size|d_kv|d_head|attention_hidden_size_per", 32),
    (r"layer_period", 2),
    (r"layer_offset", 1),
    (r"layers$|n_layer$|num_layers|^depth$|blocks$|num_hidden_groups|layer_num", 2),
    (r"max_pos|n_positions|n_ctx|max_seq|max_source|max_target|max_length", 128),
    (r"context_length|sliding_window|window_size$", 128),
    (r"image_size|img_size|input_size|resolution", 32),
    (r"patch_size|patch_stride|tubelet_size", 8),
    (r"num_frames|n_frames", 2),
    (r"lora_rank|dt_rank|time_step_rank|_rank$", 32),
    (r"hidden|d_model|n_embd|embed|dim$|width|intermediate|ffn|d_ff|inner|proj|channels|d_inner|_size$|embd", 128),
)  # fmt: skip


def small_fields(config: Any) -> dict[str, Any]:
    """Return the fields of a configuration whose numbers a small model changes, with their small numbers."""
    found: dict[str, Any] = {}
    for name, value in config.to_dict().items():
        nested = getattr(config, name, None)
        if nested is not None and hasattr(nested, "to_dict"):
            found[name] = {"model_type": nested.model_type, **small_fields(nested)}
        elif not isinstance(getattr(type(config), name, None), property):
            small = _small(name, value)
            if small != value:
                found[name] = small
    _fit_together(config, found)
    return found


def _small(name: str, value: Any) -> Any:
    """Return the small number, or the list of small numbers, of a field."""
    if isinstance(value, bool) or re.search(_KEPT, name):
        return value
    if name.endswith(("token_id", "token_index")) and isinstance(value, int):
        return value if value < 200 else 200 + zlib.crc32(name.encode()) % 56
    limit = next((limit for pattern, limit in _SIZES if re.search(pattern, name)), None)
    if isinstance(value, int):
        return value if limit is None else min(value, limit)
    if not isinstance(value, (list, tuple)) or not value or any(type(each) is not int for each in value):
        return value
    if re.search("depths|layers|blocks|num_stages", name):
        return [1 for _ in value]
    if re.search("image_size|input_size|patch_size", name):
        return [min(each, limit or each) for each in value]
    if re.search("hidden|dims?$|channels|embed|width", name) and "out_channels" not in name:
        return [max(1, each // max(1, value[0] // 32)) for each in value]
    return value


def _fit_together(config: Any, found: dict[str, Any]) -> None:
    """Change small numbers so that they agree with each other: kinds of layers, and products of heads."""
    layers = next(
        (found[name] for name in ("num_hidden_layers", "n_layer", "num_layers") if name in found), None
    )
    for name in ("layer_types", "mlp_layer_types", "block_types"):
        value = config.to_dict().get(name)
        if layers and isinstance(value, (list, tuple)) and len(value) > layers:
            kinds = list(dict.fromkeys(value))[:layers]
            found[name] = kinds + kinds[-1:] * (layers - len(kinds))
    if "attn_layer_indices" in config.to_dict():
        found["attn_layer_indices"] = [1]
    if hasattr(config, "mamba_expand") and "layer_types" in found and len(set(found["layer_types"])) == 1:
        found["layer_types"][-1:] = ["full_attention"]
    if hasattr(config, "mamba_d_ssm"):
        found["mamba_d_ssm"] = int(config.mamba_expand * found["hidden_size"])
    if hasattr(config, "qk_rope_head_dim"):
        # These dims of latent attention follow from its other dims.
        for name in ("head_dim", "qk_head_dim", "num_key_value_heads"):
            found.pop(name, None)
        found["num_key_value_heads"] = found.get("num_attention_heads", 4)
    prefix = "mamba_" if hasattr(config, "mamba_expand") else ""
    heads = found.get(f"{prefix}n_heads", found.get(f"{prefix}num_heads"))
    if heads and hasattr(config, f"{prefix}expand"):
        width = int(getattr(config, f"{prefix}expand") * found["hidden_size"])
        for name in (f"{prefix}d_head", f"{prefix}head_dim"):
            if hasattr(config, name):
                found[name] = width // heads


def small_model(name: str) -> tuple[Any, dict[str, Any]]:
    """Return a seeded model of a type of transformers in fp16, and its inputs by name."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    classes: Any = transformers.models.auto.modeling_auto
    config_class: Any = transformers.models.auto.configuration_auto.CONFIG_MAPPING[name]
    config = config_class(**small_fields(config_class()))
    for mapping in (
        classes.MODEL_FOR_CAUSAL_LM_MAPPING, classes.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
        classes.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, classes.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING,
        classes.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING,
        classes.MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING, classes.MODEL_FOR_MASKED_LM_MAPPING, classes.MODEL_MAPPING,
    ):  # fmt: skip
        if config_class in mapping:
            torch.manual_seed(zlib.crc32(name.encode()))
            chosen = mapping[config_class]
            kind = chosen[0] if isinstance(chosen, (list, tuple)) else chosen
            module = kind(config).eval().half()
            return module, inputs_of(module, config)
    raise CompileError(f"transformers has no model of the type '{name}'.")


def inputs_of(module: Any, config: Any) -> dict[str, Any]:
    """Return random inputs of a model by the names of its parameters."""
    import torch

    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    accepted = inspect.signature(module.forward).parameters
    generator = torch.Generator().manual_seed(0)

    def ids(length: int) -> Any:
        return torch.randint(
            3, min(getattr(text, "vocab_size", None) or 64, 190), (1, length), generator=generator
        )

    def numbers(*shape: int) -> Any:
        return torch.randn(shape, generator=generator).half()

    found: dict[str, Any] = {}
    main = module.main_input_name
    vision = getattr(config, "vision_config", config)
    side = getattr(vision, "image_size", None) or 32
    sides = tuple(side) if isinstance(side, (list, tuple)) else (side, side)
    channels = getattr(vision, "num_channels", None) or getattr(vision, "in_channels", None) or 3
    if "pixel_values" in accepted:
        found["pixel_values"] = numbers(1, channels, *sides)
    if "input_features" in accepted:
        bins = next(
            (
                getattr(config, key)
                for key in ("num_mel_bins", "input_feat_per_channel", "feature_size")
                if getattr(config, key, None)
            ),
            80,
        )
        length = 2 * getattr(config, "max_source_positions", 32)
        found["input_features"] = (
            numbers(1, bins, length)
            if main == "input_features" and hasattr(config, "max_source_positions")
            else numbers(1, 32, bins)
        )
    if main == "input_values":
        found["input_values"] = numbers(1, 1600)
    if "input_ids" in accepted:
        tokens = ids(16)
        image = next(
            (
                getattr(config, key)
                for key in ("image_token_id", "image_token_index")
                if getattr(config, key, None) is not None
            ),
            None,
        )
        if image is not None and "pixel_values" in found:
            with torch.no_grad():
                features = module.get_image_features(found["pixel_values"])
            features = getattr(features, "pooler_output", features)
            features = torch.cat(list(features)) if isinstance(features, (list, tuple)) else features
            count = features.numel() // features.shape[-1]
            tokens = torch.cat([tokens[:, :4], torch.full((1, count), image), tokens[:, 4:]], 1)
        found["input_ids"] = tokens
    if config.is_encoder_decoder and "decoder_input_ids" in accepted:
        found["decoder_input_ids"] = ids(8)
    return found


@benchmark(not_right=2, not_one_program=10, with_host_operations=30, over_1_percent_of_work=0)
def architectures(only: str = "", seconds: int = 300) -> Metrics:
    """Small models of 100 architectures of transformers, each compiled in its own process, against PyTorch.

    ``only`` is a regular expression of their names, ``seconds`` the longest time of a model. The configuration and the
    inputs are derived from the fields of the configuration class and from the parameters of the model. A model is right
    if its errors are allowed, as in ``models``. Host operations are linalg operations; notes name their reasons.
    """
    metrics: dict[str, float] = {}
    notes: list[str] = []
    reasons = Counter[str]()
    chosen = [name for name in NAMES if re.search(only, name)]
    for name in chosen:
        row = measured(name, seconds)
        label = name.replace(".", "_")
        metrics |= {f"{label}.{column}": float(row.get(column, 0)) for column in COLUMNS}
        notes += [f"{name}: {row['note']}"] if row["note"] else []
        reasons.update(set(row["reasons"]))
        print(
            f"{name:<28}" + "".join(f"{row.get(column, 0):>18,.2f}" for column in COLUMNS),
            row["note"],
            flush=True,
        )
    notes += [f"{count} models: {reason}" for reason, count in reasons.most_common()]

    def count(column: str, fails: Any) -> int:
        return sum(fails(metrics[f"{name.replace('.', '_')}.{column}"]) for name in chosen)

    totals = {
        "not_right": count("right", lambda value: value < 1),
        "not_one_program": count("pieces", lambda value: value != 1),
        "with_host_operations": count("host_operations", bool),
        "over_1_percent_of_work": count("host_work_percent", lambda value: value > 1),
    }
    return Noted({**metrics, **totals}, notes, COLUMNS)


def measured(name: str, seconds: int) -> dict[str, Any]:
    """Return the figures of a model by column, with its "note" and the "reasons" of its host operations."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, name))
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(seconds) else {"note": f"over {seconds} s", "reasons": ()}
    except EOFError:
        return {"note": "the process ended", "reasons": ()}
    finally:
        process.kill()
        process.join()


def _send(sender: Any, name: str) -> None:
    warnings.simplefilter("ignore")
    try:
        row = _run(name)
    # A model that is refused or stops with an error must not hide the others.
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        row = {"note": f"{type(error).__name__}: {first}", "reasons": ()}
    sender.send(row)
    sender.close()


def _run(name: str) -> dict[str, Any]:
    import spyre_mlir
    from spyre_mlir.driver.program_figures import host_share
    from spyre_mlir.driver.steps import BundleStep, HostStep
    from spyre_mlir.remarks import HOST, Remarks

    model, inputs = small_model(name)
    begun = time.perf_counter()
    program = spyre_mlir.compile(model, inputs)
    compiled = time.perf_counter()
    numbers = deviations()
    worst = max(each.error / each.allowed for each in numbers.deviations(program, model, inputs))
    steps = program.steps
    remarks = Remarks(program.remarks).of_kind(HOST)
    return {
        "right": worst <= 1,
        "pieces": len(getattr(program, "last", (program,))),
        "bundles": sum(isinstance(step, BundleStep) for step in steps),
        "host_operations": sum(step.operations for step in steps if isinstance(step, HostStep)),
        "host_work_percent": 100 * host_share(steps),
        "compile_s": compiled - begun,
        "note": "" if worst <= 1 else f"{worst:.2f} of the allowed error",
        "reasons": [f"{remark.op_name}: {remark.reason}" for remark in remarks],
    }
