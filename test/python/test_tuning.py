# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tuning: never worse than the default, deterministic for a seed, each point once, stored trials, plans that hold."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import spyre_mlir
from spyre_mlir import zoo
from spyre_mlir.errors import CompileError
from spyre_mlir.experiments import tuning
from spyre_mlir.experiments.tuning import OPTIONS, Proposals, Tried, TuningSpace, key_of, tune
from spyre_mlir.pipelines.pipeline_options import PipelineOptions
from spyre_mlir.tools import spyre_tune

optuna = pytest.importorskip("optuna")

ROOT = Path(__file__).parents[2]
#: A softmax over the rows, whose input takes less time in another layout than the layout of the host.
TEXT, INPUTS = zoo.load("linalg/softmax")
CORES = 32


@pytest.fixture(scope="module")
def default():
    return spyre_mlir.compile(TEXT, INPUTS, sencores=CORES)


@pytest.fixture(scope="module")
def whole(default):
    return TuningSpace.of(default, sencores=CORES)


@pytest.fixture(scope="module")
def space(whole):
    """The divisions of two operations, and the layout of the input that gains."""
    divisions = {name: whole.divisions[name] for name in ("max.0", "sub.0")}
    return TuningSpace(divisions=divisions, layouts={"input": [{"dim_order": [1, 0]}]}, weights=whole.weights)


def tuned(space, **options):
    return tune(TEXT, INPUTS, **{"space": space, "trials": 7, "sencores": CORES, **options})


def points(path):
    """The trials in a database, in order."""
    (study,) = optuna.get_all_study_summaries(f"sqlite:///{path}")
    trials = optuna.load_study(study_name=study.study_name, storage=f"sqlite:///{path}").trials
    return [(trial.user_attrs["point"], trial.value, trial.user_attrs["reason"]) for trial in trials]


def test_a_space_has_the_compilers_candidates(default, whole):
    """The names are names of the default plan, without its choices, and options of compile that are not given."""
    plan = default.plan()
    slices = {entry["name"]: entry["slices"] for entry in plan["operations"]}
    for name, choices in whole.divisions.items():
        assert all(len(choice["slices"]) == len(slices[name]) for choice in choices)
    assert set(whole.layouts) == {entry["name"] for entry in plan["arguments"]}
    assert all(set(tiling) <= set(slices) for tilings in whole.tilings.values() for tiling in tilings)
    assert sum(whole.weights.values()) == pytest.approx(1)
    assert set(OPTIONS) <= set(PipelineOptions.__dataclass_fields__)
    assert "reorder" not in TuningSpace.of(default, reorder=False).options


def test_options_of_a_space_are_not_defaults():
    defaults = PipelineOptions()
    assert all(getattr(defaults, name) not in values for name, values in OPTIONS.items())


def test_a_point_is_a_call_of_compile(space):
    options, plan = space.call({"divide sub.0": 1})
    assert options == {} and plan is not None
    assert plan["operations"] == [{"name": "sub.0", **space.divisions["sub.0"][1]}]
    assert space.call({}) == ({}, None)


def test_two_choices_that_tile_one_operation_are_refused(whole):
    loop = {"exp.0": [{"loop": "a", "dim": 0, "tiles": 2}]}
    both = TuningSpace(tilings={"a": [loop], "b": [loop]})
    with pytest.raises(CompileError, match=r"Two choices tile 'exp\.0'"):
        both.call({"tile a": 0, "tile b": 0})


def test_a_tuned_plan_is_better_and_its_file_is_as_good(space, default, tmp_path):
    """The layout of the input saves time here, which the compiler leaves as the host has it."""
    result = tuned(space)
    assert result.default_value == default.metrics()["predicted_us"]
    assert result.value == result.best.metrics()["predicted_us"] < result.default_value
    assert 0 < result.gain < 1 and result.trials >= 7
    result.save(tmp_path / "plan.json")
    again = spyre_mlir.compile(TEXT, sencores=CORES, plan=tmp_path / "plan.json", **result.options)
    assert again.metrics()["predicted_us"] == result.value
    assert all(change.without is None or change.without > result.value for change in result.changes)
    assert "% less" in result.summary() and result.changes[0].text in result.summary()


