# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The trace, by what the Trace Event Format says of its events and by what they mean.

A reader draws X events of one thread as a stack, so two of them must not overlap; it joins s and f events of one id
and binds each to the bar that is there on its thread at its time ("bp": "e"); a C event holds until the next.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter, defaultdict
from typing import Any

import bundles
import pytest
from looped import LOOPED, looped
from test_programs import compiled, on_all_cores

from spyre_mlir.bundle.model import Bundle
from spyre_mlir.report.lx_map import lx_map
from spyre_mlir.target.target import default_target
from spyre_mlir.timeline import timeline
from spyre_mlir.timeline.trace import trace_text
from spyre_mlir.tools import spyre_run

Json = dict[str, Any]

NAMES = ("softmax_dim_0_512x1024", "gelu_mlp", "llama_block", "sum_0_2_of_3", "layernorm")
#: Fields of each kind of event, in addition to the common fields.
KINDS = {
    "M": ("args",),
    "X": ("dur", "args"),
    "C": ("args",),
    "s": ("cat", "id"),
    "f": ("cat", "id", "bp"),
}
LOAD, COMPUTE = 1, 2


def traced(bundle: Bundle) -> list[Json]:
    """The events of a bundle's trace, as a reader of the file gets them."""
    found = timeline(bundle)
    taken = lx_map(bundle)
    text = trace_text(found, [taken.occupancy(group[0]).load for group in found.core_groups])
    assert text == trace_text(
        timeline(bundle), [taken.occupancy(group[0]).load for group in found.core_groups]
    )
    return json.loads(text)["traceEvents"]


def bundle_of(name: str) -> Bundle:
    """Return a program on all cores; with uneven slices; or with a loop, handwritten or compiled."""
    if name == "loop":
        return bundles.loop_bundle(100)
    if name in LOOPED:
        return looped(name).program.bundle
    if name == "uneven":
        return compiled("gelu_mlp", sencores=7, uneven_splits=True, co_optimizer="strategy-b").bundle
    return on_all_cores(name).bundle


