# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Read a report: why a program is slow, what to change, and the proof that it is better now.

    python examples/reading_a_report.py

A model comes as it was trained, in float32, and is called with one sample at a time. Each round compiles it, prints
its figures beside the bound that no plan can beat, and makes the change that the first finding asks for, until there
is none. Findings were tried before they are told, so what one promises is what the next round has. The page of each
round is ``round_<number>.html`` where the script is called.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn

import spyre_mlir


class Classifier(nn.Module):
    """An MLP with probabilities of its classes."""

    def __init__(self, width: int = 1024, hidden: int = 2048, classes: int = 512) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.down(torch.relu(self.up(x))), -1)


@dataclass(frozen=True)
class Call:
    """A model and how it is called."""

    model: nn.Module
    x: torch.Tensor


def halved(call: Call) -> Call:
    """Return a call in float16."""
    return Call(call.model.half(), call.x.half())


def batched(call: Call) -> Call:
    """Return a call with eight times as many samples."""
    return replace(call, x=call.x.repeat(8, 1))


#: What to do for a finding, by how its advice begins.
CHANGES: dict[str, Callable[[Call], Call]] = {
    "model.half()": halved,
    "call the model with 8 samples": batched,
}


def change_for(advice: str) -> Callable[[Call], Call]:
    """Return the change that does what a finding says."""
    return next(change for beginning, change in CHANGES.items() if advice.startswith(beginning))


def print_figures(program: spyre_mlir.Program, samples: int) -> float:
    """Print where the time of a program goes; return its microseconds per sample on the device."""
    figures, timeline = program.metrics(), program.timeline()
    host = figures["host_flop_share"]
    time = figures["predicted_us"] / samples
    print(
        f"  device     {time:.1f} us a sample, at least {figures['bound_us'] / samples:.1f} us by its bytes"
    )
    if host:
        print(f"  host       {host:.1%} of the calculations")
    print(f"  bound by   {timeline.bound_by}, {figures['mean_cores']:.0f} cores busy on average")
    return time


def main() -> None:
    torch.manual_seed(0)
    # What the host does is what the first finding is about.
    warnings.simplefilter("ignore", spyre_mlir.HostWorkWarning)
    call = Call(Classifier().eval(), torch.randn(1, 1024))
    for number in range(1, 5):
        samples, dtype = len(call.x), str(call.x.dtype).removeprefix("torch.")
        program = spyre_mlir.compile(call.model, (call.x,))
        print(f"round {number}: {samples} x {dtype}, {program}")
        print_figures(program, samples)
        program.report(f"round_{number}.html")
        if not program.findings:
            break
        finding = program.findings[0]
        print(f"  problem    {finding.problem}")
        print(f"  cause      {finding.cause}")
        print(f"  change     {finding.change}")
        print(f"  promise    {finding.before_us:.1f} us -> {finding.after_us:.1f} us")
        call = change_for(finding.change)(call)
    with torch.no_grad():
        error = float((program(call.x) - call.model(call.x)).abs().max())
    print(f"largest error of a probability: {error:.6f}")


if __name__ == "__main__":
    main()
