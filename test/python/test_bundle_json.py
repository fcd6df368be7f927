# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The JSON of a design: it fits the schemas, comes back exactly, and is refused when damaged."""

import copy
import json
import random
from dataclasses import replace
from pathlib import Path

import bundles
import jsonschema
import pytest
from foreign_data import needs_schema
from public_schema import public_schema
from relayouts import random_relayout

import spyre_mlir.bundle.design_json as design_json
from spyre_mlir.bundle.design_json import from_json, to_json
from spyre_mlir.bundle.json_fields import manifest_from_json, manifest_to_json
from spyre_mlir.bundle.model import HeldSlices
from spyre_mlir.errors import CompileError
from spyre_mlir.target.target import packaged_target

OWN_SCHEMA = Path(design_json.__file__).with_name("sdsc.schema.json")

DESIGNS = [design for build in bundles.GOOD.values() for design in build().designs.values()]
RELAYOUTS = [random_relayout(random.Random(seed)) for seed in range(60)]


def _schema(path: Path) -> dict:
    schema = json.loads(path.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.opcode)
def test_round_trip(design):
    text = json.dumps(to_json(design))
    assert from_json(json.loads(text), "file", design.target) == bundles.in_file(design)


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.opcode)
def test_padding_in_a_design_is_read(design):
    """Bundles had it there before the manifest did."""
    value = to_json(design)
    bundles.say_padding(value, design.padding)
    assert from_json(value, "file", design.target) == design


@pytest.mark.parametrize("design", RELAYOUTS, ids=range(60))
def test_round_trip_of_relayouts(design):
    """Random ones, whose cores hold other slices, or nothing, of the source."""
    value = to_json(design)
    jsonschema.validate(value, _schema(OWN_SCHEMA))
    assert from_json(json.loads(json.dumps(value)), "file", design.target) == bundles.in_file(design)


def test_round_trip_of_gaps_in_lx_and_a_debug_handle_without_source():
    design = bundles.reduction_bundle().designs["sdsc_0.json"]
    output = replace(design.operands[1], gap={"mb": 64})
    debug = bundles.DebugHandle("7", aten_op="aten.exp")
    design = replace(design, operands=(design.operands[0], output), debug=debug)
    assert from_json(to_json(design), "file", design.target) == bundles.in_file(design)


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.opcode)
def test_fits_own_schema(design):
    jsonschema.validate(to_json(design), _schema(OWN_SCHEMA))


@needs_schema
@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.opcode)
def test_fits_public_schema(design):
    public_schema().validate(to_json(design))


def test_names_and_addresses_of_the_public_format():
    value = to_json(bundles.reduction_bundle().designs["sdsc_1.json"])["1_sum"]
    dsc = value["dscs_"][0]["sum"]
    # A reduction adds to its output, which is an input, too.
    assert dsc["computeOp_"][0]["inputLabeledDs"] == ["Tensor0-idx0", "Tensor1-idx1"]
    assert dsc["computeOp_"][0]["outputLabeledDs"] == ["Tensor1-idx1"]
    assert dsc["scheduleTree_"][0]["name_"] == "allocate-Tensor0_lx"
    assert dsc["scheduleTree_"][1]["startAddressCoreCorelet_"]["data_"] == {
        "[0, 0, 0]": "-3",
        "[1, 0, 0]": "-4",
    }
    # Sizes include padding; only the manifest has the sizes of the padding.
    assert dsc["N_"] == {"name_": "n", "mb_": 128, "out_": 256}
    assert dsc["coordinateMasking_"] == {"out": [[200, 56]]}
    assert dsc["labeledDs_"][1]["scale_"] == [1, -2]


def test_folds_multiply_to_the_elements_of_a_core_and_broadcast_dims_to_one():
    dsc = to_json(bundles.reduction_bundle().designs["sdsc_1.json"])["1_sum"]["dscs_"][0]["sum"]

    def factors(tensor, dim):
        info = dsc["scheduleTree_"][tensor]["coordinates_"]["coordInfo"][dim]
        attributes = info["folds"]["dim_prop_attr"]
        assert len(attributes) == len(info["folds"]["dim_prop_func"]) == info["elemArr"] + 3
        return [attribute["factor_"] for attribute in attributes]

    assert factors(0, "mb") == [2, 1, 1, 64]
    assert factors(0, "out") == [1, 1, 1, 4, 64]
    # All elements of a reduced stick, which have one coordinate.
    assert factors(1, "out") == [1, 1, 1, 1, 64]


