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
    [baseline]
    sencores = 4

With a baseline, the column of_baseline is the plotted figure (default: total_us) divided by its value there.

Each result is written to the store immediately, so a sweep that is restarted continues where it stopped. Paths are
relative to the folder of the file.

The exit status is 0 if every point has figures or was rejected by the compiler. It is 1 after a diagnostic, and if a
point failed because of an exception or because its workers died.
"""

from __future__ import annotations

import contextlib
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import field
from pathlib import Path
from typing import Any

from spyre_mlir.errors import CompileError, counted, listed
from spyre_mlir.files import read_text
from spyre_mlir.loading import loaded_files
from spyre_mlir.records import dataclass
from spyre_mlir.tools import _common


@_common.tool
def main(argv: Sequence[str] | None = None) -> int:
    """Run spyre-sweep; return 0 on success, 1 after a diagnostic on stderr or if points failed."""
    options = _parser().parse_args(argv)

    spec = SweepSpec.read(options.file)
    draws = bool(spec.plot) and bool(options.plot or "path" in spec.plot)
    if (options.plot or spec.plot) and not {"x", "y"} <= spec.plot.keys():
        raise spec.error("A plot needs a table 'plot' with 'x' and 'y'.", "plot")
    # Raise ``CompileError`` for invalid columns and plots before the sweep, which may take hours.
    from spyre_mlir.experiments.results import KINDS, Results, imported

    known = Results((), ("program", *(name.replace("-", "_") for name in spec.axes))).columns
    for name in [name for key in ("columns", "x", "y", "by") for name in _texts(spec, key)]:
        if str(name).replace("-", "_") not in known:
            key = next(key for key in ("columns", "x", "y", "by") if name in _texts(spec, key))
            raise spec.error(f"There is no column '{name}'; the columns are {listed(known, str(name))}.", key)
    if spec.plot.get("kind", "line") not in KINDS:
        raise spec.error(f"There is no plot '{spec.plot['kind']}'; there are {', '.join(KINDS)}.", "kind")
    if draws:
        imported("matplotlib", "experiments")
    from spyre_mlir.experiments.sweeping import AxisError, sweep

    folder = str(spec.store.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    with _executor(spec.scheduler) as executor, _progress() as progress:
        try:
            results = sweep(
                spec.programs,
                store=spec.store,
                executor=executor,
                workers=options.workers or spec.workers,
                load=[*spec.load, *loaded_files()],
                axes=spec.axes,
                retry_lost=options.retry_lost,
                progress=progress,
            )
        except AxisError as error:
            raise spec.error(error.message, error.axis) from None
    if spec.baseline:
        results = results.relative(spec.plot.get("y", "total_us"), **spec.baseline)
    print(results.table([name.replace("-", "_") for name in spec.columns]))
    refused = sum(bool(row["error"]) for row in results) - results.failures
    points = counted(len(results), "point")
    print(f"{points}, {results.computed} computed, {refused} refused, {results.failures} failed")
    if options.csv:
        results.to_csv(options.csv)
    if draws:
        x, y, *by = (name.replace("-", "_") for name in (spec.plot["x"], spec.plot["y"], *_texts(spec, "by")))
        path = options.plot or str(spec.plot["path"])
        results.plot(x=x, y=y, by=by, kind=spec.plot.get("kind", "line"), path=path)
    return 1 if results.failures else 0


def _texts(spec: SweepSpec, key: str) -> list[str]:
    value = spec.columns if key == "columns" else spec.plot.get(key, [])
    return [value] if isinstance(value, str) else list(value)


@contextlib.contextmanager
def _executor(scheduler: str | None) -> Iterator[Executor | None]:
    """Connect to a dask scheduler, if one is given."""
    if scheduler is None:
        yield None
        return
    from spyre_mlir.experiments.results import imported

    distributed = imported("distributed", "dask")
    try:
        client = distributed.Client(scheduler)
    except (OSError, ValueError) as error:
        raise CompileError(f"The scheduler '{scheduler}' cannot be reached: {error}.") from None
    with client:
        yield client.get_executor()


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """Show a progress bar if stderr is a terminal; else print a line for each twentieth of the points, for job logs."""
    if not sys.stderr.isatty():
        shown = 0

        def line(count: int, total: int) -> None:
            nonlocal shown
            if count == total or count * _LINES // max(total, 1) > shown:
                print(f"note: {count:,} of {counted(total, 'point')}", file=sys.stderr)
                shown = count * _LINES // max(total, 1)

        yield line
        return
    from spyre_mlir.experiments.results import imported

    with imported("tqdm", "experiments").tqdm(unit="point", leave=False) as bar:

        def show(count: int, total: int) -> None:
            bar.total, bar.n = total, count
            bar.refresh()

        yield show


def _parser() -> _common.ArgumentParser:
    parser = _common.ArgumentParser("spyre-sweep", __doc__)
    parser.add_argument("file", metavar="SPEC.toml", help="file with the programs, the axes and the store")
    parser.add_argument("--workers", type=_common.number(int, 1, 4096), metavar="N",
                        help="number of worker processes (default: workers in the file, or "
                             "the number of CPU cores)")  # fmt: skip
    _common.add_output(parser, "--csv", "FILE.csv", "write one row per point, - for stdout")
    _common.add_output(
        parser, "--plot", "FILE.svg", "draw the plot that the table 'plot' of the file describes"
    )
    parser.add_argument("--retry-lost", action="store_true",
                        help="compute the points whose workers died in an earlier run again")  # fmt: skip
    return parser


_MAX_BYTES = 1 << 20

#: Lines of progress in a log.
_LINES = 20

#: Axes whose values are paths.
_PATHS = ("device", "plan")
_PLOT = ("x", "y", "by", "kind", "path")
_EXECUTOR = ("workers", "scheduler")


@dataclass(frozen=True)
class SweepSpec:
    """A sweep specification; ``scheduler`` is the address of a dask scheduler, ``plot`` has keywords for the plot."""

    path: str
    text: str
    programs: dict[str, str]
    store: Path
    axes: dict[str, Any]
    load: tuple[Path, ...] = ()
    workers: int | None = None
    scheduler: str | None = None
    columns: tuple[str, ...] = ()
    plot: Mapping[str, Any] = field(default_factory=dict)
    baseline: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str) -> SweepSpec:
        """Read a specification file; raise ``CompileError``, with the line, if it is invalid."""
        text = read_text(path, _MAX_BYTES)
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            place = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
            location = f"{path}:{place[1]}:{place[2]}" if place else path
            reason = re.sub(r" \(at .*\)$", "", str(error))
            raise CompileError(f"The sweep is not TOML: {reason}.", location) from None
        return _SpecReader(path, text).spec(tables)

    def error(self, message: str, key: str) -> CompileError:
        """Return an error at the line of a key."""
        return CompileError(message, f"{self.path}:{_line(self.text, key)}:1")


class _SpecReader:
    """Reader of the tables of a specification, with type checks."""

    def __init__(self, path: str, text: str) -> None:
        self._path, self._text = path, text
        self._folder = Path(path).resolve().parent

    def spec(self, tables: Mapping[str, Any]) -> SweepSpec:
        """Return the sweep specification."""
        known = ("programs", "axes", "store", "load", "executor", "columns", "plot", "baseline")
        self._refuse_unknown(tables, known, "A sweep")
        for name in ("programs", "store"):
            if name not in tables:
                raise CompileError(f"The sweep has no '{name}'.", f"{self._path}:1:1")
        executor = self._table(tables, "executor", _EXECUTOR)
        plot = self._table(tables, "plot", _PLOT)
        for name in plot:
            self._texts(plot[name], name) if name == "by" else self._typed(plot[name], str, name, "a text")
        return SweepSpec(
            self._path,
            self._text,
            self._programs(tables["programs"]),
            self._folder / self._typed(tables["store"], str, "store", "a path"),
            self._axes(self._typed(tables.get("axes", {}), dict, "axes", "a table")),
            tuple(self._folder / path for path in self._texts(tables.get("load", []), "load")),
            self._workers(executor),
            None
            if "scheduler" not in executor
            else self._typed(executor["scheduler"], str, "scheduler", "an address"),
            tuple(self._texts(tables.get("columns", []), "columns")),
            {**plot, **({"path": self._folder / plot["path"]} if "path" in plot else {})},
            {
                name.replace("-", "_"): value
                for name, value in self._typed(
                    tables.get("baseline", {}), dict, "baseline", "a table"
                ).items()
            },
        )

    def _programs(self, programs: Any) -> dict[str, str]:
        if isinstance(programs, Mapping):
            named = {name: self._typed(text, str, name, "a text") for name, text in programs.items()}
        else:
            named = {text: text for text in self._texts(programs, "programs")}
        return {
            name: str(self._folder / text) if text.endswith(".mlir") and "\n" not in text else text
            for name, text in named.items()
        }

    def _axes(self, axes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the axes; tables below "device" become one axis for each device field."""
        flat: dict[str, Any] = {}
        for name, values in axes.items():
            if name == "device" and isinstance(values, Mapping):
                for section, table in values.items():
                    fields = self._typed(table, dict, section, "a table of fields of the device")
                    flat |= {f"device.{section}.{key}": value for key, value in fields.items()}
            else:
                flat[name] = self._of_folder(values) if name in _PATHS else values
        return flat

    def _of_folder(self, values: Any) -> Any:
        """Return the values of an axis of paths, named as they are written; an empty text is the default."""
        if isinstance(values, Mapping):
            return {name: self._file(path) for name, path in values.items()}
        values = [values] if isinstance(values, str) else values
        return {path: self._file(path) for path in values} if isinstance(values, list) else values

    def _file(self, path: Any) -> Any:
        return str(self._folder / path) if isinstance(path, str) and path else path or None

    def _workers(self, executor: Mapping[str, Any]) -> int | None:
        workers = executor.get("workers")
        if workers is not None and (not isinstance(workers, int) or isinstance(workers, bool) or workers < 1):
            raise self._error("'workers' must be a number, 1 or more.", "workers")
        return workers

    def _table(self, tables: Mapping[str, Any], name: str, known: tuple[str, ...]) -> Mapping[str, Any]:
        table = self._typed(tables.get(name, {}), dict, name, "a table")
        self._refuse_unknown(table, known, f"The table '{name}'")
        return table

    def _refuse_unknown(self, table: Mapping[str, Any], known: tuple[str, ...], owner: str) -> None:
        unknown = next((name for name in table if name not in known), None)
        if unknown is not None:
            raise self._error(f"{owner} has no '{unknown}'; there are {listed(known)}.", unknown)

    def _texts(self, value: Any, name: str) -> list[str]:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise self._error(f"'{name}' must be a text or a list of texts.", name)
        return texts

    def _typed(self, value: Any, kind: type, name: str, noun: str) -> Any:
        if not isinstance(value, kind):
            raise self._error(f"'{name}' must be {noun}.", name)
        return value

    def _error(self, message: str, key: str) -> CompileError:
        return CompileError(message, f"{self._path}:{_line(self._text, key)}:1")


def _line(text: str, key: str) -> int:
    """Return the line that sets a key or a table; if the dotted key is not written out, the line of its last part."""
    for name in (key, key.rpartition(".")[2]):
        pattern = re.compile(rf"""^\s*(\[\s*)?["']?([\w.-]+\.)?{re.escape(name)}["']?\s*(=|\])""")
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.match(line):
                return number
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
