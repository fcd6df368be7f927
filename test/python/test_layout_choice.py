# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The layout choice against exhaustion, against edge-by-edge conversion, and against its own decisions."""

from __future__ import annotations

import functools
import itertools
import math
import random

import pytest
from layout_graphs import DTYPE, EdgeByEdge, Exhaustive, RandomGraph, price

from spyre_mlir.layout.stick_layout import StickLayout
from spyre_mlir.layout.view import BufferView, ViewError
from spyre_mlir.layout.view_transforms import Slice, Transpose, ViewTransform
from spyre_mlir.layout_search.layout_candidates import (
    candidate,
    candidate_of,
    image,
    produced_layout,
    relayout_cost,
)
from spyre_mlir.layout_search.minimum_cost import LayoutError, LayoutPlan, choose
from spyre_mlir.layout_search.tensor_graph import (
    ArgumentNode,
    Compute,
    Copy,
    Graph,
    InsertedSlice,
    InsertSliceBuffer,
    ViewNode,
    signature,
)
from spyre_mlir.target.target import default_target

BLOCKS = [range(begin, begin + 100) for begin in range(0, 1000, 100)]
EACH_BLOCK = pytest.mark.parametrize("seeds", BLOCKS, ids=lambda seeds: f"from{seeds.start}")

ROWS, TURNED = (0, 1), (1, 0)


def _random(seed: int) -> Graph:
    """Graphs of 1 to 8 operations, five of twelve have 8."""
    return RandomGraph(seed, min(8, 1 + seed % 12)).graph


@functools.cache
def _chosen(seed: int) -> tuple[Graph, LayoutPlan]:
    graph = _random(seed)
    return graph, choose(graph)


# -- random graphs ------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@EACH_BLOCK
def test_no_plan_of_a_random_graph_costs_less(seeds):
    """An exhaustive search finds nothing cheaper, and something that costs the same.

    Of seeds 46 and 178 there are too many layouts to prove it; in 549 two orders of one stick help, which no state has.
    """
    for seed in seeds:
        graph, plan = _chosen(seed)
        least = Exhaustive(graph, plan.cost).cost()
        assert plan.cost == least or (seed == 549 and plan.cost < 1.01 * least), f"seed {seed}"
        assert plan.proven or seed in (46, 178), f"seed {seed}"


@EACH_BLOCK
def test_the_cost_is_that_of_the_decisions(seeds):
    """Every layout that a plan reads is produced, and the costs of its decisions add up to its cost."""
    for seed in seeds:
        graph, plan = _chosen(seed)
        assert price(graph, plan) == plan.cost, f"seed {seed}"


@EACH_BLOCK
def test_never_more_than_a_conversion_for_each_edge(seeds):
    """Greedy decisions, each with separate conversions, are never cheaper."""
    for seed in seeds:
        graph, plan = _chosen(seed)
        assert plan.cost <= EdgeByEdge(graph).cost(), f"seed {seed}"


@EACH_BLOCK
def test_the_beam_stays_between_bound_and_optimum(seeds):
    """With tables of at most 64 entries, bound <= optimum <= cost, and the cost is the cost of a real plan."""
    for seed in seeds:
        graph, exact = _chosen(seed)
        plan = choose(graph, limit_entries=64, width=200)
        assert plan.bound <= exact.cost <= plan.cost == price(graph, plan), f"seed {seed}"


def test_a_beam_is_not_always_proven():
    """The test above sees tables that are split: some plans are not proven then."""
    plans = [choose(_random(seed), limit_entries=64, width=20) for seed in range(300)]
    assert 0 < sum(not plan.proven for plan in plans) < 300


@EACH_BLOCK
def test_weights_are_never_converted(seeds):
    """A transposed weight is not converted either: a layout of the weight gives its readers any stick."""
    for seed in seeds:
        graph, plan = _chosen(seed)
        for node, decision in zip(graph.nodes, plan.decisions, strict=True):
            targets = {conversion.target.stick_dim for conversion in decision.relayouts}
            if isinstance(node, ArgumentNode) and node.free:
                assert not targets
            elif isinstance(node, ViewNode) and isinstance(node.step, Transpose) and node.pin is None:
                root = graph.nodes[node.source]
                assert not targets or not (isinstance(root, ArgumentNode) and root.free), f"seed {seed}"