def bars(events: list[Json]) -> dict[tuple[int, int], list[Json]]:
    """The bars of each track by their begin."""
    found: dict[tuple[int, int], list[Json]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[event["pid"], event["tid"]].append(event)
    return {track: sorted(each, key=lambda bar: bar["ts"]) for track, each in found.items()}


def arrows(events: list[Json]) -> list[tuple[Json, Json]]:
    """Return both ends of each flow, by its id, which is unique."""
    begins, ends = ({event["id"]: event for event in events if event["ph"] == kind} for kind in ("s", "f"))
    assert begins and begins.keys() == ends.keys()
    assert 2 * len(begins) == sum(event["ph"] in ("s", "f") for event in events)
    return [(begins[each], ends[each]) for each in begins]


def bar_at(track: list[Json], time: float) -> Json:
    """The bar that is there at a time, its end not included."""
    at = nanoseconds(time)
    (bar,) = (
        each
        for each in track
        if nanoseconds(each["ts"]) <= at < nanoseconds(each["ts"]) + nanoseconds(each["dur"])
    )
    return bar


def nanoseconds(microseconds: float) -> int:
    return round(1000 * microseconds)


CASES = pytest.mark.parametrize("name", [*NAMES, "loop", "uneven", *LOOPED])


@CASES
def test_events_are_of_the_format(name):
    """Kinds, whole nanoseconds, no negative time; every track of a bar has a name."""
    events = traced(bundle_of(name))
    assert {each["ph"] for each in events} <= KINDS.keys()
    for event in events:
        assert event.keys() == {"ph", "name", "pid", "tid", "ts", *KINDS[event["ph"]]}
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        for time in (event[key] for key in ("ts", "dur") if key in event):
            assert time >= 0 and abs(1000 * time - nanoseconds(time)) < 1e-6
        assert event.get("dur", 1) > 0


@CASES
def test_every_track_has_one_name(name):
    """Tracks of bars, of arrows and of counters, which belong to a process; names come first, each with an order."""
    events = traced(bundle_of(name))
    told = [each for each in events if each["ph"] == "M"]
    assert events[: len(told)] == told
    names = [(each["name"], each["pid"], each["tid"]) for each in told]
    assert len(names) == len(set(names))
    assert all(each["args"].get("name") or each["args"].get("sort_index") for each in told)
    for event in events[len(told) :]:
        assert {("process_name", event["pid"], 0), ("process_sort_index", event["pid"], 0)} <= set(names)
        if event["ph"] != "C":
            track = event["pid"], event["tid"]
            assert {("thread_name", *track), ("thread_sort_index", *track)} <= set(names)


@CASES
def test_bars_of_a_track_do_not_overlap(name):
    for track in bars(traced(bundle_of(name))).values():
        for one, other in itertools.pairwise(track):
            assert nanoseconds(one["ts"]) + nanoseconds(one["dur"]) <= nanoseconds(other["ts"])


@CASES
def test_flows_have_both_ends_on_bars(name):
    """From the computation that writes a buffer to a later one, or its load, that reads it; an id is of one pair."""
    bundle = bundle_of(name)
    events, uses = traced(bundle), bundle.manifest.uses
    tracks = bars(events)
    for begin, end in arrows(events):
        assert (begin["name"], begin["cat"]) == (end["name"], end["cat"])
        assert begin["ts"] < end["ts"] and end["bp"] == "e"
        writer, reader = (bar_at(tracks[each["pid"], each["tid"]], each["ts"]) for each in (begin, end))
        assert (begin["tid"], end["tid"]) in ((COMPUTE, COMPUTE), (COMPUTE, LOAD))
        assert begin["name"] == uses[writer["args"]["operation"]][-1]
        assert begin["name"] in uses[reader["args"]["operation"]][:-1]


@pytest.mark.parametrize("name", NAMES)
def test_whatever_an_operation_reads_of_another_is_a_flow(name):
    """Each operand once, of the operation that wrote it last; all computations here are long enough to be seen."""
    bundle = bundle_of(name)
    tracks = bars(traced(bundle))
    ends = Counter(
        (begin["name"], bar_at(tracks[1, end["tid"]], end["ts"])["args"]["operation"])
        for begin, end in arrows(traced(bundle))
    )
    seen = {bar["args"]["operation"] for bar in tracks[1, COMPUTE]}
    expected, written = Counter[tuple[str, int]](), dict[str, int]()
    for position, (*reads, result) in enumerate(bundle.manifest.uses):
        expected.update((each, position) for each in reads if {written.get(each), position} <= seen)
        written[result] = position
    assert ends == expected and expected


@CASES
def test_counters_are_not_negative_and_end_at_nothing(name):
    bundle = bundle_of(name)
    events = [each for each in traced(bundle) if each["ph"] == "C"]
    by_name: dict[tuple[int, str], list[Json]] = defaultdict(list)
    for event in events:
        by_name[event["pid"], event["name"]].append(event)
    of_ring = {"busiest link, GB/s"} if timeline(bundle).links else set()
    assert {counter for _, counter in by_name} == {"GB/s", "LX bytes", *of_ring}
    for each in by_name.values():
        assert [event["ts"] for event in each] == sorted(event["ts"] for event in each)
        assert min(value for event in each for value in event["args"].values()) >= 0
        assert set(each[-1]["args"].values()) == {0}


@CASES
def test_no_more_of_lx_is_taken_than_may_be(name):
    """The bytes in LX are at most the bytes in the map of the scratchpads, on each group of cores."""
    bundle = bundle_of(name)
    groups = timeline(bundle).core_groups
    for process, group in enumerate(groups, 1):
        counted = [each for each in traced(bundle) if (each["name"], each["pid"]) == ("LX bytes", process)]
        most = max(each["args"]["taken"] for each in counted)
        assert most == max(lx_map(bundle).occupancy(group[0]).load) <= default_target().usable_lx_bytes


@CASES
def test_bandwidth_times_time_is_the_bytes_that_move(name):
    """The area under the counter equals the bytes, except for rounding; the rate is at most the rate of the memory.

    The bars of repeated iterations show the bytes that the iterations move.
    """
    bundle = bundle_of(name)
    found, events = timeline(bundle), traced(bundle)
    counted = [each for each in events if each["ph"] == "C" and each["name"] == "GB/s"]
    area = 0.0
    for one, other in itertools.pairwise(counted):
        rate = sum(one["args"].values())
        assert rate <= 204.801
        area += rate * 1000 * (other["ts"] - one["ts"])
    memory = len(found.core_groups) + 1
    tracks = [track for (process, _), track in bars(events).items() if process == memory]
    bytes_ = sum(bar["args"]["bytes"] for track in tracks for bar in track)
    # Times are whole nanoseconds, so each rate may hold for half of one too long.
    assert area == pytest.approx(bytes_, rel=0.01, abs=0.5 * 204.8 * len(counted))
    repeated = sum(bar["args"]["bytes"] for bar in bars(events).get((memory + 2, 1), ()))
    moved = sum(each.moved_bytes for each in found.executions)
    assert area + repeated == pytest.approx(moved, rel=0.01, abs=0.5 * 204.8 * len(counted))
    assert moved <= found.read_bytes + found.written_bytes


def test_the_busiest_link_carries_its_bytes():
    """Two cores exchange 16 KiB: a bar and a rate in each direction for the duration of the shuffle."""
    bundle = bundles.relayout_bundle()
    found, events = timeline(bundle), traced(bundle)
    ring = len(found.core_groups) + 2
    tracks = [track for (process, _), track in bars(events).items() if process == ring]
    assert [(bar["name"], bar["args"]) for track in tracks for bar in track] == [
        ("shuffle", {"relayout of": "e", "bytes of the busiest link": 16384})
    ] * 2
    begin, end = [each for each in events if each["name"] == "busiest link, GB/s"][-2:]
    nanoseconds = found.shares.ring / 1000
    assert begin["args"] == dict.fromkeys(("clockwise", "counter-clockwise"), round(16384 / nanoseconds, 3))
    assert begin["args"]["clockwise"] <= 192
    assert 1000 * (end["ts"] - begin["ts"]) == pytest.approx(nanoseconds, abs=2)


def test_each_group_of_cores_has_its_engines():
    """A matmul on 4 of 7 cores, then uneven slices on all: cores with less work compute for a shorter time.

    The last core computes for less than half a nanosecond, which does not give a bar.
    """
    bundle = bundle_of("uneven")
    groups = timeline(bundle).core_groups
    tracks = bars(traced(bundle))
    busy = [sum(bar["dur"] for bar in tracks.get((process, 2), ())) for process in range(1, len(groups) + 1)]
    assert len(groups) == 3 and busy[0] > busy[1] > busy[2]
    names = [each["args"]["name"] for each in traced(bundle) if each["name"] == "process_name"]
    assert names == ["cores 0-3", "cores 4-5", "core 6", "device memory", "ring", "loops", "modules"]


def test_bars_tell_the_source_line():
    events = traced(bundles.reduction_bundle())
    (added,) = [
        each
        for each in traced(bundles.add_bundle())
        if each["ph"] == "X" and each["tid"] == 2 and each["pid"] == 1
    ]
    assert added["args"]["source"] == "model.py:12:5" and added["name"] == "add"
    assert {each["name"] for each in events if each["ph"] == "X"} == {"exp", "sum"}


@pytest.mark.parametrize("name", NAMES)
def test_every_operation_is_there_with_its_line(name):
    """An operation below a nanosecond may be too short to see; a module of PyTorch alone has no user line."""
    bundle = bundle_of(name)
    seen = {
        (bar["args"]["operation"], bar["name"], bar["args"]["source"])
        for bar in bars(traced(bundle))[1, COMPUTE]
    }
    found = timeline(bundle).executions
    assert {(each.position, each.opcode, each.source) for each in found if each.core_ps[0] >= 1000} <= seen
    assert seen <= {(each.position, each.opcode, each.source) for each in found}
    assert seen and all(re.search(r"\.py:\d+", source) for _, _, source in seen) == (name != "layernorm")


def test_the_tool_writes_this_trace(tmp_path):
    program = on_all_cores("gelu_mlp")
    program.save(tmp_path / "bundle")
    assert spyre_run.main([str(tmp_path / "bundle"), "--timeline", str(tmp_path / "trace.json")]) == 0
    written = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    assert written == {"displayTimeUnit": "ns", "traceEvents": traced(program.bundle)}


def test_iterations_that_repeat_are_one_bar():
    """100 tiles: a few in full, the others as repetitions, then the wait for the last store."""
    found = timeline(bundles.loop_bundle(100))
    events = traced(bundles.loop_bundle(100))
    (repeated,) = [each for each in events if each["name"].endswith("times more")]
    (skip,) = found.run.skips
    assert repeated["name"] == f"{skip.times} times more"
    # Of each tile x is read and z is written, 128 rows of 4 sticks.
    assert repeated["args"] == {"operations": [0, 1], "bytes": skip.times * 2 * 128 * 4 * 128}
    end = max(each["ts"] + each["dur"] for each in events if each["ph"] == "X")
    assert nanoseconds(end) == round(found.total_ns - default_target().hbm_access_ns)


def test_partial_sums_are_on_the_ring():
    program = compiled("sum_0", co_optimizing_lx_planning=False)
    events = traced(program.bundle)
    process = len(program.timeline().core_groups) + 2
    (ring,) = [track for (number, _), track in bars(events).items() if number == process]
    assert ring[0]["args"]["partial sums"] > 1
