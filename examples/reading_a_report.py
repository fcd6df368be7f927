# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Read a report: why a program is slow, what to change, and the proof that it is better now.

    python examples/reading_a_report.py

The model is in float32, as trained, and is called with one sample at a time. Each round compiles it, prints its figures
with the bound that no plan can beat, and makes the change that the first finding suggests, until there is no finding.
Each finding was tried by the compiler, so the next round has the predicted figures. The page of each round is
``round_<number>.html`` in the current folder.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

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
    """A model, an input of it, and the options with which it is compiled."""

    model: nn.Module
    x: torch.Tensor
    options: dict[str, Any]


def cast(call: Call) -> Call:
    """Return a call whose matmuls are in float16."""
    return replace(call, options={"autocast": torch.float16})


def halved(call: Call) -> Call:
    """Return a call of which all is in float16."""
    return Call(call.model.half(), call.x.half(), {})


def batched(call: Call) -> Call:
    """Return a call with eight times as many samples."""
    return replace(call, x=call.x.repeat(8, 1))


#: What to do for a finding, by words of its advice.
CHANGES: dict[str, Callable[[Call], Call]] = {
    "autocast=torch.float16": cast,
    "model.half()": halved,
    "with a batch of": batched,
}


def change_for(advice: str) -> Callable[[Call], Call]:
    """Return the change that does what a finding says."""
    return next(change for words, change in CHANGES.items() if words in advice)


def compiled(call: Call, number: int) -> spyre_mlir.Program:
    """Compile a call, print where the time goes, per sample, and write the page of this round."""
    program = spyre_mlir.compile(call.model, (call.x,), **call.options)
    samples, dtype = len(call.x), str(call.x.dtype).removeprefix("torch.")
    print(f"round {number}: {samples} x {dtype}, {call.options or 'no options'}")
    figures = program.metrics()
    if figures["host_operations"]:
        # The times of the device say little of a program that the host runs.
        print(f"  host       {figures['host_flop_share']:.1%} of the calculations")
    else:
        time, bound = figures["predicted_us"] / samples, figures["bound_us"] / samples
        print(f"  time       {time:.2f} us a sample, {bound:.2f} us at least by its bytes and products")
        print(
            f"  bound by   {program.timeline().bound_by}, with {figures['mean_cores']:.0f} cores on average"
        )
    program.report(f"round_{number}.html")
    return program


def changed(call: Call, program: spyre_mlir.Program) -> Call:
    """Print the first finding about a call, and return the call with the change that it asks for."""
    finding = program.findings[0]
    print(f"  problem    {finding.problem}")
    print(f"  cause      {finding.cause}")
    print(f"  change     {finding.change}")
    before, after = finding.before_us / len(call.x), finding.after_us / len(call.x)
    print(f"  promise    {before:.2f} -> {after:.2f} us a sample")
    return change_for(finding.change)(call)


def main() -> None:
    torch.manual_seed(0)
    # The first finding reports the host operations.
    warnings.simplefilter("ignore", spyre_mlir.HostWorkWarning)
    call = Call(Classifier().eval(), torch.randn(1, 1024), {})
    with torch.no_grad():
        expected = call.model(call.x)

    number, program = 1, compiled(call, 1)
    while program.findings:
        number, call = number + 1, changed(call, program)
        program = compiled(call, number)

    error = float((program(call.x) - expected).abs().max() / expected.max())
    print(f"largest error against float32: {error:.4f} of the largest probability")


if __name__ == "__main__":
    main()