@EACH_BLOCK
def test_a_plan_is_the_same_twice(seeds):
    """The choice depends on nothing but the graph."""
    for seed in seeds:
        first, second = _chosen(seed)[1], choose(_random(seed))
        assert first.decisions == second.decisions


def test_random_graphs_have_all_that_matters():
    """There are many nodes of each kind, and most graphs have a tensor with several readers."""
    graphs = [_random(seed) for seed in range(1000)]
    kinds = [type(node).__name__ for graph in graphs for node in graph.nodes]
    assert (
        min(map(kinds.count, ("ArgumentNode", "Compute", "ViewNode", "Copy", "InsertSliceBuffer", "IterArg")))
        > 300
    )
    assert sum(any(len(each) > 1 for each in graph.readers()) for graph in graphs) > 900
    assert sum(node.pin is not None for graph in graphs for node in graph.nodes) > 500


# -- forms alone --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_conversions_equal_brute_force_over_forms(seed):
    """On matrices of one stick without views all transfers cost the same: the fewest conversions are the cheapest.

    The oracle knows two rules by heart: pointwise operations have one stick, a product a b has the contracted
    dim in the stick of a, its columns in the sticks of b and the result; or the same of the transposed product.
    """
    operations = _square_program(random.Random(seed))
    graph = _square_graph(operations)
    plan = choose(graph)
    priced = _conversion_prices(graph, plan)
    assert plan.proven and priced == _fewest_conversions(operations) * _square_price()


def _square_program(rng: random.Random) -> list[tuple[str, int, tuple[int, int], tuple, tuple]]:
    """(opcode, times, operands, their maps) for two inputs and up to 8 operations on any of what came before."""
    program = []
    for index in range(rng.randint(3, 8)):
        operands = (rng.randrange(index + 2), rng.randrange(index + 2))
        product = rng.random() < 0.5
        dims = ((0, 2), (2, 1)) if product else ((0, 1), (0, 1))
        maps = tuple(tuple(rng.sample(each, 2)) for each in dims)
        program.append(("batchmatmul" if product else "add", rng.choice((1, 1, 3)), operands, maps))
    return program


def _square_graph(program) -> Graph:
    graph = Graph(default_target())
    for _ in range(2):
        graph.add(ArgumentNode(_SQUARE, DTYPE))
    for opcode, times, operands, maps in program:
        reduced = (2,) if opcode == "batchmatmul" else ()
        made = signature(default_target(), opcode, (*maps, (0, 1)), (_SQUARE,) * 3, (DTYPE,) * 3, reduced)
        graph.add(Compute(_SQUARE, DTYPE, times, signature=made, operands=operands))
    return graph


_SQUARE = (64, 64)


def _square_price() -> float:
    rows, turned = (
        candidate_of(StickLayout.for_tensor(default_target(), _SQUARE, DTYPE, order))
        for order in (ROWS, TURNED)
    )
    assert relayout_cost(rows, turned) == relayout_cost(turned, rows)
    return relayout_cost(rows, turned)


def _conversion_prices(graph: Graph, plan: LayoutPlan) -> float:
    return sum(
        node.times * relayout_cost(conversion.source, conversion.target)
        for node, decision in zip(graph.nodes, plan.decisions, strict=True)
        for conversion in decision.relayouts
    )


def _fewest_conversions(program) -> int:
    """Minimise over all layouts of all operations the (tensor, stick) pairs that are read but not made, times runs."""
    best = math.inf
    for chosen in itertools.product(*(_square_forms(opcode) for opcode, *_ in program)):
        made = {0: 1, 1: 1} | {index: lanes[-1] for index, lanes in enumerate(chosen, 2)}
        often = [1, 1, *(times for _, times, *_ in program)]
        wanted = {
            (operand, dims.index(lane))
            for (_, _, operands, maps), lanes in zip(program, chosen, strict=True)
            for operand, dims, lane in zip(operands, maps, lanes, strict=False)
        }
        best = min(best, sum(often[operand] for operand, lane in wanted if made[operand] != lane))
    return int(best)


