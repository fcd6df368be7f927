# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The timeline of bundles: against the cost model, loops, the roofline, and what tools print of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import bundles
import pytest
import torch
from bundle_edits import design, manifest
from looped import LOOPED, looped
from programs import Apply
from simulator_programs import Program
from test_programs import on_all_cores

import spyre_mlir
from spyre_mlir.bundle.model import Bundle, Execute, IndexConstant, Loop, Statement, statements_in_order
from spyre_mlir.cost.cost_model import operation_cost, program_cost
from spyre_mlir.errors import CompileError
from spyre_mlir.target.target import default_target
from spyre_mlir.timeline import timeline
from spyre_mlir.timeline.roofline import of_program, rooflines

NAMES = (
    "softmax_dim_0_512x1024",
    "layernorm",
    "gelu_mlp",
    "matmul_1x4096x11",
    "llama_block",
    "sum_whole",
    "transpose_3",
)
WAIT = round(1000 * default_target().hbm_access_ns)
ROWS = {"mb": 512, "out": 256}


def chain(*names: str, **places: int) -> Program:
    """Return exp of exp of .. from the first to the last name, on 4 cores; placed values in LX, others in the pool."""
    program = Program()
    for name in names:
        kind = {names[0]: "input", names[-1]: "result"}.get(name)
        program.tensor(name, ROWS, kind=kind if name not in places else None, lx=places.get(name))
    for source, target in itertools.pairwise(names):
        program.op("exp", source, target, splits={"mb": 4})
    return program


def unrolled(bundle: Bundle) -> Bundle:
    """The loops of a bundle as copies of their bodies."""
    in_order = statements_in_order(bundle.statements)
    constants = {each.result: each.value for each in in_order if isinstance(each, IndexConstant)}
    executes = (each for each in statements_in_order(bundle.statements) if isinstance(each, Execute))
    uses = dict(zip(map(id, executes), bundle.manifest.uses, strict=True))
    made, used = list[Statement](), list[tuple[str, ...]]()

    def copy(statements: Sequence[Statement], names: dict[str, str], suffix: str) -> None:
        for each in statements:
            if isinstance(each, Loop):
                bounds = (constants[name] for name in (each.lower, each.upper, each.step))
                for value in range(*bounds):
                    inner = f"{suffix}_{each.induction}_{value}"
                    made.append(IndexConstant(inner, value))
                    copy(each.body, {**names, each.induction: inner}, inner)
            elif isinstance(each, Execute):
                made.append(replace(each, operands=tuple(names.get(name, name) for name in each.operands)))
                used.append(uses[id(each)])
            else:
                made.append(_renamed(each, names, suffix))

    copy(bundle.statements, {}, "")
    without_origins = replace(bundle, manifest=bundle.manifest.with_origins(()))
    return manifest(replace(without_origins, statements=tuple(made)), uses=tuple(used))


def _renamed(statement: Statement, names: dict[str, str], suffix: str) -> Statement:
    """Return a statement with renamed operands, and a new name for its result inside of a loop."""
    changes = {
        field: tuple(names.get(name, name) for name in value)
        if isinstance(value, tuple)
        else names.get(value, value)
        for field, value in vars(statement).items()
        if field in ("lhs", "rhs", "dims", "symbols")
    }
    if suffix:
        names[statement.result] = changes["result"] = statement.result + suffix
    return replace(statement, **changes)


