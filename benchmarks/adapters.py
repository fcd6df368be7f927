# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Language models as hf-adapters runs them on the device, by shapes alone, next to plans of the stock models."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import apart
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.errors import CompileError

#: Columns of the table: milliseconds of the device for each token; programs and copies of a next token.
COLUMNS = (
    "first_ms", "next_ms", "stock_first_ms", "stock_next_ms", "programs", "stock_programs", "on_host", "moved_mb",
)  # fmt: skip

_GRANITE = {"architecture": "Granite", "embedding_multiplier": 12.0, "attention_multiplier": 1 / 128}
_GRANITE |= {"residual_multiplier": 0.22, "logits_scaling": 16.0, "rms_norm_eps": 1e-5}
_LAYERS_OF_8B = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}
#: Public sizes of the models, as fields of the configuration of an architecture of transformers.
MODELS: Mapping[str, Mapping[str, Any]] = {
    "granite_3_3_8b": {
        **_GRANITE, **_LAYERS_OF_8B, "intermediate_size": 12800, "num_hidden_layers": 40, "vocab_size": 49159,
        "tie_word_embeddings": True,
    },
    "llama_3_1_8b": {
        **_LAYERS_OF_8B, "architecture": "Llama", "intermediate_size": 14336, "num_hidden_layers": 32,
        "vocab_size": 128256, "rms_norm_eps": 1e-5,
    },
    "qwen_3_8b": {
        **_LAYERS_OF_8B, "architecture": "Qwen3", "intermediate_size": 12288, "num_hidden_layers": 36,
        "head_dim": 128, "vocab_size": 151936,
    },
    "granite_4_1b": {
        **_GRANITE, "architecture": "GraniteMoeHybrid", "hidden_size": 2048, "num_attention_heads": 16,
        "num_key_value_heads": 4, "intermediate_size": 4096, "shared_intermediate_size": 4096,
        "num_hidden_layers": 40, "layer_types": ["attention"] * 40, "num_local_experts": 0, "vocab_size": 100352,
        "position_embedding_type": "rope", "logits_scaling": 8.0, "tie_word_embeddings": True,
    },
}  # fmt: skip

#: Layers of the adapter's model: the first one reads the embedding, and the others are equal to the second one.
LAYERS = 2


@benchmark()
def adapters(path: str = "", models: str = "", prompt: int = 512, pages: str = "") -> Metrics:
    """First and next tokens of four models as hf-adapters runs them, and as programs of ``spyre_mlir.compile``.

    ``path`` is a checkout of hf-adapters; ``models`` are names of models; ``prompt`` is the number of tokens; ``pages``
    is a folder for the reports. Nothing runs: numbers are zeros, programs are compiled, and their predicted times are
    added. The adapter's model has two layers, and each further layer takes the time of the second one. The stock model,
    on the meta device with a static cache of the same size, is compiled with two and with three layers, and each
    further layer adds the difference. The time of the host is not included.
    """
    if not Path(path, "hf_adapters").is_dir():
        raise CompileError(
            "hf-adapters is not there; fetch it, and give the folder of its checkout as --path."
        )
    names = models.split(",") if models else list(MODELS)
    if unknown := [name for name in names if name not in MODELS]:
        raise CompileError(f"There is no model '{unknown[0]}'; the models are {', '.join(MODELS)}.")
    metrics: dict[str, float] = {}
    for name in names:
        adapted = apart(adapter_tokens, path, MODELS[name], prompt, pages and f"{pages}/{name}")
        stock = apart(stock_tokens, MODELS[name], prompt, pages and f"{pages}/{name}")
        row = {"first_ms": adapted[0]["ms"], "next_ms": adapted[1]["ms"]}
        row |= {"stock_first_ms": stock[0]["ms"], "stock_next_ms": stock[1]["ms"]}
        row |= {"programs": adapted[1]["programs"], "stock_programs": stock[1]["programs"]}
        row |= {"on_host": adapted[1]["on_host"], "moved_mb": adapted[1]["moved_mb"]}
        metrics |= {f"{name}.{column}": row[column] for column in COLUMNS}
    return Noted(metrics, [], COLUMNS)


def adapter_tokens(
    path: str, sizes: Mapping[str, Any], prompt: int, page: str = "", layers: int = LAYERS
) -> list[dict[str, float]]:
    """Return the figures of the first and of the next token, as the ``generate`` of hf-adapters computes them."""
    import torch
    import transformers

    import spyre_mlir.torch_spyre as torch_spyre
    from spyre_mlir.driver.device_report import DeviceReport
    from spyre_mlir.tensors.device_activity import predicted_us

    torch_spyre.install()
    sys.path.insert(0, path)
    common = importlib.import_module("hf_adapters.hf_common")
    mapping = importlib.import_module("hf_adapters.auto_spyre_model").CONFIG_TO_ADAPTER_MODULE_MAPPING
    config = configuration(sizes, layers)
    adapter, model = mapping[type(config)], _on_meta(config)
    # Zeros of the host that nothing wrote take no memory.
    model._apply(lambda tensor: torch.zeros(tensor.shape, dtype=tensor.dtype))
    common.get_backbone(model).rotary_emb = type(common.get_backbone(model).rotary_emb)(config)
    model.requires_grad_(False)
    figures: list[dict[str, float]] = []

    class LayerReport(DeviceReport):
        """Report with the time of each layer, which is a graph of ``torch.compile``."""

        def __init__(self) -> None:
            super().__init__()
            self.layers_us: list[float] = []

        def on_device(self, operation: str, program: Any) -> None:
            super().on_device(operation, program)
            self.layers_us += [predicted_us(program)] if operation == "compiled graph" else []

    def forward(*arguments: Any, **named: Any) -> Any:
        with LayerReport() as report:
            logits = adapter._run_forward(*arguments, **named)
        assert len(report.layers_us) == layers, "each layer must be one graph"
        figures.append(_figures(report, sizes["num_hidden_layers"]))
        if page:
            report.report(f"{page}_adapter_{('first', 'next')[len(figures) - 1]}.html")
        return logits

    with without_numbers():
        common.move_model_to_spyre(model, adapter, torch.float16)
        ids = torch.ones(1, prompt, dtype=torch.long)
        tokens = transformers.BatchEncoding({"input_ids": ids, "attention_mask": ids})
        common.generate(forward, model, _Tokenizer(tokens), [""], 2, do_sample=False, eos_token_id=None)
    return figures