def _square_forms(opcode: str) -> tuple[tuple[int, int, int], ...]:
    """The iteration dims in the sticks of both operands and the result; dim 2 is contracted."""
    if opcode == "add":
        return (0, 0, 0), (1, 1, 1)
    return (2, 1, 1), (0, 2, 0)


# -- single decisions ---------------------------------------------------------------------------------


def _add(graph: Graph, operands: tuple[int, int], times: int = 1, pin: StickLayout | None = None) -> int:
    shape = graph.nodes[operands[0]].shape
    own = tuple(range(len(shape)))
    made = signature(default_target(), "add", (own, own, own), (shape,) * 3, (DTYPE,) * 3)
    return graph.add(Compute(shape, DTYPE, times, pin, signature=made, operands=operands))


def _matmul(graph: Graph, left: int, right: int, times: int = 1) -> int:
    (rows, inner), (_, columns) = graph.nodes[left].shape, graph.nodes[right].shape
    shapes = ((rows, inner), (inner, columns), (rows, columns))
    made = signature(default_target(), "batchmatmul", ((0, 2), (2, 1), (0, 1)), shapes, (DTYPE,) * 3, (2,))
    return graph.add(Compute(shapes[-1], DTYPE, times, signature=made, operands=(left, right)))


def _given(graph: Graph, order: tuple[int, int] = ROWS, *, free: bool = False) -> int:
    shape = (128, 128)
    pin = None if free else StickLayout.for_tensor(default_target(), shape, DTYPE, order)
    return graph.add(ArgumentNode(shape, DTYPE, pin=pin, free=free))


def test_two_readers_share_one_conversion():
    """A tensor that two readers need with another stick is converted once."""
    graph = Graph(default_target())
    rows, turned = _given(graph), _given(graph, TURNED)
    first = _matmul(graph, rows, turned)
    second = _matmul(graph, rows, turned)
    plan = choose(graph)
    counts = [len(decision.relayouts) for decision in plan.decisions]
    assert counts == [0, 1, 0, 0]
    assert plan.decisions[first].reads[1] is plan.decisions[second].reads[1]


@pytest.mark.parametrize(("times", "conversions"), [(1, 2), (100, 0)])
def test_small_tensors_in_a_loop_are_not_packed(times, conversions):
    """Maxima of rows, which are sparse, through four operations and back to the rows: in a loop they stay in LX."""
    graph, (rows, columns) = Graph(default_target()), (4096, 256)
    scores = graph.add(ArgumentNode((rows, columns), DTYPE, times))
    made = signature(default_target(), "max", ((0, 1), (0,)), ((rows, columns), (rows,)), (DTYPE,) * 2, (1,))
    last = graph.add(Compute((rows,), DTYPE, times, signature=made, operands=(scores,)))
    for _ in range(4):
        made = signature(default_target(), "add", ((0,),) * 3, ((rows,),) * 3, (DTYPE,) * 3, ())
        last = graph.add(Compute((rows,), DTYPE, times, signature=made, operands=(last, last)))
    made = signature(
        default_target(),
        "sub",
        ((0, 1), (0,), (0, 1)),
        ((rows, columns), (rows,), (rows, columns)),
        (DTYPE,) * 3,
        (),
    )
    graph.add(Compute((rows, columns), DTYPE, times, signature=made, operands=(scores, last)))
    assert sum(len(decision.relayouts) for decision in choose(graph).decisions) == conversions


@pytest.mark.parametrize("times", [1, 100])
def test_a_conversion_stands_outside_the_loop_of_its_readers(times):
    """A conversion of an input runs as often as its producer, however often it is read."""
    graph = Graph(default_target())
    rows, turned = _given(graph), _given(graph, TURNED)
    _matmul(graph, rows, turned, times)
    (conversion,) = choose(graph).decisions[turned].relayouts
    assert conversion.cost == relayout_cost(conversion.source, conversion.target, from_host=True)