def test_one_operation_takes_what_the_cost_model_says():
    (execution,) = timeline(bundles.add_bundle()).executions
    found = timeline(bundles.add_bundle())
    cost = operation_cost(execution.work)
    assert found.total_ns == pytest.approx(cost.total_ns, abs=0.01)
    assert found.upper_ns == pytest.approx(cost.serial_ns, abs=0.01)
    assert found.lower_ns == pytest.approx(max(cost.compute_ns, cost.memory_ns), abs=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_a_program_is_no_slower_than_its_operations_one_by_one(name):
    """The operations one by one are computed from the bytes of the plan; the time is within its interval."""
    found = on_all_cores(name).timeline()
    alone = program_cost([each.work for each in found.executions])
    assert found.lower_ns <= found.total_ns <= found.upper_ns
    assert found.total_ns <= alone.total_ns + 0.01 * len(found.executions)
    assert found.shares.total == found.run.total


def test_operations_through_device_memory_wait_for_each_other():
    """Results of the first are visible before the second loads them, although they are in LX: only a wait."""
    first, second = timeline(chain("x", "p", "y").bundle()).run.events
    assert second.load_begin == first.visible == first.ring_end + WAIT
    assert second.body_begin == second.load_begin + WAIT and second.job.stream == 0


def test_operations_through_lx_follow_at_once():
    first, second = timeline(chain("x", "e", "y", e=0).bundle()).run.events
    assert second.body_begin == first.ring_end and not second.job.loads


def test_an_argument_is_loaded_while_the_operation_before_computes():
    """64 KiB of w per core fit half of the LX that the backend keeps, but not the 64 KiB that are reserved."""
    program = chain("x", "e", "f", e=0, f=1 << 16)
    program.tensor("w", ROWS, kind="input")
    program.tensor("y", ROWS, kind="result")
    program.op("add", "f", "w", "y", splits={"mb": 4})
    first, second, third = timeline(program.bundle()).run.events
    assert third.load_begin == first.ring_end < second.ring_end
    first, second, third = timeline(program.bundle(), 0.0).run.events
    assert third.load_begin == second.ring_end


@pytest.mark.parametrize(("place", "waits"), [(0, True), (1 << 16, True), (1 << 17, False)])
def test_a_copy_into_lx_waits_for_its_place(place, waits):
    """With the buffer at the address that the operation before reads (e), writes (f), or does not access."""
    program = chain("x", "e", "f", e=0, f=1 << 16)
    program.tensor("w", ROWS, kind="input")
    program.tensor("c", ROWS, lx=place)
    program.op("identity", "w", "c", splits={"mb": 4})
    first, second, copy = timeline(program.bundle()).run.events
    assert copy.load_begin == (second.ring_end if waits else first.ring_end)


@pytest.mark.parametrize("tiles", [1, 2, 3, 8, 1000])
def test_a_loop_takes_the_time_of_its_iterations(tiles):
    """Each tile of x is loaded once, and each tile of z written; loaded tiles are not loaded again."""
    looped, flat = (
        timeline(each) for each in (bundles.loop_bundle(tiles), unrolled(bundles.loop_bundle(tiles)))
    )
    assert (looped.total_ns, looped.lower_ns, looped.upper_ns) == (
        flat.total_ns,
        flat.lower_ns,
        flat.upper_ns,
    )
    assert len(looped.executions) == 2 and [each.runs for each in looped.executions] == [tiles, tiles]
    assert sum(each.moved_bytes for each in looped.executions) == tiles * 2 * 128 * 4 * 128
    assert len(looped.run.events) <= 20


@pytest.mark.parametrize("name", LOOPED)
def test_a_compiled_loop_takes_the_time_of_its_iterations(name):
    bundle = looped(name).program.bundle
    assert _times(bundle) == _times(unrolled(bundle))


@pytest.mark.parametrize("name", LOOPED)
def test_the_roofline_counts_the_iterations(name):
    bundle = looped(name).program.bundle
    found, flat = (of_program(timeline(each)) for each in (bundle, unrolled(bundle)))
    assert (found.operations, found.bytes) == (flat.operations, flat.bytes)
    assert found.peak_per_ns == pytest.approx(flat.peak_per_ns)


def _times(bundle: Bundle) -> tuple[float, float, float]:
    found = timeline(bundle)
    return found.total_ns, found.lower_ns, found.upper_ns


def test_the_next_iteration_loads_while_this_one_computes():
    """A tile of x has 32 KiB per core, which fits half of the LX that the backend keeps."""
    found = timeline(bundles.accumulating_bundle(6))
    loads, sums = ([each for each in found.run.events if each.job.position == at] for at in (1, 2))
    assert len(loads) > 1
    for load, added in zip(loads[1:], sums, strict=False):
        assert load.load_begin == added.body_begin < added.ring_end
    assert found.lower_ns < found.total_ns < found.upper_ns


def test_more_bandwidth_is_never_slower():
    """Twice the bandwidth and half the waits, for a bundle with a loop and for a compiled bundle."""
    made = (bundles.loop_bundle(), on_all_cores("gelu_mlp").bundle)
    before = [timeline(each).total_ns for each in made]
    fast = replace(
        default_target(), one_way_bytes_per_ns=300, hbm_access_ns=default_target().hbm_access_ns / 2
    )
    after = [timeline(each.for_target(fast)).total_ns for each in made]
    assert all(new < old for new, old in zip(after, before, strict=True))


def test_the_same_bundle_has_the_same_timeline():
    program = on_all_cores("llama_block")
    assert program.timeline() == program.timeline()


def test_a_bundle_that_does_not_fit_together_is_an_error():
    with pytest.raises(CompileError, match="0 uses; expected one for each of 1 executes"):
        timeline(manifest(bundles.add_bundle(), uses=()))
    with pytest.raises(CompileError, match="frobnicate"):
        timeline(design(bundles.add_bundle(), opcode="frobnicate"))


def test_executions_know_their_line():
    (execution,) = timeline(bundles.add_bundle()).executions
    assert (execution.source, execution.opcode, execution.buffers) == (
        "model.py:12:5",
        "add",
        ("x", "y", "z"),
    )


# -- savings -----------------------------------------------------------------------------------------------


def test_keeping_buffers_on_chip_is_faster():
    """Softmax of 512 x 1024 on 32 cores, with LX and without."""
    model = Apply(lambda x: torch.softmax(x, 0)).half()
    times = [
        spyre_mlir.compile(model, (torch.zeros(512, 1024).half(),), lx_planning=lx).timeline().total_ns
        for lx in (True, False)
    ]
    assert times[0] < 0.8 * times[1]


@pytest.mark.parametrize("name", NAMES)
def test_no_rate_is_above_its_roof(name):
    """Rates of executions and of the program, except for the rounding of times to picoseconds."""
    found = on_all_cores(name).timeline()
    for each in (*rooflines(found), of_program(found)):
        rounded = replace(each, nanoseconds=each.nanoseconds + 0.01)
        assert 0 <= rounded.attained_per_ns <= each.attainable_per_ns
        assert (rounded.attained_per_ns > 0) == (each.name != "shuffle")


def test_the_roofline_of_an_addition():
    """32,768 numbers, three times 2 bytes each: a sixth of an operation per byte, under the peak of the memory."""
    (found,) = rooflines(timeline(bundles.add_bundle()))
    assert (found.operations, found.bytes) == (128 * 256, 3 * 128 * 256 * 2)
    assert found.intensity == pytest.approx(1 / 6) and found.bound_by == "memory"
    assert found.attainable_per_ns == pytest.approx(204.8 / 6)
    assert found.peak_per_ns == 2 * 6 * 64


def test_a_product_is_two_operations_per_multiply_add():
    found = on_all_cores("matmul_1x4096x11").timeline()
    (product,) = [each for each in rooflines(found) if each.name == "batchmatmul"]
    assert product.operations == 2 * 4096 * 64


def test_the_summary_tells_the_predicted_time():
    program = on_all_cores("softmax_dim_0_512x1024")
    found = str(program.timeline())
    assert f"predicted time  {found}\n" in program.summary()
    assert found.endswith("bound by memory")


def test_no_operation_takes_no_time():
    assert str(timeline(Program().bundle())) == "0.0 us, no operation"
