# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times and bytes of collectives on the link: closed forms, the choice by size, and the timeline of a mesh."""

import math
from types import SimpleNamespace

import pytest

from spyre_mlir.cost.link import ALGORITHMS, collective_cost
from spyre_mlir.driver.collectives import CollectiveStep
from spyre_mlir.driver.mesh_timeline import mesh_timeline
from spyre_mlir.driver.steps import BundleStep
from spyre_mlir.errors import CompileError
from spyre_mlir.target.target import LinkRates

A, B = 2000.0, 25.0
RATES = LinkRates(A, B)

#: Time and bytes of all ranks, for n ranks, S bytes of each, and L = log2(n).
CLOSED_FORMS = {
    ("all_reduce", "ring"): lambda n, s, log: (2 * (n - 1) * (A + s / (n * B)), 2 * (n - 1) * s),
    ("all_reduce", "tree"): lambda n, s, log: (2 * log * (A + s / B), 2 * (n - 1) * s),
    ("all_reduce", "direct"): lambda n, s, log: (A + (n - 1) * s / B, n * (n - 1) * s),
    ("all_gather_into_tensor", "ring"): lambda n, s, log: ((n - 1) * (A + s / B), n * (n - 1) * s),
    ("all_gather_into_tensor", "tree"): lambda n, s, log: (log * A + (n - 1) * s / B, n * (n - 1) * s),
    ("all_gather_into_tensor", "direct"): lambda n, s, log: (A + (n - 1) * s / B, n * (n - 1) * s),
    ("reduce_scatter_tensor", "ring"): lambda n, s, log: ((n - 1) * (A + s / (n * B)), (n - 1) * s),
    ("reduce_scatter_tensor", "direct"): lambda n, s, log: (A + (n - 1) * s / (n * B), (n - 1) * s),
    ("all_to_all_single", "ring"): lambda n, s, log: ((n - 1) * (A + s / (n * B)), (n - 1) * s),
    ("all_to_all_single", "direct"): lambda n, s, log: (A + (n - 1) * s / (n * B), (n - 1) * s),
    ("broadcast", "tree"): lambda n, s, log: (log * (A + s / B), (n - 1) * s),
    ("broadcast", "direct"): lambda n, s, log: (A + (n - 1) * s / B, (n - 1) * s),
}


def test_every_algorithm_has_a_closed_form():
    """The table of this test and the algorithms name the same pairs."""
    assert set(CLOSED_FORMS) == {
        (name, algorithm) for name, forms in ALGORITHMS.items() for algorithm in forms
    }


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
@pytest.mark.parametrize("size", [4096, 1 << 20])
@pytest.mark.parametrize("call", CLOSED_FORMS, ids="-".join)
def test_rounds_sum_up_to_the_closed_form(call, size, ranks):
    """The messages of all rounds, in time and in bytes of all ranks."""
    rounds = list(ALGORITHMS[call[0]][call[1]](ranks, size))
    time, total = CLOSED_FORMS[call](ranks, size, math.log2(ranks))
    assert sum(A + each.busiest_bytes / B for each in rounds) == pytest.approx(time, rel=1e-9)
    assert sum(each.bytes for each in rounds) == total


def test_ranks_that_are_not_a_power_of_two():
    """A tree of 6 ranks has 3 rounds and sends 5 messages; a ring has parts that are rounded up."""
    assert [each.bytes for each in ALGORITHMS["broadcast"]["tree"](6, 10)] == [30, 10, 10]
    assert {each.busiest_bytes for each in ALGORITHMS["all_reduce"]["ring"](6, 100)} == {17}
    assert [each.busiest_bytes for each in ALGORITHMS["all_gather_into_tensor"]["tree"](6, 10)] == [
        10,
        20,
        20,
    ]


def test_the_algorithm_is_chosen_by_size():
    """Few bytes are sent at once, many bytes around the ring; medium sizes of many ranks take the tree."""
    assert collective_cost("all_reduce", 16, 1 << 10, RATES).algorithm == "direct"
    assert collective_cost("all_reduce", 16, 1 << 17, RATES).algorithm == "tree"
    assert collective_cost("all_reduce", 16, 1 << 26, RATES).algorithm == "ring"


def test_unknown_rates_are_an_error():
    """The packaged device file does not have the rates of the link, because none is public."""
    with pytest.raises(CompileError, match=r"give message_ns and sent_bytes_per_ns in the section \[link\]"):
        collective_cost("all_reduce", 2, 64, LinkRates(0, 0))


def rank(*steps):
    """Return a program with these steps, as the timeline sees it: device steps of 10 us on a link with rates."""
    target = SimpleNamespace(link=RATES)
    bundle = SimpleNamespace(manifest=SimpleNamespace(expects=()), target=target)
    made = [
        CollectiveStep(
            name, inputs, outputs, "all_reduce", {"reduce_op": "sum"}, (0, 1), "f16", (512,), (512,)
        )
        if name.startswith("collective")
        else BundleStep(name, inputs, outputs, None, bundle, {})
        for name, inputs, outputs in steps
    ]
    bundles = [step for step in made if isinstance(step, BundleStep)]
    return SimpleNamespace(
        steps=made, bundles=bundles, timelines=[SimpleNamespace(total_ns=10_000)] * len(bundles)
    )


@pytest.mark.parametrize(("reads", "total"), [("x", 20.0), ("sum", 22.04096)])
def test_a_collective_overlaps_with_what_does_not_depend_on_it(reads, total):
    """A device step that reads the sum waits for the link, and another one does not."""
    program = rank(
        ("device_0", ("x",), ("y",)), ("collective_0", ("y",), ("sum",)), ("device_1", (reads,), ("z",))
    )
    timeline = mesh_timeline([program] * 2)
    assert timeline.total_us == pytest.approx(total)
    assert timeline.busy_us("link", 1) == pytest.approx(2.04096) and timeline.link_bytes == 2 * 1024


def test_a_collective_waits_for_the_last_rank():
    """The sum begins when both ranks have their parts."""
    late = rank(("device_0", (), ("a",)), ("device_1", ("a",), ("y",)), ("collective_0", ("y",), ("sum",)))
    soon = rank(("device_0", (), ("y",)), ("collective_0", ("y",), ("sum",)))
    begins = [event.begin_us for event in mesh_timeline([late, soon]).events if event.engine == "link"]
    assert begins == [20.0, 20.0]


def test_the_picture_shows_ranks_above_each_other():
    """A row of each engine of each rank, and the bytes on the link."""
    program = rank(("device_0", ("x",), ("y",)), ("collective_0", ("y",), ("sum",)))
    text = mesh_timeline([program] * 2).svg("sum")
    assert all(row in text for row in ("0 device", "0 link", "1 device", "1 link", "2,048 bytes on the link"))
