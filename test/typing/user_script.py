# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A user's script with every public name, which type checkers at their strictest find nothing wrong with.

It is read, not run: test/python/test_public_api.py gives it to mypy and to pyright next to an installed package.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, assert_type

import numpy as np
import torch
from numpy.typing import NDArray

import spyre_mlir
from spyre_mlir import dialects, experiments, mlir, zoo
from spyre_mlir.algorithms import Algorithm, register
from spyre_mlir.analysis.aliasing import AliasAnalysis, all_ops, functions, is_compute
from spyre_mlir.analysis.plan_pins import Pins, pins_of, set_pins
from spyre_mlir.bundle import read_arrays, read_bundle, write_bundle
from spyre_mlir.bundle.validate import Finding, races, validate
from spyre_mlir.cost.cost_model import OperationCost, operation_cost
from spyre_mlir.cost.link import CollectiveCost
from spyre_mlir.cost.replaced_model import CostModel
from spyre_mlir.cost.ring_traffic import (
    RelayoutTraffic,
    cheapest,
    relayout_ns,
    relayout_traffic,
    transfers_of,
)
from spyre_mlir.cost.work import OperandWork, OperationWork
from spyre_mlir.dialects import ktdp, sdsc, sdscbundle, stick
from spyre_mlir.dialects.structured import (
    Structured,
    defining_op,
    device_op,
    element_of,
    iterators,
    rebuilt,
    reduced_dims,
    shape_of,
    structured,
)
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.division import Division
from spyre_mlir.division.relayout import Distribution, Relayout
from spyre_mlir.division_search.joint_choice import JointDivider, JointProblem
from spyre_mlir.division_search.work_division import DivisionOfOperation, WorkDivision
from spyre_mlir.driver.checking import ModuleComparison, ModuleComparisons
from spyre_mlir.driver.collectives import MeshPlace
from spyre_mlir.driver.device_report import DeviceReport
from spyre_mlir.driver.ktir_program import KtirProgram
from spyre_mlir.driver.mesh_timeline import MeshEvent, MeshTimeline
from spyre_mlir.driver.problem_files import read_problem
from spyre_mlir.driver.program import Traffic
from spyre_mlir.errors import CompileError
from spyre_mlir.experiments import Results, Tuned, TuningSpace, sweep, tune
from spyre_mlir.experiments.check.algorithm_checks import Check, CheckFailure, checks_of
from spyre_mlir.frontend import import_torch
from spyre_mlir.frontend.importer import Imported
from spyre_mlir.frontend.torch_programs import TorchBackend
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.host_transfer import dma_tuples
from spyre_mlir.layout_search.layout_choice import LayoutChoice, LayoutProblem
from spyre_mlir.lowering.export import export
from spyre_mlir.mlir import clean, indexing_maps, ir, location_of, source_operation
from spyre_mlir.passes.base import Pass
from spyre_mlir.pipelines import Pipeline, SpyrePipeline, run_pipeline
from spyre_mlir.remarks import Remark, Remarks
from spyre_mlir.report.findings import ProgramFinding
from spyre_mlir.scratchpad import (
    BestFitLayoutSolver,
    FirstFitLayoutSolver,
    GreedyLayoutSolver,
    LifetimeBoundBuffer,
    MemoryPlan,
    MemoryPlanSolver,
    MemorySpace,
    PlanError,
    solver,
)
from spyre_mlir.scratchpad.check import check_plan
from spyre_mlir.scratchpad.fitting import fit, lowest
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.solver import Placement, Residency, SpillAndReloadPlan
from spyre_mlir.scratchpad.spill_and_reload import SpillAndReloadSolver
from spyre_mlir.simulator import (
    ExecuteStatistics,
    Result,
    Schedule,
    SimulationError,
    Statistics,
    run,
    run_sequence,
)
from spyre_mlir.target.ops import DL16, DeviceOp, Kind, define
from spyre_mlir.target.target import Target, default_target, packaged_target
from spyre_mlir.tensors.device_state import DeviceState
from spyre_mlir.tiling.tiling_choice import TilingChoice, TilingProblem
from spyre_mlir.timeline import Execution, Timeline, timeline
from spyre_mlir.timeline.roofline import Roofline, of_program, rooflines
from spyre_mlir.timeline.timeline import BufferWait
from spyre_mlir.timing import Timing, scope
from spyre_mlir.zoo.suite import FULL, SuiteSizes
from spyre_mlir.zoo.suite import program as suite_program

