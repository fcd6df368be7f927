# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The demo: softmax from PyTorch to a bundle and a report on disk, run on simulated cores, compared with PyTorch.

    python -m spyre_mlir.tools.demo [DIR]

The exit status is 1 if the largest error against float64 exceeds both four times PyTorch's own fp16 error and a
thousandth of the largest value.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spyre_mlir.errors import CompileError
from spyre_mlir.tools import _common

ROWS, COLUMNS = 512, 1024
FLOOR = 1e-3


@_common.tool
def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 if the errors are within the bound."""
    parser = _common.ArgumentParser("demo", __doc__)
    parser.add_argument("folder", nargs="?", default="out/softmax", metavar="DIR", help="where to write")
    folder = parser.parse_args(argv).folder

    print(f"Softmax of {ROWS} x {COLUMNS} fp16 numbers over dim 0, from PyTorch to simulated Spyre cores.\n")
    model, x, theirs, exact = _timed("load PyTorch", _example)
    from spyre_mlir.api import compile
    from spyre_mlir.bundle import read_bundle
    from spyre_mlir.simulator import run

    def simulate() -> np.ndarray:
        """Run the bundle on disk, and set the result on the program, whose summary then has the statistics."""
        program.last_run = run(read_bundle(folder), {program.inputs[0].name: x.numpy()})
        (result,) = program.last_run.outputs.values()
        return result

    program = _timed("import, compile", lambda: compile(model, (x,)))
    _timed("write the bundle", lambda: program.save(folder))
    output = _timed("simulate", simulate)
    page = Path(folder).with_name(f"{Path(folder).name}.html")
    _timed("write the report", lambda: program.report(page))

    _section("The program")
    print(program.summary())
    _section("HBM bytes of each operation")
    from spyre_mlir.tools.spyre_run import table

    print(table(program.last_run.statistics))
    _section(f"Files in {folder}")
    for path in sorted(Path(folder).iterdir()):
        print(f"{path.stat().st_size:>10,} bytes  {path.name}")
    _section("Largest error against float64")
    # Print the largest errors against float64 and the bound; return whether our error is within the bound.
    ours, theirs = (float(np.abs(numbers - exact).max()) for numbers in (output, theirs))
    bound = max(4 * theirs, FLOOR * float(np.abs(exact).max()))
    agrees = ours <= bound
    print(f"PyTorch in fp16  {theirs:.3e}")
    print(f"this program     {ours:.3e}")
    print(f"allowed          {bound:.3e}  (4 x PyTorch's, or {FLOOR:g} of the largest value)")
    print("\nPASS" if agrees else "\nFAIL: the results are off.")
    _section("Next steps")
    trace = shlex.quote(f"{page.with_suffix('')}.trace.json")
    print(f"Open {page} in a browser: time, graph and scratchpad of this program.")
    print("Run the tools, first on this bundle, whose trace opens in ui.perfetto.dev:\n")
    if shutil.which("spyre-run") is None:
        print(f"    source {shlex.quote(os.path.relpath(sys.prefix))}/bin/activate")
    print(f"    spyre-run {shlex.quote(folder)} --timeline {trace}\n")
    print("Compile a model of your own: docs/getting-started.md.")
    return 0 if agrees else 1


def _example():
    try:
        from spyre_mlir.zoo.blocks import softmax_example
    except ModuleNotFoundError as error:
        raise CompileError(
            f"The demo needs PyTorch, and '{error.name}' is not installed: pip install 'spyre-mlir[torch]'."
        ) from None
    return softmax_example(ROWS, COLUMNS)


def _timed(label: str, step: Callable[..., Any]):
    start = time.perf_counter()
    value = step()
    print(f"  {label:<18}{time.perf_counter() - start:6.2f} s", flush=True)
    return value


def _section(title: str) -> None:
    print(f"\n{title}\n{'-' * len(title)}")


if __name__ == "__main__":
    sys.exit(main())