class _Tokenizer:
    """Tokenizer that gives the same ids for each text."""

    pad_token = ""

    def __init__(self, tokens: Any) -> None:
        self.tokens = tokens

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self.tokens

    def decode(self, *_: Any, **__: Any) -> str:
        return ""


def stock_tokens(
    sizes: Mapping[str, Any], prompt: int, page: str = "", layers: int = LAYERS
) -> list[dict[str, float]]:
    """Return the figures of the first and of the next token of the stock model, compiled as whole programs.

    Each layer after the last compiled one takes as long as the last compiled one adds.
    """
    import spyre_mlir

    total, figures = sizes["num_hidden_layers"], []
    for which, ids in ("first", prompt), ("next", 1):
        programs = [
            spyre_mlir.compile(*_stock(configuration(sizes, count), prompt, ids))
            for count in sorted({layers, min(layers + 1, total)})
        ]
        before, last = (programs[at].metrics()["predicted_us"] / 1e3 for at in (0, -1))
        figures.append({
            "ms": last + max(total - layers - 1, 0) * (last - before), "programs": float(len(programs[-1].bundles)),
        })  # fmt: skip
        if page:
            programs[-1].report(f"{page}_stock_{which}.html")
    return figures


def _stock(config: Any, prompt: int, ids: int) -> tuple[Any, dict[str, Any]]:
    """Return a language model without numbers, and token ids with a cache of the length of the adapter's."""
    import torch
    import transformers

    cache = transformers.StaticCache(config=config, max_cache_len=-(-prompt // 64) * 64 + 64)
    layers, heads = config.num_hidden_layers, config.num_key_value_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cache.early_initialization(1, [heads] * layers, [head] * layers, torch.float16, torch.device("cpu"))
    return _on_meta(config), {"input_ids": torch.ones(1, ids, dtype=torch.long), "past_key_values": cache}


def configuration(sizes: Mapping[str, Any], layers: int) -> Any:
    """Return the configuration of a model with some of its layers."""
    import transformers

    fields = {name: value for name, value in sizes.items() if name != "architecture"}
    if "layer_types" in fields:
        fields["layer_types"] = fields["layer_types"][:layers]
    return getattr(transformers, f"{sizes['architecture']}Config")(**{**fields, "num_hidden_layers": layers})


def _on_meta(config: Any) -> Any:
    """Return the language model of a configuration without numbers."""
    import torch
    import transformers

    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config).half().eval()


def _figures(report: Any, layers: int) -> dict[str, float]:
    """Figures of a call of a model with ``layers``; the layers after the last compiled one repeat it."""
    repeats = layers - len(report.layers_us)
    activity = report.activity
    calls = {place: activity.calls(place) for place in ("device", "device and host", "host")}
    return {
        "ms": (activity.device_us + repeats * report.layers_us[-1]) / 1e3,
        "programs": calls["device"] + repeats,
        "on_host": calls["device and host"] + calls["host"],
        "moved_mb": sum(activity.copied_bytes.values()) / 1e6,
    }


@contextlib.contextmanager
def without_numbers() -> Iterator[None]:
    """Context in which programs on device tensors are compiled and counted, and their results are zeros."""
    import torch

    from spyre_mlir.frontend import eager

    run = eager.execute

    def execute(applied: Any, programs: Any, compile: Any, results_of: Any = None) -> Any:
        """Return the leaves of the results, without numbers."""
        known = eager._known(applied, programs, compile, results_of or eager.OperationResults.of_operation)
        if isinstance(known, CompileError):
            raise known
        if known.program is None:
            return run(applied, programs, compile, *([results_of] if results_of else []))
        # A place of None, for a number, would be an error: numbers need a run.
        made: list[Any] = [place for place in known.results.places if place is None or place.is_new]
        signature = known.program.signature
        computed = [
            torch.zeros(place.strided.shape, dtype=signature.results[leaf.base].dtype)
            for place, leaf in zip(made, signature.leaves, strict=True)
        ]
        eager.record_device(applied.operation, known.program)
        storages = [whole.storage for whole in applied.storages]
        return known.results.in_memory(computed, eager._layouts(known.program), storages), known.results

    eager.execute = execute
    try:
        yield
    finally:
        eager.execute = run
