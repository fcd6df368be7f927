# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spyre-sweep: compile every combination of programs, options and devices, and print a table.

    spyre-sweep spec.toml
    spyre-sweep spec.toml --csv results.csv --plot results.svg

The file has the programs, the axes and the store (docs/experiments.md):

    programs = ["softmax.mlir", "models:mlp"]
    store = "results.sqlite"
    [axes]
    layout-solver = ["greedy", "portfolio"]
    sencores = [4, 32]
    device.lx.bytes = [1048576, 2097152]
    [plot]
    x = "sencores"
    y = "predicted_us"
    by = "layout-solver"

Each result is written to the store immediately, so a sweep that is restarted continues where it stopped. Paths are
relative to the folder of the file.

The exit status is 0 if every point has figures or was rejected by the compiler. It is 1 after a diagnostic, and if a
point failed because of an exception or because its workers died.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from spyre_mlir.errors import CompileError, listed
from spyre_mlir.loading import loaded_files
from spyre_mlir.tools import _common

if TYPE_CHECKING:
    from spyre_mlir.experiments.results import Results
    from spyre_mlir.experiments.sweep_spec import SweepSpec


@_common.tool
def main(argv: Sequence[str] | None = None) -> int:
    """Run spyre-sweep; return 0 on success, 1 after a diagnostic on stderr or if points failed."""
    options = _parser().parse_args(argv)

    from spyre_mlir.experiments.sweep_spec import SweepSpec

    spec = SweepSpec.read(options.file)
    draws = bool(spec.plot) and bool(options.plot or "path" in spec.plot)
    if (options.plot or spec.plot) and not {"x", "y"} <= spec.plot.keys():
        raise spec.error("A plot needs a table 'plot' with 'x' and 'y'.", "plot")
    _check_outputs(spec, draws)
    results = _swept(spec, options.workers, options.retry_lost)
    print(results.table([name.replace("-", "_") for name in spec.columns]))
    refused = sum(bool(row["error"]) for row in results) - results.failures
    print(f"{len(results)} points, {results.computed} computed, {refused} refused, {results.failures} failed")
    if options.csv:
        results.to_csv(options.csv)
    if draws:
        x, y, *by = (name.replace("-", "_") for name in (spec.plot["x"], spec.plot["y"], *_texts(spec, "by")))
        path = options.plot or str(spec.plot["path"])
        results.plot(x=x, y=y, by=by, kind=spec.plot.get("kind", "line"), path=path)
    return 1 if results.failures else 0


def _check_outputs(spec: SweepSpec, draws: bool) -> None:
    """Raise ``CompileError`` for invalid columns and plots before the sweep, which may take hours."""
    from spyre_mlir.experiments.extras import imported
    from spyre_mlir.experiments.plots import KINDS
    from spyre_mlir.experiments.results import Results

    known = Results((), ("program", *(name.replace("-", "_") for name in spec.axes))).columns
    for name in [name for key in ("columns", "x", "y", "by") for name in _texts(spec, key)]:
        if str(name).replace("-", "_") not in known:
            key = next(key for key in ("columns", "x", "y", "by") if name in _texts(spec, key))
            raise spec.error(f"There is no column '{name}'; the columns are {listed(known, str(name))}.", key)
    if spec.plot.get("kind", "line") not in KINDS:
        raise spec.error(f"There is no plot '{spec.plot['kind']}'; there are {', '.join(KINDS)}.", "kind")
    if draws:
        imported("matplotlib", "experiments")


def _texts(spec: SweepSpec, key: str) -> list[str]:
    value = spec.columns if key == "columns" else spec.plot.get(key, [])
    return [value] if isinstance(value, str) else list(value)


def _swept(spec: SweepSpec, workers: int | None, retry_lost: bool) -> Results:
    from spyre_mlir.experiments.axes import AxisError
    from spyre_mlir.experiments.sweeping import sweep

    folder = str(spec.store.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    with _executor(spec.scheduler) as executor, _progress() as progress:
        try:
            return sweep(
                spec.programs,
                store=spec.store,
                executor=executor,
                workers=workers or spec.workers,
                load=[*spec.load, *loaded_files()],
                axes=spec.axes,
                retry_lost=retry_lost,
                progress=progress,
            )
        except AxisError as error:
            raise spec.error(error.message, error.axis) from None


@contextlib.contextmanager
def _executor(scheduler: str | None) -> Iterator[Executor | None]:
    """Connect to a dask scheduler, if one is given."""
    if scheduler is None:
        yield None
        return
    from spyre_mlir.experiments.extras import imported

    distributed = imported("distributed", "dask")
    try:
        client = distributed.Client(scheduler)
    except (OSError, ValueError) as error:
        raise CompileError(f"The scheduler '{scheduler}' cannot be reached: {error}.") from None
    with client:
        yield client.get_executor()


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """Show a progress bar if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from spyre_mlir.experiments.extras import imported

    with imported("tqdm", "experiments").tqdm(unit="point", leave=False) as bar:

        def show(count: int, total: int) -> None:
            bar.total, bar.n = total, count
            bar.refresh()

        yield show


def _parser() -> _common.ArgumentParser:
    parser = _common.ArgumentParser("spyre-sweep", __doc__)
    parser.add_argument("file", metavar="SPEC.toml", help="the programs, axes and store")
    parser.add_argument("--workers", type=_common.number(int, 1, 4096), metavar="N",
                        help="processes of this machine (default: that of the file, or as many as cores)")  # fmt: skip
    _common.add_output(parser, "--csv", "FILE.csv", "write the rows (- for stdout)")
    _common.add_output(parser, "--plot", "FILE.svg", "draw the table 'plot' of the file")
    parser.add_argument("--retry-lost", action="store_true", help="compute points again whose workers died")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