# -- a pass, with options, that reads and writes IR ----------------------------------------------------


@dataclass(frozen=True)
class MultiplyByReciprocal(Pass):
    """Replace divisions."""

    name: ClassVar[str] = "multiply-by-reciprocal"
    limit: int = 1000

    def run(self, module: ir.Operation) -> None:
        divisions: list[ir.Operation] = []

        def visit(op: ir.Operation) -> ir.WalkResult:
            if op.name == "arith.divf":
                divisions.append(op)
            return ir.WalkResult.ADVANCE

        module.walk(visit)
        for op in divisions[: self.limit]:
            with ir.InsertionPoint(op), op.location:
                one = ir.Operation.create(
                    "arith.constant",
                    results=[ir.F16Type.get()],
                    attributes={"value": ir.FloatAttr.get(ir.F16Type.get(), 1.0)},
                ).result
                reciprocal = ir.Operation.create("arith.divf", [one.type], [one, op.operands[1]]).result
                product = ir.Operation.create("arith.mulf", [one.type], [op.operands[0], reciprocal])
            op.result.replace_all_uses_with(product.result)
            op.erase()
            self.remark(product, "reciprocal", "a division costs more", before=2.0, after=1.0)
        if not divisions:
            self.warn(module, "there is no division")
        clean(module)
        assert mlir.ir is ir


# -- algorithms: a decorator keeps the class -----------------------------------------------------------


@register
@dataclass(frozen=True)
class Ascending(MemoryPlanSolver):
    """First fit in the order of the first use."""

    name: ClassVar[str] = "ascending"
    reverse: bool = False

    def place(self, instance: Instance) -> Placement:
        order = range(len(instance))
        addresses = fit(instance, reversed(order) if self.reverse else order, lowest)
        return Placement(addresses, bound=0, work=len(instance), reasons={})


@register
class OneCore(WorkDivision):
    """All operations on one core."""

    name: ClassVar[str] = "one-core"

    def divide(self, problem: DivisionOfOperation) -> Sequence[int]:
        least = min(problem.table.splits.tolist(), key=problem.cost_ns)
        return least if problem.is_legal(least) else problem.committed


@register
class AsTheyCame(JointDivider):
    """The first candidate of all."""

    name: ClassVar[str] = "as-they-came"

    def choose(self, problem: JointProblem) -> Sequence[int]:
        states = [0] * len(problem.counts)
        assert problem.times(states).total_ns >= 0
        return states


@register
class FirstStates(LayoutChoice):
    """The first state of each tensor."""

    name: ClassVar[str] = "first-states"

    def choose(self, problem: LayoutProblem) -> Sequence[int] | None:
        states = [0] * len(problem.counts)
        return states if problem.cost(states) < float("inf") else None


@register
class NoTiles(TilingChoice):
    """No loops."""

    name: ClassVar[str] = "no-tiles"

    def choose(self, problem: TilingProblem) -> int | None:
        fastest = min(range(len(problem.candidates)), key=lambda index: problem.evaluate(index) or 0.0)
        return fastest if problem.purpose == "span" and problem.candidates[fastest].tiles > 1 else None


@register
class TwiceAsSlow(CostModel):
    """Another device."""

    name: ClassVar[str] = "twice-as-slow"

    def compute_ns(self, work: OperationWork) -> float:
        return 2.0 * work.sticks_per_core / work.target.vector_sticks_per_ns

    def memory_ns(self, work: OperationWork) -> float:
        moved = sum(operand.moved_bytes for operand in work.operands)
        return 2.0 * moved / work.target.peak_bytes_per_ns