def test_both_allocations_of_a_relayout_say_which_core_has_which_slice():
    """Source by rows, of which core 0 has nothing; destination by columns, with the folds of each."""
    relayout = bundles.relayout_bundle().designs["sdsc_1.json"]
    held = HeldSlices({"mb": 1, "out": 1}, (None, {"mb": 0, "out": 0}))
    relayout = replace(relayout, operands=(replace(relayout.operands[0], held=held), relayout.operands[1]))
    value = to_json(relayout)["1_shuffle"]
    source, target = (node["coordinates_"] for node in value["dscs_"][0]["shuffle"]["scheduleTree_"])
    assert source["coreIdToWkSlice_"] == {"1": {"mb": 0, "out": 0}}
    assert target["coreIdToWkSlice_"] == {"0": {"mb": 0, "out": 0}, "1": {"mb": 0, "out": 1}}
    assert value["coreIdToWkSlice_"] == target["coreIdToWkSlice_"]

    def factors(coordinates, dim):
        return [fold["factor_"] for fold in coordinates["coordInfo"][dim]["folds"]["dim_prop_attr"]]

    assert (factors(source, "mb"), factors(source, "out")) == ([1, 1, 1, 128], [1, 1, 1, 4, 64])
    assert (factors(target, "mb"), factors(target, "out")) == ([1, 1, 1, 128], [2, 1, 1, 2, 64])


def test_last_slice_may_be_smaller():
    design = replace(DESIGNS[0], sizes={"mb": 100, "out": 256})
    stage = to_json(design)["0_add"]["dscs_"][0]["add"]["dataStageParam_"]["0"]
    assert (stage["ss_"]["mb_"], stage["el_"]["mb_"]) == (64, 36)


def test_operands_of_one_role_have_the_same_dims_in_an_order_of_their_own():
    first = replace(DESIGNS[0].operands[0], dim_order=("out", "mb"), scale={"out": 1, "mb": -1})
    design = replace(DESIGNS[0], operands=(first, *DESIGNS[0].operands[1:]))
    dsc = to_json(design)["0_add"]["dscs_"][0]["add"]
    assert dsc["primaryDsInfo_"]["INPUT"]["layoutDimOrder_"] == ["out", "mb"]
    assert [node["layoutDimOrder_"][0] for node in dsc["scheduleTree_"]] == ["out", "mb", "mb"]
    # The scales stand in the order of the layout, not of the tensor in memory.
    assert [tensor["scale_"] for tensor in dsc["labeledDs_"]] == [[1, -1], [1, 1], [1, 1]]
    assert from_json(to_json(design), "file", design.target) == design


def test_operands_of_one_role_share_their_stick():
    first = replace(DESIGNS[0].operands[0], stick_elements=32)
    with pytest.raises(
        CompileError, match="Tensor1 of add has the role INPUT but not the dims and the stick"
    ):
        to_json(replace(DESIGNS[0], operands=(first, *DESIGNS[0].operands[1:])))


def _dsc(value):
    return value["0_add"]["dscs_"][0]["add"]


