# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races: planted faults are found with their two operations, and schedules change the results of nothing else."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import bundles
import pytest
from looped import looped
from programs import PROGRAMS
from race_programs import FAULTS, Fault
from race_runs import judged, results, schedules
from random_programs import RandomProgram

import spyre_mlir
from spyre_mlir.bundle import write_bundle
from spyre_mlir.bundle.context import Context
from spyre_mlir.bundle.memory_order import MemoryOrder, memory_order
from spyre_mlir.bundle.model import Bundle
from spyre_mlir.bundle.validate import races, validate
from spyre_mlir.driver import compilation
from spyre_mlir.driver.checking import random_arguments
from spyre_mlir.errors import CompileError
from spyre_mlir.simulator.schedule import RANDOM, scheduled
from spyre_mlir.timeline import timeline
from spyre_mlir.tools import spyre_run, spyre_validate

CLASSES = {
    "swapped buffer halves", "buffer freed one step early", "prefetch one step too far",
    "missing wait on a ring step", "halo read before it is written", "overlapping shifted regions in place",
    "accumulate without initial write", "relayout in place", "loop-carried state written before its last read",
    "cache row written while it is read", "two cores own one stick", "eviction overlapping reload",
    "reload of a stale copy",
}  # fmt: skip


def pairs(bundle: Bundle) -> list[tuple[int | None, int]]:
    """Return the executes of each race, the write first."""
    found = MemoryOrder(Context(bundle)).races
    return [(race.write and race.write.step.position, race.other.step.position) for race in found]


def name(fault: Fault) -> str:
    return f"{fault.kind}, {FAULTS.index(fault)}"


@pytest.mark.parametrize("fault", FAULTS, ids=name)
def test_a_planted_fault_is_reported_with_both_operations(fault):
    """The bundle without the fault is valid and has no race."""
    assert validate(fault.good()) == races(fault.good()) == []
    bundle = fault.bad()
    write, other = fault.pair
    assert (write, other) in pairs(bundle)
    found = [str(each) for each in races(bundle)]
    assert all("[race]" in each for each in found)
    named = [f"execute {position} of" for position in (write, other) if position is not None]
    assert any(all(text in each for text in named) and " core " in each for each in found)
    assert validate(bundle) != []


def test_there_are_faults_of_all_classes():
    counted = Counter(fault.kind for fault in FAULTS)
    assert counted.keys() == CLASSES and len(FAULTS) >= 25 and min(counted.values()) > 1


def test_schedules_change_the_results_of_planted_faults():
    """Of the faults that orders of operations and cores can show, each gives two results within 20 seeds."""
    seen = [fault for fault in FAULTS if fault.is_seen]
    assert len(seen) >= 20
    for fault in seen:
        bundle, found = fault.bad(), set[bytes]()
        for schedule in schedules(20, is_checked=False):
            found.add(results(bundle, schedule))
            if len(found) > 1:
                break
        assert len(found) > 1, name(fault)


@functools.cache
def compiled(program: str, cores: int) -> Bundle:
    model, inputs = PROGRAMS[program]()
    return spyre_mlir.compile(model, inputs, sencores=cores).bundle


GOOD = {
    **bundles.GOOD,
    "loop of the pool": lambda: bundles.loop_bundle(5),
    "accumulator": lambda: bundles.accumulating_bundle(6),
    **{f"{kind} on {cores}": functools.partial(compiled, kind, cores) for kind, cores in (
        ("llama_block_small", 32), ("softmax_dim_0_512x1024", 7), ("layernorm", 32), ("sdpa_causal", 7),
    )},
    **{kind: lambda kind=kind: looped(kind).program.bundle for kind in ("mlp in tiles", "llama in tiles", "hints")},
    **{f"planted {index}": fault.good for index, fault in enumerate(FAULTS[::3])},
}  # fmt: skip


@pytest.mark.parametrize("kind", GOOD)
def test_results_are_the_same_under_each_schedule(kind):
    bundle = GOOD[kind]()
    assert races(bundle) == []
    expected = results(bundle)
    assert all(results(bundle, schedule) == expected for schedule in schedules(5))