def compilations(x: torch.Tensor) -> None:
    """Every option of ``compile``, and the members of what it returns."""
    program = spyre_mlir.compile(
        torch.nn.Linear(64, 64),
        (x,),
        device=Path("device.toml"),
        sencores=8,
        precision="strict",
        numerics="dl16",
        layouts={0: {"stick_dims": [0]}, "result0": {"stick_dims": [1]}},
        plan={"version": 1},
        fallback=False,
        autocast=torch.float16,
        one_bundle=True,
        target="bundle",
        cache=False,
        check=True,
        passes={"laid-out": [MultiplyByReciprocal(limit=3)]},
        state=["cache"],
        verify_each=True,
        uneven_splits=True,
        matmul="specified",
        division="one-core",
        joint_division="as-they-came",
        layout_choice="first-states",
        tiling="no-tiles",
        cost_model="twice-as-slow",
        stick_outermost=True,
        argument_layouts="default",
        host_padding="zero",
        lx_planning=True,
        co_optimizing_lx_planning=True,
        co_optimizer="strategy-b",
        layout_solver="ascending",
        lx_frac_avail=0.1,
        clone_inputs=False,
        clone_outputs=False,
        reorder=True,
        moves=True,
        double_buffer=True,
        native_windows=True,
        in_place=True,
        lx_ops=("add",),
        order_by_size=True,
        bundle_operations=100,
        non_terminal=True,
        tile_attention=True,
        skip_masked_tiles=True,
        tile_for_lx=True,
        tile_for_span=True,
        from_level="linalg",
        insert=("laid-out:multiply-by-reciprocal",),
        reuse=True,
        use_plan="plan.json",
        ktir_addresses=False,
        save_plan="plan.json",
    )
    assert_type(program, spyre_mlir.Program)
    figures(program)
    calls(program, x)
    dynamic = spyre_mlir.compile(torch.nn.ReLU(), (x,), dynamic={"S": (64, 4096)})
    assert_type(dynamic, spyre_mlir.DynamicProgram[spyre_mlir.Program])
    at_sizes(dynamic, x)
    # The types of torch.compile itself are not all known.
    compiled = torch.compile(torch.nn.ReLU(), backend=spyre_mlir.torch_backend)  # pyright: ignore[reportUnknownMemberType]
    compiled(x)
    for entry in spyre_mlir.torch_backend.programs:
        if isinstance(entry, spyre_mlir.PiecewiseProgram):
            in_pieces(entry, x)
    assert_type(spyre_mlir.torch_backend, TorchBackend)
    spyre_mlir.torch_backend.programs.clear()


def figures(program: spyre_mlir.Program) -> None:
    """What a program says without a run."""
    assert_type(program.metrics(), dict[str, float])
    metrics: float = program.metrics()["predicted_us"] + program.compile_seconds + program.import_seconds
    print(program.summary(findings=False), metrics, program.numerics, program.passes[0][1])
    assert_type(program.remarks, list[Remark])
    assert_type(program.findings, tuple[ProgramFinding, ...])
    for finding in program.findings:
        print(
            finding.problem, finding.cause, finding.module, finding.location, finding.change, finding.saved_us
        )
        print(finding.before_us - finding.after_us)
    for remark in [*program.finding_remarks, *program.pass_remarks]:
        print(remark.pass_name, remark.op_location, remark.op_name, remark.kind, remark.reason, remark.module)
        print(remark.with_module, (remark.before or 0.0) - (remark.after or 0.0))
    line = program.timeline()
    times(line)
    print([each.total_ns for each in program.timelines], program.bound(), program.transfers())
    assert_type(program.is_one_bundle, bool)
    print(program.bundle, program.module.operation.get_asm(), program.bundles[0].bundle, program.returned)
    print([(value.name, value.kind, value.host_shape, value.host_dtype) for value in program.inputs])
    print(program.arguments[0].host_shape, program.results[0].name, program.steps, program.lx_frac_avail)
    plan = program.plan()
    page: Path = program.report("page.html")
    program.save("out", lay_out_weights=True)
    spyre_mlir.compile("module.mlir", plan=plan)
    assert_type(spyre_mlir.Program.load("out", numerics="ieee"), spyre_mlir.Program)
    print(page, program.at(S=64).metrics())


def calls(program: spyre_mlir.Program, x: torch.Tensor) -> None:
    """Runs of a program, and what they moved."""
    y: torch.Tensor = program(x)
    laid_out = program.to_device("x", x)
    assert_type(laid_out, spyre_mlir.DeviceTensor)
    program.lay_out_weights()
    results = program.run({"x": y.numpy(), **program.arrays})
    traffic = program.traffic()
    assert_type(traffic, Traffic)
    print(results[0].shape, traffic.read_bytes + traffic.written_bytes, traffic.by_op[0])
    if program.last_run is not None:
        counted(program.last_run)
    state = program.state
    assert_type(state, DeviceState)
    state["cache"] = np.zeros((4, 64), np.float16)
    print(state["cache"].numpy(), len(state), list(state))
    state.reset()
    if isinstance(program, KtirProgram):
        text, _ = program.ktir
        print(text, program.addresses, program.last_interpreter_run)


