# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch-spyre's public names on the simulated device, in processes of their own: the names belong to a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(folder: Path, script: str, *arguments: str, fails: bool = False) -> str:
    """Output of a script, or of ``arguments``, run with the simulated torch-spyre."""
    (folder / "script.py").write_text(script)
    command = [sys.executable, "-W", "ignore", "-m", "spyre_mlir.torch_spyre", *(arguments or ["script.py"])]
    path = f"import sys; sys.path.insert(0, {str(ROOT)!r})"
    (folder / "sitecustomize.py").write_text(path)
    environment = {"PYTHONPATH": f"{folder}:{ROOT}", "PATH": "/usr/bin:/bin", "SPYRE_CACHE": "0"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert bool(done.returncode) == fails, done.stderr
    return done.stderr if fails else done.stdout


SCRIPT = """
import sys
import torch
import torch_spyre
import torch_spyre._inductor.config
from torch.spyre import SpyreTensorLayout, get_device_dtype
from torch_spyre._C import get_spyre_tensor_layout
from torch_spyre._inductor import config, spyre_hint
from torch_spyre._inductor.propagate_named_dims import declare_tensor_dim, name_tensor_dims
from torch_spyre.model_utils import load_model_to_spyre
from torch_spyre.ops.fallbacks import FallbackWarning
import spyre_mlir
from helper import HELP

assert torch_spyre._inductor.config is config and __name__ == "__main__" and sys.argv == ["script.py"]
x = torch.rand(256, 128).half().to("spyre")
assert repr(torch.ones(1).half().to("spyre")) == "tensor([1.], dtype=torch.float16, device='spyre:0')"


def cores(f):
    torch._dynamo.reset()
    torch.compile(f)(x)
    return max(design.cores for design in spyre_mlir.torch_backend.programs[-1].bundle.designs.values())


# The configuration is obeyed inside a patch alone.
with config.patch({"sencores": 2}):
    assert config.sencores == 2 and cores(lambda x: x.exp() * 2) == 2
assert cores(lambda x: x.exp() * 2) == config.sencores == 32
config.hbm_pool_planning = False

# A name is declared again with another size.
for rows in (64, 256):
    declare_tensor_dim("M", rows)
declare_tensor_dim("N", 128)
name_tensor_dims(x, ["M", "N"])


def tiled(x):
    with spyre_hint(num_tiles_per_dim={"M": 4}):
        return x + 1


assert torch.equal(torch.compile(tiled)(x).cpu(), x.cpu() + 1)
assert any("in 4 tiles" in str(remark) for remark in spyre_mlir.torch_backend.programs[-1].pass_remarks)

layer = load_model_to_spyre(torch.nn.Linear(64, 128), dtype=torch.float16)
assert get_spyre_tensor_layout(layer.weight).device_size == [2, 64, 64] and layer.bias.dtype == torch.float16
assert torch.spyre.get_downcast_warning()
print("done")
"""


def test_a_script(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("HELP = 1")
    assert run(tmp_path, SCRIPT) == "done\n"


OPERATORS = """
import torch

ops = torch.ops.spyre
for device in ("cpu", "spyre"):
    cache, token = torch.zeros(8, 4, 64).half().to(device), torch.ones(1, 2, 64).half().to(device)
    for run in (lambda f: f, torch.compile):
        changed = cache.clone()
        run(ops.overwrite)(token, changed, [0, 1], [3, 2])
        expected = torch.zeros(8, 4, 64).half()
        expected[3:4, 2:4] = 1
        assert torch.equal(changed.cpu(), expected)
        other = run(lambda cache: ops.overwrite_f(token, cache, dims=[0, 1], offsets=[3, 2]))(cache)
        assert torch.equal(other.cpu(), expected) and not cache.cpu().any()
        x = (torch.arange(-600.0, 600, 10).half() / 4).to(device).reshape(2, 60)
        scale = torch.tensor([0.5]).half().to(device)
        eight = run(ops.quantize_fp8_with_scale)(x, scale)
        assert eight.dtype == torch.float8_e4m3fn
        wanted = (x.cpu() / 0.5).clamp(-448, 448).to(torch.float8_e4m3fn)
        assert torch.equal(eight.cpu().float(), wanted.float())
        assert torch.equal(run(ops.dequantize_fp8_with_scale)(eight, scale).cpu(), wanted.half() * 0.5)
        assert run(lambda x: ops.topkindex(x, 2, 1))(x).tolist() == [[59, 58], [59, 58]]
        weight = torch.ones(60).half().to(device)
        normal = torch.nn.functional.rms_norm(x.cpu(), [60], eps=1e-5)
        torch.testing.assert_close(ops.rms_norm(x, [60], weight).cpu(), normal, rtol=4e-3, atol=4e-3)
assert ops.overwrite_f(torch.empty(1, 4, device="meta"), torch.empty(3, 4, device="meta"), [0], [1]).shape == (3, 4)
y = torch.ones(3, requires_grad=True)
ops.gelu(y, approximate="tanh").sum().backward()
assert y.grad is not None
print("done")
"""


def test_operators(tmp_path: Path) -> None:
    assert run(tmp_path, OPERATORS) == "done\n"


def test_modules_and_wrong_calls(tmp_path: Path) -> None:
    module = run(tmp_path, "print(__name__)", "-m", "script")
    assert module == "__main__\n"
    assert "There is no file 'other.py' to run" in run(tmp_path, "", "other.py", fails=True)
    assert "usage:" in run(tmp_path, "", "--other", fails=True)
    assert "has no attribute 'nothing'" in run(
        tmp_path, "import torch_spyre; torch_spyre.nothing", fails=True
    )


def test_an_installed_torch_spyre_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "torch_spyre.py").write_text("NAME = 'the card'")
    error = run(tmp_path, "import torch_spyre; print(torch_spyre.NAME)", fails=True)
    assert error.strip() == (
        "error: The package torch-spyre is installed, and this package does not replace it; use an environment "
        "without torch-spyre."
    )