def test_nothing_is_better_than_the_default_where_nothing_gains():
    """Points that cost more leave the default, whose plan is the result."""
    space = TuningSpace(options={"lx_planning": (False,)})
    result = tuned(space)
    assert (result.gain, result.changes, result.trials) == (0.0, (), 2)
    assert result.value == result.best.metrics()["predicted_us"]


@pytest.mark.parametrize(("option", "needed"), [("lx_planning", {"lx_planning": True}), ("tile_for_lx", {})])
def test_options_that_a_plan_holds_need_not_be_given(option, needed):
    """The plan has the effects of options; ``options`` has the others."""
    space = TuningSpace(options={option: (True,)})
    slower = {option: False, "sencores": CORES}
    # Of a measured time, too, the predicted one says whether the file is as good.
    result = tune(
        TEXT, space=space, objective=lambda program: program.metrics()["predicted_us"], trials=2, **slower
    )
    assert result.options == needed and (result.gain > 0) == bool(needed)
    replayed = spyre_mlir.compile(TEXT, plan=result.plan, **{**slower, **result.options})
    assert replayed.metrics()["predicted_us"] == result.value


def test_points_that_cannot_be_are_pruned_with_the_reason(space, tmp_path):
    bad = replace(space, divisions={"sub.0": [{"slices": [64, 1]}]}, layouts={})
    result = tuned(bad, storage=tmp_path / "trials.db")
    assert result.gain == 0 and list(result.refused.values()) == [1]
    (default, _, _), (point, value, reason) = points(tmp_path / "trials.db")
    assert (default, point, value) == ({}, {"divide sub.0": 0}, None)
    assert "needs 64 cores" in reason


def test_a_seed_gives_the_same_trials_and_no_point_twice(space, tmp_path):
    runs = []
    for number in range(2):
        tuned(space, storage=tmp_path / f"{number}.db", seed=3, trials=5)
        runs.append(points(tmp_path / f"{number}.db"))
    assert runs[0] == runs[1]
    keys = [key_of(point) for point, _, _ in runs[0]]
    assert keys[0] == () and len(set(keys)) == len(keys)


def test_a_tuning_goes_on_where_it_stopped(space, tmp_path, monkeypatch):
    """A run with fewer trials is continued, and computes only the other trials; the trials equal one run of all."""
    tuned(space, trials=3, storage=tmp_path / "a.db", seed=1)
    before, evaluated = points(tmp_path / "a.db"), []
    evaluate = tuning._TuningCall.evaluate
    monkeypatch.setattr(
        tuning._TuningCall, "evaluate", lambda self, *point: evaluated.append(point) or evaluate(self, *point)
    )
    result = tuned(space, trials=len(before) + 2, storage=tmp_path / "a.db", seed=1)
    assert points(tmp_path / "a.db")[: len(before)] == before
    # And one more compilation at the end, of the whole plan.
    assert len(evaluated) == result.trials - len(before) + 1