def test_a_conversion_runs_as_often_as_its_producer():
    """A result of a loop is converted in each iteration, even for a reader outside of the loop."""
    graph = Graph(default_target())
    turned = StickLayout.for_tensor(default_target(), (128, 128), DTYPE, TURNED)
    source = _add(graph, (_given(graph, TURNED), _given(graph, TURNED)), times=7, pin=turned)
    _add(graph, (source, source), pin=StickLayout.for_tensor(default_target(), (128, 128), DTYPE, ROWS))
    (conversion,) = choose(graph).decisions[source].relayouts
    assert conversion.cost == 7 * relayout_cost(conversion.source, conversion.target)


def test_a_weight_wanted_in_two_sticks_is_given_twice():
    """Both layouts exist ahead of time."""
    graph = Graph(default_target())
    weight = _given(graph, free=True)
    _add(graph, (_given(graph), weight))
    _add(graph, (weight, _given(graph, TURNED)))
    state = choose(graph).decisions[weight].state
    assert {held.stick_dim for held in state.base} == {0, 1} and not state.converted


def test_a_part_with_a_pin_is_not_made_in_a_place_that_lies_differently():
    """The place has the stick of the pin but another order: the part is copied there."""
    shape, larger = (64, 64, 64), (128, 64, 64)
    pins = [
        StickLayout.for_tensor(default_target(), at, DTYPE, order)
        for at, order in ((shape, (0, 1, 2)), (larger, (1, 0, 2)))
    ]
    graph = Graph(default_target())
    source = graph.add(ArgumentNode(shape, DTYPE))
    part = graph.add(Copy(shape, DTYPE, pin=pins[0], source=source))
    places = [Slice((at, 0, 0), shape, (1, 1, 1)) for at in (0, 64)]
    parts = (InsertedSlice(part, places[0]), InsertedSlice(source, places[1]))
    buffer = graph.add(InsertSliceBuffer(larger, DTYPE, pin=pins[1], parts=parts))
    assert choose(graph).decisions[buffer].in_place == (False, False)
    graph.nodes[part].pin = None
    assert choose(graph).decisions[buffer].in_place == (True, False)


def test_a_pinned_view_is_still_a_view_of_something():
    """The pinned copy is made from a view that the layout of the source allows."""
    graph = Graph(default_target())
    source = _given(graph)
    pin = StickLayout.for_tensor(default_target(), (128, 64), DTYPE, TURNED)
    view = graph.add(
        ViewNode((128, 64), DTYPE, pin=pin, source=source, step=Slice((0, 64), (128, 64), (1, 1)))
    )
    plan = choose(graph)
    read, base = plan.decisions[view].reads[0], plan.decisions[view].state.base[0]
    assert read in plan.decisions[source].state.available and image(graph.nodes[view].step, read) is base
    assert plan.decisions[view].state.available[0].stick_dim == 0


def test_a_pinned_view_is_converted_for_a_reader_that_cannot_take_it():
    """A pin states the layout of a tensor, but its readers may use another layout."""
    graph = Graph(default_target())
    pin = StickLayout.for_tensor(default_target(), (128, 128), DTYPE, TURNED)
    view = graph.add(ViewNode((128, 128), DTYPE, pin=pin, source=_given(graph, TURNED), step=Transpose(ROWS)))
    _matmul(graph, _given(graph), view)
    (conversion,) = choose(graph).decisions[view].relayouts
    assert (conversion.source.stick_dim, conversion.target.stick_dim) == (0, 1)


def test_a_batched_product_has_its_rows_innermost():
    """At equal bytes the order whose rows lie together makes longer runs than the default one."""
    graph = Graph(default_target())
    shapes = ((8, 256, 128), (8, 128, 64), (8, 256, 64))
    left, right = (graph.add(ArgumentNode(shape, DTYPE, free=True)) for shape in shapes[:2])
    maps = ((0, 1, 3), (0, 3, 2), (0, 1, 2))
    made = signature(default_target(), "batchmatmul", maps, shapes, (DTYPE,) * 3, (3,))
    product = graph.add(Compute(shapes[-1], DTYPE, signature=made, operands=(left, right)))
    plan = choose(graph)
    assert [plan.decisions[at].state.produced.candidate.order for at in (left, right, product)] == [
        (0, 2, 1), (0, 1), (0, 1),
    ]  # fmt: skip


