# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An error inside of a backward on the device is raised by the call of the backward, and later ones run."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Runs in a separate process, which PyTorch would end without the mechanism.
PROGRAM = """
import torch
import torch.nn.functional as F
from spyre_mlir.frontend import host_operations
from spyre_mlir import CompileError

run_on_the_host = host_operations.run

def refusing(operation, *operands):
    if "backward" in str(operation):
        raise CompileError("planted")
    return run_on_the_host(operation, *operands)

host_operations.run = refusing

def gradient(function):
    x = torch.ones(2, 7).half().to("spyre").requires_grad_()
    result = {run}
    return torch.autograd.grad(result.sum(), x)[0].cpu()

for _ in range(2):
    try:
        gradient(lambda x: F.adaptive_max_pool1d(x * 2, 3))
    except CompileError as error:
        print("refused:", error.message)
    print(gradient(lambda x: x * 3).unique().tolist())
"""


@pytest.mark.parametrize("run", ["function(x)", "torch.compile(function, backend='spyre')(x)"])
def test_an_error_of_a_backward_reaches_its_caller(run):
    """The gradient of an adaptive pooling runs on the host; two threads of PyTorch, host and device, run this."""
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM.replace("{run}", run)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["refused: planted", "[3.0]"] * 2, done.stderr[-2000:]