def at_sizes(program: spyre_mlir.DynamicProgram[spyre_mlir.Program], x: torch.Tensor) -> None:
    """A program of many sizes."""
    program(x)
    for name, dim in program.dims.items():
        print(name, dim.granularity, dim.max_value, list(dim.sizes), dim.bucket(65))
    print(program.sizes, program.programs, program.summary(), [price.ratio for price in program.prices()])
    at_64 = program.program(S=64)
    assert_type(at_64, spyre_mlir.Program)
    assert_type(program.symbolic, spyre_mlir.Program | None)
    program.compile_all()
    program.save("sizes")
    print(program.last, program.remarks, program.state, program.report("sizes.html"))


def in_pieces(program: spyre_mlir.PiecewiseProgram, x: torch.Tensor) -> None:
    """A model that Python takes apart."""
    program(x)
    print(program.reason, program.compilations, [piece.program for piece in program.last], program.host_calls)
    print(program.steps, program.bundles, program.traffic().read_bytes, program.metrics(), program.remarks)
    print(program.summary(), list(program.programs.values()), program.report("pieces.html"))
    with contextlib.suppress(spyre_mlir.CompileError):
        program.save("pieces")
    with contextlib.suppress(spyre_mlir.CompileError):
        program.plan()


def hints(x: torch.Tensor) -> torch.Tensor:
    """Named dims, tiles and loops in a model."""
    spyre_mlir.declare_tensor_dim("M", 512)
    spyre_mlir.name_tensor_dims(x, ["M"])
    with spyre_mlir.spyre_hint(tiles={"M": 8}):
        y = x + 1
    y = spyre_mlir.for_each_tile(torch.relu, y, dim=0, tile=64, out_dim=0)

    def body(carried: torch.Tensor, part: torch.Tensor) -> tuple[torch.Tensor, None]:
        return carried + part, None

    total, _ = spyre_mlir.for_each_tile(body, y, tiles=4, carried=x[:64])
    spyre_mlir.clear_tensor_dims()
    layer = spyre_mlir.EightBitLinear(
        x.to(torch.int8), x[:, 0], bias=None, activations="token", input_scale=None
    )
    model = spyre_mlir.load_eight_bits(torch.nn.Sequential(layer), "weights.safetensors", activations=None)
    assert_type(model, torch.nn.Module)
    return layer.forward(total) + layer.weight_scale


def errors() -> None:
    """What may be caught, and what is warned of."""
    warnings.simplefilter("error", spyre_mlir.FallbackWarning)
    warnings.simplefilter("error", spyre_mlir.HostWorkWarning)
    warnings.simplefilter("error", spyre_mlir.PassWarning)
    warnings.simplefilter("error", spyre_mlir.RangeWarning)
    warnings.simplefilter("error", spyre_mlir.RecompileWarning)
    try:
        spyre_mlir.compile("module {}", target="ktir")
    except SimulationError as error:
        print(error.kind, error.filename, error.tensor, error.core, error.address)
    except CompileError as error:
        print(error.message, error.location, error.operation, error.module, spyre_mlir.__version__)


def tensors(array: NDArray[np.float32]) -> None:
    """Tensors on the device, and their views."""
    x = spyre_mlir.to_device(array, stick_dims=[0], dim_order=None, stick_outermost=False, dtype="float16")
    zeros, full = spyre_mlir.zeros(4, 64, dtype="float16"), spyre_mlir.full((4, 64), 1.5, stick_dims=[0])
    empty, numbers = spyre_mlir.empty((4, 64)), spyre_mlir.arange(0, 64, 2)
    y = (x.t()[:64] + 1).restickify([0]).reshape(4, -1).transpose(0, 1).unsqueeze(0).squeeze(0)
    assert_type(spyre_mlir.restickify(x, [1]), spyre_mlir.DeviceTensor)
    with spyre_mlir.device_report() as report:
        print(x + 1)
    assert_type(report, DeviceReport)
    print(report.activity.device_us, report.metrics()["predicted_us"], report.report("step.html"))
    print(x.shape, x.ndim, x.dim(), x.numel(), x.stride(), x.storage_offset(), x.is_contiguous(), x.dtype)
    print(x.data.nbytes, x.is_view, x.layout.device_size, x.nbytes, x.numpy(), x.cpu(), x.torch(), x.T)
    print(
        x.to("cpu"),
        x.contiguous(),
        x.permute(1, 0),
        x.view(-1),
        x.flatten(),
        x.expand(2, 4, 64),
        x.select(0, 1),
    )
    y.write(array)
    print(zeros, full, empty, numbers)


