# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scripts with the calls of the examples in torch-spyre's documents, one after the other in one process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Each script compares its results itself.
EXAMPLES = {
    "tensor_allocate": """
import torch
x = torch.tensor([3, 4], dtype=torch.float16, device="spyre")
assert str(x.device) == "spyre:0" and x.tolist() == [3, 4]
""",
    "activations": """
import torch
import torch.nn.functional as F
device = torch.device("spyre")
x = torch.rand(256, 512, dtype=torch.float16)
for f in (F.gelu, F.softplus, lambda a: torch.softmax(a, dim=0), lambda a: torch.mean(a, dim=0)):
    torch._dynamo.reset()
    compiled = torch.compile(lambda a: f(a))(x.to(device))
    torch.testing.assert_close(compiled.cpu(), f(x), rtol=2e-3, atol=2e-3)
    assert torch.equal(compiled.cpu(), f(x.to(device)).cpu())
""",
    "mul": """
import torch
x, y = torch.rand(128, 64, dtype=torch.float16), torch.rand(128, 64, dtype=torch.float16)
compiled = torch.compile(lambda a, b: torch.mul(a, b))
assert torch.equal(compiled(x.to("spyre"), y.to("spyre")).cpu(), x * y)
""",
    "hints_without_declared_dims": """
import warnings
import torch
from torch_spyre._inductor import spyre_hint
a, b = (torch.rand(64, 128, dtype=torch.float16) for _ in range(2))
c, d = torch.rand(128, 256, dtype=torch.float16), torch.rand(64, 256, dtype=torch.float16)
def f(a, b, c, d):
    with spyre_hint(tiles={"Depth": 2}):
        with spyre_hint(tiles={"Rows": 4}):
            x = a + b
        y = x @ c
    return y + d
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    result = torch.compile(f)(*(each.to("spyre") for each in (a, b, c, d))).cpu()
torch.testing.assert_close(result, f(a, b, c, d), rtol=2e-3, atol=2e-3)
for dim in "Depth", "Rows":
    text = f"Hints for the dims '{dim}' have no effect; declare_tensor_dim declares a dim."
    assert text in {str(each.message) for each in caught}
""",
    "hints_of_loops": """
import torch
from torch_spyre._inductor import spyre_hint
from torch_spyre._inductor.propagate_named_dims import declare_tensor_dim, name_tensor_dims
declare_tensor_dim("A", 256)
declare_tensor_dim("B", 1024)
cpu = [torch.randn(256, 1024, dtype=torch.float16) for _ in range(3)]
a, b, c = (name_tensor_dims(each.to("spyre"), ["A", "B"]) for each in cpu)
def f(a, b, c):
    with spyre_hint(slices={"A": 2}):
        with spyre_hint(slices={"B": 4}):
            return (a + b) * c
torch.testing.assert_close(torch.compile(f)(a, b, c).cpu(), (cpu[0] + cpu[1]) * cpu[2], rtol=4e-3, atol=4e-3)
""",
    "hints_of_core_divisions": """
import torch
from torch_spyre._inductor import spyre_hint
from torch_spyre._inductor.propagate_named_dims import declare_tensor_dim, name_tensor_dims
sizes = {"M": 128, "K": 256, "N": 128}
for name, size in sizes.items():
    declare_tensor_dim(name, size)
x, y = torch.rand(128, 256, dtype=torch.float16), torch.rand(256, 128, dtype=torch.float16)
device_x, device_y = x.to("spyre"), y.to("spyre")
name_tensor_dims(device_x, ["M", "K"])
name_tensor_dims(device_y, ["K", "N"])
def f(x, y):
    with spyre_hint(work_div={"M": 2, "K": 4}):
        return x @ y
torch.testing.assert_close(torch.compile(f)(device_x, device_y).cpu(), x @ y, rtol=4e-3, atol=0.1)
""",
    "views": """
import torch
x, y = torch.rand(25, 10, 200, dtype=torch.float16), torch.rand(250, 200, dtype=torch.float16)
f = lambda x, y: x.flatten(0, 1) + y
torch.testing.assert_close(torch.compile(f)(x.to("spyre"), y.to("spyre")).cpu(), f(x, y), rtol=2e-3, atol=2e-3)
""",
    "rotary_products": """
import torch
def rotate(table, q):
    parts = q.view(1, 64, 4, 128).view(1, 64, 4, 2, 64)
    products = table[:, :, None, :, :, :] * parts.unsqueeze(-3)
    return products.sum(4, keepdim=True).flatten(3)
table, q = torch.rand(1, 64, 2, 2, 64, dtype=torch.float16), torch.rand(1, 64, 512, dtype=torch.float16)
result = torch.compile(rotate)(table.to("spyre"), q.to("spyre")).cpu()
torch.testing.assert_close(result, rotate(table, q), rtol=4e-3, atol=4e-3)
""",
    "indirect_access": """
import torch
x, rows = torch.rand(64, 128, dtype=torch.float16), torch.randint(64, (3, 5), dtype=torch.int32)
for f in (lambda x, i: x[i], lambda x, i: x[i].exp()):
    result = torch.compile(f)(x.to("spyre"), rows.to("spyre")).cpu()
    torch.testing.assert_close(result, f(x, rows), rtol=2e-3, atol=2e-3)
""",
    "a_model_on_a_stream": """
import torch
import torch_spyre
model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU()).half().eval()
x = torch.rand(64, 128, dtype=torch.float16)
with torch.no_grad():
    expected = model(x)
    compiled = torch.compile(model.to("spyre"), backend="spyre")
    stream = torch.spyre.Stream()
    with torch.spyre.stream(stream):
        result = compiled(x.to("spyre"))
torch.spyre.synchronize()
torch.testing.assert_close(result.cpu(), expected, rtol=4e-3, atol=4e-3)
""",
    "profiles": """
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule
x = torch.rand(64, 128, dtype=torch.float16).to("spyre")
compiled = torch.compile(torch.exp)
compiled(x)
both = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
with profile(activities=both, record_shapes=True, profile_memory=True,
             on_trace_ready=torch.profiler.tensorboard_trace_handler("traces")) as prof:
    compiled(x).cpu()
assert "spyre::compiled graph" in prof.key_averages().table(sort_by="device_time_total", row_limit=10)
with profile(activities=both, schedule=schedule(wait=1, warmup=1, active=2, repeat=1)) as prof:
    for step in range(5):
        with record_function(f"step_{step}"):
            compiled(x)
        prof.step()
prof.export_chrome_trace("trace.json")
""",
    "memory": """
import torch
before = torch.spyre.memory.memory_allocated()
torch.spyre.memory.reset_peak_memory_stats()
x = torch.rand((64, 64), dtype=torch.float16, device="spyre")
held = torch.spyre.memory.memory_allocated() - before
assert held >= 64 * 64 * 2
del x
assert torch.spyre.memory.memory_allocated() == before
assert torch.spyre.memory.max_memory_allocated() >= before + held
""",
    "signed_zeros": """
import torch
def f(a, b):
    return torch.eq(a, b).to(dtype=torch.float16)
x, y = torch.tensor([-0.0, -0.0], dtype=torch.float16), torch.tensor([0.0, 0.0], dtype=torch.float16)
compiled = torch.compile(f, backend="spyre")
assert compiled(x.to("spyre"), y.to("spyre")).to("cpu").to(dtype=torch.bool).all()
""",
}

#: Runs all scripts, and prints the last line of the error of each.
RUNNER = """
import json, runpy, sys, traceback
import torch
from torch_spyre._inductor.propagate_named_dims import reset
errors = {}
for name in sys.argv[1:]:
    torch._dynamo.reset()
    reset()
    torch.manual_seed(0)
    try:
        runpy.run_path(name + ".py", run_name="__main__")
        errors[name] = ""
    except BaseException as error:
        errors[name] = traceback.format_exc()
print(json.dumps(errors))
"""


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("examples")
    for name, text in {**EXAMPLES, "runner": RUNNER}.items():
        (folder / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "spyre_mlir.torch_spyre", "runner.py", *EXAMPLES]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_the_documents_runs(errors: dict[str, str], name: str) -> None:
    assert errors[name] == ""