# -- errors -------------------------------------------------------------------------------------------


def test_a_pin_that_breaks_the_rule_of_its_operation_is_an_error():
    """A product has its rows or its columns in the stick, never a batch dim."""
    graph = Graph(default_target())
    shapes = ((64, 128, 128), (64, 128, 128), (64, 128, 128))
    left, right = (graph.add(ArgumentNode(shape, DTYPE)) for shape in shapes[:2])
    made = signature(
        default_target(), "batchmatmul", ((0, 1, 3), (0, 3, 2), (0, 1, 2)), shapes, (DTYPE,) * 3, (3,)
    )
    pin = StickLayout.for_tensor(default_target(), shapes[-1], DTYPE, (1, 2, 0))
    node = graph.add(Compute(shapes[-1], DTYPE, pin=pin, signature=made, operands=(left, right)))
    with pytest.raises(LayoutError, match=r"^the pinned layout breaks a rule: .*a matmul has ") as caught:
        choose(graph)
    assert caught.value.node == node


def test_a_pin_whose_stick_a_part_cuts_is_an_error():
    """A buffer of 96 + 96 rows cannot have the rows in the stick."""
    graph = Graph(default_target())
    source = graph.add(ArgumentNode((96, 64), DTYPE))
    places = [Slice((at, 0), (96, 64), (1, 1)) for at in (0, 96)]
    pin = StickLayout.for_tensor(default_target(), (192, 64), DTYPE, TURNED)
    graph.add(
        InsertSliceBuffer(
            (192, 64), DTYPE, pin=pin, parts=tuple(InsertedSlice(source, place) for place in places)
        )
    )
    with pytest.raises(
        LayoutError, match=r"its part at \[96, 0\] does not fit it: .* cuts the sticks of dim 0"
    ):
        choose(graph)


class _NoView(ViewTransform):
    """A view operation that no layout has a view for."""

    def apply(self, source: BufferView) -> BufferView:
        raise ViewError("it turns the tensor inside out")


def test_a_view_without_device_form_is_an_error():
    """The error has the reason of the view itself."""
    graph = Graph(default_target())
    view = graph.add(ViewNode((128, 128), DTYPE, source=_given(graph), step=_NoView()))
    with pytest.raises(
        LayoutError, match=r"^this view has no device form: it turns the tensor inside out$"
    ) as caught:
        choose(graph)
    assert caught.value.node == view


# -- programs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["softmax_dim_0_64x64", "rmsnorm", "gelu_mlp", "sdpa_mask_bool", "rotary", "pad"]
)
def test_no_plan_of_a_program_costs_less(name):
    """The plan of an end-to-end program equals the plan of an exhaustive search."""
    from programs import PROGRAMS

    from spyre_mlir import dialects
    from spyre_mlir.analysis.aliasing import functions
    from spyre_mlir.analysis.layout_graph import LayoutGraph
    from spyre_mlir.frontend import import_torch
    from spyre_mlir.pipelines import SpyrePipeline, run_pipeline

    module = import_torch(*PROGRAMS[name](), context=dialects.context()).module
    run_pipeline(module, SpyrePipeline().pipeline("device-ops"))
    (function,) = functions(module.operation)
    graph = LayoutGraph(function).graph
    plan = choose(graph)
    assert plan.proven and Exhaustive(graph, plan.cost).cost() == plan.cost == price(graph, plan)
    assert plan.cost <= EdgeByEdge(graph).cost()


def test_there_is_one_object_per_layout_whatever_caches_forget():
    """Candidates and produced layouts compare by identity, so a layout in use is never made a second time."""
    layout = StickLayout.for_tensor(default_target(), (128, 256), "f16")
    first = candidate_of(layout)
    produced = produced_layout(first)
    candidate.cache_clear()
    candidate_of.cache_clear()
    produced_layout.cache_clear()
    assert candidate_of(layout) is first
    assert produced_layout(candidate_of(layout)) is produced
