# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""python -m spyre_mlir.experiments.check: run the algorithms of a file through the base test suite.

    python -m spyre_mlir.experiments.check my_algorithm.py
    python -m spyre_mlir.experiments.check my_algorithm.py --problems DIR --seeds 100

The file registers algorithms of any kind (docs/writing-an-algorithm.md). DIR has problems of
``spyre-compile --save-problems``. The output has one line per check; the exit status is 1 if a check fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from spyre_mlir.algorithms import REGISTRIES, Algorithm
from spyre_mlir.driver.problem_files import Problem, read_problem
from spyre_mlir.errors import CompileError
from spyre_mlir.experiments.check.algorithm_checks import Check, CheckFailure, checks_of
from spyre_mlir.loading import load


def main(argv: Sequence[str] | None = None) -> int:
    """Run the checks; return 0 if all pass, 1 after a failed check or a diagnostic on stderr."""
    parser = argparse.ArgumentParser(
        "spyre_mlir.experiments.check", None, __doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", metavar="FILE.py", help="the file with the algorithms")
    parser.add_argument("--problems", metavar="DIR", help="problems of spyre-compile --save-problems")
    parser.add_argument("--seeds", metavar="N", type=int, default=30, help="random problems (default: 30)")
    options = parser.parse_args(argv)
    try:
        classes = list(registered_by(options.file))
        saved = _saved(options.problems) if options.problems else []
    except CompileError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    failures = 0
    for cls in classes:
        sys.stdout.write(f"{cls.registry.noun} '{cls.name}'\n")
        for check in checks_of(cls, options.seeds, saved):
            begun = time.process_time()
            failure = failure_of(check)
            failures += failure is not None
            verdict = "ok" if failure is None else "FAIL"
            sys.stdout.write(f"  {verdict:6}{check.name:28}{time.process_time() - begun:8.2f} s\n")
            if failure is not None:
                sys.stdout.write(f"        {failure}\n")
            sys.stdout.flush()
    return int(failures > 0)


def registered_by(path: str) -> Iterator[type[Algorithm]]:
    """Import a file and yield the algorithms that it registers; raise ``CompileError`` if there are none."""
    before = {option: dict(registry.classes) for option, registry in REGISTRIES.items()}
    load(path)
    classes = [
        cls
        for option, registry in REGISTRIES.items()
        for name, cls in registry.classes.items()
        if cls.is_foreign() and before[option].get(name) is not cls
    ]
    if not classes:
        raise CompileError(f"The file '{path}' registers no algorithm: put '@register' above its class.")
    yield from classes


def failure_of(check: Check) -> str | None:
    """Run a check and return why it fails, with the location in the user's file if known; None if it passes."""
    try:
        check.run()
    except (CheckFailure, CompileError) as error:
        return str(error)
    return None


def _saved(folder: str) -> list[Problem]:
    files = sorted(Path(folder).glob("*.json"))
    if not files:
        raise CompileError(f"The folder '{folder}' has no problems, which are files *.json.")
    return [read_problem(str(file)) for file in files]


if __name__ == "__main__":
    sys.exit(main())
