# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch-spyre's public names on the simulated device, in processes of their own: the names belong to a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(
    folder: Path, script: str, *arguments: str, fails: bool = False, settings: dict[str, str] | None = None
) -> str:
    """Output of a script, or of ``arguments``, run with the simulated torch-spyre."""
    (folder / "script.py").write_text(script)
    quiet = [] if settings else ["-W", "ignore"]
    command = [sys.executable, *quiet, "-m", "spyre_mlir.torch_spyre", *(arguments or ["script.py"])]
    path = f"import sys; sys.path.insert(0, {str(ROOT)!r})"
    (folder / "sitecustomize.py").write_text(path)
    environment = {
        "PYTHONPATH": f"{folder}:{ROOT}",
        "PATH": "/usr/bin:/bin",
        "SPYRE_CACHE": "0",
        **(settings or {}),
    }
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
x = torch.rand(4096, 128).half().to("spyre")
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
for rows in (64, 4096):
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


HINTS = """
import torch
from torch_spyre._inductor import config, spyre_hint
from torch_spyre._inductor.propagate_named_dims import declare_tensor_dim, name_tensor_dims
import spyre_mlir

x, y = torch.rand(128, 256).half().to("spyre"), torch.rand(256, 128).half().to("spyre")
for name, size in {"M": 128, "K": 256, "N": 128}.items():
    declare_tensor_dim(name, size)


def model(x, y):
    x = name_tensor_dims(x, ["M", "K"])
    name_tensor_dims(y, ["K", "N"])
    with spyre_hint(work_div={"K": 2, "M": 8}):
        with spyre_hint(tiles={"N": 2}, work_div={"M": 2}):
            return x @ y


def slices(f, *inputs):
    torch._dynamo.reset()
    result = torch.compile(f, fullgraph=True)(*inputs)
    # PyTorch's own options of torch.compile are accepted.
    torch.testing.assert_close(result.cpu(), f(*[each.cpu() for each in inputs]), rtol=0.01, atol=0.01)
    return {tuple(design.slices.items()) for design in spyre_mlir.torch_backend.programs[-1].bundle.designs.values()}


divided = slices(model, x, y)
assert (("in", 2), ("mb", 2), ("out", 1)) in divided, divided
with config.patch("ignore_work_division_hints", True):
    assert slices(model, x, y) != divided
torch.compile(torch.exp, options={"epilogue_fusion": False})(x)


def computed(x, y):
    return name_tensor_dims(x + 1, ["M", "K"]) @ y


def many(x, y):
    with spyre_hint(work_div={"M": 64}):
        return x @ y


def none(x, y):
    with spyre_hint(work_div={"M": 0}):
        return x @ y


for f in (computed, many, none):
    try:
        torch.compile(f)(x, y)
    except Exception as error:
        print(str(error).partition("error: ")[2])
"""


def test_hints(tmp_path: Path) -> None:
    assert run(tmp_path, HINTS).splitlines() == [
        "name_tensor_dims names the dims of inputs and parameters, and this tensor is computed by the function; name "
        "the inputs of the function.",
        "matmul: the hints divide this operation into 64 slices, which exceeds SENCORES, the 32 cores of the target.",
        "A hint gives names of dims, and numbers of parts, which must be positive, not 'M': 0.",
    ]