@pytest.mark.parametrize("cores", [1, 7, 32])
def test_random_programs_have_no_race_and_one_result(cores: int):
    """A sample of the programs of ``python -m benchmarks races``; some have no work for the device."""
    counts = Counter[str]()
    for seed in range(4):
        drawn = RandomProgram(seed)
        counts.update(judged(spyre_mlir.compile(drawn, drawn.inputs, sencores=cores), 10))
    assert counts["bundles"] > 1 and counts["runs"] >= 20 and counts["races"] == counts["differing"] == 0


def test_bundles_of_a_program_run_one_after_the_other_under_schedules():
    """Later bundles read the data that earlier ones leave in LX and in device memory."""
    model, inputs = PROGRAMS["llama_block_small"]()
    program = spyre_mlir.compile(model, inputs, sencores=7, bundle_operations=5)
    assert len(program.bundles) > 2 and any(each.bundle.manifest.non_terminal for each in program.bundles)
    assert judged(program, 4) == {"bundles": len(program.bundles), "races": 0, "runs": 4, "differing": 0}
    numbers = random_arguments(program.arguments) | program.arrays
    ordered = program.run(numbers)
    for schedule in schedules(4):
        for one, other in zip(program.run(numbers, schedule), ordered, strict=True):
            assert one.tobytes() == other.tobytes()


def test_waits_are_the_order_of_the_data_flow():
    """The exponential and the absolute value are independent; the result of the last sum overwrites its source."""
    from race_programs import A, B, program

    steps = [
        ("exp", "x", "a"),
        ("abs", "x", "b"),
        ("add", "a", "b", "a"),
        ("tanh", "b", "b"),
        ("add", "a", "b", "z"),
    ]
    order = MemoryOrder(Context(program(*steps, a=A, b=B)))
    assert order.waits == [set(), set(), {0, 1}, {1, 2}, {2, 3}]
    # Schedules have all orders of the first two, and respect the others.
    orders = {
        tuple(scheduled(order.waits, [False] * 5, RANDOM, random.Random(seed), lambda _: ()))
        for seed in range(20)
    }
    assert orders == {(0, 1, 2, 3, 4), (1, 0, 2, 3, 4)}


def test_copies_run_as_early_or_as_late_as_they_may():
    waits, is_copy = [set(), {0}, set(), {1, 2}], [False, False, True, False]
    rng, none = random.Random(0), lambda _: ()
    assert scheduled(waits, is_copy, "eager", rng, none) == [2, 0, 1, 3]
    assert scheduled(waits, is_copy, "on-wait", rng, none) == [0, 1, 2, 3]
    assert scheduled([set(), set()], [True, False], "on-wait", rng, none) == [1, 0]


def test_a_copy_in_place_is_one_burst():
    """A second burst would read what the first one has overwritten; the simulator checks each read."""
    from race_programs import A, program

    bundle = program(("exp", "x", "a"), ("identity", "a", "b"), ("abs", "b", "z"), a=A, b=A)
    assert races(bundle) == []
    assert {results(bundle, schedule) for schedule in schedules(5)} == {results(bundle)}


def test_parts_of_independent_operations_alternate():
    """A run begins after the last part of the run that it waits for; bursts of two copies mix."""
    ran = list[int]()

    def parts(run: int) -> Iterator[None]:
        for _ in range(4):
            ran.append(run)
            yield

    scheduled([set(), set(), {0}], [True] * 3, RANDOM, random.Random(1), parts)
    assert sorted(ran) == [0] * 4 + [1] * 4 + [2] * 4
    assert ran.index(2) > max(place for place, run in enumerate(ran) if run == 0)
    assert sorted(ran[:4]) not in ([0] * 4, [1] * 4)


