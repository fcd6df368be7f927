# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The benchmark "adapters", on a package with the entry points of hf-adapters and a small model."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import adapters  # noqa: E402
from benchmarks.measure import apart  # noqa: E402
from spyre_mlir.errors import CompileError  # noqa: E402

SMALL = {
    "architecture": "Llama", "hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1,
    "intermediate_size": 256, "vocab_size": 256, "num_hidden_layers": 4,
}  # fmt: skip

COMMON = """
def get_backbone(model):
    return model.model


def move_model_to_spyre(model, module, dtype):
    module.prepare_for_spyre(model)
    model.to(dtype=dtype, device="spyre")


def generate(forward, model, tokenizer, prompts, max_new_tokens, **options):
    tokens = tokenizer(prompts)["input_ids"]
    for _ in range(max_new_tokens):
        logits = forward(model, tokens.to("spyre"))
        tokens = logits.cpu()[:, -1:].argmax(-1)
"""

ADAPTER = """
import torch
from transformers import LlamaConfig


def block(layer):
    return torch.compile(lambda hidden: hidden + layer.mlp(hidden), dynamic=False)


def prepare_for_spyre(model):
    model._blocks = list(map(block, model.model.layers))


def _run_forward(model, tokens):
    hidden = model.model.embed_tokens(tokens)
    for block in model._blocks:
        hidden = block(hidden)
    return model.lm_head(hidden)
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    package = folder / "hf_adapters"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "hf_common.py").write_text(COMMON)
    (package / "hf_small.py").write_text(ADAPTER)
    (package / "auto_spyre_model.py").write_text(
        "from hf_adapters import hf_small\n"
        "CONFIG_TO_ADAPTER_MODULE_MAPPING = {hf_small.LlamaConfig: hf_small}\n"
    )
    return folder


def with_numbers(path: str, layers: int) -> Any:
    """Figures of a model all of whose programs run."""
    adapters.without_numbers = contextlib.nullcontext
    return adapters.adapter_tokens(path, SMALL, 64, layers=layers)


def test_times_by_shapes_are_the_times_of_the_programs_that_run(checkout: Path, tmp_path: Path) -> None:
    """Two layers by shapes stand for the four layers that run."""
    shapes = apart(adapters.adapter_tokens, str(checkout), SMALL, 64, f"{tmp_path}/small")
    for got, expected in zip(shapes, apart(with_numbers, str(checkout), 4), strict=True):
        assert got["ms"] == pytest.approx(expected["ms"]) and got["ms"] > 0
        # The embedding, four layers and the head.
        assert got["programs"] == expected["programs"] == 6
    assert {page.name for page in tmp_path.iterdir()} == {
        f"small_adapter_{token}.html" for token in ("first", "next")
    }


def test_wrong_options_are_one_sentence(checkout: Path) -> None:
    with pytest.raises(CompileError, match="hf-adapters is not there; fetch it"):
        adapters.adapters(str(checkout / "other"))
    with pytest.raises(CompileError, match="There is no model 'gpt'; the models are granite_3_3_8b, "):
        adapters.adapters(str(checkout), models="gpt")
