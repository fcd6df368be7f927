# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spyre-tune: search for a better plan of a program by trials, and write it as a plan file.

    spyre-tune program.mlir --trials 100 -o plan.json
    spyre-tune zoo:suite/mlp --objective hbm_read_bytes -o plan.json
    spyre-compile program.mlir --use-plan plan.json

The first trial is the default plan, so the result is never worse than the default. With --storage, trials are kept in a
file, and the same command continues from it. docs/tuning.md is the manual.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spyre_mlir import files
from spyre_mlir.errors import CompileError, listed
from spyre_mlir.tools import _common

#: The endings of files of plots.
_FORMATS = (".svg", ".pdf", ".png")


@_common.tool
def main(argv: Sequence[str] | None = None) -> int:
    """Run spyre-tune; return 0 on success, 1 after a diagnostic on stderr."""
    options = _parser().parse_args(argv)
    for path in filter(None, (options.history, options.importance)):
        if Path(path).suffix not in _FORMATS:
            raise CompileError(f"The name '{path}' of a plot must end in {listed(_FORMATS)}.")

    # Imported after the flags are parsed, so that a wrong flag and --help do not load the bindings.
    from spyre_mlir.experiments.tuning import tune
    from spyre_mlir.pipelines import SpyrePipeline

    program: Any = Path(options.input) if options.input != "-" else files.read_text(options.input)
    inputs: Any = ()
    scheme, _, name = options.input.partition(":")
    if scheme == "zoo":
        from spyre_mlir import zoo

        program, inputs = zoo.load(name, weights=False)
    chosen = SpyrePipeline.parse(options.pipeline).changed()
    if options.sencores is not None:
        chosen["sencores"] = options.sencores
    tuned = tune(
        program,
        inputs,
        objective=options.objective,
        trials=options.trials,
        storage=options.storage,
        seed=options.seed,
        **chosen,
    )
    if options.output:
        tuned.save(options.output)
    if options.history:
        tuned.plot("history", options.history)
    if options.importance:
        tuned.plot("importance", options.importance)
    print(tuned.summary(), end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _common.ArgumentParser("spyre-tune", __doc__)
    parser.add_argument("input", help="the program: an MLIR file, - for stdin, or zoo:NAME")
    _common.add_output(parser, "-o --output", "FILE", "write the best plan to this plan file (default: none)")
    _common.add_output(
        parser, "--history", "FILE.svg", "draw the objective of each trial, and the best so far"
    )
    _common.add_output(parser, "--importance", "FILE.svg", "draw the parameters that decide the objective")
    parser.add_argument("--trials", type=_common.number(int, 1, 10**6), default=100, metavar="N",
                        help="number of trials (default: 100)")  # fmt: skip
    parser.add_argument(
        "--objective", default="total_us", metavar="NAME",
        help="figure of spyre-compile --metrics to minimise (default: total_us, microseconds)",
    )  # fmt: skip
    parser.add_argument("--storage", metavar="FILE",
                        help="keep the trials in this file, and continue from it (default: keep none)")  # fmt: skip
    parser.add_argument("--seed", type=_common.number(int, 0, 2**31), default=0, metavar="N",
                        help="seed of the search (default: 0)")  # fmt: skip
    parser.add_argument("--sencores", type=_common.number(int, 1, 10**6), metavar="N",
                        help="number of cores that the program may use (default: SENCORES, or all)")  # fmt: skip
    parser.add_argument("--pipeline", default="", metavar="OPTIONS",
                        help="options of the pipeline that no trial changes (default: none)")  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
