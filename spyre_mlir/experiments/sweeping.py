# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``sweep``: compile every combination of programs, options and devices with workers, and store results in a file.

A point whose worker died is submitted again, at most twice. If an executor does not report which call killed a worker,
such as a process pool that breaks as a whole, the lost calls are retried one at a time, so that a point is not blamed
for another.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from dataclasses import asdict
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from spyre_mlir.algorithms import REGISTRIES
from spyre_mlir.driver.argument_layouts import choices
from spyre_mlir.errors import CompileError, listed, without_causes
from spyre_mlir.experiments.results import COMPILER, Results
from spyre_mlir.experiments.task import (
    FAILED,
    LOST,
    Outcome,
    ProgramChoice,
    ProgramSource,
    SweepTask,
    UserFile,
    algorithms_digest,
    code_digest,
    import_file,
    program_sources,
    run_task,
)
from spyre_mlir.files import read_text
from spyre_mlir.options import default_of, show_value
from spyre_mlir.pipelines import SpyrePipeline
from spyre_mlir.pipelines.pipeline_options import PipelineOptions, entries
from spyre_mlir.plans.plan_file import MAX_BYTES, read_plan
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.buffers import PlanError
from spyre_mlir.systems import processor_count
from spyre_mlir.target.target import Target, check_fields, default_target
from spyre_mlir.version import VERSION

#: Maximum number of submissions of a point.
MOST_ATTEMPTS = 3

#: Maximum calls in flight per worker, and in total if the number of workers is unknown.
_CALLS_PER_WORKER, _CALLS = 2, 64

#: Callback with a point, its result and the number of its submissions.
Record = Callable[[SweepTask, Outcome, int], None]


class Dispatcher:
    """The waiting points, the running points, and the points whose worker died; without ``executor``, local workers."""

    def __init__(self, executor: Executor | None, workers: int | None) -> None:
        self._is_own = executor is None
        self._executor = LocalWorkers(workers) if executor is None else executor
        count = (
            workers or getattr(self._executor, "_max_workers", None) or getattr(self._executor, "count", None)
        )
        self._most_calls = count * _CALLS_PER_WORKER if count else _CALLS
        self._waiting: deque[SweepTask] = deque()
        self._suspects: deque[SweepTask] = deque()
        self._running: dict[Future[Outcome], SweepTask] = {}
        self._attempts: Counter[str] = Counter()

    def run(self, tasks: Iterable[SweepTask], is_needed: Callable[[SweepTask], bool], record: Record) -> None:
        """Compile points in any order; ``is_needed`` is called directly before a point is submitted."""
        self._waiting.extend(tasks)
        is_complete = False
        try:
            while self._submit(is_needed):
                ended, _ = concurrent.futures.wait(
                    self._running, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for future in ended:
                    self._take(future, record)
            is_complete = True
        finally:
            for future in self._running:
                future.cancel()
            if self._is_own:
                self._executor.shutdown(wait=is_complete)

    def _submit(self, is_needed: Callable[[SweepTask], bool]) -> bool:
        """Submit points up to the limit of calls in flight; return False if no call is running."""
        while self._waiting and len(self._running) < self._most_calls:
            task = self._waiting.popleft()
            if is_needed(task):
                self._give(task)
        if not self._running and self._suspects:
            self._give(self._suspects.popleft())
        return bool(self._running)

    def _give(self, task: SweepTask) -> None:
        try:
            future = self._executor.submit(run_task, task)
        except BrokenExecutor:
            # The calls of the broken pool end with the same error, and ``_take`` handles each of them.
            self._renew()
            future = self._executor.submit(run_task, task)
        self._attempts[task.key] += 1
        self._running[future] = task

    def _take(self, future: Future[Outcome], record: Record) -> None:
        task = self._running.pop(future)
        try:
            outcome = future.result()
        except CompileError:
            raise
        except (Exception, CancelledError) as error:
            distributed = sys.modules.get("distributed")
            killed = () if distributed is None else (distributed.KilledWorker,)
            if not isinstance(error, (WorkerDiedError, BrokenExecutor, *killed)):
                raise CompileError(
                    f"The executor cannot run the points of the sweep: {type(error).__name__}: {error}. Those that "
                    "ended are in the store."
                ) from error
            attempts = self._attempts[task.key]
            if attempts >= MOST_ATTEMPTS:
                text = f"The worker that compiled the point died, and so did {attempts - 1} others after it."
                record(task, Outcome(error=text, kind=LOST), attempts)
            elif isinstance(self._executor, LocalWorkers):
                self._waiting.append(task)
            else:
                self._suspects.append(task)
            return
        record(task, outcome, self._attempts[task.key])

    def _renew(self) -> None:
        """Replace a broken process pool by a new pool of the same kind, which the sweep shuts down."""
        pool: Any = self._executor
        if not isinstance(self._executor, ProcessPoolExecutor):
            raise CompileError(
                "The executor broke, and the sweep can replace a pool of processes only; start the sweep again."
            )
        if self._is_own:
            pool.shutdown(wait=False)
        self._executor = ProcessPoolExecutor(
            pool._max_workers, pool._mp_context, pool._initializer, pool._initargs
        )
        self._is_own = True


# Local worker processes as an executor: a worker that dies loses only its own call, and a new worker replaces it.
#
# A worker is a new Python process that does not run the main script. It ends when the parent process ends, for any
# reason.

_CODE = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[2]); "
    "from spyre_mlir.experiments.sweeping import serve; serve(int(sys.argv[1]))"
)

