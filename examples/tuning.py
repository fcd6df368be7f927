# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tune a program: other divisions and loops by trials, and the best of them as a plan file.

    python examples/tuning.py

The compiler decides once, by its searches. ``tune`` compiles other points of a space and keeps the fastest by the
timeline, or by whatever function of a program it is given, such as the time on a card. The space here is small: the
host's side of the program stays as it is, and so do the options of the compiler. The plan is the file ``tuned.json``
where the script is called. Needs the extra ``tune``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import spyre_mlir
from spyre_mlir import zoo
from spyre_mlir.experiments import TuningSpace, tune


def print_slowest(program: spyre_mlir.Program, count: int = 2) -> None:
    """Print the operations that take longest, with their slices and what bounds them."""
    rows = zip(program.plan()["operations"], program.timeline().executions, strict=True)
    slowest = sorted(rows, key=lambda row: -row[1].total_ns)[:count]
    for operation, execution in sorted(slowest, key=lambda row: row[1].position):
        name, slices = operation["name"], operation["slices"]
        print(f"  {name:<12}{slices!s:<10}{execution.total_ns / 1000:6.1f} us, bound by {execution.bound_by}")


def main() -> None:
    text, inputs = zoo.load("linalg/rms_norm")
    default = spyre_mlir.compile(text)
    print(f"by default {default.metrics()['predicted_us']:.1f} us, most of it in")
    print_slowest(default)

    space = replace(TuningSpace.of(default), options={}, layouts={})
    choices = {parameter: len(values) for parameter, values in space.parameters().items()}
    print("choices other than the default:")
    for parameter, count in choices.items():
        print(f"  {parameter:<36}{count:>2}")

    tuned = tune(text, inputs, space=space, trials=30, seed=1)
    print(tuned.summary(), end="")

    tuned.save("tuned.json")
    again = spyre_mlir.compile(text, plan="tuned.json", **tuned.options)
    print(f"from the plan file {again.metrics()['predicted_us']:.1f} us, most of it in")
    print_slowest(again)

    weight = np.random.default_rng(0).standard_normal(4096).astype(np.float16)
    for program in (default, again):
        program.arrays["weight"] = weight
    print("both compute the same bits:", np.array_equal(default(*inputs), again(*inputs)))


if __name__ == "__main__":
    main()
