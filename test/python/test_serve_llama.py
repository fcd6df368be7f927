# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The example that serves a model: token for token what PyTorch generates, at a small size."""

import importlib.util
import random
import sys
import warnings
from pathlib import Path

import pytest
import torch

import spyre_mlir
from spyre_mlir.errors import CompileError

pytestmark = pytest.mark.documents

EXAMPLE = Path(__file__).parents[2] / "examples" / "serve_llama.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("serve_llama", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up the types of their fields here.
    sys.modules["serve_llama"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["serve_llama"]


@pytest.fixture(scope="module")
def server(example):
    config = example.Config(
        vocabulary=256, layers=2, heads=4, groups=2, columns=64, hidden=256, pages=16, slots=16, table=6
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no restickify of integers
        warnings.simplefilter("ignore", spyre_mlir.HostWorkWarning)
        warnings.filterwarnings("ignore", category=FutureWarning)
        return example.Server(config)


@pytest.mark.parametrize(("size", "top_k"), [(1, 1), (16, 8), (21, 1), (32, 8)])
def test_tokens_are_those_of_eager_mode(server, size, top_k):
    """``generate`` compares each; prompts of any length are one or two pages here."""
    prompt = torch.randint(256, (size,), generator=torch.Generator().manual_seed(size)).tolist()
    run = server.generate(prompt, 64 if size == 21 else 12, top_k, seed=size)
    assert len(set(run.tokens)) > 4 and run.ties <= 2


def test_weights_of_eight_bits(example):
    """Weights in fp8: the tokens of eager mode, and half of the bytes of the weights."""
    config = example.Config(
        vocabulary=512, layers=1, heads=4, groups=2, columns=64, hidden=256, pages=4, slots=16, table=2
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = example.Server(config, weights="fp8")
    run = server.generate([1, 2, 3], 6)
    assert len(run.tokens) == 6 and run.ties <= 1
    wide = 2 * sum(
        buffer.numel() for name, buffer in server.eager.named_buffers() if name.endswith(".weight")
    )
    assert run.bytes < 0.8 * wide


def test_what_a_step_moves(server):
    """The weights once and the pages of the sequence; nothing of the caches crosses from or to the host."""
    run = server.generate([1, 2, 3], 3)
    weights = sum(
        tensor.numel() * 2 for name, tensor in server.eager.named_parameters() if "embedding" not in name
    )
    pages = sum(2 * 6 * 16 * 2 * 64 * 2 for _ in range(2))
    assert weights + pages <= run.bytes <= 1.25 * (weights + pages)
    for program in (server.decode, *server.prefill.programs.values()):
        moved = [argument for step in program.transfers() for argument in (*step.to_device, *step.to_host)]
        names = [argument.name for argument in moved]
        assert not [name for name in names if "keys" in name or "values" in name or "weight" in name]


def test_a_page_that_is_not_there(server):
    before = {name: tensor.numpy() for name, tensor in server.decode.state.items()}
    table = torch.tensor([[0, 1, 2, 16, 3, 4]])
    with pytest.raises(CompileError, match="16 is out of range"):
        server.decode(torch.tensor([3]), table, torch.tensor([5]))
    assert all((tensor.numpy() == before[name]).all() for name, tensor in server.decode.state.items())


def test_ties(example):
    """A tie is two equal logits, or a random number at the bound between two tokens."""
    logits = torch.tensor([1.0, 0.9999, 0.5, 0.0])
    assert example.is_tie(0, 1, logits, 1, 0.5) and not example.is_tie(0, 2, logits, 1, 0.5)
    chosen = random.Random(0)
    for _ in range(100):
        number = chosen.random()
        token = example.chosen_token(logits, 3, number)
        assert token < 3 and example.is_tie(token, token, logits, 3, number)
    assert not example.is_tie(0, 2, logits, 3, 0.2)
