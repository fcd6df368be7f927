# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Evaluations: costs of choices equal the costs in the rest of the pipeline; programs are not changed."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import subprocess
import sys

import pytest

import spyre_mlir
from spyre_mlir.algorithms import REGISTRIES
from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.loads import module_of
from spyre_mlir.analysis.program_cost import ProgramCost
from spyre_mlir.analysis.tile_nests import Nests, Tiled
from spyre_mlir.dialects import context
from spyre_mlir.dialects.hint_attributes import TILING, tiling_attr
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import SpyrePipeline, run, run_pipeline
from spyre_mlir.pipelines.run import PipelineEvaluator
from spyre_mlir.rewriting.outlining import group_module
from spyre_mlir.target.target import default_target
from spyre_mlir.tiling import TiledLoop

#: 20 KiB of LX per core.
LITTLE = 0.99

CHAIN = """
func.func @main(%a: {t}, %b: {t}, %c: {t}) -> {t} {
  %e = tensor.empty() : {t}
  %y = linalg.add ins(%a, %b : {t}, {t}) outs(%e : {t}) -> {t}
  %z = linalg.mul ins(%y, %c : {t}, {t}) outs(%e : {t}) -> {t}
  return %z : {t}
}
""".replace("{t}", "tensor<1024x512xf16>")
MIB = 2**20


def device_ops(lx_frac_avail: float = LITTLE) -> ir.Module:
    module = ir.Module.parse(CHAIN, context())
    run_pipeline(module, SpyrePipeline(lx_frac_avail=lx_frac_avail).pipeline("device-ops"))
    return module


def operations(module: ir.Module) -> list[Tiled]:
    (func,) = module.body.operations
    return list(Nests(func.operation.regions[0].blocks[0]).tiled.values())


def evaluator() -> PipelineEvaluator:
    """The evaluator that auto-tiling has in the pipeline of the compiler."""
    pipeline = SpyrePipeline().pipeline()
    index = [step.name for step in pipeline.steps].index("auto-tiling")
    return PipelineEvaluator.of_step(pipeline, index, {})


def cost(
    module: ir.Module, tiles: int = 1, last: int = 2, evaluate: PipelineEvaluator | None = None
) -> ProgramCost | None:
    """The cost of the first operations of a program in tiles; 1 is untiled."""
    ops = operations(module)[:last]
    with module.context, ir.Location.unknown():
        tiling = {each.result: [TiledLoop("0", 0, tiles)] for each in ops} if tiles > 1 else {}
        return (evaluate or evaluator()).cost(group_module([each.op for each in ops], tiling))


def priced(tiles: int) -> ProgramCost:
    """The price of both operations in tiles."""
    found = cost(device_ops(), tiles)
    assert found is not None
    return found


@pytest.mark.parametrize(("tiles", "mebibytes"), [(1, 6), (2, 4), (4, 4)])
def test_bytes(tiles, mebibytes):
    """Tensors of 1 MiB: a, b, c and the result, and the sum twice where it does not fit."""
    assert priced(tiles).bytes == mebibytes * MIB


def test_less_traffic_takes_less_time():
    assert priced(2).nanoseconds < priced(1).nanoseconds


def test_more_loops_than_needed_take_more_time():
    """Each iteration waits for its first bytes."""
    assert priced(2).nanoseconds < priced(16).nanoseconds


@pytest.mark.parametrize("tiles", [1, 2, 4])
def test_an_evaluation_is_the_program(tiles):
    """The plan of the simulator for the whole program, which is the group here, equals the evaluation."""
    module = device_ops()
    for each in operations(module) if tiles > 1 else ():
        with module.context, ir.Location.unknown():
            each.op.attributes[TILING] = tiling_attr([TiledLoop("0", 0, tiles)])
    options = {"tile_for_lx": False, "lx_frac_avail": LITTLE, "from_level": "device-ops"}
    program = spyre_mlir.compile(module, **options)
    moved = sum(each.read_bytes + each.written_bytes for each in program.timeline().executions)
    assert moved == priced(tiles).bytes


