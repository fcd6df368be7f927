"""The trace: valid Chrome trace events, tracks in order, flows with both ends, counters that add up."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from typing import Any

import bundles
import pytest
from test_programs import compiled, on_all_cores

from spyre_mlir.bundle.model import Bundle
from spyre_mlir.report.lx_map import lx_map
from spyre_mlir.target.device import device
from spyre_mlir.timeline import timeline
from spyre_mlir.timeline.trace import trace_text

Json = dict[str, Any]

NAMES = ("softmax_dim_0_512x1024", "gelu_mlp", "llama_block", "sum_0_2_of_3", "layernorm")
KINDS = {"M", "X", "C", "s", "f"}


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
    """A program on all cores; one with uneven slices; or a loop."""
    if name == "loop":
        return bundles.loop_bundle(100)
    if name == "uneven":
        return compiled("gelu_mlp", sencores=7, uneven_splits=True).bundle
    return on_all_cores(name).bundle


def bars(events: list[Json]) -> dict[tuple[int, int], list[Json]]:
    """The bars of each track by their begin."""
    found: dict[tuple[int, int], list[Json]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[event["pid"], event["tid"]].append(event)
    return {track: sorted(each, key=lambda bar: bar["ts"]) for track, each in found.items()}


def nanoseconds(microseconds: float) -> int:
    return round(1000 * microseconds)


CASES = pytest.mark.parametrize("name", [*NAMES, "loop", "uneven"])


@CASES
def test_events_are_of_the_format(name):
    """Kinds, whole nanoseconds, no negative time; every track of a bar has a name."""
    events = traced(bundle_of(name))
    named = {(each["pid"], each["tid"]) for each in events if each["name"] == "thread_name"}
    assert {each["ph"] for each in events} <= KINDS and bars(events).keys() <= named
    for event in events:
        assert isinstance(event["name"], str) and isinstance(event["pid"], int)
        for time in (event[key] for key in ("ts", "dur") if key in event):
            assert time >= 0 and abs(1000 * time - nanoseconds(time)) < 1e-6


@CASES
def test_bars_of_a_track_do_not_overlap(name):
    for track in bars(traced(bundle_of(name))).values():
        for one, other in itertools.pairwise(track):
            assert nanoseconds(one["ts"]) + nanoseconds(one["dur"]) <= nanoseconds(other["ts"])


@CASES
def test_flows_have_both_ends_on_bars(name):
    """From a bar of a computation to a later one, or to one of loads."""
    events = traced(bundle_of(name))
    tracks = bars(events)
    begins = [event for event in events if event["ph"] == "s"]
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert begins and sorted(ends) == [begin["id"] for begin in begins]
    for begin in begins:
        end = ends[begin["id"]]
        assert begin["name"] == end["name"] and begin["ts"] < end["ts"]
        for each in (begin, end):
            track = tracks[each["pid"], each["tid"]]
            assert any(bar["ts"] <= each["ts"] < bar["ts"] + bar["dur"] for bar in track)


@CASES
def test_counters_are_not_negative_and_end_at_nothing(name):
    events = [each for each in traced(bundle_of(name)) if each["ph"] == "C"]
    by_name: dict[tuple[int, str], list[Json]] = defaultdict(list)
    for event in events:
        by_name[event["pid"], event["name"]].append(event)
    assert {counter for _, counter in by_name} == {"GB/s", "LX bytes"}
    for each in by_name.values():
        assert [event["ts"] for event in each] == sorted(event["ts"] for event in each)
        assert min(value for event in each for value in event["args"].values()) >= 0
        assert set(each[-1]["args"].values()) == {0}


@pytest.mark.parametrize("name", NAMES)
def test_bandwidth_times_time_is_the_bytes_that_move(name):
    """The area under the counter, but for the rounding of its times; never more than the memory has."""
    bundle = bundle_of(name)
    counted = [each for each in traced(bundle) if each["ph"] == "C" and each["name"] == "GB/s"]
    area = 0.0
    for one, other in itertools.pairwise(counted):
        rate = sum(one["args"].values())
        assert rate <= 150.001
        area += rate * 1000 * (other["ts"] - one["ts"])
    assert area == pytest.approx(sum(each.moved_bytes for each in timeline(bundle).executions), rel=0.01)


def test_each_group_of_cores_has_its_engines():
    """7 cores with uneven slices: those with less work compute for a shorter time."""
    bundle = bundle_of("uneven")
    groups = timeline(bundle).core_groups
    tracks = bars(traced(bundle))
    busy = [sum(bar["dur"] for bar in tracks[process, 2]) for process in range(1, len(groups) + 1)]
    assert len(groups) == 2 and busy[0] > busy[1] > 0
    names = [each["args"]["name"] for each in traced(bundle) if each["name"] == "process_name"]
    assert names == ["cores 0-5", "core 6", "device memory", "ring", "loops"]


def test_bars_tell_the_source_line():
    events = traced(bundles.reduction_bundle())
    (added,) = [
        each
        for each in traced(bundles.add_bundle())
        if each["ph"] == "X" and each["tid"] == 2 and each["pid"] == 1
    ]
    assert added["args"]["source"] == "model.py:12:5" and added["name"] == "add"
    assert {each["name"] for each in events if each["ph"] == "X"} == {"exp", "sum"}


def test_iterations_that_repeat_are_one_bar():
    """100 tiles: a few in full, the others as so many times more, then the wait for the last store."""
    found = timeline(bundles.loop_bundle(100))
    events = traced(bundles.loop_bundle(100))
    (repeated,) = [each for each in events if each["name"].endswith("times more")]
    (skip,) = found.run.skips
    assert repeated["name"] == f"{skip.times} times more" and repeated["args"] == {"operations": [0, 1]}
    end = max(each["ts"] + each["dur"] for each in events if each["ph"] == "X")
    assert nanoseconds(end) == round(found.total_ns - device().hbm_access_ns)


def test_partial_sums_are_on_the_ring():
    program = compiled("sum_0", co_optimizing_lx_planning=False)
    events = traced(program.bundle)
    process = len(program.timeline().core_groups) + 2
    (ring,) = [track for (number, _), track in bars(events).items() if number == process]
    assert ring[0]["args"]["partial sums"] > 1
