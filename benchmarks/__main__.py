# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import __doc__ as manual
from benchmarks import registry, report
from spyre_mlir.errors import CompileError
from spyre_mlir.loading import load


def main(argv: Sequence[str] | None = None) -> int:
    """List or run benchmarks; return the exit status, 1 after a diagnostic."""
    options, others = _parser().parse_known_args(argv)
    for path in options.load:
        load(path)
    known = registry.load_all()
    names = list(known) if options.all else options.names
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"error: There is no benchmark '{unknown[0]}'; there are {', '.join(known)}.", file=sys.stderr)
        return 1
    if not names:
        for benchmark in known.values():
            print(f"{benchmark.name:<18}{benchmark.summary}")
        return 0
    try:
        chosen = _of_benchmarks(others, [known[name] for name in names])
        _run([known[name] for name in names], options, chosen)
    except CompileError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _of_benchmarks(arguments: Sequence[str], benchmarks: Sequence[registry.Benchmark]) -> dict[str, Any]:
    """Return the options of the benchmarks themselves, such as ``--count 10``, by name."""
    defaults = {name: value for each in benchmarks for name, value in each.options().items()}
    chosen: dict[str, Any] = {}
    words = iter(arguments)
    for word in words:
        name = word.removeprefix("--")
        if name == word or name not in defaults:
            raise CompileError(f"No benchmark that is run has an option '{word}'.")
        value = next(words, None)
        try:
            chosen[name] = type(defaults[name])(value)
        except (TypeError, ValueError):
            raise CompileError(f"The option '{word}' has no value such as {defaults[name]!r}.") from None
    return chosen


def _run(
    benchmarks: Sequence[registry.Benchmark], options: argparse.Namespace, chosen: dict[str, Any]
) -> None:
    print(report.machine())
    results, tables = {}, []
    for benchmark in benchmarks:
        print(f"\n{benchmark.name}: {benchmark.summary}\n", flush=True)
        own = {name: value for name, value in chosen.items() if name in benchmark.options()}
        metrics = benchmark.measure(**own)
        results[benchmark.name] = dict(metrics)
        tables.append((benchmark, report.table(benchmark, metrics) + report.notes(metrics)))
        print(tables[-1][1], flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.markdown:
        Path(options.markdown).write_text(report.markdown(tables), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m benchmarks", description=manual, formatter_class=form)
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to run; nothing lists them")
    parser.add_argument("--all", action="store_true", help="run all")
    parser.add_argument("--load", action="append", default=[], metavar="FILE.py",
                        help="import your own solvers: 'solvers' has them too")  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="write {name: {metric: value}}")
    parser.add_argument("--markdown", metavar="FILE", help="write a page of the tables")
    return parser


if __name__ == "__main__":
    sys.exit(main())