#: Environment for one thread per worker in the numeric libraries: there are as many workers as cores.
_ONE_THREAD = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}


class WorkerDiedError(Exception):
    """A worker ended before it returned the result of a call."""


class LocalWorkers(Executor):
    """An executor with up to ``count`` processes, started on demand."""

    def __init__(self, count: int | None = None) -> None:
        self.count = count or processor_count()
        self._threads = ThreadPoolExecutor(self.count, "spyre-worker")
        self._workers: dict[int, _WorkerProcess] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function that a worker can import; the exception is ``WorkerDiedError`` if the worker dies."""
        return self._threads.submit(self._call, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers: after their calls with ``wait``, else immediately."""
        if not wait or cancel_futures:
            self._threads.shutdown(wait=False, cancel_futures=True)
            for worker in list(self._workers.values()):
                worker.kill()
        self._threads.shutdown(wait=True)
        for worker in self._workers.values():
            worker.kill()
        self._workers.clear()

    def _call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        thread = threading.get_ident()
        worker = self._workers.get(thread)
        if worker is None:
            worker = self._workers[thread] = _WorkerProcess()
        try:
            is_result, value = worker.call((function, args, kwargs))
        except (EOFError, OSError):
            del self._workers[thread]
            worker.kill()
            raise WorkerDiedError("A worker died.") from None
        if is_result:
            return value
        raise value


class _WorkerProcess:
    """A process that runs calls one after the other."""

    def __init__(self) -> None:
        self._connection, inherited = Pipe()
        command = [sys.executable, "-c", _CODE, str(inherited.fileno()), json.dumps(sys.path)]
        # stdout goes to stderr, because text that models and solvers print must not mix with a tool's output.
        self._process = subprocess.Popen(
            command,
            pass_fds=[inherited.fileno()],
            env={**os.environ, **_ONE_THREAD},
            stdin=subprocess.DEVNULL,
            stdout=2,
        )
        inherited.close()

    def call(self, call: Any) -> Any:
        """Send a call and wait for its result or exception."""
        self._connection.send(call)
        return self._connection.recv()

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        self._connection.close()


def serve(descriptor: int) -> None:
    """Run calls until the process at the other end has ended: the main function of a worker."""
    # Ctrl-C goes to all processes of a terminal; the parent process ends the worker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(descriptor)
    while True:
        try:
            function, args, kwargs = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = (True, function(*args, **kwargs))
        except Exception as error:
            answer = (False, error)
        try:
            connection.send(answer)
        except OSError:
            return


