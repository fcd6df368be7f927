# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights of 8 bits from a file of safetensors."""

import pytest
import torch
from eight_bit_modules import FP8, quantised
from torch import Tensor, nn

import spyre_mlir
from spyre_mlir.errors import CompileError

safetensors = pytest.importorskip("safetensors.torch")


class Mlp(nn.Module):
    """Two layers and a norm, of which a checkpoint has one or both layers in 8 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(256)
        self.up = nn.Linear(256, 384)
        self.down = nn.Linear(384, 256, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(self.norm(x))))


def tensors_of(model: nn.Module, dtype: torch.dtype, groups: int) -> dict[str, Tensor]:
    """The state of a model with its matrices in 8 bits, by row or by groups of their columns."""
    state = {name: tensor.half() for name, tensor in model.state_dict().items()}
    for layer in ("up", "down"):
        weight = state.pop(f"{layer}.weight").float()
        codes, scale = quantised(weight.unflatten(1, (groups, -1)), dtype, (-1,))
        state |= {f"{layer}.weight": codes.flatten(1), f"{layer}.weight_scale": scale.squeeze(-1).half()}
    return state


@pytest.mark.parametrize("dtype", [FP8, torch.int8])
@pytest.mark.parametrize(("groups", "activations"), [(1, None), (8, None), (1, "token"), (1, "static")])
def test_a_checkpoint_runs_as_pytorch_runs_it(dtype, groups, activations, tmp_path):
    torch.manual_seed(0)
    state = tensors_of(Mlp(), dtype, groups)
    if activations == "static":
        state |= {"up.input_scale": torch.tensor(0.03), "down.input_scale": torch.tensor(0.02)}
    safetensors.save_file(state, tmp_path / "model.safetensors")
    chosen = "token" if activations == "token" else None
    model = spyre_mlir.load_eight_bits(Mlp().half(), tmp_path / "model.safetensors", chosen)
    x = torch.randn(2, 9, 256, generator=torch.Generator().manual_seed(1)).half()
    program = spyre_mlir.compile(model, (x,), sencores=4, fallback=False)
    expected = model(x)
    # Both round to 16 bits between the layers, so that a code of the second may be the next one.
    assert (program(x) - expected).abs().max() <= (0.02 if activations else 4e-3) * expected.abs().max()
    stored = {argument.name: argument.host_dtype for argument in program.bundle.manifest.arguments}
    assert sum(name in ("int8", "float8_e4m3fn") for name in stored.values()) >= 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"up.weight_scale": None}, "has 'up.weight' in 8 bits, but no 'up.weight_scale'"),
        ({"up.weight_scale": torch.ones(7)}, "The scale of a weight of 384 x 256 is one number, 384, or"),
        ({"norm.weight": None}, "The checkpoint lacks norm.weight"),
        ({"up.bias": None}, "The checkpoint lacks 'up.bias'"),
        ({"other": torch.ones(3)}, "The checkpoint has, and the model lacks, other"),
        ({"norm.weight": torch.ones(256).to(FP8)}, "the model has no linear layer 'norm'"),
        ({"up.weight": torch.ones(5, 5).to(FP8)}, r"'up.weight' is \[5, 5\] in the checkpoint and \[384, 256\] in the"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(change, sentence, tmp_path):
    state = tensors_of(Mlp(), FP8, 1) | change
    safetensors.save_file({k: v for k, v in state.items() if v is not None}, tmp_path / "model.safetensors")
    with pytest.raises(CompileError, match=sentence):
        spyre_mlir.load_eight_bits(Mlp(), tmp_path / "model.safetensors")


def test_groups_take_no_activations_of_8_bits():
    with pytest.raises(CompileError, match="takes activations of 16 bits"):
        spyre_mlir.EightBitLinear(torch.zeros(4, 8).to(FP8), torch.ones(4, 2), activations="token")


@pytest.mark.parametrize("content", [None, b"", b"no checkpoint"])
def test_what_is_no_checkpoint_is_one_error(content, tmp_path):
    path = tmp_path / "weights.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CompileError, match=r"weights.safetensors' cannot be read"):
        spyre_mlir.load_eight_bits(nn.Linear(4, 4), path)