def bundles(folder: Path) -> None:
    """A bundle of whoever wrote it."""
    ignored: list[str] = []
    bundle, arrays = read_bundle(folder, ignored), read_arrays(folder)
    result = run(bundle, arrays, numerics="ieee", lx_backend_fraction=0.2)
    assert_type(result, Result)
    counted(result)
    schedule = Schedule("random", random_seed=7, uninitialized_memory="zero", is_checked=False)
    print(
        run(bundle, arrays, schedule=schedule).outputs, timeline(bundle, overlap="sequential").sequential_ns
    )
    print(run_sequence([], numerics="dl16", lx_backend_fraction=None))
    write_bundle(bundle, folder / "copy", arrays, remarks=[], laid_out_for="ieee")
    times(timeline(bundle))
    assert_type(validate(bundle, lx_backend_fraction=0.2), list[Finding])
    print([(finding.rule, finding.message, finding.where) for finding in (*validate(bundle), *races(bundle))])


def counted(result: Result) -> None:
    """What a run moved."""
    statistics = result.statistics
    assert_type(statistics, Statistics)
    total = (
        statistics.read_bytes
        + statistics.write_bytes
        + statistics.core_read_bytes
        + statistics.relayout_bytes
    )
    print(
        total, statistics.cores, statistics.opcodes["add"], statistics.lx_high_water_bytes[0], result.losses
    )
    for execute in statistics.executes.values():
        assert_type(execute, ExecuteStatistics)
        print(
            execute.index, execute.filename, execute.opcode, execute.cores, execute.runs, execute.read_bytes
        )
    print({name: array.shape for name, array in result.outputs.items()})


def times(line: Timeline) -> None:
    """A timeline and its rooflines."""
    print(line.total_ns, line.lower_ns, line.upper_ns, line.read_bytes, line.written_bytes, line.bound_by)
    waits: tuple[BufferWait, ...] = line.buffer_waits
    print([(wait.buffer, wait.used, wait.bytes, wait.saved_us) for wait in waits], line.buffer_wait_ns)
    print(line.links, line.shares.memory, line.target.cores)
    for execution in line.executions:
        assert_type(execution, Execution)
        print(execution.filename, execution.opcode, execution.source, execution.total_ns, execution.bound_by)
        print(execution.read_bytes, execution.written_bytes, execution.runs, execution.is_restickify)
    assert_type(of_program(line), Roofline)
    print([(roof.name, roof.intensity, roof.attained_per_ns, roof.bound_by) for roof in rooflines(line)])


def memory_plans() -> MemoryPlan:
    """Buffers, solvers and what they decide."""
    space = MemorySpace(1 << 20, alignment=128)
    buffers = [LifetimeBoundBuffer("a", 1024, [0, 2]), LifetimeBoundBuffer("b", 64, start_time=1, end_time=3)]
    print(
        MemorySpace.of_lx(default_target()), MemorySpace.of_pool(default_target()), space.bytes_of(buffers[0])
    )
    for planner in (
        FirstFitLayoutSolver(),
        BestFitLayoutSolver(),
        GreedyLayoutSolver(),
        Ascending(reverse=True),
    ):
        assert isinstance(planner, Algorithm)
        check_plan(buffers, space, planner.plan(buffers, space))
    moving = SpillAndReloadSolver(selection_steps=1000).plan(buffers, space)
    assert_type(moving, SpillAndReloadPlan)
    assert_type(moving.of("a"), list[Residency])
    instance = Instance.of(buffers, space)
    print(instance.starts, instance.ends, instance.sizes, instance.savings, instance.parents, instance.load)
    print(
        instance.subset([0]).fits,
        instance.times,
        instance.loads,
        [buffer.saving for buffer in instance.buffers],
    )
    try:
        plan = solver("portfolio").plan(buffers, space)
    except PlanError as error:
        raise SystemExit(str(error)) from error
    checks = checks_of(Ascending, seeds=3)
    assert_type(checks, list[Check])
    for check in checks:
        with contextlib.suppress(CheckFailure):
            check.run()
        print(check.name)
    print(plan.addresses, plan.spilled, plan.traffic, plan.bound, plan.gap, plan.proven, plan.peak, plan.load)
    return plan