def test_an_evaluation_changes_nothing():
    module = device_ops()
    before = str(module)
    cost(module, 4)
    assert str(module) == before and module.operation.verify()


def test_what_cannot_be_compiled_has_no_price():
    """7 does not divide 1024."""
    assert cost(device_ops(), 7) is None


def test_equal_groups_are_priced_once():
    """A stack of equal layers therefore takes the time of one layer."""
    evaluate = evaluator()
    first = cost(device_ops(), 2, evaluate=evaluate)
    assert cost(device_ops(), 2, evaluate=evaluate) is first and len(evaluate.costs) == 1


def test_equal_modules_are_placed_once(monkeypatch):
    """Another module is another time."""
    bundles, asking = [], evaluator()
    bundle_of = run.bundle_of
    monkeypatch.setattr(run, "bundle_of", lambda op: bundles.append(op) or bundle_of(op))
    program = device_ops()
    (func,) = functions(program.operation)
    first, again = (asking.time(module_of(func)) for _ in range(2))
    assert first == again is not None
    assert len(bundles) == 1
    operations = [op.operation for op in func.regions[0].blocks[0].operations]
    add = next(op for op in operations if op.operands and op.name == "linalg.generic")
    add.operands[0] = add.operands[1]
    asking.time(module_of(func))
    assert len(bundles) == 2


@pytest.mark.parametrize("lx_frac_avail", [0.2, LITTLE])
def test_what_is_read_outside_of_the_group_is_written(lx_frac_avail):
    """The sum of the first operation alone is a result: two tensors in, one out, with or without capacity in LX."""
    found = cost(device_ops(lx_frac_avail), last=1)
    assert found is not None and found.bytes == 3 * MIB


def test_hand_written_operations_have_a_price():
    """Arguments do not need attributes of the host."""
    module = device_ops()
    del module.body.operations[0].operation.attributes["arg_attrs"]
    found = cost(module)
    assert found is not None and found.bytes == 6 * MIB


# -- the rest of the same pipeline --------------------------------------------------------------------

#: Another name of the algorithms that decide by default.
ALIAS = "alias"

#: Options of the pipeline with a non-default value, and the passes after auto-tiling that have them.
OPTIONS: dict[str, tuple[object, str]] = {
    "uneven_splits": (True, "work-distribution{uneven=true}"),
    "matmul": ("specified", "joint-planning{matmul=specified}"),
    "stick_outermost": (True, "choose-layouts{stick-outermost=true}"),
    "argument_layouts": ("default", "choose-layouts{argument-layouts=default}"),
    "host_padding": ("zero", "resolve-padding{host-padding=zero}"),
    "co_optimizer": ("strategy-b", "co-optimize-strategy-b"),
    "division": (ALIAS, f"work-distribution{{division={ALIAS}}}"),
    "joint_division": (ALIAS, f"joint-planning{{joint-division={ALIAS}}}"),
    "layout_choice": (ALIAS, f"choose-layouts{{layout-choice={ALIAS}}}"),
    "layout_solver": ("greedy", "scratchpad-planning{layout-solver=greedy}"),
    "in_place": (False, "scratchpad-planning{in-place=false}"),
    "lx_ops": (("max",), "scratchpad-planning{lx-ops=max}"),
    "order_by_size": (True, "scratchpad-planning{order-by-size=true}"),
    "insert": (("verify-divided@coarse-tiling",), "coarse-tiling,verify-divided"),
    "passes": (("tiled=verify-divided",), "coarse-tiling,inline-loop-bodies,verify-divided"),
}

#: Options that leave passes out of the rest.
LEFT_OUT = {
    "co_optimizing_lx_planning": "joint-planning",
    "lx_planning": "scratchpad-planning",
    "clone_inputs": "clone-inputs",
    "clone_outputs": "clone-outputs",
}

