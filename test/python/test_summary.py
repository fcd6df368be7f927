# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The summary after a compile: one screen of facts, the same each time, without a run and with one."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import bundles
import pytest
from looped import looped
from simulator_programs import Program as BundleProgram
from test_programs import compiled, on_all_cores, ran

from spyre_mlir.report.program_facts import program_facts
from spyre_mlir.report.summary import summarize
from spyre_mlir.target.target import default_target

NAMES = (
    "softmax_dim_0_512x1024",
    "llama_block",
    "gelu_mlp",
    "flatten",
    "abs",
    "sum_0_2_of_3",
    "sdpa_mask_constant",
)


def lines(summary: str, name: str) -> list[str]:
    """Return the text after a name and below it, up to the next name."""
    found = re.search(rf"^{name} .*\n(?:  .*\n)*", f"{summary}\n", re.MULTILINE)
    assert found is not None, f"there is no '{name}' in\n{summary}"
    return [line[16:] for line in found[0].splitlines()]


def numbers(text: str) -> list[int]:
    return [int(each.replace(",", "")) for each in re.findall(r"\d[\d,]*", text)]


@pytest.mark.parametrize("name", NAMES)
def test_it_fits_one_screen(name):
    """40 lines of 100 columns, before a run and after one."""
    before = compiled(name).summary().splitlines()
    ran(name)
    after = on_all_cores(name).summary().splitlines()
    for text in (before, after):
        assert len(text) <= 40 and max(map(len, text)) <= 100
    assert len(after) == len(before) + 1


def test_it_is_the_same_each_time_but_for_seconds():
    """Everything above the compile time."""
    one, other = (compiled("llama_block_small").summary() for _ in range(2))
    assert one.partition("compile time")[0] == other.partition("compile time")[0]


def test_what_was_simulated_is_told_after_a_run_only():
    assert "simulated" not in compiled("softmax_dim_0_512x1024").summary()
    ran("softmax_dim_0_512x1024")
    assert "simulated" in on_all_cores("softmax_dim_0_512x1024").summary()


def test_softmax_by_hand():
    """512 x 1024 numbers of 2 bytes: read once, by a clone, and written once, which is the least."""
    summary = compiled("softmax_dim_0_512x1024").summary()
    assert lines(summary, "HBM read") == ["1,048,576 bytes planned"]
    assert lines(summary, "HBM written") == ["1,048,576 bytes planned"]
    (bound,) = lines(summary, "lower bound")
    assert bound == "2,097,152 bytes, each argument and result once; the plan is 1.00 times that"
    assert lines(summary, "clones") == ["into LX 1, which move 1,048,576 bytes; out of LX 0"]
    assert lines(summary, "spills") == lines(summary, "restickifies") == ["0"]
    assert lines(summary, "cores") == ["32 of 32"]


@pytest.mark.parametrize("name", ["llama_block", "rotary", "flatten"])
def test_spills_are_told_by_their_first_reason(name):
    """Each buffer of the pool in one of the groups, the largest group first; then the largest one and why."""
    program = compiled(name, lx_frac_avail=0.999)
    spilled = program.facts().map.spilled
    head, *told = lines(program.summary(), "spills")
    assert numbers(head)[:2] == [len(spilled), sum(each.traffic for each in spilled)]
    expected = Counter(each.reasons[0].split(":")[0] for each in spilled)
    groups = [re.fullmatch(r"  (\S.*?)  +(\d+) buffers?, ([\d,]+) bytes", line) for line in told]
    found = [(each[1], int(each[2]), *numbers(each[3])) for each in groups if each]
    assert {reason: count for reason, count, _ in found} == expected
    moved = [bytes_ for *_, bytes_ in found]
    assert moved == sorted(moved, reverse=True) and sum(moved) == numbers(head)[1]
    largest = max(spilled, key=lambda each: each.traffic)
    text = " ".join(" ".join(told[len(found) :]).split())
    assert text.startswith(f"the most: {largest.name} of step {largest.writer}, ")
    assert text.endswith(f"{largest.traffic:,} bytes: {largest.reasons[0]}")


def test_loops_are_told_by_their_iterations():
    """Of nested loops, the iterations of the outer loop are first."""
    assert lines(looped("hints").program.summary(), "loops") == ["2: 8 x 3 iterations"]
    several = lines(looped("softmax in tiles").program.summary(), "loops")
    assert several == ["8: 2 x 3, 4 x 2, 2 x 3, 4 x 2 iterations"]
    assert "\nloops " not in compiled("softmax_dim_0_512x1024").summary()


