"""Trials: a group of operations costs in a trial what it costs in the program, and in the program nothing changes."""

from __future__ import annotations

import pytest

import spyre_mlir
from spyre_mlir.dialects import context
from spyre_mlir.dialects.hints import TILING, tiling_attr
from spyre_mlir.mlir import ir
from spyre_mlir.passes._prices import Price
from spyre_mlir.passes._tile_nests import Nests, Tiled
from spyre_mlir.passes._trial import Trials
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline
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


def device_ops() -> ir.Module:
    module = ir.Module.parse(CHAIN, context())
    run_pipeline(module, SpyrePipeline().pipeline("device-ops"))
    return module


def operations(module: ir.Module) -> list[Tiled]:
    (func,) = module.body.operations
    return list(Nests(func.operation.regions[0].blocks[0]).tiled.values())


def price(trials: Trials, module: ir.Module, tiles: int = 1, last: int = 2) -> Price | None:
    """The price of the first operations of a program in tiles; 1 is untiled."""
    ops = operations(module)[:last]
    with module.context, ir.Location.unknown():
        tiling = {each.result: [TiledLoop("0", 0, tiles)] for each in ops} if tiles > 1 else {}
        return trials.price([each.op for each in ops], tiling)


def priced(tiles: int) -> Price:
    """The price of both operations in tiles."""
    found = price(Trials(32, LITTLE), device_ops(), tiles)
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
def test_a_trial_is_the_program(tiles):
    """What the simulator plans for the whole program, which is the group here, is what the trial said."""
    module = device_ops()
    for each in operations(module) if tiles > 1 else ():
        with module.context, ir.Location.unknown():
            each.op.attributes[TILING] = tiling_attr([TiledLoop("0", 0, tiles)])
    options = {"tile_for_lx": False, "lx_frac_avail": LITTLE, "from_level": "device-ops"}
    program = spyre_mlir.compile(module, **options)
    moved = sum(each.read_bytes + each.written_bytes for each in program.timeline().executions)
    assert moved == priced(tiles).bytes


def test_a_trial_changes_nothing():
    module = device_ops()
    before = str(module)
    price(Trials(32, LITTLE), module, 4)
    assert str(module) == before and module.operation.verify()


def test_what_cannot_be_compiled_has_no_price():
    """7 does not divide 1024."""
    assert price(Trials(32, LITTLE), device_ops(), 7) is None


def test_equal_groups_are_priced_once():
    """So a stack of equal layers costs the trials of one."""
    trials = Trials(32, LITTLE)
    first = price(trials, device_ops(), 2)
    assert price(trials, device_ops(), 2) is first and len(trials.prices) == 1


@pytest.mark.parametrize("lx_frac_avail", [0.2, LITTLE])
def test_what_is_read_outside_of_the_group_is_written(lx_frac_avail):
    """Of the first operation alone the sum is a result: two tensors in, one out, room in LX or not."""
    found = price(Trials(32, lx_frac_avail), device_ops(), last=1)
    assert found is not None and found.bytes == 3 * MIB


def test_hand_written_operations_have_a_price():
    """Arguments need not say what the host makes of them."""
    module = device_ops()
    del module.body.operations[0].operation.attributes["arg_attrs"]
    found = price(Trials(32, LITTLE), module)
    assert found is not None and found.bytes == 6 * MIB