def test_a_killed_tuning_goes_on(space, tmp_path):
    """SIGKILL in the middle loses the trial that was under way."""
    store = tmp_path / "killed.db"
    code = (
        "import time\nfrom spyre_mlir import zoo\nfrom spyre_mlir.experiments.tuning import tune\n"
        "from spyre_mlir.experiments.tuning import TuningSpace\n"
        f"space = TuningSpace(options={{'reorder': (False,), 'moves': (False,), 'clone_inputs': (False,)}})\n"
        "def predicted_us(program):\n    time.sleep(0.3)\n    return program.metrics()['predicted_us']\n"
        "print(tune(*zoo.load('linalg/softmax'), space=space, objective=predicted_us, trials=6, "
        f"storage={str(store)!r}, sencores={CORES}).trials)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    while process.poll() is None and not (store.exists() and _stored(store) >= 2):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = points(store)
    assert 2 <= len(before) < 6
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    after = points(store)
    assert after[: len(before)] == before and int(done.stdout) == len(after) >= 6
    assert len({key_of(point) for point, _, _ in after}) == len(after)


def _stored(path):
    """The number of trials; Optuna is not asked, which makes the tables where they are not there yet."""
    try:
        with contextlib.closing(sqlite3.connect(path)) as database:
            return database.execute("SELECT COUNT(*) FROM trials").fetchone()[0]
    except sqlite3.OperationalError:
        return 0


def test_workers_compile_at_once(space, tmp_path):
    """The result is one of the same space, not worse than the default, and the same each time."""
    results = []
    for number in range(2):
        with ThreadPoolExecutor(1) as executor:
            store = tmp_path / f"{number}.db"
            results.append(tuned(space, executor=executor, workers=2, storage=store).value)
    assert points(tmp_path / "0.db") == points(tmp_path / "1.db")
    assert results[0] == results[1] < tuned(space, trials=1).default_value


def test_proposals_begin_with_the_default_and_single_changes(space):
    proposals, history = Proposals(space, 100, 0), []
    for _ in range(4):
        point = proposals.propose(history, set(), lambda seed: {})
        assert point is not None
        history.append(Tried(point, 1.0 + len(history)))
    assert [len(tried.point) for tried in history] == [0, 1, 1, 1]
    assert len({next(iter(tried.point)) for tried in history[1:]}) == 3


def test_changes_that_gain_are_combined():
    space = TuningSpace(options={"reorder": (False,), "moves": (False,), "in_place": (False,)})
    values = {"option reorder": -2.0, "option moves": -1.0, "option in_place": 5.0}
    proposals, history = Proposals(space, 8, 0), []
    while (point := proposals.propose(history, set(), lambda seed: {})) is not None:
        history.append(Tried(point, 10.0 + sum(values[name] for name in point)))
    assert [dict(tried.point) for tried in history[4:5]] == [{"option reorder": 0, "option moves": 0}]
    assert min(tried.value for tried in history) == 7.0 and len(history) == 8


def test_a_program_with_work_for_the_host_has_options_alone(tmp_path):
    """The program has no plan file, so only options are tuned, and saving a plan reports this."""
    result = tune(*_with_host_work(), trials=2, sencores=2)
    assert result.plan is None and result.trials >= 2
    with pytest.raises(CompileError, match="no plan file"):
        result.save(tmp_path / "plan.json")


def _with_host_work():
    torch = pytest.importorskip("torch")
    return (lambda x: torch.cumsum(torch.exp(x), 0)), (torch.zeros(8, 64).half(),)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "speed"}, "There is no figure 'speed'; there are predicted_us"),
        ({"objective": lambda program: float("nan")}, "has to be a finite number"),
        ({"plan": {"version": 1}}, "tune has no option 'plan'"),
        ({"trials": 0}, "at least one trial"),
        ({"trials": "many"}, "at least one trial"),
        ({"trials": float("nan")}, "at least one trial"),
    ],
)
def test_wrong_calls(space, options, message):
    with pytest.raises(CompileError, match=message):
        tuned(space, **options)


def test_a_damaged_store_is_refused_and_left_alone(space, tmp_path):
    store = tmp_path / "trials.db"
    store.write_bytes(b"no database\n" * 100)
    with pytest.raises(CompileError, match=r"trials\.db"):
        tuned(space, storage=store)
    assert store.read_bytes() == b"no database\n" * 100


def test_without_optuna_the_error_names_the_extra(space, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(CompileError, match=r"pip install 'spyre-mlir\[tune\]'"):
        tuned(space)


def test_the_tool_writes_a_plan(tmp_path, capsys):
    plan = tmp_path / "plan.json"
    arguments = ["zoo:linalg/softmax", "--trials", "3", "--sencores", str(CORES), "-o", str(plan)]
    plots = {kind: tmp_path / f"{kind}.svg" for kind in ("history", "importance")}
    flags = [f"--{kind}={path}" for kind, path in plots.items()]
    assert spyre_tune.main([*arguments, "--pipeline", "reorder=false", *flags]) == 0
    assert all(path.read_text().count("<svg") == 1 for path in plots.values())
    assert "total_us" in capsys.readouterr().out
    assert json.loads(plan.read_text())["version"] == 1
    assert spyre_tune.main(["zoo:linalg/none", "--trials", "3"]) == 1
    assert "The zoo has no 'linalg/none'" in capsys.readouterr().err


def test_choices_that_exclude_each_other_are_not_tried():
    loop = {"exp.0": [{"loop": "a", "dim": 0, "tiles": 2}]}
    proposals, history = Proposals(TuningSpace(tilings={"a": [loop], "b": [loop]}), 50, 0), []
    while (point := proposals.propose(history, set(), lambda seed: {"tile a": 0, "tile b": 0})) is not None:
        history.append(Tried(point, 10.0 - len(point)))
    assert [dict(tried.point) for tried in history] == [{}, {"tile a": 0}, {"tile b": 0}]