#: Options of passes before auto-tiling (also of the target, which the module has), of passes that evaluate candidates,
#: and of passes after the plan.
ELSEWHERE = {
    "precision", "tile_attention", "tile_for_lx", "tile_for_span", "reorder", "moves", "double_buffer", "verify_each",
    "device", "sencores", "lx_frac_avail", "from_level", "use_plan", "save_plan", "bundle_operations", "non_terminal",
    "skip_masked_tiles", "native_windows", "reuse", "tiling", "cost_model", "target", "ktir_addresses",
    "bundle_tensors", "preset",
}  # fmt: skip


def _evaluated(**options: object) -> str:
    """The passes of an evaluation of the choices of the first pass that tiles."""
    pipeline = SpyrePipeline(**options).pipeline()
    index = next(
        index for index, step in enumerate(pipeline.steps) if step.name in ("auto-tiling", "coarse-tiling")
    )
    evaluate = PipelineEvaluator.of_step(pipeline, index - 1, {})
    return ",".join(map(str, evaluate._before("place-in-hbm")))


def test_every_option_of_the_pipeline_is_one_of_these():
    names = {each.name for each in dataclasses.fields(SpyrePipeline)}
    assert names == {*OPTIONS, *LEFT_OUT, *ELSEWHERE}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_reach_evaluations(name, monkeypatch):
    for registry in REGISTRIES.values():
        monkeypatch.setitem(registry.classes, ALIAS, registry.find(registry.default))
    value, text = OPTIONS[name]
    assert text in _evaluated(**{name: value}) and text not in _evaluated()


@pytest.mark.parametrize("name", LEFT_OUT)
def test_passes_that_options_leave_out_are_in_no_evaluation(name):
    assert LEFT_OUT[name] in _evaluated() and LEFT_OUT[name] not in _evaluated(**{name: False})


def test_evaluations_are_for_the_target_of_the_module():
    """Evaluations use the target of the program, and not the default target."""
    module = device_ops()
    ops = operations(module)
    with module.context, ir.Location.unknown():
        group = group_module([each.op for each in ops], {})
    assert target_of(group) == target_of(module) == target_of(module_of(functions(module.operation)[0]))
    assert target_of(module) != default_target()


def test_a_pipeline_up_to_a_level_is_evaluated_to_its_end():
    """Decisions of auto-tiling do not depend on the level at which the run stops."""
    rest = [
        PipelineEvaluator.of_step(pipeline, [step.name for step in pipeline.steps].index("auto-tiling"), {})
        for pipeline in (SpyrePipeline(in_place=False).pipeline(level) for level in ("tiled", "placed", None))
    ]
    assert len({tuple(map(str, each.rest)) for each in rest}) == 1


def test_the_order_of_passes_stands_once():
    """Only the file of the pipeline names a planning pass and a later pass, as an order does."""
    package = pathlib.Path(spyre_mlir.__file__).parent
    pairs = [
        ("work-distribution", "scratchpad-planning"), ("choose-layouts", "span-reduction"),
        ("clone-inputs", "scratchpad-planning"), ("decompose-to-device-ops", "fuse-device-ops"),
    ]  # fmt: skip
    files = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        for first, second in pairs
        if re.search(rf"[\"'(,]{first}[\"'{{,].*[\"'(,]{second}[\"'{{,]", path.read_text(), re.DOTALL)
    }
    assert files == {"pipelines/spyre.py"}


USER_PASS = """
from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.errors import CompileError
from spyre_mlir.passes.base import Pass


@dataclass(frozen=True)
class RefuseLoops(Pass):
    \"\"\"Refuse programs with loops.\"\"\"

    name: ClassVar[str] = "refuse-loops"

    def run(self, module):
        if "scf.for" in str(module):
            raise CompileError("this device has no loops")


@dataclass(frozen=True)
class RefuseRing(Pass):
    \"\"\"Refuse programs that send anything over the ring.\"\"\"

    name: ClassVar[str] = "refuse-ring"

    def run(self, module):
        if "shuffle" in str(module):
            raise CompileError("this device has no ring")
"""

