# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Script of one rank under torchrun: ``torchrun --nproc-per-node=2 torchrun_programs.py CASE ..``.

Each rank prints one line for each case, ``RANK CASE ok`` or ``RANK CASE MESSAGE``.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from mesh_models import DIM, PROGRAMS
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import spyre_mlir

#: The largest error of float16 numbers that are summed in another order.
TOLERANCE = 4e-3


def wanted(name: str) -> tuple[Any, torch.Tensor]:
    """Return the results of one card, and the input."""
    model, _, x = PROGRAMS[name]
    torch.manual_seed(0)
    with torch.no_grad():
        return model().half()(x), x


def near(result: torch.Tensor, name: str) -> str:
    """Compare a result with one card."""
    error = float((result.cpu() - wanted(name)[0]).abs().max())
    return "ok" if error <= TOLERANCE else f"error {error}"


def compiled(name: str) -> str:
    """Compile the model of this rank on the host."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    return near(spyre_mlir.compile(PROGRAMS[name][1](mesh), (PROGRAMS[name][2],))(PROGRAMS[name][2]), name)


def on_device(name: str) -> str:
    """Run the model of this rank on the device ``spyre``, operation by operation and by torch.compile."""
    mesh = init_device_mesh("spyre", (dist.get_world_size(),))
    torch.manual_seed(0)
    model, x = PROGRAMS[name][1](mesh), PROGRAMS[name][2].to("spyre")
    with torch.no_grad():
        results = near(model(x), name), near(torch.compile(model)(x), name)
    return "ok" if results == ("ok", "ok") else str(results)


def gradients(name: str) -> str:
    """Compare the gradient of the first parameter with PyTorch's gradient on one card."""
    one, _, x = PROGRAMS[name]
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = PROGRAMS[name][1](mesh)
    torch.compile(model, backend=spyre_mlir.torch_backend)(x).float().sum().backward()
    torch.manual_seed(0)
    whole = one()
    whole(x.float() if x.is_floating_point() else x).sum().backward()
    got, expected = next(model.parameters()).grad.full_tensor().float(), next(whole.parameters()).grad
    return "ok" if (got - expected).abs().max() <= 1e-2 * expected.abs().max() else "other gradients"


class Sum(nn.Module):
    """A sum over all ranks of what ``change`` makes of the input."""

    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.change = change

    def forward(self, x):
        return functional.all_reduce(self.change(x), "sum", dist.group.WORLD) * 2


def other_shapes(_: str) -> str:
    """Sum tensors of different shapes."""
    rank = dist.get_rank()
    x = torch.ones(4, DIM).half()
    return str(spyre_mlir.compile(Sum(lambda x: x[: 2 + rank].exp()), (x,))(x))


def other_collective(_: str) -> str:
    """Call another reduction on one rank."""
    operation = "max" if dist.get_rank() else "sum"
    x = torch.ones(4, DIM).half()
    program = spyre_mlir.compile(lambda x: functional.all_reduce(x.exp(), operation, dist.group.WORLD), (x,))
    return str(program(x))


def ended_rank(_: str) -> str:
    """End one rank before the collective."""
    x = torch.ones(4, DIM).half()
    program = spyre_mlir.compile(Sum(torch.exp), (x,))
    if dist.get_rank() == 1:
        print("1 ended_rank ended", flush=True)
        os._exit(0)
    return str(program(x))


def absent_rank(_: str) -> str:
    """Leave the call to one rank; the other one waits elsewhere until the time is over."""
    x = torch.ones(4, DIM).half()
    program = spyre_mlir.compile(Sum(torch.exp), (x,))
    if dist.get_rank() == 1:
        import time

        time.sleep(8)
        return "ok"
    return str(program(x))


def collectives(_: str) -> str:
    """Call every functional collective; compare with the definition on the tensors of both ranks."""
    rank, group = dist.get_rank(), dist.group.WORLD
    x = torch.arange(8.0).reshape(4, 2).half()
    parts = [x, x * 2]

    def model(x: torch.Tensor) -> list[torch.Tensor]:
        own = x * (rank + 1)
        return [
            functional.all_reduce(own, "avg", group),
            functional.all_gather_tensor(own, 0, group),
            functional.reduce_scatter_tensor(own, "sum", 0, group),
            functional.all_to_all_single(own, None, None, group),
            functional.broadcast(own, 1, group),
        ]

    wanted = [
        x * 1.5, torch.cat(parts), (x * 3).chunk(2)[rank],
        torch.cat([part.chunk(2)[rank] for part in parts]), parts[1],
    ]  # fmt: skip
    results = spyre_mlir.compile(model, (x,))(x)
    names = [
        str(index) for index, pair in enumerate(zip(results, wanted, strict=True)) if not torch.equal(*pair)
    ]
    return f"other results: {names}" if names else "ok"


def distributed_input(_: str) -> str:
    """Give a distributed tensor to a program, which returns the local part of its result."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    x = torch.arange(64.0).reshape(8, 8).half() / 64
    whole = distribute_tensor(x, mesh, [Shard(0)])
    program = spyre_mlir.compile(lambda x: torch.exp(x) / x.exp().sum(), (whole,))
    wanted = (torch.exp(x) / x.exp().sum()).chunk(2)[dist.get_rank()]
    return "ok" if (program(whole) - wanted).abs().max() <= TOLERANCE else "other results"


CASES: dict[str, Callable[[str], str]] = {
    "collectives": collectives, "compiled": compiled, "on_device": on_device, "gradients": gradients,
    "other_shapes": other_shapes, "other_collective": other_collective, "ended_rank": ended_rank,
    "absent_rank": absent_rank, "distributed_input": distributed_input,
}  # fmt: skip


def main() -> None:
    """Run the cases of the command line, each ``CASE`` or ``CASE:PROGRAM``."""
    warnings.simplefilter("ignore")
    dist.init_process_group("spyre", timeout=timedelta(seconds=5 if sys.argv[1] == "absent_rank" else 60))
    for argument in sys.argv[1:]:
        case, _, name = argument.partition(":")
        try:
            outcome = CASES[case](name)
        except spyre_mlir.CompileError as error:
            outcome = error.message
        print(dist.get_rank(), argument, outcome.replace("\n", " "), flush=True)
    if not {"ended_rank", "absent_rank"} & set(sys.argv):
        dist.destroy_process_group()
    os._exit(0)


if __name__ == "__main__":
    main()
