# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spyre-reduce: make a program that shows a fault small, as mlir-reduce does.

    spyre-reduce model.mlir --check "spyre-compile {} -o out 2>&1 | grep -q 'Internal error'"
    spyre-reduce model.mlir --check "spyre-compile {} -o out --pipeline '{options}' --check | grep -q FAIL" \\
        --options "sencores=4 division=mine"
    spyre-reduce models:mlp --check "python wrong.py {}" -o small.pt2

The check is a command of the shell that exits with status 0 if the fault is there. {} is the file of a smaller program
and {options} the remaining words of --options. The command fails if the program does not compile, so test for the
message of the fault and not for a failure of any kind.

A program in MLIR, at any level, loses operations of its largest function (removed operations become arguments), then
dims shrink, then options are removed, until none of these steps keeps the fault. A program of PyTorch is a file of
torch.export.save or, as for spyre-sweep, 'module:function', a function that returns a model and its inputs; the result
is a file of torch.export.save, and the code of the graph is printed.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spyre_mlir import files, logs
from spyre_mlir.errors import CompileError, counted
from spyre_mlir.tools import _common

if TYPE_CHECKING:
    from spyre_mlir.mlir import ir


@_common.tool
def main(argv: Sequence[str] | None = None) -> int:
    """Run spyre-reduce; return 0 on success, 1 after a diagnostic on stderr."""
    options = _parser().parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="spyre-reduce-") as folder:
        check = _FaultCheck(options, Path(folder))
        if options.input.endswith(".mlir") or (
            ":" not in options.input and not options.input.endswith(".pt2")
        ):
            _reduce_mlir(options, check)
        else:
            _reduce_exported(options, check)
    return 0


class _FaultCheck:
    """The user-defined command, with a file for the program and a limit of time."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options.options.split()
        self._command, self._timeout, self._folder = options.check, options.timeout, folder
        self._begin, self._budget = time.monotonic(), options.budget
        self.count = 0

    def __call__(self, path: Path, words: Sequence[str] | None = None) -> bool:
        """Return whether the command finds the fault in a file; false after the end of the budget."""
        logs.show_progress(f"check {self.count + 1}")
        if self.count and time.monotonic() - self._begin > self._budget:
            return False
        self.count += 1
        text = self._command.replace("{options}", " ".join(self.options if words is None else words))
        text = (
            text.replace("{}", shlex.quote(str(path))) if "{}" in text else f"{text} {shlex.quote(str(path))}"
        )
        try:
            done = subprocess.run(text, shell=True, capture_output=True, timeout=self._timeout, check=False)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def path(self, suffix: str) -> Path:
        """Return the path of the file of the next program."""
        return self._folder / f"program{suffix}"

    def require_fault(self, is_faulty: bool) -> None:
        """Raise ``CompileError`` for a command that does not find the fault in the whole program."""
        if not is_faulty:
            raise CompileError(
                "The check does not exit with status 0 for the whole program, so nothing is reduced."
            )

    def report(self, before: int, after: int) -> None:
        """Print the size before and after, the number of checks and the seconds."""
        seconds = time.monotonic() - self._begin
        ended = ", the end of the budget" if seconds > self._budget else ""
        text = f"{before:,} -> {counted(after, 'operation')}, {counted(self.count, 'check')} in {seconds:.1f} s{ended}"
        print(f"note: {text}", file=sys.stderr)


def _reduce_mlir(options: argparse.Namespace, check: _FaultCheck) -> None:
    from spyre_mlir import dialects
    from spyre_mlir.experiments.reduction import keep_operations, removable, smaller_shapes, smallest
    from spyre_mlir.mlir import ir

    context = dialects.context()
    module = _common.parse_module(options.input, context)
    path = check.path(".mlir")

    known: dict[tuple[str, str], bool] = {}

    def is_faulty(text: str, words: Sequence[str] | None = None) -> bool:
        key = text, " ".join(check.options if words is None else words)
        if key not in known:
            path.write_text(text, encoding="utf-8")
            known[key] = check(path, words)
        return known[key]

    def part(text: str, kept: Sequence[int]) -> str:
        smaller = ir.Module.parse(text, context).operation
        keep_operations(smaller, kept)
        return str(smaller)

    def valid_shapes(text: str) -> Iterator[str]:
        return (smaller for smaller in smaller_shapes(text) if _is_valid(smaller, context))

    text = module.operation.get_asm(enable_debug_info=True)
    check.require_fault(is_faulty(text))
    # Locations make the text long; a fault rarely depends on them.
    if is_faulty(str(module)):
        text = str(module)
    before = after = len(removable(module.operation))
    is_smaller = True
    while is_smaller:
        whole = text
        kept = smallest(
            removable(ir.Module.parse(text, context).operation),
            lambda kept, whole=whole: is_faulty(part(whole, kept)),
        )
        text = part(whole, kept)
        reduced = text
        while smaller := next((each for each in valid_shapes(text) if is_faulty(each)), None):
            text = smaller
        after, is_smaller = len(kept), text != reduced
    check.options = smallest(check.options, lambda words: is_faulty(text, words))
    logs.clear_progress()
    files.write_text(options.output, f"{text}\n" if not text.endswith("\n") else text)
    if options.options:
        print(f"note: options: {' '.join(check.options) or 'none'}", file=sys.stderr)
    check.report(before, after)


def _is_valid(text: str, context: ir.Context) -> bool:
    from spyre_mlir.mlir import ir

    try:
        ir.Module.parse(text, context)
    except ir.MLIRError:
        return False
    return True


def _reduce_exported(options: argparse.Namespace, check: _FaultCheck) -> None:
    from spyre_mlir.experiments.reduction import smallest
    from spyre_mlir.experiments.task import program_sources
    from spyre_mlir.frontend.exported_reduction import reduced

    if options.output == "-":
        raise CompileError("A program of torch.export.save cannot be written to stdout; name a file with -o.")
    is_file = options.input.endswith(".pt2")
    program = options.input if is_file else program_sources([options.input])[0].load()
    path = check.path(".pt2")

    def is_faulty(count: int) -> bool:
        if check.count:
            return check(path)
        check.require_fault(check(path))
        return True

    before, after, code = reduced(program, options.output, path, is_faulty, smallest)
    logs.clear_progress()
    print(code)
    check.report(before, after)


def _parser() -> _common.ArgumentParser:
    parser = _common.ArgumentParser("spyre-reduce", __doc__)
    parser.add_argument("input", help="MLIR file, file of torch.export.save (.pt2), or 'module:function'")
    parser.add_argument("--check", required=True, metavar="CMD",
                        help="command that exits with status 0 if the fault is there; {} is the file")  # fmt: skip
    parser.add_argument("--options", default="", metavar="WORDS",
                        help="words to remove from as well; {options} in the command is the rest")  # fmt: skip
    parser.add_argument("--timeout", type=_common.number(float, 0.1, 86400), default=60, metavar="SECONDS",
                        help="a check that takes longer does not find the fault (default: 60)")  # fmt: skip
    parser.add_argument("--budget", type=_common.number(float, 0.1, 1e7), default=600, metavar="SECONDS",
                        help="end with the smallest program so far after this time (default: 600)")  # fmt: skip
    _common.add_output(parser, "-o", "FILE", "output file, - for stdout", dest="output", default="-")
    return parser


if __name__ == "__main__":
    sys.exit(main())
