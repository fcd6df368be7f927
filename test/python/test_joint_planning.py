# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs whose divisions, homes and relayouts are chosen together: numbers, traffic, predicted times, plan files."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from programs import Apply, check_close

import spyre_mlir
from spyre_mlir.bundle.validate import validate
from spyre_mlir.dialects import context
from spyre_mlir.division import CoreView, Division
from spyre_mlir.division.ownership import CoreRegion
from spyre_mlir.division_search.division_candidates import BufferPlacement, DivisionCandidate
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend import import_torch
from spyre_mlir.passes import joint_planning
from spyre_mlir.passes.joint_planning import JointDivision
from spyre_mlir.remarks import Remark

CORES = (4, 32)


def _attention(x: torch.Tensor, qkv: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """A block of 4 heads of 64 over 256 tokens, with the norm before and the sum after."""
    q, k, v = (F.layer_norm(x, (256,)) @ qkv).view(256, 3, 4, 64).permute(1, 2, 0, 3)
    scores = torch.softmax(q @ k.transpose(1, 2) * 0.125, -1)
    return x + (scores @ v).transpose(0, 1).reshape(256, 256) @ out


#: Name -> function of tensors, and their shapes.
FUNCTIONS: dict[str, tuple[Callable[..., torch.Tensor], tuple[tuple[int, ...], ...]]] = {
    "mlp": (lambda x, a, b: F.silu(x @ a) @ b, ((256, 256), (256, 1024), (1024, 256))),
    "attention": (_attention, ((256, 256), (256, 768), (256, 256))),
    "softmax over rows": (lambda x: torch.softmax(x, 0), ((512, 1024),)),
    "the last row": (lambda x, a: torch.exp((x + x @ a)[-1:]), ((256, 512), (512, 512))),
    "odd rows": (lambda x, a, b: F.gelu(x @ a) @ b, ((197, 256), (256, 1000), (1000, 256))),
    "sums over a long dim": (lambda x, a: torch.exp(x @ a * 0.01), ((64, 4096), (4096, 64))),
}


@functools.cache
def text_of(name: str) -> str:
    """The linalg of a program."""
    module = import_torch(Apply(FUNCTIONS[name][0]).half(), inputs_of(name), context=context()).module
    return module.operation.get_asm(enable_debug_info=True)


@functools.cache
def inputs_of(name: str) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    first, *others = FUNCTIONS[name][1]
    weights = [torch.randn(shape, generator=generator) / shape[0] ** 0.5 for shape in others]
    return tuple(each.half() for each in (torch.randn(first, generator=generator), *weights))


@functools.cache
def compiled(name: str, cores: int, **options) -> spyre_mlir.Program:
    """A program whose every level was verified."""
    return spyre_mlir.compile(text_of(name), sencores=cores, verify_each=True, **options)


def shuffles(program: spyre_mlir.Program) -> int:
    """Return the number of relayouts of a bundle."""
    return sum(design.opcode == "shuffle" for design in program.bundle.designs.values())


def remarks(program: spyre_mlir.Program, pass_name: str, kind: str) -> list[Remark]:
    return [each for each in program.remarks if (each.pass_name, each.kind) == (pass_name, kind)]


def check_runs(name: str, program: spyre_mlir.Program) -> None:
    """The bundle is valid, the numbers equal PyTorch, and the traffic equals the plan."""
    assert not (findings := validate(program.bundle)), "\n".join(map(str, findings))
    inputs = inputs_of(name)
    check_close(name, program(*inputs), Apply(FUNCTIONS[name][0]).half(), inputs)
    assert program.last_run is not None
    done = program.last_run.statistics
    (plan,) = remarks(program, "scratchpad-planning", "plan")
    assert plan.after == done.read_bytes + done.write_bytes


@pytest.mark.parametrize("cores", CORES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_numbers_are_right(name: str, cores: int):
    """The numbers are right on few cores and on all, with relayouts over the ring."""
    check_runs(name, compiled(name, cores))


@pytest.mark.parametrize("cores", CORES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_predicted_time_is_never_above_that_of_each_operation_by_itself(name: str, cores: int):
    """Without joint planning all is as work division leaves it."""
    alone = compiled(name, cores, co_optimizing_lx_planning=False)
    assert compiled(name, cores).timeline().total_ns <= alone.timeline().total_ns
    assert not shuffles(alone)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_all_cores_hand_over_by_the_ring(name: str):
    """Each program has a buffer that its readers need on other cores: a shuffle, less traffic and a shorter time."""
    program, alone = compiled(name, 32), compiled(name, 32, co_optimizing_lx_planning=False)
    assert shuffles(program)
    assert program.timeline().total_ns < alone.timeline().total_ns


def test_a_split_sum_stays_on_chip():
    """With K in parts the finishing cores have the sums, and a shuffle sends them to all cores for the reader."""
    program = compiled("sums over a long dim", 32)
    designs = program.bundle.designs.values()
    (relayout,) = [each for each in designs if each.opcode == "shuffle"]
    held = relayout.operands[0].held
    assert held is not None
    holders = [core for core, own in enumerate(held.core_slices) if own is not None]
    assert 0 < len(holders) < relayout.cores
    assert all(operand.memory == "lx" for operand in relayout.operands)


def test_slices_that_differ():
    """A prime number of rows: equal slices are one or all of them, and others take less time on more cores."""
    program, alone = compiled("odd rows", 32), compiled("odd rows", 32, co_optimizing_lx_planning=False)
    first, _ = (design for design in program.bundle.designs.values() if design.opcode == "batchmatmul")
    split = first.slices["mb"]
    assert split > 1 and 197 % split
    assert program.timeline().total_ns < alone.timeline().total_ns / 2


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_core_has_no_relayout(name: str):
    """A program on one core does not need relayouts."""
    program = compiled(name, 1)
    assert not shuffles(program)
    check_runs(name, program)


# -- little LX -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", (0.97, 0.985, 0.99, 0.995, 0.9999))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_little_lx(name: str, kept: float):
    """With up to all of LX kept by the backend."""
    check_runs(name, compiled(name, 32, lx_frac_avail=kept))


def test_relayouts_without_room_go_through_device_memory():
    """16 KiB per core hold some of the relayouts of attention; the others are removed again, with a remark."""
    program = compiled("attention", 32, lx_frac_avail=0.992)
    planned, dropped = (
        remarks(program, *what)
        for what in (("joint-planning", "relayout"), ("scratchpad-planning", "no relayout"))
    )
    assert dropped and len(dropped) < len(planned)
    assert shuffles(program) < shuffles(compiled("attention", 32))


def test_plans_that_write_the_same_are_one():
    """A later pass plans LX: only divisions and relayouts make a different program to evaluate."""
    here, there = (CoreView((CoreRegion(start, ()),), False, (), ()) for start in (0, 64))
    kept, carried = BufferPlacement(here, False), BufferPlacement(here, False, 0.0, there, 1.0)

    def plan(*placements: BufferPlacement | None, splits: int = 1) -> JointDivision:
        candidate = DivisionCandidate(Division.mixed_radix((splits,)))
        return JointDivision((candidate,), placements, 0.0, 0.0, 0.0)

    assert joint_planning._has_equal_changes(plan(kept, carried), plan(None, carried))
    assert not joint_planning._has_equal_changes(plan(kept, carried), plan(carried, kept))
    assert not joint_planning._has_equal_changes(plan(kept), plan(carried))
    assert not joint_planning._has_equal_changes(plan(kept), plan(kept, splits=2))


def test_relayouts_without_room_get_smaller_parts():
    """Operands of 1 MiB in the pieces that are the best leave no room for each other; in smaller ones they fit."""
    shapes = ((8, 2048, 512), (8, 512, 128))
    inputs = tuple(torch.empty(shape, dtype=torch.float16, device="meta") for shape in shapes)
    module = import_torch(Apply(lambda p, v: p @ torch.exp(v)), inputs, context=context()).module
    text = module.operation.get_asm(enable_debug_info=True)
    program = spyre_mlir.compile(text, sencores=32, argument_layouts="default")
    *_, product = program.bundle.designs.values()
    assert [operand.memory for operand in product.operands] == ["lx", "lx", "hbm"]


def test_no_lx_has_no_relayout():
    """A shuffle is from LX to LX."""
    assert not shuffles(compiled("attention", 32, lx_frac_avail=0.9999))


# -- plan files ----------------------------------------------------------------------------------------------


def files(program: spyre_mlir.Program, folder: Path) -> dict[str, bytes]:
    """Return the files of the bundle without the remarks, which list decisions of passes, and without the options."""
    program.save(folder)
    found = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "remarks.jsonl"}
    manifest = json.loads(found["manifest.json"])
    del manifest["made"]
    return {**found, "manifest.json": json.dumps(manifest).encode()}


@pytest.mark.parametrize("cores", CORES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_plan_with_shuffles_gives_the_same_bundle(name: str, cores: int, tmp_path: Path):
    """The bytes are equal: the plan has divisions, copies and addresses of buffers that the ring carries."""
    program = compiled(name, cores)
    plan = program.plan()
    told = [each for each in plan["operations"] if "/shuffle." in each["name"]]
    assert len(told) >= shuffles(program)
    again = spyre_mlir.compile(text_of(name), sencores=cores, plan=plan)
    assert files(again, tmp_path / "again") == files(program, tmp_path / "free")
    assert again.plan() == plan


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_plan_without_shuffles_gets_none(name: str):
    """All operations are pinned, so the default compiler gives the bundle of the compiler without joint planning."""
    alone = compiled(name, 32, co_optimizing_lx_planning=False)
    assert spyre_mlir.compile(text_of(name), sencores=32, plan=alone.plan()).bundle == alone.bundle


def test_a_plan_with_shuffles_needs_joint_planning():
    """Only joint planning inserts shuffles: the error names them."""
    plan = compiled("softmax over rows", 32).plan()
    with pytest.raises(
        CompileError, match=r"does not insert 'max.0/shuffle.0', 'sum.0/shuffle.0' with these pins"
    ):
        spyre_mlir.compile(
            text_of("softmax over rows"), sencores=32, plan=plan, co_optimizing_lx_planning=False
        )