#: Callback with the number of points that have a result, and the number of all points.
Progress = Callable[[int, int], None]


def sweep(
    programs: ProgramChoice | Sequence[ProgramChoice] | Mapping[str, ProgramChoice],
    *,
    store: str | Path,
    executor: Executor | None = None,
    workers: int | None = None,
    load: str | Path | Iterable[str | Path] = (),
    axes: Mapping[str, Any] | None = None,
    retry_lost: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Results:
    """Compile programs with every combination of values, and return one row per point, in the order of the points.

    Points are ordered by program, then by the axes, with the last axis changing fastest. A point that is in the store
    is not compiled again, so a sweep that was killed can be resumed. A point that the compiler rejects is a row with
    the text of the error.

    Args:
        programs: Paths of .mlir files, MLIR texts, ``"zoo:NAME"``, and import paths ``"package.module:function"`` of
            functions that return MLIR, or a model and its inputs, with literal arguments if the function has parameters
            (``"models:mlp(64)"``). A mapping gives the programs names.
        store: An SQLite file; each row is written as soon as its point is done. The key of a row is the content of the
            point: the text of the program or the source files of its function (not files that these read), the device,
            the options, the files of ``load``, and the compiler.
        executor: A ``concurrent.futures`` executor, or dask's ``Client.get_executor()``; local processes by default.
        workers: The number of processes, by default the number of cores. A point whose worker died is retried at most
            twice; then it is a row with an error.
        load: Python files that workers import first, such as files that define solvers.
        axes: Device fields, such as ``axes={"device.lx.bytes": [1 << 20, 1 << 21]}``, and keywords of ``compile``.
        retry_lost: Compute points again whose rows in the store say that their workers died.
        progress: A function of the number of points that have a result and the number of all points.
        **options: Keywords of ``compile`` as axes: each a sequence of values, a mapping from names to values, or one
            value.

    Raises:
        CompileError: An axis or a program does not exist (before anything runs), or the store is damaged.
    """
    with without_causes():
        if workers is not None and (not isinstance(workers, int) or workers < 1):
            raise CompileError(f"The number of workers is 1 or more, not {workers!r:.80}.")
        files = user_files(load)
        for file in files:
            import_file(file)
        parsed = parsed_axes({**(axes or {}), **options})
        sources = program_sources(programs)
        with ResultStore(store) as results:
            return _Sweep(sources, parsed, files, results, retry_lost, progress).run(executor, workers)


class _Sweep:
    """The points of a sweep, their tasks, and the results so far."""

    def __init__(
        self,
        sources: Sequence[ProgramSource],
        axes: Sequence[SweepAxis],
        files: tuple[Any, ...],
        store: ResultStore,
        retry_lost: bool,
        progress: Progress | None,
    ) -> None:
        code = code_digest()
        self._axes, self._store, self._retry_lost, self._progress = axes, store, retry_lost, progress
        choices = [
            ({name: value.shown for name, value in point.items()}, device_and_options(point))
            for point in points(axes)
        ]
        digests = [algorithms_digest(*choice, files) for _, choice in choices]
        self._points = [
            ({"program": source.label, **shown}, SweepTask(source, *choice, files, code, digest))
            for source in sources
            for (shown, choice), digest in zip(choices, digests, strict=True)
        ]
        self._shown = {task.key: shown for shown, task in reversed(self._points)}
        self._outcomes: dict[str, Outcome] = {}
        self._computed = 0

    def run(self, executor: Executor | None, workers: int | None) -> Results:
        """Compile the points without a result, and return all results."""
        tasks = {task.key: task for _, task in self._points}
        self._outcomes = self._store.outcomes(tasks)
        if self._retry_lost:
            self._outcomes = {key: outcome for key, outcome in self._outcomes.items() if outcome.kind != LOST}
        self._tell()
        missing = [task for key, task in tasks.items() if key not in self._outcomes]
        if missing:
            Dispatcher(executor, workers).run(missing, self._is_missing, self._record)
        rows = []
        for shown, task in self._points:
            outcome = self._outcomes[task.key]
            # Locations in a text without a file have the file name "-".
            error = re.sub(r"^-(?=:\d)", lambda _, label=task.source.label: label, outcome.error)
            seconds = {"wall_s": outcome.wall_s, "cpu_s": outcome.cpu_s}
            rows.append({**shown, **outcome.metrics, "error": error, **seconds, COMPILER: VERSION})
        failures = sum(outcome.kind in (FAILED, LOST) for outcome in self._outcomes.values())
        return Results(
            tuple(rows), ("program", *(axis.name for axis in self._axes)), self._computed, failures
        )

    def _is_missing(self, task: SweepTask) -> bool:
        """Return whether a point still has no result; another process may have written it to the store."""
        outcome = self._store.outcome(task.key)
        if outcome is None or (self._retry_lost and outcome.kind == LOST):
            return True
        self._outcomes[task.key] = outcome
        self._tell()
        return False

    def _record(self, task: SweepTask, outcome: Outcome, attempts: int) -> None:
        self._store.add(task.key, self._shown[task.key], outcome, attempts)
        self._outcomes[task.key] = outcome
        self._computed += 1
        self._tell()

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(len(self._outcomes), len(self._shown))


# The result store: one SQLite file with one row per point, keyed by the digest of the point's content.
#
# Each row is a separate transaction, so a killed process loses no rows, and several processes may write to one file.
# Each row has a digest, which is checked on reading. A file that is not a store, has another version or is damaged is
# an error, and nothing is written to it.

#: The version of the tables, and the SQLite application id of a store: "spyr".
_VERSION, _APPLICATION = 1, 0x73707972
_MAGIC = b"SQLite format 3\0"

#: Seconds that a process waits for another process to finish writing.
_TIMEOUT = 60

_TABLE = """CREATE TABLE results (
    key TEXT PRIMARY KEY, point TEXT NOT NULL, metrics TEXT NOT NULL, error TEXT NOT NULL, kind TEXT NOT NULL,
    wall_s REAL NOT NULL, cpu_s REAL NOT NULL, attempts INTEGER NOT NULL, digest TEXT NOT NULL
) WITHOUT ROWID"""
_COLUMNS = ("key", "point", "metrics", "error", "kind", "wall_s", "cpu_s", "attempts")


class ResultStore:
    """An open result store; as a context manager, it closes the file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        is_new = _is_new(self.path)
        with self._errors():
            self._connection = sqlite3.connect(self.path, timeout=_TIMEOUT, isolation_level=None)
            if is_new:
                # Create the table, unless another process has created it.
                self._connection.execute("BEGIN IMMEDIATE")
                if not self._connection.execute("SELECT 1 FROM sqlite_schema").fetchall():
                    self._connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                    self._connection.execute(f"PRAGMA user_version = {_VERSION}")
                    self._connection.execute(_TABLE)
                self._connection.execute("COMMIT")
            self._check()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def outcomes(self, keys: Container[str]) -> dict[str, Outcome]:
        """Return the results of the points in ``keys`` that have a result, by key."""
        return {row["key"]: _outcome(row) for row in self._rows() if row["key"] in keys}

    def outcome(self, key: str) -> Outcome | None:
        """Return the result of a point; None without a result."""
        return next(map(_outcome, self._rows(key)), None)

    def attempts(self) -> dict[str, int]:
        """Return the number of submissions of each point, by key."""
        return {row["key"]: row["attempts"] for row in self._rows()}

    def add(self, key: str, point: Mapping[str, Any], outcome: Outcome, attempts: int) -> None:
        """Write the result of a point; an existing result of another process is kept, unless its workers died."""
        plain = asdict(outcome)
        row = {
            **plain, "key": key, "point": json.dumps(point, default=str), "metrics": json.dumps(plain["metrics"]),
            "attempts": attempts,
        }  # fmt: skip
        values = [row[name] for name in _COLUMNS]
        marks = ", ".join("?" * (len(values) + 1))
        with self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("DELETE FROM results WHERE key = ? AND kind = ?", (key, LOST))
            self._connection.execute(
                f"INSERT OR IGNORE INTO results ({', '.join(_COLUMNS)}, digest) VALUES ({marks})",
                [*values, _digest(values)],
            )
            self._connection.execute("COMMIT")

    def _check(self) -> None:
        (problem,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if problem != "ok":
            raise sqlite3.DatabaseError(problem)
        for _ in self._rows():
            pass

    def _rows(self, key: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield all rows, or the row of ``key``, after checking their digests."""
        names = (*_COLUMNS, "digest")
        select = f"SELECT {', '.join(names)} FROM results WHERE ?1 IS NULL OR key = ?1 ORDER BY key"
        with self._errors():
            rows = self._connection.execute(select, (key,)).fetchall()
            for values in rows:
                if _digest(list(values[:-1])) != values[-1]:
                    raise sqlite3.DatabaseError(f"the digest of the row of the point {values[0]} is wrong")
        yield from (dict[str, Any](zip(names, values, strict=True)) for values in rows)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert SQLite errors to ``CompileError`` with the path."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise CompileError(f"The store cannot be used: {error}.", str(self.path)) from None
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise CompileError(
                f"The store is damaged, and was not changed: {error}. Move it away to begin again.",
                str(self.path),
            ) from None


def _is_new(path: Path) -> bool:
    """Return whether the store does not exist yet; raise ``CompileError`` for a file that is not a store."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise CompileError("The folder of the store does not exist.", str(path)) from None
        return True
    except OSError as error:
        raise CompileError(f"The store cannot be read: {error.strerror}.", str(path)) from None
    if not head:
        return True
    application, version = (int.from_bytes(head[offset : offset + 4], "big") for offset in (68, 60))
    if not head.startswith(_MAGIC) or application != _APPLICATION:
        raise CompileError(
            "The file is not a store of results, and was not changed; name another file.", str(path)
        )
    if version != _VERSION:
        raise CompileError(
            f"The store is of version {version}; this compiler has version {_VERSION}. Name another file.",
            str(path),
        )
    return False


def _digest(values: list[Any]) -> str:
    return hashlib.sha256(json.dumps(values).encode("utf-8", "surrogatepass")).hexdigest()


def _outcome(row: Mapping[str, Any]) -> Outcome:
    return Outcome(json.loads(row["metrics"]), row["error"], row["kind"], row["wall_s"], row["cpu_s"])


# Axes of a sweep: values of options and of device fields, checked before anything runs.


#: Pipeline options by name, the options that are part of the target, and the options that cannot be axes.
_PIPELINE = {field.name: field for field in dataclasses.fields(PipelineOptions)}
_OF_TARGET = ("device", "sencores", "lx_frac_avail")
_REFUSED = {
    "use_plan": "is called 'plan' here",
    "save_plan": "writes a file for each point, which all would share",
    "dynamic": "makes several programs of a point",
}

#: Keywords of ``compile`` that are not pipeline options, with the allowed values or None.
_KEYWORDS = {
    "numerics": (None, "ieee", "dl16"),
    "fallback": (True, False),
    "cache": (None, True, False),
    "autocast": (None, "float16", "bfloat16", "dl16"),
    "plan": None,
    "layouts": None,
}
_FIELD = "device."


class AxisError(CompileError):
    """An error about an axis, with the name of the axis."""

    def __init__(self, axis: str, message: str) -> None:
        super().__init__(message)
        self.axis = axis

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.axis, self.message)


@dataclass(frozen=True)
class AxisValue:
    """A value of an axis, and the text or number that the results show for it."""

    shown: Any
    value: Any


@dataclass(frozen=True)
class SweepAxis:
    """An option or a device field, with its values in order."""

    name: str
    values: tuple[AxisValue, ...]


def parsed_axes(axes: Mapping[str, Any]) -> tuple[SweepAxis, ...]:
    """Parse axes; the values of an axis are a sequence, a mapping by the names to show, or one value.

    Raise ``AxisError`` for an unknown name, and for a value that the option does not accept.
    """
    parsed = tuple(_axis(name, values) for name, values in axes.items())
    names = [axis.name for axis in parsed]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise AxisError(twice, f"The sweep has the axis '{twice}' twice.")
    return parsed


def points(axes: Iterable[SweepAxis]) -> Iterator[dict[str, AxisValue]]:
    """Yield the Cartesian product of the axes as values by name; the last axis changes fastest."""
    axes = tuple(axes)
    for values in itertools.product(*(axis.values for axis in axes)):
        yield {axis.name: value for axis, value in zip(axes, values, strict=True)}


def device_and_options(point: Mapping[str, AxisValue]) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """Convert a point to the fields of a task: the device tables as JSON, and keywords of ``compile``.

    Equivalent points give equal fields, e.g. if one names a default, or sets the number of cores as a device field.
    """
    values = {name: value.value for name, value in point.items()}
    sections = _sections(values)
    options = {name: value for name, value in values.items() if not name.startswith(_FIELD)}
    try:
        target = Target.of_sections(sections, "device")
        target = target.with_options(options.get("sencores"), options.get("lx_frac_avail"))
        sections = target.sections()
    except CompileError:
        # The error concerns only this point, whose compilation will report it.
        of_target = {name: options[name] for name in _OF_TARGET[1:] if name in options}
    else:
        of_target = {}
    pipeline = {
        name: value for name, value in options.items() if name in _PIPELINE and name not in _OF_TARGET
    }
    parsed = SpyrePipeline.of(**{name: value for name, value in pipeline.items() if name != "passes"})
    # Options with defaults from the environment are always among the keywords.
    changed = {
        name: getattr(parsed, name)
        for name, field in _PIPELINE.items()
        if getattr(parsed, name) != default_of(field) or field.default_factory is not dataclasses.MISSING
    }
    keywords = {
        "cache": False,
        **{name: options[name] for name in _KEYWORDS if options.get(name) is not None},
        **({"passes": tuple(pipeline["passes"])} if pipeline.get("passes") else {}),
        **changed,
        **of_target,
    }
    return json.dumps(sections, sort_keys=True), tuple(sorted(keywords.items()))


def _sections(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the device tables of a point: its device file or the default device, updated by its device fields."""
    tables = values.get("device") or default_target().sections()
    tables = {
        section: dict(table) if isinstance(table, Mapping) else table for section, table in tables.items()
    }
    fields = {name: value for name, value in values.items() if name.startswith(_FIELD)}
    # As in a device file, all cores are usable by default.
    if "device.cores.count" in fields and "device.cores.usable" not in fields:
        tables["cores"].pop("usable", None)
    for name, value in fields.items():
        _, section, key = name.split(".")
        tables.setdefault(section, {})[key] = list(value) if isinstance(value, tuple) else value
    return tables


# -- one axis --------------------------------------------------------------------------------------------


def _axis(name: str, values: Any) -> SweepAxis:
    """Return an axis of a sweep; ``AxisError`` for an unknown option, a field without a section, or no values."""
    key = name if name.startswith(_FIELD) else name.replace("-", "_")
    known = [*_PIPELINE, *_KEYWORDS]
    if key in _REFUSED:
        raise AxisError(name, f"The option '{name}' is not an axis: it {_REFUSED[key]}.")
    if key.startswith(_FIELD) and key.count(".") != 2:
        raise AxisError(
            name, f"The axis '{name}' must name section and key of a device file: device.lx.bytes."
        )
    if not key.startswith(_FIELD) and key not in known:
        raise AxisError(
            name,
            f"There is no option '{name}' to sweep; there are {listed(sorted(known), key)}, and fields of the device, "
            "such as device.lx.bytes.",
        )
    if isinstance(values, Mapping):
        pairs = list(values.items())
    elif values is None or isinstance(values, str | Path) or not isinstance(values, Iterable):
        pairs = [(_shown(values), values)]
    else:
        pairs = [(_shown(value), value) for value in values]
    if not pairs:
        raise AxisError(name, f"The axis '{name}' has no values.")
    shown = [str(text) for text, _ in pairs]
    twice = next((text for text in shown if shown.count(text) > 1), None)
    if twice is not None:
        raise AxisError(name, f"The axis '{name}' has the value '{twice}' twice.")
    try:
        return SweepAxis(key, tuple(AxisValue(text, _checked(key, value)) for text, value in pairs))
    except CompileError as error:
        raise AxisError(name, f"The axis '{name}': {error.message}") from None


def _shown(value: Any) -> Any:
    """Return the representation of a value in the results: a number, a word or a text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    # Convert numpy scalars to Python numbers.
    if hasattr(value, "item"):
        return value.item()
    try:
        return json.dumps(value, default=str)
    except (TypeError, ValueError):
        return str(value)


def _checked(name: str, value: Any) -> Any:
    """Check and convert a value for ``device_and_options``; raise ``CompileError`` if the option rejects it."""
    value = value.item() if hasattr(value, "item") else value
    if name.startswith(_FIELD):
        check_fields(_sections({name: value}), "device")
        return value
    checks = {
        "device": _device, "plan": _plan, "passes": _passes, "layouts": _layouts,
        **{option: functools.partial(_algorithm, option) for option in REGISTRIES},
    }  # fmt: skip
    if name in checks:
        return None if value is None else checks[name](value)
    allowed = _KEYWORDS.get(name)
    if allowed is not None and not any(value is each or value == each for each in allowed):
        raise CompileError(
            f"the value must be one of {', '.join(map(show_value, allowed))}, not {value!r:.80}."
        )
    if name in _PIPELINE and value is not None:
        if isinstance(value, list):
            value = tuple(value)
        SpyrePipeline.of(**{name: value}).pipeline()
    return value


def _device(path: str | Path) -> dict[str, Any]:
    return Target.read(os.fspath(path)).sections()


def _plan(plan: Any) -> str:
    """Return a plan as text, so that workers do not need the file."""
    if isinstance(plan, str | Path):
        text, filename = read_text(str(plan), MAX_BYTES), str(plan)
    else:
        text, filename = json.dumps(plan), "plan"
    read_plan(text, filename)
    return json.dumps(json.loads(text))


def _passes(passes: Any) -> tuple[str, ...]:
    texts = entries([passes] if isinstance(passes, str) else passes)
    SpyrePipeline(passes=texts).pipeline()
    return texts


def _layouts(layouts: Any) -> Any:
    if not isinstance(layouts, Mapping):
        raise CompileError(f"layouts are a mapping by the names of arguments, not {layouts!r:.80}.")
    choices(layouts, False)
    return dict(layouts)


def _algorithm(option: str, name: Any) -> str:
    """Check that an algorithm exists and is not defined in the main script; return its name."""
    registry = REGISTRIES[option]
    if not isinstance(name, str):
        raise CompileError(f"a {registry.noun} is given by its name, not {name!r:.80}.")
    if name == "" and option != "layout_solver":
        return name
    try:
        cls = registry.find(name)
    except (CompileError, PlanError) as error:
        text = error.message if isinstance(error, CompileError) else str(error)
        raise CompileError(text) from None
    if cls.__module__ == "__main__":
        raise CompileError(
            f"Workers do not have the {registry.noun} '{name}' of this script; give its file as 'load'."
        )
    return name


def user_files(load: str | Path | Iterable[str | Path]) -> tuple[UserFile, ...]:
    """Return the user files that workers import."""
    paths = [load] if isinstance(load, str | Path) else load
    resolved = dict.fromkeys(str(Path(path).resolve()) for path in paths)
    return tuple(map(UserFile.read, resolved))