def costs(device: Target) -> None:
    """Times of operations and relayouts, and problems from files."""
    operand = OperandWork(writes=False, bytes=1 << 20, core_bytes=1 << 15, fan_out=1, run_bytes=128)
    work = OperationWork(device, "add", 32, 512, 0, 0, 1, 1 << 15, 1 << 20, False, (operand, operand))
    cost = operation_cost(work)
    assert_type(cost, OperationCost)
    print(cost.total_ns, cost.compute_ns, cost.memory_ns, cost.ring_ns, cost.overhead_ns, cost.bound_by)
    print(work.read_bytes, work.written_bytes, work.on_array, operand.moved_bytes)
    source, target = Distribution((4,), ((0,), (1,), (2,), (3,))), Distribution((1,), ((0,),)).on(4)
    relayout = Relayout((8,), (0,), source, target, device)
    traffic = relayout_traffic(relayout)
    assert_type(traffic, RelayoutTraffic)
    print(relayout_ns(relayout), cheapest([relayout]), traffic.moved_bytes, traffic.links.busiest_bytes)
    print(transfers_of(relayout).sources, Division.of([4], [8]).owners, Division.mixed_radix([2, 2]).cores)
    problem = read_problem("problem.npz")
    if isinstance(problem, LayoutProblem):
        print(problem.counts, problem.names)


def devices() -> Target:
    """A device, and an operation that it has besides."""
    define(DeviceOp("square", Kind.POINTWISE, expression=("mul", "x", "x"), formats=(DL16,)))
    layout = StickLayout.for_tensor(packaged_target(), (512, 240), "f16")
    print(layout.device_size, layout.bytes, layout.padding, layout.stick_dims, dma_tuples(layout).ranges)
    print(layout.to_device([3, 5]), layout.padded(0, 64).shape, layout.reshaped_to((256, 240)).shape)
    print(StickLayout.tiled(packaged_target(), (512, 240), "f16", [1]).same_memory(layout))
    return default_target().with_cores(8).with_backend_fraction(0.1)


def rewriting(text: str) -> None:
    """IR: read, asked and lowered."""
    with dialects.context() as context:
        module = dialects.parsed(text, context, "module.mlir")
        timing, remarks = Timing(), Remarks()
        with timing.collecting(), scope("mine"), remarks.collecting():
            run_pipeline(module, "builtin.module(canonicalize)", timing=timing, remarks=remarks)
            pipeline = SpyrePipeline(sencores=8, precision="strict").pipeline("placed")
            assert_type(pipeline, Pipeline)
            run_pipeline(module, pipeline, verify_each=False)
        print(
            timing.report("list"), timing.json_report(), timing[0][1], list(timing), SpyrePipeline().stages()
        )
        print(remarks.of_kind("layouts"), Remarks.from_json_lines(remarks.json_lines()), Pipeline.parse(text))
        print(MultiplyByReciprocal.parse("limit=3").limit, target_of(module).cores)
        for function in functions(module.operation):
            memory = AliasAnalysis(function)
            print(memory.live_ranges)
            for op in all_ops(function):
                operation(op, memory)
        bundle, arrays = export(module)
        write_bundle(bundle, "out", arrays)


def operation(op: ir.Operation, memory: AliasAnalysis) -> None:
    """One operation: its decisions, its layouts, and a copy of it."""
    if not is_compute(op):
        return
    print(
        op.name, location_of(op.location), source_operation(op.location), sdsc.opcode_of(op), sdsc.name_of(op)
    )
    print(sdsc.placement_of(op), sdsc.spilled_of(op), sdsc.history_of(op), sdsc.constants_of(op))
    print(sdsc.division_of(op).splits, memory.division(op).owners, indexing_maps(op)[0].n_dims)
    value: ir.Value = op.results[0]
    print(memory.place(value).buffer, memory.is_whole(value), memory.operands(op), memory.layout(value).bytes)
    layout = stick.layout_of(value.type, memory.target)
    if layout is not None and stick.has_layout(value.type):
        print(stick.with_layout(stick.without_layout(value.type), layout), stick.layout_attr(layout).map)
        print(stick.pin(value, layout, op.location), stick.restickify(value, layout, op.location))
        set_pins(op, Pins(layout=layout, slices=(1, 16)))
    print(pins_of(op).core_order, stick.padding_of(op.attributes), stick.padding_attr({0: 0.0}))
    generic: Structured | None = structured(op)
    if generic is None:
        return
    print(generic.opcode, generic.extents, generic.reduced, generic.result, iterators(2, frozenset({1})))
    inputs, maps = list(generic.inputs), generic.maps[:-1]
    copy = device_op("add", inputs, maps, shape_of(value), element_of(value), location=op.location)
    print(rebuilt(generic, inputs, extents=[512, 64], element="f16"))
    print(defining_op(sdsc.clone(copy, op.location)), reduced_dims(generic.iterators))
    if isinstance(
        op.opview, stick.RestickifyOp | stick.PinOp | sdsc.CloneOp | sdsc.WindowsOp | sdsc.ShuffleOp
    ):
        print(op.opview.source.type.shape)
    if isinstance(
        op.opview, sdscbundle.SdscExecuteOp | sdscbundle.DeviceMemAllocateOp | ktdp.LoadOp | ktdp.StoreOp
    ):
        print(op.opview.operation.attributes["sdsc_filename"])


