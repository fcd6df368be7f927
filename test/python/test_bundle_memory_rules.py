# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The rules on memory over time: overlaps, conflicts and reads of what nobody wrote."""

from dataclasses import replace

import bundles
import pytest
from bundle_edits import design, loop, manifest, program

from spyre_mlir.bundle.memory_order import WALKED_EXECUTES
from spyre_mlir.bundle.model import OUTPUT, Buffer, Execute, Extract, IndexConstant, Loop, Manifest, Parameter
from spyre_mlir.bundle.validate import validate

ADD, REDUCTION, LOOP = bundles.add_bundle(), bundles.reduction_bundle(), bundles.loop_bundle()


def only(bundle):
    """The one finding of a bundle."""
    (finding,) = validate(bundle)
    return finding.rule, finding.message


def test_span():
    rows = 2**20
    big = design(ADD, sizes={"mb": 2 * rows, "out": 256}, shares={"mb": rows, "out": 256})
    assert ("span", "Core 0 addresses 939524096 bytes of Tensor0; expected a span of at most 268431360.") in [
        (finding.rule, finding.message) for finding in validate(big)
    ]


def test_a_symbol_has_one_value():
    second = replace(ADD.statements[-1], operands=("y_0", "y_1", *ADD.statements[-1].operands[2:]))
    twice = replace(ADD, statements=(*ADD.statements, second))
    twice = manifest(twice, uses=(("x", "y", "z"), ("y", "y", "z")))
    findings = [(finding.rule, finding.message) for finding in validate(twice)]
    text = "has another value than in execute 0; expected one value per symbol id."
    assert findings == [("symbol-values", f"The symbol {symbol} {text}") for symbol in (-1, -2)]


def test_the_same_execute_may_run_twice():
    twice = replace(ADD, statements=(*ADD.statements, ADD.statements[-1]))
    assert validate(manifest(twice, uses=ADD.manifest.uses * 2)) == []


def test_cores_write_different_places():
    findings = validate(program(ADD, "z_offset", IndexConstant("z_offset", 4096)))
    sentences = {finding.rule: finding.message for finding in findings}
    assert sentences["core-offset"].startswith("Core 1 addresses Tensor2 4096 bytes after core 0")
    assert sentences["write-conflict"] == "Core 1 writes bytes of Tensor2 that another core writes too."


def split_sum(second_offset, rows):
    """s = sum of x over rows, the rows divided over two cores that write their parts to one address."""
    ops = (
        bundles.operand(bundles.INPUT, "mb out", (-1, -2)),
        bundles.operand(OUTPUT, "mb out", (-3, -4), scale={"mb": -1, "out": 1}),
    )
    total = bundles.two_core_design(0, "sumnonstick", ops)
    x = bundles.argument("x", "input", "arg0", 128, 256)
    s = bundles.argument("s", "result", "arg1", rows, 256)
    statements = (
        *bundles.per_core_addresses("x", "arg0", 8192),
        *bundles.per_core_addresses("s", "arg1", second_offset),
        Execute("sdsc_0.json", ("x_0", "x_1", "s_0", "s_1"), (-1, -2, -3, -4)),
    )
    buffers = (Buffer("x", "arg0", 0, x.bytes), Buffer("s", "arg1", 0, s.bytes))
    parameters = (Parameter("arg0"), Parameter("arg1"))
    return bundles.Bundle(
        parameters, statements, {"sdsc_0.json": total}, Manifest((x, s), buffers, (("x", "s"),))
    )


def test_partial_sums_of_one_result_may_share_their_address():
    assert validate(split_sum(0, rows=1)) == []


def test_partial_sums_at_two_addresses_conflict():
    findings = validate(split_sum(128, rows=2))
    assert {finding.rule for finding in findings} >= {"core-offset", "write-conflict"}


def lx_chain(addresses, uses):
    """exp from x into LX, then abs from LX to LX, then the sum of it: buffers e and f at two addresses."""
    first, last = REDUCTION.designs.values()
    lx = [(address, address) for address in addresses]
    exp = replace(first, operands=(first.operands[0], replace(first.operands[1], start=lx[0])))
    ops = (replace(last.operands[0], start=lx[0]), replace(first.operands[1], start=lx[1]))
    absolute = replace(first, index=1, opcode="abs", operands=ops)
    total = replace(last, index=2, operands=(replace(last.operands[0], start=lx[1]), last.operands[1]))
    *addresses_, run_exp, run_sum = REDUCTION.statements
    statements = (
        *addresses_,
        run_exp,
        Execute("sdsc_1.json", (), ()),
        replace(run_sum, filename="sdsc_2.json"),
    )
    x, _, s = REDUCTION.manifest.buffers
    buffers = (x, Buffer("e", "lx", addresses[0], 32768), Buffer("f", "lx", addresses[1], 32768), s)
    designs = {each.filename: each for each in (exp, absolute, total)}
    bundle = replace(REDUCTION, statements=statements, designs=designs)
    return manifest(bundle, buffers=buffers, uses=uses)


CHAIN = (("x", "e"), ("e", "f"), ("f", "s"))


