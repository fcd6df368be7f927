# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sweeps: rows in the order of the points, computed once, whatever computes them and whoever dies meanwhile."""

from __future__ import annotations

import csv
import os
import pickle
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from experiment_programs import CHAIN, KILLER
from patience import HANG_SECONDS

import spyre_mlir
from spyre_mlir import zoo
from spyre_mlir.errors import CompileError
from spyre_mlir.experiments import Results, sweep

AXES: dict[str, Any] = {
    "sencores": [2, 32],
    "axes": {"device.lx.bytes": [1 << 18, 1 << 21]},
}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Rows of one worker without faults."""
    return swept(tmp_path_factory.mktemp("reference"), workers=1)


def swept(folder: Path, **more: Any) -> Results:
    return sweep(
        {"chain": CHAIN, "mlp": "experiment_programs:mlp"}, store=folder / "store.sqlite", **AXES, **more
    )


def killer(folder: Path, name: str, once: bool) -> Path:
    """A file of a solver that kills its worker, once or always; ``name`` is one of a test, for solvers stay."""
    path = folder / "killer.py"
    path.write_text(KILLER.format(name=name, flag=str(folder / "killed"), once=once))
    return path


def test_rows_are_the_product_in_order(reference: Results) -> None:
    """The figures equal compile, and the last axis varies fastest."""
    points = [(row["program"], row["device.lx.bytes"], row["sencores"]) for row in reference]
    assert len(points) == reference.computed == 8 and points == sorted(points)
    assert points[:3] == [("chain", 1 << 18, 2), ("chain", 1 << 18, 32), ("chain", 1 << 21, 2)]
    program = spyre_mlir.compile(CHAIN, sencores=32, cache=False)
    row = reference[3]
    metrics = {name: value for name, value in program.metrics().items() if not name.endswith("_s")}
    assert {name: row[name] for name in metrics} == metrics
    assert row["error"] == "" and row["wall_s"] > 0 and row["cpu_s"] > 0


def test_a_second_sweep_computes_nothing(tmp_path: Path) -> None:
    """A smaller, a larger and an equal sweep reuse rows of the store; explicit defaults are equal points."""
    store = tmp_path / "store.sqlite"
    first = sweep([CHAIN], store=store, sencores=[2, 32], workers=1)
    assert first.computed == 2
    again = sweep([CHAIN], store=store, sencores=[32, 2, 4], layout_solver="portfolio", workers=1)
    assert again.computed == 1
    assert again[0]["predicted_us"] == first[1]["predicted_us"]
    words = sweep(
        [CHAIN], store=store, sencores=[None, 32], clone_inputs=[True], lx_frac_avail=[None, 0.2], workers=1
    )
    assert words.computed == 0 and len(words) == 4


@pytest.fixture(params=["local", "process pool", "threads", "dask"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor | None]:
    """Executors of each kind, of two workers; None is the executor of sweep."""
    if request.param == "local":
        yield None
    elif request.param == "process pool":
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:
            yield pool
    elif request.param == "threads":
        with ThreadPoolExecutor(4) as pool:
            yield pool
    else:
        with dask_executor() as pool:
            yield pool


def dask_executor() -> Any:
    """Two worker processes of dask, which import what this process does."""
    distributed = pytest.importorskip("distributed")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)

    class _Cluster:
        def __enter__(self) -> Executor:
            self.cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
            self.client = distributed.Client(self.cluster)
            return self.client.get_executor()

        def __exit__(self, *_: object) -> None:
            self.client.close()
            self.cluster.close()

    return _Cluster()


def test_rows_are_the_same_from_any_executor(
    executor: Executor | None, reference: Results, tmp_path: Path
) -> None:
    results = swept(tmp_path, executor=executor, workers=2)
    assert results.computed == 8 and results.failures == 0
    assert results.to_csv(times=False) == reference.to_csv(times=False)


def test_a_worker_that_dies_loses_its_point_only(
    executor: Executor | None, reference: Results, tmp_path: Path
) -> None:
    """Another worker computes its point: no row is missing or differs."""
    if isinstance(executor, ThreadPoolExecutor):
        pytest.skip("threads die together")
    file = killer(tmp_path, name := f"once-{tmp_path.name}", once=True)
    results = sweep(
        {"chain": CHAIN}, store=tmp_path / "store.sqlite", executor=executor, workers=2, load=file,
        layout_solver=["firstfit", name, "portfolio"], axes=AXES["axes"],
    )  # fmt: skip
    assert (tmp_path / "killed").exists()
    assert results.computed == 6 and not any(row["error"] for row in results)
    rows = {
        row["device.lx.bytes"]: row
        for row in reference
        if row["sencores"] == 32 and row["program"] == "chain"
    }
    assert all(row["bound_us"] == rows[row["device.lx.bytes"]]["bound_us"] for row in results)


def test_a_point_that_kills_every_worker_is_a_row(executor: Executor | None, tmp_path: Path) -> None:
    """Other points are computed, and the point is computed again only on request."""
    if isinstance(executor, ThreadPoolExecutor):
        pytest.skip("threads die together")
    store, file = tmp_path / "store.sqlite", killer(tmp_path, name := f"always-{tmp_path.name}", once=False)
    options: dict[str, Any] = {"load": file, "layout_solver": ["firstfit", name, "greedy"]}
    results = sweep([CHAIN], store=store, executor=executor, workers=2, **options)
    assert [row["error"] for row in results] == [
        "", "The worker that compiled the point died, and so did 2 others after it.", "",
    ]  # fmt: skip
    assert results.computed == 3 and results.failures == 1
    assert sweep([CHAIN], store=store, **options).computed == 0
    file.write_text(file.read_text().replace("os.kill", "0 and os.kill"))
    assert not any(row["error"] for row in sweep([CHAIN], store=store, workers=1, **options))


def test_a_sweep_that_is_killed_goes_on(reference: Results, tmp_path: Path) -> None:
    """Rows that ended before SIGKILL persist; the completed rows equal a sweep without faults."""
    script = tmp_path / "script.py"
    # Without a guard of its main module: workers do not run the script.
    script.write_text(
        "import sys\nfrom pathlib import Path\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        f"from test_experiment_sweeps import swept\nswept(Path({str(tmp_path)!r}), workers=2)\n"
    )
    with subprocess.Popen([sys.executable, str(script)], start_new_session=True) as process:
        wait_for_rows(tmp_path / "store.sqlite", 2)
        process.kill()
    count = len(rows_of(tmp_path / "store.sqlite"))
    assert 2 <= count < 8
    results = swept(tmp_path, workers=2)
    assert results.computed == 8 - count
    assert results.to_csv(times=False) == reference.to_csv(times=False)
    assert len(rows_of(tmp_path / "store.sqlite")) == 8
    # The workers ended with the process that started them.
    deadline = time.monotonic() + HANG_SECONDS
    while members(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert members(process.pid) == []


def members(session: int) -> list[int]:
    """The processes of a session."""
    listed = subprocess.run(["ps", "-o", "pid=", "-s", str(session)], capture_output=True, text=True)
    return [int(pid) for pid in listed.stdout.split()]


def wait_for_rows(store: Path, count: int) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while time.monotonic() < deadline:
        if store.exists() and store.stat().st_size and len(rows_of(store)) >= count:
            return
        time.sleep(0.02)
    raise AssertionError("the sweep wrote no rows")


def rows_of(store: Path) -> list[Any]:
    connection = sqlite3.connect(store, timeout=HANG_SECONDS)
    try:
        return connection.execute("SELECT key FROM results").fetchall()
    except sqlite3.OperationalError:  # no table yet
        return []
    finally:
        connection.close()


def test_two_sweeps_share_a_store(reference: Results, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(swept, tmp_path, workers=1) for _ in range(2)]
    for future in both:
        assert future.result().to_csv(times=False) == reference.to_csv(times=False)
    assert len(rows_of(tmp_path / "store.sqlite")) == 8


def test_what_the_compiler_refuses_is_a_row(tmp_path: Path) -> None:
    """Errors name the program; errors of user code name its line."""
    programs = {"chain": CHAIN, "text": "func.func @main() {\n oops }", "own": "experiment_programs:broken"}
    results = sweep(programs, store=tmp_path / "store.sqlite", sencores=[1, 64], workers=1)
    assert [bool(row["error"]) for row in results] == [False, True, True, True, True, True]
    assert results[1]["error"] == "sencores is 64; the device has 1 to 32 cores."
    assert results[2]["error"].startswith("text:2:2: error: ")
    assert results[4]["error"] == "ZeroDivisionError: no model"
    assert results.failures == 2 and "predicted_us" not in results[1]
    assert results.to_csv().splitlines()[2].startswith("chain,64,,")


def test_a_device_that_does_not_fit_together_is_a_row(tmp_path: Path) -> None:
    fields = {"device.cores.count": [8, 32], "device.lx.bytes": [1 << 20, 100]}
    results = sweep([CHAIN], store=tmp_path / "s.sqlite", axes=fields, workers=1)
    assert [row["error"].partition(";")[0] for row in results][1::2] == [
        "the device of the point: error: The device has 100 for lx.bytes"
    ] * 2
    assert results[0]["mean_cores"] <= 8 < results[2]["mean_cores"]


def test_a_program_of_the_zoo(tmp_path: Path) -> None:
    """A program of the zoo by its name; the figures equal a compilation by hand."""
    (row,) = sweep(["zoo:linalg/softmax"], store=tmp_path / "s.sqlite", workers=1)
    program = spyre_mlir.compile(*zoo.load("linalg/softmax"))
    assert row["program"] == "zoo:linalg/softmax"
    assert row["predicted_us"] == program.metrics()["predicted_us"]


def test_algorithms_of_the_user_are_axes(tmp_path: Path) -> None:
    """An algorithm of a file of ``load`` is an axis; another text of the file is another point."""
    file = tmp_path / "own_division.py"
    text = (
        "from spyre_mlir.algorithms import register\n"
        "from spyre_mlir.division_search.work_division import WorkDivision\n"
        "@register\n"
        "class OneCore(WorkDivision):\n"
        "    name = 'one-core'\n"
        "    def divide(self, problem):\n"
        "        return (1,) * len(problem.units)\n"
    )
    options = {"division": ["priority", "one-core"], "co_optimizing_lx_planning": False, "workers": 1}
    for more, computed in (("", 2), ("", 0), ("# more\n", 2)):
        file.write_text(text + more)
        results = sweep([CHAIN], store=tmp_path / "s.sqlite", load=file, **options)
        assert results[1]["mean_cores"] == 1 < results[0]["mean_cores"]
        assert results.computed == computed


def test_algorithms_of_installed_packages_are_part_of_the_key(tmp_path: Path) -> None:
    """The key includes the code, not only the name, of an algorithm registered by an entry point or an import."""
    code = (
        "import sys; import own_package; from spyre_mlir.experiments import sweep\n"
        "options = {'division': 'one-core', 'co_optimizing_lx_planning': False}\n"
        "rows = sweep([sys.argv[1]], store=sys.argv[2], workers=1, **options)\n"
        "print(rows.computed, rows[0]['error'], rows[0]['mean_cores'])"
    )
    chain = tmp_path / "chain.mlir"
    chain.write_text(CHAIN)
    package, metadata = tmp_path / "own_package.py", tmp_path / "own_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: own-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[spyre_mlir.divisions]\none-core = own_package:OneCore\n")
    lines = []
    for slices in (
        "(1,) * len(problem.units)",
        "(1,) * len(problem.units)",
        "(2, *(1,) * (len(problem.units) - 1))",
    ):
        package.write_text(
            "from spyre_mlir.algorithms import register\n"
            "from spyre_mlir.division_search.work_division import WorkDivision\n"
            "@register\n"
            "class OneCore(WorkDivision):\n"
            "    name = 'one-core'\n"
            f"    def divide(self, problem): return {slices}\n"
        )
        # A process is as old as its files, by clocks that are coarse.
        time.sleep(1.2)
        path = os.pathsep.join([str(tmp_path), str(Path(spyre_mlir.__file__).parents[1])])
        arguments = [sys.executable, "-c", code, str(chain), str(tmp_path / "s.sqlite")]
        run = subprocess.run(
            arguments, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        lines.append(run.stdout.split())
    assert [line[0] for line in lines] == ["1", "0", "1"]
    assert lines[0][1:] == lines[1][1:] == ["1.0"] and lines[2][1:] == ["2.0"]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"layout_solvr": ["greedy"]}, "There is no option 'layout_solvr' to sweep; there are layout_solver,"),
        ({"layout_solver": ["gredy"]}, "The axis 'layout_solver': There is no solver 'gredy'; the solvers are "),
        ({"cost_model": ["none"]}, "The axis 'cost_model': There is no cost model 'none'; the cost models are"),
        ({"tiling": [3]}, "The axis 'tiling': a tiling is given by its name, not 3."),
        ({"sencores": [4, "many"]}, "The axis 'sencores': The option 'sencores' of the spyre pipeline must be"),
        ({"sencores": [4, 4]}, "The axis 'sencores' has the value '4' twice."),
        ({"sencores": []}, "The axis 'sencores' has no values."),
        ({"numerics": ["fp64"]}, "The axis 'numerics': the value must be one of none, ieee, dl16, not 'fp64'."),
        ({"save_plan": ["x"]}, "The option 'save_plan' is not an axis: it writes a file for each point"),
        ({"device": ["none.toml"]}, "The axis 'device': The file 'none.toml' cannot be read"),
        ({"plan": ["none.json"]}, "The axis 'plan': The file 'none.json' cannot be read"),
        ({"passes": [["no-level=cse"]]}, "The axis 'passes': There is no level 'no-level'"),
        ({"axes": {"device.lx.byte": [1]}}, "The axis 'device.lx.byte': The device has an unknown field lx.byte"),
        ({"axes": {"device.lx.bytes": ["2"]}}, "The axis 'device.lx.bytes': The field lx.bytes of the device must be"),
        ({"from_level": ["none"]}, "The axis 'from_level': There is no level 'none'"),
        ({"workers": 0}, "The number of workers is 1 or more, not 0."),
        ({"programs": ["no_such_module:mlp"]}, "There is no module 'no_such_module'"),
        ({"programs": ["experiment_programs:mpl"]}, "There is no 'mpl' in the module 'experiment_programs'"),
        ({"programs": ["experiment_programs:mlp(torch)"]}, "The arguments of the program "),
        ({"programs": ["missing.mlir"]}, "The file 'missing.mlir' cannot be read"),
        ({"programs": ["missing"]}, "There is no program 'missing'"),
        ({"programs": []}, "The sweep has no programs."),
        ({"programs": [CHAIN, 3]}, "A program of a sweep is a path, a text of MLIR or an import path"),
        ({"programs": ["module attributes {sdsc.target = {}} {}\n"]}, "The program 'mlir.0' names its device"),
        ({"programs": [lambda: CHAIN]}, "Workers cannot import a function"),
        ({"load": "missing.py"}, "The file 'missing.py"),
    ],
)  # fmt: skip
def test_what_cannot_be_swept_is_one_error(keywords: dict[str, Any], message: str, tmp_path: Path) -> None:
    """Before anything runs, and before there is a store."""
    store = tmp_path / "store.sqlite"
    with pytest.raises(CompileError) as caught:
        sweep(keywords.pop("programs", [CHAIN]), store=store, **keywords)
    assert message.partition("'missing.py")[0] in caught.value.message
    assert not store.exists()


def test_programs_are_known_by_their_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of a function has its module and the imports of the module; the key of a text is its content."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "swept_parts.py").write_text("SIZE = 64\n")
    (tmp_path / "swept_models.py").write_text(
        "import swept_parts\n\ndef f(n=1):\n    return TEXT\nTEXT = ''\n"
    )
    (tmp_path / "unrelated.py").write_text("")
    digests = set()
    from spyre_mlir.experiments.task import program_sources

    for change in ("", "unrelated.py", "swept_parts.py", "swept_models.py"):
        if change:
            with (tmp_path / change).open("a") as file:
                file.write("# more\n")
        digests.add(program_sources("swept_models:f")[0].digest)
    digests |= {
        program_sources(f"swept_models:f{arguments}")[0].digest for arguments in ("()", "(1)", "(n=2)")
    }
    assert len(digests) == 5
    for name in ("a.mlir", "b.mlir"):
        (tmp_path / name).write_text(CHAIN)
    results = sweep([tmp_path / "a.mlir", tmp_path / "b.mlir"], store=tmp_path / "s.sqlite", workers=1)
    assert results.computed == 1 and len(results) == 2


def test_programs_by_import_path(tmp_path: Path) -> None:
    """Functions that return MLIR, and function objects, with the same figures as the text."""
    from experiment_programs import chain

    results = sweep(
        {"text": CHAIN, "path": "experiment_programs:chain", "object": chain},
        store=tmp_path / "s.sqlite",
        workers=1,
    )
    assert results.computed == 2 and len({row["predicted_us"] for row in results}) == 1


def test_tasks_pickle_and_are_told_from_each_other() -> None:
    from spyre_mlir.experiments.sweeping import device_and_options, parsed_axes, points
    from spyre_mlir.experiments.task import SweepTask, program_sources

    axes = parsed_axes({"sencores": [2, 32], "reorder": [True, False], "lx_ops": [(), ("exp",)]})
    (source,) = program_sources(CHAIN)
    tasks = [SweepTask(source, *device_and_options(point), (), "code") for point in points(axes)]
    assert len({task.key for task in tasks}) == 8
    assert [pickle.loads(pickle.dumps(task)).key for task in tasks] == [task.key for task in tasks]


def test_the_environment_of_a_worker_decides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options whose default is in the environment are part of the point."""
    results = {}
    for planning in ("1", "0"):
        monkeypatch.setenv("LX_PLANNING", planning)
        results[planning] = sweep([CHAIN], store=tmp_path / "s.sqlite", workers=1)
    assert [result.computed for result in results.values()] == [1, 1]
    assert results["0"][0]["lx_peak_bytes"] == 0 < results["1"][0]["lx_peak_bytes"]


