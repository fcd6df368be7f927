# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every rule of the validator on form, designs and places: one thing is broken and the rule names it."""

import bundles
import pytest
from bundle_edits import argument, buffer, design, execute, loop, manifest, program, tensor, transfer

from spyre_mlir.bundle.model import (
    KERNEL,
    Allocate,
    Apply,
    Buffer,
    Constant,
    Extract,
    HeldSlices,
    IndexConstant,
    Origin,
)
from spyre_mlir.bundle.validate import RULES, validate

ADD, REDUCTION, LOOP = bundles.add_bundle(), bundles.reduction_bundle(), bundles.loop_bundle()
RELAYOUT, GATHER = bundles.relayout_bundle(), bundles.gather_bundle()

CORES = ({"mb": 0, "out": 0}, {"mb": 1, "out": 0})


def held(slices, *core_slices):
    """The relayout from other slices."""
    return tensor(RELAYOUT, 0, 1, held=HeldSlices(slices, core_slices))


#: Cases of the rules: (rule, part of the sentence, broken bundle).
BROKEN = [
    ("opcode", "'fma' is not one of the device", design(ADD, opcode="fma")),
    ("arity", "exp takes 1 input and one output but has 2", design(ADD, opcode="exp")),
    ("dims", "numWkSlicesPerDim_ are mb; expected the dims of N_, mb, out", design(ADD, slices={"mb": 2})),
    ("dims", "padding name the dim q", design(ADD, padding={"q": 1})),
    ("dims", "less than what the device memory holds", design(ADD, shares={"mb": 2**62, "out": 256})),
    ("operand-dims", f"has a gap of {2**62} on mb, more than", tensor(ADD, 0, gap={"mb": 2**62})),
    ("operand-dims", "Tensor1 has the dim q, which N_ does not", tensor(ADD, 1, dim_order=("q", "out"))),
    ("operand-dims", "has the stick dim x, which is not one of its", tensor(ADD, 1, stick_dim="x")),
    ("operand-dims", "scale -2 on mb; expected 1 or -1", tensor(ADD, 1, scale={"mb": -2, "out": 1})),
    ("operand-dims", "scale -1 on out; expected 1 or -2", tensor(ADD, 1, scale={"mb": 1, "out": -1})),
    ("operand-dims", "a gap of -1 on mb", tensor(ADD, 1, gap={"mb": -1})),
    ("cores", "have 4 slices together; expected one for each of 2", design(ADD, slices={"mb": 4, "out": 1})),
    (
        "cores",
        "Core 1 has slice 2 of mb; expected 0 to 1",
        design(ADD, core_slices=(CORES[0], {"mb": 2, "out": 0})),
    ),
    ("cores", "cores 0 and 1 have the same slices", design(ADD, core_slices=(CORES[0], CORES[0]))),
    ("start-addresses", "Tensor2 is in 'l2'", tensor(ADD, 2, memory="l2")),
    ("start-addresses", "1 start addresses; expected one per core of 2", tensor(ADD, 2, start=(-5,))),
    ("start-addresses", "symbol id 5; expected negative", tensor(ADD, 2, start=(5, -6))),
    ("start-addresses", "LX address -128", tensor(REDUCTION, 1, start=(-128, 0))),
    ("roles", "Tensor0 has the role 'BIAS'", tensor(ADD, 0, role="BIAS")),
    ("roles", "Tensor1 shares the role INPUT", tensor(ADD, 0, stick_elements=32)),
    ("held", "Tensor0 does not say what each core holds of it", tensor(RELAYOUT, 0, 1, held=None)),
    ("held", "Tensor0 has slices of its own", tensor(ADD, 0, held=HeldSlices({"mb": 2, "out": 1}, CORES))),
    (
        "held",
        "Tensor1 has slices of its own",
        tensor(RELAYOUT, 1, 2, held=HeldSlices({"mb": 2, "out": 1}, CORES)),
    ),
    ("held", "Tensor1 does not say what each core holds of it", tensor(RELAYOUT, 1, 1, held=None)),
    (
        "relayout",
        "No core gets a slice of Tensor1",
        tensor(RELAYOUT, 1, 1, held=HeldSlices({"mb": 1, "out": 2}, (None, None))),
    ),
    (
        "relayout",
        "Tensor1 has 2 slices of mb, the relayout 1; expected the relayout to have the slices of its result",
        tensor(RELAYOUT, 1, 1, held=HeldSlices({"mb": 2, "out": 1}, CORES)),
    ),
    (
        "relayout",
        "Core 1 gets another slice of Tensor1 than the relayout says",
        tensor(RELAYOUT, 1, 1, held=HeldSlices({"mb": 1, "out": 2}, (CORES[0], CORES[0]))),
    ),
    ("held", "has slices of mb; expected slices of its dims, mb, out", held({"mb": 2}, *CORES)),
    (
        "held",
        "has slices on core 1 of mb; expected slices of its dims, mb, out",
        held({"mb": 2, "out": 1}, CORES[0], {"mb": 1}),
    ),
    ("held", "has 0 slices of a dim; expected at least 1", held({"mb": 2, "out": 0}, *CORES)),
    ("held", "has the slices of 1 cores; expected the slices of 2", held({"mb": 2, "out": 1}, CORES[0])),
    (
        "held",
        "has on core 1 the slice 2 of mb; expected 0 to 1",
        held({"mb": 2, "out": 1}, CORES[0], {"mb": 2, "out": 0}),
    ),
    ("files", "executes sdsc_7.json, which is not in the bundle", execute(ADD, filename="sdsc_7.json")),
    ("files", "index 1; expected the index in the file's name", design(ADD, index=1)),
    (
        "values",
        "%nothing is not defined before its use",
        program(ADD, "x_1", bundles.Add("x_1", "x_0", "nothing")),
    ),
    (
        "values",
        "%x_0 is defined twice",
        program(ADD, "x_1", IndexConstant("x_0", 0), IndexConstant("x_1", 0)),
    ),
    ("values", "%x_0, which is not a parameter", program(ADD, "x_1", Extract("x_1", "x_0"))),
    ("values", "%new is allocated in a loop", program(LOOP, "x_tile_0", Allocate("new", 128))),
    (
        "values",
        "one coefficient for each",
        program(LOOP, "x_tile_0", Apply("x_tile_0", ("i",), ("x_0",), (1,))),
    ),
    ("loop-bounds", "%x_0 is not an arith.constant", loop(LOOP, upper="x_0")),
    (
        "loop-bounds",
        "65536 iterations; expected 1 to 65535",
        program(LOOP, "tiles", IndexConstant("tiles", 65536)),
    ),
    ("loop-bounds", "0 iterations", program(LOOP, "one", IndexConstant("one", 0))),
    ("symbols", "6 operands for 5 symbol ids", execute(ADD, symbol_ids=(-1, -2, -3, -4, -5))),
    ("symbols", "binds a symbol id twice", execute(ADD, symbol_ids=(-1, -2, -3, -4, -5, -5))),
    ("symbols", "symbol id 6; expected negative", execute(ADD, symbol_ids=(-1, -2, -3, -4, -5, 6))),
    ("symbols", "symbol -6 of Tensor2 on core 1", execute(ADD, symbol_ids=(-1, -2, -3, -4, -5, -7))),
    ("uses", "has 0 uses; expected one for each of 1", manifest(ADD, uses=())),
    ("uses", "names 2 buffers; expected one for each of 3", manifest(ADD, uses=(("x", "y"),))),
    ("uses", "the buffer 'w', which the manifest does not have", manifest(ADD, uses=(("x", "y", "w"),))),
    ("origins", "has 2 origins of executes", manifest(ADD, origins=(Origin("x.py"),), executes_from=(0, 0))),
    ("origins", "has the origin 1, but there are 1", manifest(ADD, origins=(Origin(),), executes_from=(1,))),
    ("origins", "has the origin -1, but", manifest(ADD, origins=(Origin(),), executes_from=(-1,))),
    ("origins", "Line and column of the origin 0", manifest(ADD, origins=(Origin("x.py", -1),))),
    ("unit", "runs on the unit 'pt'; expected 'sfp'", design(ADD, unit="pt")),
    ("formats", "Tensor1 has the format IEEE_FP32; expected SEN169", tensor(ADD, 1, data_format="IEEE_FP32")),
    ("formats", "computes in IEEE_FP32", design(ADD, data_format="IEEE_FP32")),
    (
        "formats",
        "Tensor1 has the format SEN169_FP16; expected IEEE_FP32",
        design(REDUCTION, opcode="dl16tofp32"),
    ),
    ("stick-size", "32 elements per stick; expected 64", tensor(ADD, 2, stick_elements=32)),
    (
        "constants",
        "no constant 'clipMax'",
        design(REDUCTION, opcode="clip", constants=(Constant("clipMin", bundles.FP16, 0),)),
    ),
    (
        "constants",
        "are not a value of the format",
        design(REDUCTION, 1, constants=(Constant("m", bundles.FP16, 1 << 16),)),
    ),
    ("masks", "mask constant is 1; expected", design(REDUCTION, 1, mask_constant=1)),
    ("masks", "[200, 300) of out is not inside [0, 256)", design(REDUCTION, 1, masks={"out": (200, 100)})),
    ("padding", "padding of out is 256", design(REDUCTION, padding={"out": 256})),
    ("padding", "x is padded, but 'gather' does not have a neutral value", design(GATHER, padding={"x": 1})),
    ("coverage", "2 slices of 63 do not cover the 128", design(ADD, shares={"mb": 63, "out": 256})),
    ("coverage", "2 slices of 128 do not cover the 128", design(ADD, shares={"mb": 128, "out": 256})),
    ("whole-sticks", "size 200; expected a padded size", design(ADD, sizes={"mb": 128, "out": 200})),
    (
        "whole-sticks",
        "Each core has 96 elements of the stick dim out; expected whole sticks of 64",
        design(
            ADD,
            sizes={"mb": 128, "out": 192},
            slices={"mb": 1, "out": 2},
            shares={"mb": 128, "out": 96},
            core_slices=({"mb": 0, "out": 0}, {"mb": 0, "out": 1}),
        ),
    ),
    ("whole-sticks", "gap of 8 on its stick dim", tensor(ADD, 1, gap={"out": 8}, role=KERNEL)),
    (
        "stick",
        "input 2 has dim mb in the stick; expected dim out as in the result",
        tensor(ADD, 1, role=KERNEL, stick_dim="mb", dim_order=("out", "mb")),
    ),
    (
        "relayout",
        "Tensor1 is in hbm; expected the source and the result of a relayout in lx",
        tensor(
            tensor(design(RELAYOUT, 2, opcode="shuffle"), 0, 2, held=HeldSlices({"mb": 2, "out": 1}, CORES)),
            1,
            2,
            held=HeldSlices({"mb": 1, "out": 2}, ({"mb": 0, "out": 0}, {"mb": 0, "out": 1})),
        ),
    ),
    (
        "relayout",
        "It has masks or constants",
        design(RELAYOUT, 1, constants=(Constant("m", bundles.FP16, 0),)),
    ),
    (
        "relayout",
        "3 slices of 128 of Tensor0 do not cover the 256 elements of out",
        held({"mb": 1, "out": 3}, {"mb": 0, "out": 0}, {"mb": 0, "out": 1}),
    ),
    ("relayout", "No core holds the slice mb 1, out 0 of Tensor0", held({"mb": 2, "out": 1}, CORES[0], None)),
    ("arguments", "x and y are both given in %arg0", argument(ADD, 1, parameter="arg0")),
    ("arguments", "Two arguments have the same name", argument(ADD, 1, name="x")),
    ("arguments", "kind is 'weight'", argument(ADD, 0, kind="weight")),
    ("arguments", "%arg9 is not one of the program", argument(ADD, 0, parameter="arg9")),
    ("arguments", "does not end in a stick of 64", argument(ADD, 0, device_size=(512, 64, 1))),
    ("arguments", "has 64 bytes; expected 65536", argument(ADD, 0, bytes=64)),
    ("arguments", "format 'FP9' is unknown", argument(ADD, 0, data_format="FP9")),
    ("sources", "Its source w is not an argument with an array of its own", argument(ADD, 1, source="w")),
    ("sources", "Its source y is not an argument with an array of its own", argument(ADD, 1, source="y")),
    ("sources", "has another kind, type or shape", argument(ADD, 1, source="x", host_shape=(256, 128))),
    ("sources", "has another kind, type or shape", argument(ADD, 1, source="x", kind="parameter")),
    ("sources", "has another kind, type or shape", argument(ADD, 2, source="x")),
    (
        "lx-address",
        "ends at the LX address 1638400; expected at most 1625344",
        tensor(REDUCTION, 1, start=(1605632,) * 2),
    ),
    ("lx-address", "LX address 64; expected a multiple of 128", tensor(REDUCTION, 1, start=(64, 64))),
    ("lx-address", "different LX addresses; expected 0 on every core", tensor(REDUCTION, 1, start=(0, 128))),
    (
        "relayout-overlap",
        "Tensor0 at [0, 32768) of lx and Tensor1 at [32640, 65408) overlap",
        tensor(RELAYOUT, 1, 1, start=(32640, 32640)),
    ),
    ("hbm-address", "symbol -2 is not an address", program(ADD, "x_1", IndexConstant("x_1", 0))),
    ("hbm-address", "symbol -2 is not an address", program(ADD, "x_1", bundles.Add("x_1", "x_0", "x_0"))),
    (
        "hbm-address",
        "arg0 + 8256, is not a multiple",
        program(ADD, "x_offset", IndexConstant("x_offset", 8256)),
    ),
    (
        "hbm-address",
        "not a multiple of 128 bytes at every iteration",
        program(LOOP, "x_tile_0", Apply("x_tile_0", ("i",), ("x_0",), (64, 1))),
    ),
    (
        "core-offset",
        "Core 1 addresses Tensor0 a changing number of bytes after core 0",
        program(LOOP, "x_tile_0", Apply("x_tile_0", ("i",), ("x_0",), (128, 1))),
    ),
    (
        "core-offset",
        "Core 1 addresses Tensor0 4096 bytes after core 0; expected 8192",
        program(ADD, "x_offset", IndexConstant("x_offset", 4096)),
    ),
    (
        "pool-limit",
        "16106127488 bytes together; expected at most",
        program(LOOP, "pool", Allocate("pool", 16106127488)),
    ),
    ("pool-limit", "%pool allocates 0 bytes", program(LOOP, "pool", Allocate("pool", 0))),
    ("buffers", "bytes [0, 65536) of pool, which has 32768", program(LOOP, "pool", Allocate("pool", 32768))),
    ("buffers", "bytes [128, 65664) of arg0, which has 65536", buffer(ADD, 0, offset=128)),
    ("buffers", "in 'arg9', which is not a parameter", buffer(ADD, 0, base="arg9")),
    (
        "buffers",
        "Two buffers have the same name",
        manifest(ADD, buffers=(*ADD.manifest.buffers, Buffer("x", "arg0", 0, 1))),
    ),
    ("operand-in-buffer", "Core 0 addresses Tensor0 outside of arg1", buffer(ADD, 0, base="arg1")),
    ("operand-in-buffer", "Core 0 touches Tensor0 in [0, 57344) of arg0", buffer(ADD, 0, bytes=32768)),
    (
        "operand-in-buffer",
        "Tensor1 is in lx; expected the memory",
        manifest(REDUCTION, uses=(("x", "x"), ("e", "s"))),
    ),
    (
        "operand-in-buffer",
        "Core 0 touches Tensor0 in [0, 2236416) of arg0",
        program(LOOP, "x_tile_0", Apply("x_tile_0", ("i",), ("x_0",), (2**18, 1))),
    ),
    ("arguments", "Its host type is 'zzz'; expected float16 or bfloat16", argument(ADD, 2, host_dtype="zzz")),
    (
        "arguments",
        "bytes together; expected at most",
        argument(ADD, 2, device_size=(2**40, 64), bytes=2**47),
    ),
    ("arguments", "has a dim without elements", argument(ADD, 0, host_shape=(0, 256))),
    ("transfer", "a host element at several places", transfer(ADD, 0, host_strides=(64, 0, 1))),
    ("transfer", "a host element at several places", transfer(ADD, 0, host_strides=(64, 128, 1))),
    ("transfer", "goes to a device element twice", transfer(ADD, 0, device_strides=(8192, 0, 1))),
    ("transfer", "goes to a device element twice", transfer(ADD, 0, device_strides=(4096, 64, 1))),
    (
        "transfer",
        "has 16384 of the 32768 elements of the result; expected all",
        transfer(ADD, 2, ranges=(4, 64, 64)),
    ),
    ("transfer", "a host element at several places", transfer(REDUCTION, 0, host_strides=(32, 200, 1))),
    ("whole-inputs", "has 16384 of the 32768 elements of the input", transfer(ADD, 0, ranges=(4, 64, 64))),
    (
        "results",
        "It writes the buffer z, which nothing reads and which is not a result.",
        argument(ADD, 2, kind="input"),
    ),
    (
        "results",
        "It writes the buffer z, which nothing reads and which is not a result.",
        manifest(ADD, arguments=ADD.manifest.arguments[:2]),
    ),
    ("transfer", "device element 65535; expected less than 32768", transfer(ADD, 0, ranges=(8, 128, 64))),
    ("transfer", "host element 65279; expected less than 32768", transfer(ADD, 0, host_strides=(64, 512, 1))),
    ("transfer", "host element 25655; expected less than 25600", transfer(REDUCTION, 0, bounds=())),
    ("transfer", "expected as many host and device strides", transfer(ADD, 0, ranges=(4, 128))),
    ("transfer", "A bound of its transfer does not name loops", transfer(ADD, 0, bounds=(((7,), (1,), 3),))),
    (
        "transfer",
        "counts a position of its dim twice",
        transfer(REDUCTION, 0, bounds=(((0, 2), (63, 1), 200),)),
    ),
    (
        "transfer",
        "counts a position of its dim twice",
        transfer(REDUCTION, 0, bounds=(((0, 2), (0, 1), 200),)),
    ),
]


@pytest.mark.parametrize("build", bundles.GOOD.values(), ids=bundles.GOOD)
def test_good_bundles(build):
    assert validate(build()) == []


@pytest.mark.sampled(len(BROKEN))
@pytest.mark.parametrize(
    ("rule", "sentence", "bundle"), BROKEN, ids=lambda each: each if isinstance(each, str) else ""
)
def test_broken(rule, sentence, bundle):
    findings = validate(bundle)
    assert any(finding.rule == rule and sentence in finding.message for finding in findings), findings
    assert all(finding.message.endswith(".") and finding.where for finding in findings)


def test_every_rule_has_a_case():
    elsewhere = {"span", "symbol-values", "lx-overlap", "write-conflict", "uninitialised-read"}
    elsewhere |= {"race", "elements", "restickify-source", "residents", "non-terminal", "windows"}
    assert {rule for rule, _, _ in BROKEN} | elsewhere == set(RULES)