@pytest.mark.parametrize("kind", ["llama_block_small on 32", "llama in tiles", "planted 9"])
def test_the_timeline_overlaps_nothing_that_the_data_flow_orders(kind):
    """A load begins when the stores of its bytes are visible, a body after the bodies whose LX it reads or writes."""
    bundle = GOOD[kind]()
    context, events = Context(bundle), timeline(bundle).run.events
    order, first = memory_order(context), {}
    for event in events:
        first.setdefault(event.job.position, event)
    checked = 0
    seen = set[int]()
    for number, one in enumerate(order.runs):
        position = one.step.position
        # Of a loop, the first iteration.
        if position in seen:
            continue
        seen.add(position)
        event = first[position]
        for wait in order.waits[number]:
            earlier = first[order.runs[wait].step.position]
            assert event.body_begin >= earlier.ring_end
            written = context.buffers[context.uses(order.runs[wait].step)[-1]]
            read = [context.buffers[each] for each in context.uses(one.step)[:-1]]
            if written.base != "lx" and any(written.overlaps(each) for each in read):
                assert event.body_begin >= earlier.visible + event.job.access
                checked += 1
            copied = context.buffers[context.uses(one.step)[-1]]
            used = [context.buffers[each] for each in context.uses(order.runs[wait].step)]
            if one.step.design.opcode == "identity" and any(copied.overlaps(each) for each in used):
                assert event.load_begin >= (earlier.ring_end if copied.base == "lx" else 0)
                checked += 1
    assert checked


def test_predictions_say_which_overlap_they_assume():
    bundle = GOOD["mlp in tiles"]()
    overlapped, sequential = timeline(bundle), timeline(bundle, overlap="sequential")
    assert (overlapped.overlap, sequential.overlap) == ("overlapped", "sequential")
    assert overlapped.total_ns < sequential.total_ns == sequential.sequential_ns == overlapped.sequential_ns
    assert sequential.total_ns <= sequential.upper_ns


def test_tools_report_a_race(tmp_path: Path, capsys):
    """Two lines of the user's program, both cores, and the byte."""
    write_bundle(FAULTS[4].bad(), tmp_path / "bad")
    assert spyre_validate.main([str(tmp_path / "bad"), "--races"]) == 1
    text = capsys.readouterr().out
    assert text == (
        "bundle.mlir, execute 2 of sdsc_2.json (tanh): A race: core 0 reads byte 0 of lx as Tensor0 of execute 2 of "
        "sdsc_2.json (tanh); core 0 writes it as Tensor1 of execute 1 of sdsc_1.json (abs), in no order with the "
        "access. [race]\n"
    )
    flags = ["--random", "--no-validate"]
    assert spyre_run.main([str(tmp_path / "bad"), *flags, "--detect-races"]) == 1
    shown = capsys.readouterr().err
    assert text.partition(" A race: ")[0] in shown and "in no order with the access. [race]" in shown
    assert spyre_run.main([str(tmp_path / "bad"), *flags, "--dma-execution-mode=random"]) == 0
    write_bundle(FAULTS[4].good(), tmp_path / "good")
    assert spyre_validate.main([str(tmp_path / "good"), "--races"]) == 0
    assert capsys.readouterr().out.endswith("good: no races (4 designs, 4 executes)\n")


SUM = """
func.func @main(%x: tensor<512x1024xf16>, %y: tensor<512x1024xf16>) -> tensor<512x1024xf16> {
  %empty = tensor.empty() : tensor<512x1024xf16>
  %sum = linalg.add ins(%x, %y : tensor<512x1024xf16>, tensor<512x1024xf16>)
                    outs(%empty : tensor<512x1024xf16>) -> tensor<512x1024xf16>
  return %sum : tensor<512x1024xf16>
}"""


def test_compile_checks_for_races_on_request(monkeypatch, tmp_path):
    """A race in a compiled program is an error of ``compile(check=True)``, also if the program is in the cache."""
    monkeypatch.setenv("SPYRE_CACHE", "1")
    monkeypatch.setenv("SPYRE_CACHE_DIR", str(tmp_path))
    assert spyre_mlir.compile(SUM, check=True, sencores=2).bundles
    build = compilation.build

    def faulty(*arguments):
        built = build(*arguments)
        built.bundles[0].bundle = FAULTS[4].bad()
        return built

    monkeypatch.setattr(compilation, "build", faulty)
    message = r"A race: core 0 reads byte 0 of lx .* in no order with the access"
    with pytest.raises(CompileError, match=message):
        spyre_mlir.compile(SUM, check=True, sencores=3)
    assert spyre_mlir.compile(SUM, sencores=3).bundles
    with pytest.raises(CompileError, match=message):
        spyre_mlir.compile(SUM, check=True, sencores=3)