DAMAGES = {
    "missing member": (
        lambda v: v["0_add"].pop("numCoresUsed_"),
        "field 0_add has no member 'numCoresUsed_'",
    ),
    "unknown member": (lambda v: _dsc(v).update(extra_=1), "extra_ is not part of the format"),
    "cores not unique": (
        lambda v: _dsc(v).update(coreIdsUsed_=[0, 0]),
        r"coreIdsUsed_\[1\] must be 1 but is 0",
    ),
    "core without slices": (lambda v: v["0_add"]["coreIdToWkSlice_"].pop("0"), "'1' in place of 0"),
    "unresolved tensor name": (
        lambda v: _dsc(v)["computeOp_"][0].update(inputLabeledDs=["Tensor0-idx0", "Tensor9-idx9"]),
        r'inputLabeledDs\[1\] must be "Tensor1-idx1" but is "Tensor9-idx9"',
    ),
    "undeclared dim": (
        lambda v: _dsc(v)["primaryDsInfo_"]["INPUT"].update(layoutDimOrder_=["q", "out"]),
        "uses the dim 'q'",
    ),
    "wrong type": (
        lambda v: v["0_add"]["numWkSlicesPerDim_"].update(mb="2"),
        'must be an integer but is "2"',
    ),
    "true is no number": (lambda v: _dsc(v).update(maskingConstId_=True), "must be an integer but is true"),
    "address that is no number": (
        lambda v: _dsc(v)["scheduleTree_"][0]["startAddressCoreCorelet_"]["data_"].update({"[0, 0, 0]": "x"}),
        "must be an integer written as a string",
    ),
    "padding of no dim": (
        lambda v: _dsc(v)["N_"].update(paddingSizes_={"q": {"padBack_": 1, "totalSize_": 64}}),
        r"paddingSizes_\.q is the padding of a dim that N_ does not declare",
    ),
    "padding of another size": (
        lambda v: _dsc(v)["N_"].update(paddingSizes_={"out": {"padBack_": 1, "totalSize_": 64}}),
        r"paddingSizes_\.out\.totalSize_ must be 256 but is 64",
    ),
    "padding of a window": (
        lambda v: _dsc(v)["N_"].update(paddingSizes_={"out": {"padBack_": 1, "windowDim_": "mb"}}),
        r"paddingSizes_\.out\.windowDim_ is not part of the format",
    ),
    "unknown format": (lambda v: _dsc(v)["labeledDs_"][0].update(dataFormat_="FP9"), "'FP9' is unknown"),
    "two names": (lambda v: v.update({"1_add": {}}), "must have exactly one member but has 2"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_json_is_refused_with_file_and_field(damage):
    value = copy.deepcopy(to_json(DESIGNS[0]))
    change, message = DAMAGES[damage]
    change(value)
    with pytest.raises(CompileError, match=message) as caught:
        from_json(value, "sdsc_0.json", packaged_target())
    assert caught.value.location == "sdsc_0.json"


RELAYOUT_DAMAGES = {
    "a core that is none": (
        lambda c: c["coreIdToWkSlice_"].update({"7": {"mb": 0}}),
        r"coreIdToWkSlice_\.7 is not part",
    ),
    "no slice of a dim": (
        lambda c: c["coreIdToWkSlice_"]["1"].pop("mb"),
        r"coreIdToWkSlice_\.1 has no member 'mb'",
    ),
    "another share": (
        lambda c: c["coordInfo"]["mb"]["folds"]["dim_prop_func"][0]["Affine"].update(alpha_=32),
        r"alpha_ must be 64 but is 32",
    ),
    "no slices": (
        lambda c: c["coordInfo"]["mb"]["folds"]["dim_prop_attr"][0].update(factor_=0),
        r"factor_ must be at least 1",
    ),
    "no folds": (
        lambda c: c["coordInfo"]["mb"]["folds"].update(dim_prop_attr=[]),
        "dim_prop_attr must begin with the fold over the cores",
    ),
}


@pytest.mark.parametrize("damage", RELAYOUT_DAMAGES)
def test_a_damaged_source_of_a_relayout_is_refused(damage):
    value = to_json(bundles.relayout_bundle().designs["sdsc_1.json"])
    change, message = RELAYOUT_DAMAGES[damage]
    change(value["1_shuffle"]["dscs_"][0]["shuffle"]["scheduleTree_"][0]["coordinates_"])
    with pytest.raises(CompileError, match=message) as caught:
        from_json(value, "sdsc_1.json", packaged_target())
    assert caught.value.location == "sdsc_1.json"


@pytest.mark.parametrize("build", bundles.GOOD.values(), ids=bundles.GOOD)
def test_manifest_round_trip(build):
    manifest = build().manifest
    infinite = replace(manifest.arguments[0], fill=float("-inf"))
    manifest = replace(manifest, arguments=(infinite, *manifest.arguments[1:]))
    text = json.dumps(manifest_to_json(manifest), allow_nan=False)
    assert manifest_from_json(json.loads(text), "manifest.json") == manifest


def test_reasons_of_a_buffer_are_written_where_there_are_any():
    manifest = bundles.loop_bundle().manifest
    first, second, *others = manifest.buffers
    manifest = replace(manifest, buffers=(first, replace(second, reasons=("too large", "lost")), *others))
    value = json.loads(json.dumps(manifest_to_json(manifest)))
    assert [each.get("reasons") for each in value["buffers"]] == [None, ["too large", "lost"], None]
    assert manifest_from_json(value, "manifest.json") == manifest


def test_damaged_manifest_names_the_field():
    value = manifest_to_json(bundles.add_bundle().manifest)
    value["arguments"][1]["transfer"]["ranges"] = "many"
    with pytest.raises(CompileError, match=r"arguments\[1\]\.transfer\.ranges must be a list"):
        manifest_from_json(value, "manifest.json")
    with pytest.raises(CompileError, match="version must be 1"):
        manifest_from_json({**value, "version": 2}, "manifest.json")
