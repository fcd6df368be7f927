# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write a scratchpad solver: squeaky wheel optimization, against the packaged solvers, on packings and on a program.

    python examples/own_solver.py

Which buffers stay in the scratchpads is a packing problem: rectangles of bytes and time in a memory of one size. Most
heuristics place the buffers in one good order. This one tries many: who is left out complains, and comes earlier in the
next round (D. Joslin and D. Clements, "Squeaky Wheel Optimization", JAIR 10, 1999).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import spyre_mlir
from spyre_mlir.algorithms import register
from spyre_mlir.experiments.check.algorithm_checks import checks_of
from spyre_mlir.scratchpad import LifetimeBoundBuffer, MemoryPlanSolver, MemorySpace, solver
from spyre_mlir.scratchpad.check import check_plan
from spyre_mlir.scratchpad.fitting import fit, lowest
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.solver import Placement


@register
@dataclass(frozen=True)
class SqueakyWheel(MemoryPlanSolver):
    """The largest buffers first; then, ``rounds`` times, those that were left out move ahead.

    By how many places, is ``step`` times the number of buffers for the one that saves most, and less for others.
    """

    name: ClassVar[str] = "squeaky-wheel"
    rounds: int = 60
    step: float = 0.4

    def place(self, instance: Instance) -> Placement:
        if not len(instance):
            return Placement({})
        ranks = np.argsort(np.argsort(-instance.sizes, kind="stable"), kind="stable").astype(float)
        best: dict[int, int] = {}
        work, least_loss = 0, int(instance.savings.sum()) + 1
        for _ in range(self.rounds):
            work += 1
            addresses = fit(instance, np.argsort(ranks, kind="stable").tolist(), lowest)
            spilled = np.setdiff1d(np.arange(len(instance)), list(addresses))
            loss = int(instance.savings[spilled].sum())
            if loss < least_loss:
                best, least_loss = addresses, loss
            if not loss:
                break
            ranks[spilled] -= self.step * len(instance) * instance.savings[spilled] / instance.savings.max()
        return Placement(best, work=work)


#: A packing: units of 4 KiB, for addresses are multiples of sticks, and times.
UNIT_BYTES, UNITS, TIMES = 4096, 256, 1000

RIVALS = ("firstfit", "greedy", "largest-first", "annealing", "squeaky-wheel", "portfolio")


def cut_buffers(count: int, seed: int) -> list[LifetimeBoundBuffer]:
    """Return buffers that fill the memory without a gap: a rectangle of times and bytes, cut at random."""
    rng = random.Random(seed)
    pieces = [((0, TIMES), (0, UNITS))]
    while len(pieces) < count:
        piece = rng.choice(pieces)
        axis = rng.randrange(2)
        begin, end = piece[axis]
        # A buffer of one moment would save nothing.
        if end - begin < 4:
            continue
        cut = rng.randrange(begin + 2, end - 1)
        pieces.remove(piece)
        for part in ((begin, cut), (cut, end)):
            pieces.append((part, piece[1]) if axis == 0 else (piece[0], part))
    rng.shuffle(pieces)
    return [
        LifetimeBoundBuffer(f"b{index}", (high - low) * UNIT_BYTES, (begin, end - 1))
        for index, ((begin, end), (low, high)) in enumerate(pieces)
    ]


def compare_packings() -> None:
    """Print the bytes that each solver sends through device memory, on packings that all have a perfect plan."""
    space = MemorySpace(UNITS * UNIT_BYTES)
    sets = [cut_buffers(count, seed) for count in (12, 20, 30, 60) for seed in range(5)]
    print(f"{'packings':<16}{'KiB moved':>10}{'buffers spilled':>17}")
    for name in RIVALS:
        moved = spilled = 0
        for buffers in sets:
            plan = solver(name).plan(buffers, space)
            check_plan(buffers, space, plan)
            moved, spilled = moved + plan.traffic, spilled + len(plan.spilled)
        print(f"{name:<16}{moved // 1024:>10,}{spilled:>17}")


def chain() -> str:
    """Return a program: each of four functions of the one before, then products that read them from last to first."""
    type_ = "tensor<512x1024xf16>"
    lines = [f"func.func @main(%x: {type_}) -> {type_} {{", f"%e = tensor.empty() : {type_}"]
    value = "x"
    for function in ("exp", "tanh", "sqrt", "abs"):
        lines.append(f"%{function} = linalg.{function} ins(%{value} : {type_}) outs(%e : {type_}) -> {type_}")
        value = function
    for other in ("sqrt", "tanh", "exp"):
        operands = f"%{value}, %{other} : {type_}, {type_}"
        lines.append(f"%mul_{other} = linalg.mul ins({operands}) outs(%e : {type_}) -> {type_}")
        value = f"mul_{other}"
    return "\n".join([*lines, f"return %{value} : {type_}", "}"])


def compare_programs() -> None:
    """Print what a program moves with each solver, in scratchpads that are too small for it."""
    # Without the passes that would avoid the competition for the scratchpads.
    options = {"lx_frac_avail": 0.96, "tile_for_lx": False, "reorder": False, "moves": False}
    x = np.random.default_rng(0).uniform(0.1, 1, (512, 1024)).astype(np.float16)
    expected = None
    print(f"{'program':<16}{'KiB moved':>10}{'time (us)':>17}")
    for name in RIVALS:
        program = spyre_mlir.compile(chain(), layout_solver=name, **options)
        y, moved = program(x), program.traffic()
        kilobytes = (moved.read_bytes + moved.written_bytes) // 1024
        print(f"{name:<16}{kilobytes:>10,}{program.metrics()['predicted_us']:>17.1f}")
        expected = y if expected is None else expected
        # Where a buffer lies changes no number.
        assert np.array_equal(y, expected), name


def main() -> None:
    compare_packings()
    compare_programs()
    print("base test suite")
    for check in checks_of(SqueakyWheel):
        check.run()
        print(f"  ok  {check}")


if __name__ == "__main__":
    main()