def test_the_ring_is_told_where_something_uses_it():
    """Two cores exchange 16 KiB; a sum in four parts of 256 results, of 2 bytes each, is passed from core to core."""
    facts = program_facts(bundles.relayout_bundle())
    assert lines(summarize(facts, 0.0), "ring") == ["1 shuffle; most from core 0 to 1: 16,384 bytes"]
    program = BundleProgram()
    program.tensor("x", {"mb": 512, "out": 2048}, kind="input")
    program.tensor("y", {"out": 2048}, kind="result")
    program.op("sumnonstick", "x", "y", splits={"mb": 4, "out": 8})
    summary = summarize(program_facts(program.bundle()), 0.0)
    assert lines(summary, "ring") == ["1 split reduction; most from core 0 to 1: 512 bytes"]
    assert "\nring " not in summarize(program_facts(bundles.add_bundle()), 0.0)


def test_spills_without_a_reason():
    """A bundle that nobody planned LX for does not say why."""
    told = lines(compiled("gelu_mlp", lx_planning=False).summary(), "spills")
    assert re.fullmatch(r"  the bundle does not say  4 buffers, [\d,]+ bytes", told[1])


def test_restickifies_and_what_they_move():
    (operation,) = [
        each for each in compiled("flatten").facts().operations if each.opcode == "ReStickifyOpHBM"
    ]
    moved = operation.read_bytes + operation.written_bytes
    assert lines(compiled("flatten").summary(), "restickifies") == [f"1, which move {moved:,} bytes"]


def test_lx_is_told_against_what_may_be_used():
    """On a device whose backend keeps more of it there is less."""
    summary = compiled("softmax_dim_0_512x1024", lx_frac_avail=0.5).summary()
    (told,) = lines(summary, "LX high water")
    high, usable, *_ = numbers(told)
    assert (
        usable
        == default_target().with_backend_fraction(0.5).usable_lx_bytes
        < default_target().usable_lx_bytes
        and 0 < high <= usable
    )


def test_shares_of_the_time_are_a_whole():
    program = compiled("llama_block")
    summary = program.summary()
    told, bar = lines(summary, "time bound by")
    shares = re.findall(r"(\w+) (\d+)%", told)
    # One bar of 60 characters, the initials of the parts, each as long as its share.
    assert re.fullmatch(r"\[[mcro]{60}\]", bar)
    assert all(abs(bar.count(part[0]) - 0.6 * int(share)) <= 1.5 for part, share in shares)
    assert {part for part, _ in shares} == {"compute", "memory", "ring", "overhead"}
    assert abs(sum(int(share) for _, share in shares) - 100) <= 2
    assert lines(summary, "predicted time")[0].endswith(f"bound by {shares[0][0]}")
    sequential = program.timeline().sequential_ns / 1000
    assert lines(summary, "overlap") == [f"overlapped; sequential {sequential:,.1f} us"]


def test_the_slowest_passes_are_told():
    """The three slowest passes, runs of one pass summed over all options; shares are of the sum of all passes."""
    passes = [(f"pass-{number}", 0.001 * number) for number in range(8)]
    passes += [("twice{limit=1}", 0.02), ("twice", 0.032)]
    told = lines(summarize(program_facts(bundles.add_bundle(), passes=passes), 0.25), "compile time")
    assert told == [
        "0.25 s, of which 10 passes 0.08 s; the slowest:",
        "   0.052 s   65%  twice",
        "   0.007 s    9%  pass-7",
        "   0.006 s    8%  pass-6",
    ]


def test_a_program_without_operations():
    told = summarize(program_facts(BundleProgram().bundle()), 0.0)
    assert lines(told, "operations") == lines(told, "spills") == lines(told, "clones") == ["0"]
    assert lines(told, "cores") == ["no operation"] and "nan" not in told


def test_an_argument_that_is_read_in_part_is_not_all_of_the_lower_bound():
    """The program reads half of an input: three times 128 x 256 numbers of 2 bytes."""
    bundle = bundles.add_bundle()
    (x, *others) = bundle.manifest.arguments
    larger = replace(bundle.manifest, arguments=(replace(x, bytes=2 * x.bytes), *others))
    least = [
        program_facts(replace(bundle, manifest=each)).argument_bytes for each in (bundle.manifest, larger)
    ]
    assert least == [3 * 128 * 256 * 2] * 2


def test_kinds_fold_equal_layers():
    """Operations of one opcode, shape and format are one row, whose times add up to the time of the program."""
    facts = compiled("llama_block").facts()
    kinds = facts.kinds
    assert (
        len({(kind.opcode, kind.shape, kind.dtype) for kind in kinds}) == len(kinds) < len(facts.operations)
    )
    assert sum(kind.shares.total for kind in kinds) == facts.timeline.shares.total
    assert [kind.shares.total for kind in kinds] == sorted(
        (kind.shares.total for kind in kinds), reverse=True
    )
    head, first, *_ = lines(compiled("llama_block").summary(), "by kind")
    assert head.split() == ["shape", "count", "share", "us", "us", "each"]
    assert first.split()[0] == kinds[0].opcode
    assert first.split()[-4:-2] == [
        f"{kinds[0].runs}",
        f"{kinds[0].shares.total / facts.timeline.shares.total:.0%}",
    ]