def test_lx_buffers_live_at_once_are_disjoint():
    assert validate(lx_chain((0, 32768), CHAIN)) == []
    text = "The LX buffers e at 0 and f at 16384 overlap and are both live at execute 1."
    assert only(lx_chain((0, 16384), CHAIN)) == ("lx-overlap", text)


def test_a_pointwise_operation_may_work_in_place():
    assert validate(lx_chain((0, 0), CHAIN)) == []


def test_in_place_means_element_for_element():
    """exp reads row by row, and writes column by column over its operand: the same bytes, other elements."""
    bundle = lx_chain((0, 0), CHAIN)
    source, result = bundle.designs["sdsc_1.json"].operands
    turned = replace(result, dim_order=tuple(reversed(result.dim_order)), role="KERNEL")
    absolute = replace(bundle.designs["sdsc_1.json"], operands=(source, turned))
    total = bundle.designs["sdsc_2.json"]
    total = replace(total, operands=(replace(turned, role=total.operands[0].role), total.operands[1]))
    bundle = replace(bundle, designs={**bundle.designs, "sdsc_1.json": absolute, "sdsc_2.json": total})
    assert only(bundle)[0] == "lx-overlap"


def test_what_a_loop_reads_first_is_live_through_the_loop():
    bundle = lx_chain((0, 0), CHAIN)
    *setup, run_exp, run_abs, run_sum = bundle.statements
    bounds = (IndexConstant("zero", 0), IndexConstant("two", 2), IndexConstant("one", 1))
    repeated = Loop("i", "zero", "two", "one", (run_abs, run_sum))
    bundle = replace(bundle, statements=(*setup, *bounds, run_exp, repeated))
    assert only(bundle)[0] == "lx-overlap"


def test_lx_is_read_after_it_is_written():
    *setup, _, run_sum = REDUCTION.statements
    bundle = replace(
        REDUCTION, statements=(*setup, run_sum), designs={"sdsc_1.json": REDUCTION.designs["sdsc_1.json"]}
    )
    bundle = manifest(bundle, uses=(("e", "s"),))
    text = "Core 0 reads Tensor0 (buffer e) at byte 0 of lx, which nothing wrote before."
    assert only(bundle) == ("uninitialised-read", text)


def test_a_core_reads_only_its_own_lx():
    total = REDUCTION.designs["sdsc_1.json"]
    one_core = replace(
        REDUCTION.designs["sdsc_0.json"],
        sizes={"mb": 64, "out": 256},
        slices={"mb": 1, "out": 1},
        core_slices=({"mb": 0, "out": 0},),
        operands=tuple(
            replace(each, start=each.start[:1]) for each in REDUCTION.designs["sdsc_0.json"].operands
        ),
    )
    one_core = replace(
        one_core, operands=(replace(one_core.operands[0], gap={"mb": 64}), one_core.operands[1])
    )
    bundle = replace(REDUCTION, designs={"sdsc_0.json": one_core, "sdsc_1.json": total})
    text = "Core 1 reads Tensor0 (buffer e) at byte 0 of lx, which nothing wrote before."
    assert only(bundle) == ("uninitialised-read", text)


@pytest.mark.parametrize("tiles", [8, WALKED_EXECUTES], ids=["walked", "at once"])
def test_every_iteration_writes_what_it_reads(tiles):
    good = bundles.loop_bundle(tiles)
    assert validate(good) == []
    *_, tile_loop = good.statements
    swapped = (*tile_loop.body[:-2], tile_loop.body[-1], tile_loop.body[-2])
    bundle = manifest(loop(good, body=swapped), uses=tuple(reversed(good.manifest.uses)))
    text = "Core 0 reads Tensor0 (buffer a) at byte 0 of pool, which nothing wrote before."
    assert only(bundle) == ("uninitialised-read", text)


@pytest.mark.parametrize("tiles", [8, WALKED_EXECUTES], ids=["walked", "at once"])
def test_every_tile_of_a_result_is_written(tiles):
    good = bundles.loop_bundle(tiles)
    bundle = program(good, "tiles", IndexConstant("tiles", tiles - 1))
    assert only(bundle) == ("uninitialised-read", "The host reads sticks of z that nothing wrote.")


def test_stale_bytes_of_another_buffer():
    other = Buffer("b", "pool", 0, 65536)
    bundle = manifest(LOOP, buffers=(*LOOP.manifest.buffers, other), uses=(("x", "b"), ("a", "x", "z")))
    text = "Core 0 reads Tensor0 (buffer a) at byte 0 of pool, which the buffer b overwrote before."
    assert only(bundle) == ("uninitialised-read", text)


def test_an_argument_may_be_updated_in_place():
    z = replace(ADD.manifest.arguments[2], parameter="arg0")
    shared = manifest(ADD, arguments=(*ADD.manifest.arguments[:2], z))
    shared = program(shared, "z_0", Extract("z_0", "arg0"))
    buffers = (*ADD.manifest.buffers[:2], replace(ADD.manifest.buffers[2], base="arg0"))
    assert validate(manifest(shared, buffers=buffers)) == []