LOOPS = """
import torch
from torch_spyre._inductor.wsr.for_each_tile import Gather, for_each_tile
import spyre_mlir

a, b = torch.rand(256, 128).half(), torch.rand(256, 128).half()
pool, index, query = torch.rand(8, 32, 64).half() / 8, torch.tensor([5, 2, 7, 0]).int(), torch.rand(32, 64).half()


def mapped(a, b):
    return for_each_tile(lambda _, tiles: (None, tiles[0] * tiles[1]), (a, b), dims=1, tile_size=64, out_dim=1)[1]


def nested(a, b):
    def inner(_, tiles):
        return None, tiles[0] + tiles[1]

    def outer(_, tiles):
        return None, for_each_tile(inner, tiles, dims=(1, 1), tile_size=64, out_dim=1)[1]

    return for_each_tile(outer, (a, b), dims=(0, 0), tile_size=128, out_dim=0)[1]


def summed(a, reverse):
    def body(carry, tiles):
        carry = carry * 0.5 + tiles[0].sum(0, keepdim=True)
        return carry, tiles[0] + carry

    start = torch.zeros(1, 128, dtype=a.dtype, device=a.device)
    return for_each_tile(body, (a,), dims=(0,), tile_size=64, init=start, out_dim=0, reverse=reverse)


def gathered(pool, index, query):
    def body(carry, tiles):
        page, whole = tiles
        return carry + whole @ page.squeeze(0).t(), None

    start = torch.zeros(32, 32, dtype=pool.dtype, device=pool.device)
    return for_each_tile(body, (pool, query), dims=(Gather(0, index), None), tile_size=1, init=start)[0]


def stored(a, output):
    return for_each_tile(lambda _, tiles: (None, tiles[0] * 2), (a,), dims=0, tile_size=64, out_dim=0, output=output)[1]


def scanned(a, reverse):
    carry, parts = torch.zeros(1, 128).double(), [None] * 4
    for number in sorted(range(4), reverse=reverse):
        tile = a.double()[64 * number :][:64]
        carry = carry * 0.5 + tile.sum(0, keepdim=True)
        parts[number] = tile + carry
    return carry, torch.cat(parts)


cases = [
    (mapped, (a, b), a.double() * b), (nested, (a, b), a.double() + b),
    (lambda a: summed(a, False), (a,), scanned(a, False)), (lambda a: summed(a, True), (a,), scanned(a, True)),
    (gathered, (pool, index, query), sum(query.double() @ pool[each].double().t() for each in index.tolist())),
    (stored, (a, torch.zeros_like(a)), 2 * a.double()),
]
for f, inputs, expected in cases:
    for device, way in (("cpu", None), ("spyre", None), ("spyre", torch.compile)):
        torch._dynamo.reset()
        inputs = [each.clone().to(device) for each in inputs]
        results = (way(f, fullgraph=True) if way else f)(*inputs)
        for got, wanted in zip(*[each if isinstance(each, tuple) else (each,) for each in (results, expected)]):
            torch.testing.assert_close(got.cpu().double(), wanted.double(), rtol=4e-3, atol=4e-3)
for dims, size in (((0,), 64), ((0, 1), 64), ((0, 0), 60), ((0, 2), 64), ((None, None), 64)):
    try:
        for_each_tile(lambda _, tiles: (None, tiles[0]), (a, b), dims=dims, tile_size=size, out_dim=0)
    except spyre_mlir.CompileError as error:
        print(error.message)
"""


@pytest.mark.exhaustive
def test_loops_over_tiles(tmp_path: Path) -> None:
    assert run(tmp_path, LOOPS).splitlines() == [
        "for_each_tile has 2 operands and 1 dims; give each operand a dim, None or Gather, or one of these for all.",
        "The operands of for_each_tile have [2, 4] tiles; cut at least one, and all into one number.",
        "Operand 0 of for_each_tile has the shape [256, 128]: dim 0 cannot be cut into equal tiles of 60 elements.",
        "Operand 1 of for_each_tile has the shape [256, 128]: dim 2 cannot be cut into equal tiles of 64 elements.",
        "The operands of for_each_tile have no tiles; cut at least one, and all into one number.",
    ]


@pytest.mark.exhaustive
def test_the_configuration_of_the_environment(tmp_path: Path) -> None:
    script = """
import warnings
from torch_spyre._inductor import config
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    config.unroll_loops = False
    config.unroll_loops = True
print(config.sencores, config.ignore_work_division_hints, config.unroll_loops, config._options(), len(caught))
"""
    settings = {
        "SENCORES": "4",
        "SPYRE_INDUCTOR_IGNORE_HINTS": "1",
        "UNROLL_LOOPS": "0",
        "DUMP_SPYRE_CODE": "1",
    }
    assert run(tmp_path, script, settings=settings) == "4 True True {'sencores': 4} 1\n"
    warned = run(
        tmp_path, script, settings=settings | {"PYTHONWARNINGS": "error:The environment sets"}, fails=True
    )
    assert "The environment sets DUMP_SPYRE_CODE, UNROLL_LOOPS, which do not change programs here." in warned
    wrong = run(tmp_path, script, settings={"MAX_BUCKETS": "many"}, fails=True)
    assert "The environment variable MAX_BUCKETS is 'many'; give a number of type int." in wrong


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