def test_plans_and_pass_lists_are_axes(tmp_path: Path) -> None:
    """A plan file, or no plan; a pass more, or none."""
    (tmp_path / "plan.json").write_text('{"version": 1, "operations": [{"name": "exp.0", "slices": [2, 1]}]}')
    results = sweep(
        [CHAIN], store=tmp_path / "s.sqlite", workers=1,
        plan={"default": None, "two": tmp_path / "plan.json"},
        passes={"none": None, "cse": {"device-ops": ["cse"]}},
    )  # fmt: skip
    assert [(row["plan"], row["passes"]) for row in results][1] == ("default", "cse")
    assert not any(row["error"] for row in results) and results.computed == 4
    assert results[0]["mean_cores"] > results[2]["mean_cores"]


def test_csv_reads_back(reference: Results, tmp_path: Path) -> None:
    reference.to_csv(tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["predicted_us"]) for row in rows] == [row["predicted_us"] for row in reference]
    assert list(rows[0])[-5:] == ["error", "compile_s", "import_s", "wall_s", "cpu_s"]


def test_pandas(reference: Results) -> None:
    pytest.importorskip("pandas")
    frame = reference.to_pandas()
    assert tuple(frame.columns) == reference.columns and len(frame) == 8
    assert frame.groupby("program").predicted_us.min()["chain"] == min(
        row["predicted_us"] for row in reference if row["program"] == "chain"
    )