def trials(model: torch.nn.Module, x: torch.Tensor) -> None:
    """Sweeps, tuning, and programs by name."""
    results = sweep(
        ["zoo:linalg/softmax"],
        store="rows.sqlite",
        workers=2,
        axes={"sencores": [1, 32]},
        tile_for_lx=[True, False],
    )
    assert_type(results, Results)
    print(
        results.columns,
        results.table(["program"]),
        results.to_csv(times=False),
        results.computed,
        len(results),
    )
    print(results.rows, results.axes, results.failures, results[0])
    results.plot(x="sencores", y="predicted_us", by="program", kind="scatter", path="plot.svg")

    def of_rank(mesh: object) -> torch.nn.Module:
        return model

    ranks = spyre_mlir.compile(of_rank, (x,), mesh={"tp": 4})
    assert_type(ranks, spyre_mlir.MeshProgram)
    ranks.save("ranks")
    line = spyre_mlir.MeshProgram.load("ranks", numerics="ieee").timeline()
    print(
        ranks(x), ranks.ranks[0].place, ranks.shape, ranks.report("ranks.svg"), line.total_us, line.link_bytes
    )
    assert_type(line.events[0], MeshEvent)
    print(
        line.events[0].begin_us,
        line.events[0].end_us,
        line.events[0].engine,
        line.busy_us("link"),
        line.svg(),
    )
    print(
        CollectiveCost("ring", 1.0, 64).nanoseconds,
        MeshPlace(0, (4,), ("tp",)).size,
        MeshTimeline(line.events, 0),
    )
    use = spyre_mlir.memory(model, inputs=(x,), device="card.toml")
    assert_type(use, spyre_mlir.MemoryUse)
    print(
        use.mesh,
        use.weights_bytes,
        use.caches_bytes,
        use.intermediates_bytes,
        use.capacity_bytes,
        use.bytes,
        use.fits,
    )
    compared = spyre_mlir.compile(model, (x,)).compare(model, (x,))
    assert_type(compared, ModuleComparisons)
    for module in compared:
        assert_type(module, ModuleComparison)
        print(
            module.name, module.error, module.bound, module.ulp, module.measure, module.passed, compared.first
        )
    space = TuningSpace.of(spyre_mlir.compile(model, (x,)), sencores=8)
    tuned = tune(
        model, (x,), space=space, objective="predicted_us", trials=20, storage=None, seed=1, workers=1
    )
    assert_type(tuned, Tuned)
    print(
        tuned.best, tuned.plan, tuned.options, tuned.value, tuned.default_value, tuned.gain, tuned.summary()
    )
    print(tuned.objective, tuned.trials, tuned.changes, tuned.refused, space.parameters(), space.weights)
    tuned.save("plan.json")
    program, inputs = zoo.load("linalg/softmax", weights=False)
    sizes = SuiteSizes(64, 8, 128, 64, 2, 1, 32, 128, 2, 64, 1, 16, 8)
    print(
        spyre_mlir.compile(program, inputs),
        suite_program("mlp", FULL),
        suite_program("mlp", sizes),
        experiments.sweep,
    )
    with dialects.context() as context:
        imported = import_torch(model, (x,), context=context, precision="device", state=["cache"])
        assert_type(imported, Imported)
        print(
            imported.module,
            imported.signature,
            imported.input_layouts,
            imported.operands(x),
            imported.bind(x),
        )