SOFTMAX = """
func.func @main(%x: {t}) -> {t} {
  %e = tensor.empty() : {t}
  %y = linalg.softmax dimension(0) ins(%x : {t}) outs(%e : {t}) -> {t}
  return %y : {t}
}
""".replace("{t}", "tensor<512x1024xf16>")


def _tool(tmp_path: pathlib.Path, program: str, options: str) -> list[dict]:
    """Return the remarks of spyre-opt on a program, with user-defined passes."""
    (tmp_path / "user.py").write_text(USER_PASS)
    (tmp_path / "program.mlir").write_text(program)
    load = ["--load", str(tmp_path / "user.py")]
    command = [sys.executable, "-m", "spyre_mlir.tools.spyre_opt", str(tmp_path / "program.mlir"), *load]
    remarks = ["--remarks", str(tmp_path / "remarks.jsonl"), "-o", str(tmp_path / "out.mlir")]
    subprocess.run([*command, f"--spyre-pipeline={options}", *remarks], check=True)
    return [json.loads(line) for line in (tmp_path / "remarks.jsonl").read_text().splitlines()]


def _told(remarks: list[dict], pass_name: str) -> list[str]:
    return [each["reason"] for each in remarks if each["pass_name"] == pass_name]


def test_a_pass_of_the_user_changes_what_auto_tiling_decides(tmp_path):
    """Behind coarse-tiling a loop is refused, so no tiling has a cost."""
    by_itself = _told(_tool(tmp_path, CHAIN, "lx-frac-avail=0.99"), "auto-tiling")
    refused = _told(
        _tool(tmp_path, CHAIN, "lx-frac-avail=0.99 insert=refuse-loops@coarse-tiling"), "auto-tiling"
    )
    assert "whose intermediates then fit" in by_itself[0] and "not possible" not in by_itself[0]
    assert "whose intermediates then fit" not in refused[0] and "not possible" in refused[0]


def test_a_pass_of_the_user_changes_what_joint_planning_decides(tmp_path):
    """The best plan has two relayouts; if a pass refuses them, the best plan without relayouts is taken."""
    by_itself = _tool(tmp_path, SOFTMAX, "")
    refused = _tool(tmp_path, SOFTMAX, "insert=refuse-ring@joint-planning")
    kinds = [
        [each["kind"] for each in remarks if each["pass_name"] == "joint-planning"]
        for remarks in (by_itself, refused)
    ]
    assert "relayout" in kinds[0] and "relayout" not in kinds[1] and "divisions" in kinds[1]


def test_a_pass_behind_none_of_the_pipeline_is_an_error():
    with pytest.raises(CompileError, match="where OTHER is a pass of the pipeline: attach-hints, "):
        SpyrePipeline(insert=("cse@no-such-pass",)).pipeline()


def test_the_text_of_a_pipeline_is_a_pipeline(tmp_path):
    """A pipeline as text has the same result, and evaluations run the same passes."""
    (tmp_path / "chain.mlir").write_text(CHAIN)
    command = [sys.executable, "-m", "spyre_mlir.tools.spyre_opt", str(tmp_path / "chain.mlir")]
    whole = [*command, "--spyre-pipeline=lx-frac-avail=0.99", "--dump-pass-pipeline"]
    named = subprocess.run(whole, check=True, capture_output=True, text=True)
    text = named.stderr.strip()
    again = subprocess.run([*command, f"--pass-pipeline={text}"], check=True, capture_output=True, text=True)
    assert (
        text.startswith("builtin.module(attach-target{lx-frac-avail=0.99},attach-hints,")
        and named.stdout == again.stdout
    )
