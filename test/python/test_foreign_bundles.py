# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bundles of other writers: designs with fields that the SuperDSC schema leaves open, folders without a manifest."""

import copy
import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import bundles
import numpy as np
import pytest
from foreign_data import DESIGN_FOLDERS, needs_designs

from spyre_mlir.bundle import read_bundle, write_bundle
from spyre_mlir.bundle.context import Context
from spyre_mlir.bundle.design_json import from_json, read_design, to_json
from spyre_mlir.bundle.model import Bundle
from spyre_mlir.bundle.validate import sound_context, validate
from spyre_mlir.errors import CompileError
from spyre_mlir.simulator import run
from spyre_mlir.target.target import packaged_target
from spyre_mlir.timeline import timeline_of
from spyre_mlir.timeline.of_design import work_of_designs
from spyre_mlir.tools import spyre_diff, spyre_report, spyre_run, spyre_validate


def random_inputs(bundle: Bundle, seed: int) -> dict[str, np.ndarray]:
    """Return random arrays for the inputs of a bundle; integers are positions in a table of 16 rows."""
    generator = np.random.default_rng(seed)
    return {
        argument.name: generator.integers(0, 16, argument.host_shape).astype(argument.host_dtype)
        if argument.host_dtype == "int32"
        else generator.standard_normal(argument.host_shape).astype(argument.host_dtype)
        for argument in bundle.manifest.arguments
        if argument.kind != "result"
    }


# -- the designs of torch-spyre ---------------------------------------------------------------


@needs_designs
@pytest.mark.parametrize("folder", DESIGN_FOLDERS, ids=lambda folder: folder.name)
def test_upstream_designs_load_run_and_have_a_timeline(folder):
    bundle = read_bundle(folder)
    assert validate(bundle) == []
    timeline = timeline_of(sound_context(bundle), work_of_designs(bundle))
    assert 1e3 < timeline.total_ns < 1e8
    inputs = random_inputs(bundle, 3)
    rows, columns = (inputs[name].astype(np.float64) for name in ("Tensor0", "Tensor1"))
    # [mb, in, x] times [in, out, x], a batch for each x.
    expected = np.matmul(rows.transpose(2, 0, 1), columns.transpose(2, 0, 1)).transpose(1, 2, 0)
    result = run(bundle, inputs).outputs["Tensor2"]
    assert result.shape == expected.shape
    assert np.abs(result - expected).max() <= 0.005 * np.abs(expected).max()


@needs_designs
def test_tools_work_on_a_folder_with_one_design(tmp_path, capsys):
    folder, other = DESIGN_FOLDERS[0], DESIGN_FOLDERS[1]
    assert spyre_validate.main([str(folder)]) == 0
    assert "input Tensor0: float16 [32, 128, 64]\n" in capsys.readouterr().out
    inputs = random_inputs(read_bundle(folder), 5)
    # Floats of another width are numbers, too.
    floats: dict[str, Any] = {name: array.astype(np.float32) for name, array in inputs.items()}
    np.savez(tmp_path / "in.npz", **floats)
    arguments = [str(folder), "--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz")]
    assert spyre_run.main([*arguments, "--stats", "--timeline", str(tmp_path / "trace.json")]) == 0
    with np.load(tmp_path / "out.npz") as outputs:
        assert np.array_equal(outputs["Tensor2"], run(read_bundle(folder), inputs).outputs["Tensor2"])
    assert spyre_report.main([str(folder), "-o", str(tmp_path / "report.html")]) == 0
    assert spyre_diff.main([str(folder), str(other)]) in (0, 1)


# -- folders without a manifest -----------------------------------------------------------------------


def write_foreign(bundle: Bundle, folder: Path, *, has_program: bool = True) -> Path:
    """The folder of a bundle without what only this package writes."""
    write_bundle(bundle, folder)
    (folder / "manifest.json").unlink()
    if not has_program:
        (folder / "bundle.mlir").unlink()
    return folder


@pytest.mark.parametrize("has_program", [True, False])
def test_a_bundle_of_one_design_without_manifest(tmp_path, has_program):
    folder = write_foreign(bundles.add_bundle(), tmp_path / "foreign", has_program=has_program)
    foreign = read_bundle(folder)
    assert [(a.name, a.kind, a.host_shape) for a in foreign.manifest.arguments] == [
        ("Tensor0", "input", (256, 128)),
        ("Tensor1", "input", (256, 128)),
        ("Tensor2", "result", (256, 128)),
    ]
    assert validate(foreign) == []
    inputs = random_inputs(foreign, 1)
    expected = inputs["Tensor0"].astype(np.float32) + inputs["Tensor1"]
    np.testing.assert_allclose(run(foreign, inputs).outputs["Tensor2"], expected, atol=4e-3)


@pytest.mark.parametrize(("is_said", "columns"), [(True, 200), (False, 256)])
def test_padding_sparse_sticks_and_lx_without_manifest(tmp_path, is_said, columns):
    """x of (128, 200) in 256 lanes; a sum with one number per stick, of dims [out, mb] and one element of out.

    Without a word on padding, which designs have of windows alone, the array has all lanes; the mask of the sum holds.
    """
    folder = write_foreign(bundles.reduction_bundle(), tmp_path / "foreign")
    for path in folder.glob("sdsc_*.json") if is_said else ():
        value = json.loads(path.read_text())
        bundles.say_padding(value, {"out": 56})
        path.write_text(json.dumps(value))
    foreign = read_bundle(folder)
    assert validate(foreign) == []
    x, s = foreign.manifest.arguments
    assert (x.name, x.host_shape) == ("sdsc_0.Tensor0", (columns, 128))
    assert (s.name, s.host_shape) == ("sdsc_1.Tensor1", (1, 128))
    inputs = random_inputs(foreign, 2)
    expected = np.exp(inputs[x.name][:200].astype(np.float64)).sum(axis=0)
    np.testing.assert_allclose(run(foreign, inputs).outputs[s.name][0], expected, rtol=4e-3)


def test_loops_over_tiles_and_an_allocation_without_manifest(tmp_path):
    """A tile with a gap after its rows is a subview of the whole array, which is the argument of the host."""
    foreign = read_bundle(write_foreign(bundles.loop_bundle(), tmp_path / "foreign"))
    assert validate(foreign) == []
    x, z = foreign.manifest.arguments
    assert (x.host_shape, z.host_shape, x.kind, z.kind) == ((256, 1024), (256, 1024), "input", "result")
    inputs = random_inputs(foreign, 4)
    expected = inputs[x.name] + np.abs(inputs[x.name])
    np.testing.assert_allclose(run(foreign, inputs).outputs[z.name], expected, atol=4e-3)


@pytest.mark.parametrize("name", ["accumulator", "relayout", "gather"])
def test_other_bundles_without_manifest_are_valid_and_run(name, tmp_path):
    foreign = read_bundle(write_foreign(bundles.GOOD[name](), tmp_path / "foreign"))
    assert validate(foreign) == []
    outputs = run(foreign, random_inputs(foreign, 6)).outputs
    assert all(np.isfinite(array).all() for array in outputs.values())


def test_a_window_of_a_larger_array_is_an_array_of_sticks(tmp_path):
    foreign = read_bundle(write_foreign(bundles.window_bundle(), tmp_path / "foreign"))
    assert validate(foreign) == []
    x = foreign.manifest.arguments[0]
    assert x.host_shape == x.device_size and x.host_shape[1] == 64


def absolute(value: dict, first: int, addresses: dict[int, int]) -> dict:
    """The JSON of a design with numbers in place of symbol ids, and no word on which of both they are."""
    value = copy.deepcopy(value)
    for node in dsc_of(value)["scheduleTree_"]:
        if node["component_"] == "hbm":
            del node["isStartAddrSymbolic_"]
            data = node["startAddressCoreCorelet_"]["data_"]
            data.update({key: str(first + addresses[int(symbol)]) for key, symbol in data.items()})
    return value


def dsc_of(value: dict) -> dict:
    (body,) = value.values()
    (dsc,) = body["dscs_"][0].values()
    return dsc


CORE_BYTES = 64 * 128
#: Addresses of x, y and z on the cores of an add, 1 MiB apart.
ADDRESSES = {-1 - 2 * k - core: (k << 20) + core * CORE_BYTES for k in range(3) for core in range(2)}


@pytest.mark.parametrize("first", [0, 1 << 34])
def test_concrete_addresses_and_an_execute_without_symbols(tmp_path, first):
    value = absolute(to_json(bundles.add_bundle().designs["sdsc_0.json"]), first, ADDRESSES)
    (tmp_path / "x.json").write_text(json.dumps(value))
    (tmp_path / "bundle.mlir").write_text(
        "module {\n"
        "  func.func @anything() {\n"
        '    sdscbundle.sdsc_execute () {sdsc_filename="x.json"}\n'
        "    return\n  }\n}\n"
    )
    foreign = read_bundle(tmp_path)
    assert validate(foreign) == []
    inputs = random_inputs(foreign, 8)
    expected = inputs["Tensor0"].astype(np.float32) + inputs["Tensor1"]
    np.testing.assert_allclose(run(foreign, inputs).outputs["Tensor2"], expected, atol=4e-3)


def test_designs_that_share_an_address_share_the_tensor(tmp_path):
    """z = x + y, then z + y in the place of x: three areas, of which one is read and written."""
    value = to_json(bundles.add_bundle().designs["sdsc_0.json"])
    swapped = {
        -1 - 2 * k - core: (place << 20) + core * CORE_BYTES
        for k, place in enumerate((2, 1, 0))
        for core in (0, 1)
    }
    for index, addresses in enumerate((ADDRESSES, swapped)):
        named = {f"{index}_add": absolute(value, 4096, addresses)["0_add"]}
        (tmp_path / f"sdsc_{index}.json").write_text(json.dumps(named))
    foreign = read_bundle(tmp_path)
    assert validate(foreign) == []
    kinds = {argument.name: argument.kind for argument in foreign.manifest.arguments}
    assert kinds == {
        "sdsc_0.Tensor0": "input",
        "sdsc_1.Tensor2": "result",
        "sdsc_0.Tensor1": "input",
        "sdsc_0.Tensor2": "result",
    }
    inputs = random_inputs(foreign, 9)
    x, y = (inputs[name].astype(np.float32) for name in ("sdsc_0.Tensor0", "sdsc_0.Tensor1"))
    outputs = run(foreign, inputs).outputs
    np.testing.assert_allclose(outputs["sdsc_0.Tensor2"], x + y, atol=4e-3)
    np.testing.assert_allclose(outputs["sdsc_1.Tensor2"], x + 2 * y, atol=8e-3)


PROGRAM = """
module {{
  func.func @sdsc_bundle({parameters}) {{
    #rows = affine_map<(d0)[base] -> (base + 16384 * d0)>
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
{bounds}
    %x0 = arith.constant 1048576 : index
    %x1 = arith.constant 1056768 : index
    %z = sdscbundle.device_mem_allocate 2097152 bytes : index
    scf.for %i = %c0 to %tiles step %c1 {{
      %a0 = affine.apply #rows (%i)[%x0]
      %a1 = affine.apply affine_map<(d0)[s0] -> (s0 + 16384 * d0)> (%i)[%x1]
      %b0 = affine.apply #rows (%i)[%z]
      %c8 = arith.constant 8192 : index
      %b1 = arith.addi %b0, %c8 : index
      sdscbundle.sdsc_execute (%a0, %a1, %b0, %b1) {{
        "sdsc_filename"="sdsc_0.json", "symbol_ids"=["-1", "-2", "-3", "-4"]
      }}
    }}
    return
  }}
}}
"""
SIZES = {
    "constant": ("", "    %tiles = arith.constant 8 : index"),
    "size": (
        "%n: !sdscbundle.input_arg<index, granularity=1, max_value=8>",
        "    %tiles = sdscbundle.input_arg_extract value from %n :"
        " !sdscbundle.input_arg<index, granularity=1, max_value=8> -> index",
    ),
    "loop dimension": (
        "%n: !sdscbundle.input_arg<loop_dimension, max_value=8>",
        "    %tiles = sdscbundle.input_arg_extract value from %n :"
        " !sdscbundle.input_arg<loop_dimension, max_value=8> -> index",
    ),
}


@pytest.mark.parametrize("size", SIZES)
def test_forms_of_programs(size, tmp_path):
    """Constant addresses in loops, maps in the body, quoted names and ids, sizes as arguments, an allocation."""
    value = to_json(bundles.loop_bundle().designs["sdsc_0.json"])
    dsc_of(value)["scheduleTree_"][1]["backGapCore_"] = {"mb": {"-1": "896"}}
    (tmp_path / "sdsc_0.json").write_text(json.dumps(value))
    parameters, bounds = SIZES[size]
    (tmp_path / "bundle.mlir").write_text(PROGRAM.format(parameters=parameters, bounds=bounds))
    foreign = read_bundle(tmp_path)
    (x,) = foreign.manifest.arguments
    assert (x.name, x.host_shape) == ("Tensor0", (256, 1024))
    # The validator reports only that results are not read from an allocation.
    assert {finding.rule for finding in validate(foreign)} == {"results"}
    run(foreign, random_inputs(foreign, 10))


# -- one field after the other ------------------------------------------------------------------------

OPTIONAL = {
    "": ("debug_handle_", "numWkSlicesPerDim_", "coreIdToWkSlice_"),
    "dsc": (
        "numCoreletsUsed_", "coordinateMasking_", "maskingConstId_", "dataStageParam_", "constantInfo_",
        "primaryDsInfo_",
    ),
    "stage": ("name_",),
    "layout": ("layoutDimOrder_", "stickDimOrder_", "stickSize_"),
    "node": ("ldsIdx_", "component_", "layoutDimOrder_", "maxDimSizes_", "isStartAddrSymbolic_", "coordinates_"),
    "label": ("scale_", "wordLength"),
    "compute": ("attributes_", "location"),
}  # fmt: skip


def objects(value: dict) -> Iterator[tuple[str, dict]]:
    """The objects of a design with fields that it may lack."""
    (body,) = value.values()
    dsc = dsc_of(value)
    yield "", body
    yield "dsc", dsc
    yield "stage", dsc["dataStageParam_"]["0"]
    yield from (("layout", layout) for layout in dsc["primaryDsInfo_"].values())
    yield from (("node", node) for node in dsc["scheduleTree_"])
    yield from (("label", label) for label in dsc["labeledDs_"])
    yield "compute", dsc["computeOp_"][0]


DESIGNS = {
    f"{name} {design.index}": design
    for name, build in bundles.GOOD.items()
    for design in build().designs.values()
}

#: Facts that no other member of the file implies: without them the design has another meaning, or none.
FACTS = {"debug_handle_", "coordinateMasking_", "maskingConstId_", "constantInfo_", "scale_"}


def lacks(design, kind: str, key: str) -> bool:
    """Return whether removing a field loses a fact of a design: masks, constants, broadcasts, slices of a shuffle."""
    is_relayout = any(operand.held for operand in design.operands)
    return key in FACTS or (is_relayout and key in ("coordinates_", "dataStageParam_"))


@pytest.mark.parametrize("name", DESIGNS)
def test_optional_fields_taken_away_one_by_one(name):
    design = DESIGNS[name]
    for place, (kind, target) in enumerate(objects(to_json(design))):
        for key in OPTIONAL[kind]:
            if key not in target:
                continue
            value = to_json(design)
            del list(objects(value))[place][1][key]
            if lacks(design, kind, key):
                read_any(value, design)
            else:
                read = from_json(value, "sdsc_0.json", design.target)
                assert read == bundles.in_file(design), (kind, key)


def read_any(value: dict, design) -> None:
    """A design that lacks a fact is another one, or refused with file and field."""
    try:
        from_json(value, "sdsc_0.json", design.target)
    except CompileError as error:
        assert error.location == "sdsc_0.json" and "field" in error.message


def test_a_design_without_addresses_has_tensors_anywhere(tmp_path):
    value = to_json(bundles.add_bundle().designs["sdsc_0.json"])
    for node in dsc_of(value)["scheduleTree_"]:
        del node["startAddressCoreCorelet_"]
    (tmp_path / "sdsc_0.json").write_text(json.dumps(value))
    assert validate(read_bundle(tmp_path)) == []


def added(value: dict) -> dict:
    """Return the JSON of a design with additions of other writers: folds, links, empty maps, names, another order."""
    value = copy.deepcopy(value)
    (body,) = value.values()
    dsc = dsc_of(value)
    body["sdscFoldProps_"] = [{"factor_": 1, "label_": "time"}]
    affine = {"Affine": {"alpha_": 1, "beta_": 0}}
    body["sdscFolds_"] = {
        "dim_prop_func": [affine],
        "dim_prop_attr": [{"factor_": 1, "label_": "time"}],
        "data_": {"[0]": "0"},
    }
    empty = {
        "symbolicDimInfo_": {},
        "maxSymbolicVolume_": {},
        "coreletSplit_": {},
        "rowSplit_": {},
        "peSfpSplit_": {},
    }
    for half in ("ss_", "el_"):
        dsc["dataStageParam_"]["0"][half].update(name_="core", paddingSizes_={}, i_=-1, **empty)
    del dsc["dataStageParam_"]["0"]["name_"]
    dsc["N_"].update(i_=-1, **empty)
    for node in dsc["scheduleTree_"]:
        node.update(prev_="", indirectAllocType_="no_indirection")
        node["coordinates_"]["coreIdToWkSlice_"] = {}
    for label in dsc["labeledDs_"]:
        label["dsName_"] = f"arg{label['ldsIdx_']}"
        label["memOrg_"]["hbm"] = {"isPresent": 1, "isPadded": 0, "allocateNode_": "allocate"}
    for key in ("inputLabeledDs", "outputLabeledDs"):
        dsc["computeOp_"][0][key] = [text.replace("Tensor", "arg") for text in dsc["computeOp_"][0][key]]
    dsc["scheduleTree_"].reverse()
    dsc["labeledDs_"].reverse()
    return value


def test_additions_of_other_writers_change_nothing():
    design = bundles.add_bundle().designs["sdsc_0.json"]
    read = read_design(added(to_json(design)), "sdsc_0.json", design.target)
    assert read.design == design and read.names == ("arg0", "arg1", "arg2") and read.ignored == ()


def test_members_sorted_as_text_are_cores_in_order():
    """Sixteen cores: "10" comes before "2" in a file with sorted names."""
    cores = range(16)
    starts = (
        (role, tuple(-1 - 16 * k - core for core in cores))
        for k, role in enumerate(("INPUT", "INPUT", "OUTPUT"))
    )
    design = bundles.two_core_design(
        0,
        "add",
        tuple(bundles.operand(role, "mb out", start) for role, start in starts),
        slices={"mb": 16, "out": 1},
        shares={"mb": 8, "out": 256},
        core_slices=tuple({"mb": core, "out": 0} for core in cores),
    )
    value = json.loads(json.dumps(to_json(design), sort_keys=True))
    assert list(value["0_add"]["coreIdToWkSlice_"])[:3] == ["0", "1", "10"]
    assert from_json(value, "sdsc_0.json", design.target) == design


def test_a_size_of_run_time_is_the_largest():
    design = bundles.add_bundle().designs["sdsc_0.json"]
    value = to_json(design)
    dsc_of(value)["dimToSymbolMapping_"] = {"mb": ["s0"]}
    dsc_of(value)["N_"]["symbolicDimInfo_"] = {"mb": {"maxSize_": 128, "granularity_": 64}}
    read = read_design(value, "sdsc_0.json", design.target)
    assert read.design == design
    assert [path.rpartition(".")[2] for path in read.ignored] == ["dimToSymbolMapping_", "symbolicDimInfo_"]


def test_one_tensor_may_be_both_inputs(tmp_path):
    value = to_json(bundles.add_bundle().designs["sdsc_0.json"])
    dsc_of(value)["computeOp_"][0]["inputLabeledDs"] = ["Tensor0-idx0", "Tensor0-idx0"]
    (tmp_path / "sdsc_0.json").write_text(json.dumps(value))
    foreign = read_bundle(tmp_path)
    assert validate(foreign) == []
    assert [argument.name for argument in foreign.manifest.arguments] == ["Tensor0", "Tensor2"]
    inputs = random_inputs(foreign, 11)
    assert np.array_equal(run(foreign, inputs).outputs["Tensor2"], 2 * inputs["Tensor0"])


BAD_PROGRAMS = {
    "a step of no iteration": ("%c1 = arith.constant 1", "%c1 = arith.constant 0", "It has 0 iterations"),
    "an address of two bases": (
        "(%i)[%z]",
        "(%z)[%z]",
        "An address is not one parameter or allocation plus bytes",
    ),
    "a symbol too few": (', "-4"]', "]", "has 4 operands for 3 symbol ids"),
    "a file of another folder": ("sdsc_0.json", "../sdsc_0.json", "A design is in a file '<name>.json'"),
    "an unknown attribute": ('"symbol_ids"', "ids", "Expected sdsc_filename or symbol_ids"),
    "a name without quotes": ('"sdsc_0.json"', "sdsc_0", "Expected a file name in double quotes"),
}


@pytest.mark.parametrize("name", BAD_PROGRAMS)
def test_a_bad_program_is_one_diagnostic(name, tmp_path):
    old, new, message = BAD_PROGRAMS[name]
    (tmp_path / "sdsc_0.json").write_text(json.dumps(to_json(bundles.loop_bundle().designs["sdsc_0.json"])))
    parameters, bounds = SIZES["constant"]
    text = PROGRAM.format(parameters=parameters, bounds=bounds)
    assert old in text
    (tmp_path / "bundle.mlir").write_text(text.replace(old, new))
    with pytest.raises(CompileError, match=message) as caught:
        read_bundle(tmp_path)
    assert "bundle.mlir" in str(caught.value.location) or str(tmp_path) == caught.value.location


@pytest.mark.parametrize("seed", range(4))
def test_programs_cut_off_or_without_words_are_read_or_refused(seed, tmp_path):
    generator = random.Random(seed)
    (tmp_path / "sdsc_0.json").write_text(json.dumps(to_json(bundles.loop_bundle().designs["sdsc_0.json"])))
    parameters, bounds = SIZES["size"]
    words = PROGRAM.format(parameters=parameters, bounds=bounds).split(" ")
    for _ in range(40):
        text = list(words)
        for _ in range(generator.randint(1, 2)):
            odd = ("", "0", "-1", "%z", "%i", "9" * 30, "]", generator.choice(words))
            text[generator.randrange(len(text))] = generator.choice(odd)
        end = generator.choice((len(text), generator.randrange(len(text))))
        (tmp_path / "bundle.mlir").write_text(" ".join(text[:end]))
        try:
            validate(read_bundle(tmp_path))
        except CompileError as error:
            assert str(tmp_path) in str(error.location) and "\n" not in error.message


@pytest.mark.parametrize("bits", ["12", 12, [12], ["12"]])
def test_constants_as_strings_and_integers(bits):
    design = bundles.reduction_bundle().designs["sdsc_1.json"]
    value = to_json(design)
    dsc_of(value)["constantInfo_"]["0"]["data_"]["data_"] = {"[0, 0]": bits}
    assert from_json(value, "sdsc_1.json", design.target).constants == (
        replace(design.constants[0], bits=12),
    )


def test_fields_that_are_ignored_are_said(tmp_path, capsys):
    value = to_json(bundles.add_bundle().designs["sdsc_0.json"])
    dsc_of(value)["pdsRelation_"] = {"isPdsReuse": 1}
    (tmp_path / "sdsc_0.json").write_text(json.dumps(value))
    assert spyre_validate.main([str(tmp_path)]) == 0
    assert "ignored: sdsc_0.json: 0_add.dscs_[0].add.pdsRelation_\n" in capsys.readouterr().out


REFUSALS = {
    "data operations": (lambda body, dsc: body.update(datadscs_=[{"op": 1}]), "datadscs_ holds data operations"),
    "a fold over time": (
        lambda body, dsc: body.update(sdscFoldProps_=[{"factor_": 2, "label_": "time"}]),
        r"sdscFoldProps_\[0\].factor_ must be 1",
    ),
    "two operations": (lambda body, dsc: dsc["computeOp_"].append({}), "computeOp_ must have exactly one item"),
    "a window": (
        lambda body, dsc: dsc["N_"].update(paddingSizes_={"mb": {"padFront_": 1}}),
        r"paddingSizes_.mb.padFront_ moves the window",
    ),
    "parts at unrelated places": (
        lambda body, dsc: dsc["scheduleTree_"][0].update(nonUnifiedAllocInHBM_=1),
        r"scheduleTree_\[0\].nonUnifiedAllocInHBM_ must be 0",
    ),
    "two places": (
        lambda body, dsc: dsc["scheduleTree_"].append(dsc["scheduleTree_"][0]),
        r"scheduleTree_\[3\] is a second allocation",
    ),
    "no place": (lambda body, dsc: dsc["scheduleTree_"].pop(), "scheduleTree_ has no allocation of 'Tensor2'"),
    "symbols and addresses": (
        lambda body, dsc: dsc["scheduleTree_"][0].update(isStartAddrSymbolic_=0),
        "data_ must hold negative symbol ids if",
    ),
    "other slices": (
        lambda body, dsc: dsc["scheduleTree_"][0]["coordinates_"].update(coreIdToWkSlice_={"0": {"mb": 1}}),
        r"coreIdToWkSlice_.0.mb is not the slice of the design",
    ),
    "repeated elements": (
        lambda body, dsc: dsc["primaryDsInfo_"]["INPUT"].update(stickRepl_=[2]),
        "stickRepl_ must be 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("refusal", REFUSALS)
def test_what_changes_the_meaning_is_refused_with_file_and_field(refusal):
    value = to_json(bundles.add_bundle().designs["sdsc_0.json"])
    change, message = REFUSALS[refusal]
    change(value["0_add"], dsc_of(value))
    with pytest.raises(CompileError, match=message) as caught:
        from_json(value, "sdsc_0.json", packaged_target())
    assert caught.value.location == "sdsc_0.json"


# -- damaged files ------------------------------------------------------------------------------------

ODD = (None, True, 0, -1, 1, 3, 1 << 40, 1 << 70, 0.5, "", "x", "7", "-1", [], [[]], {}, {"factor_": 1}, "\0")


def places(value, path: tuple = ()) -> Iterator[tuple]:
    """The path of each member and item of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in items:
        yield (*path, key)
        yield from places(member, (*path, key))


def damaged(value: dict, generator: random.Random) -> str:
    """The text of a design with one to three members gone or odd, or cut off; the root stays."""
    value = copy.deepcopy(value)
    for _ in range(generator.randint(1, 3)):
        *path, key = generator.choice(list(places(value)))
        holder = value
        for step in path:
            holder = holder[step]
        if generator.random() < 0.4 and path:
            del holder[key]
        else:
            holder[key] = generator.choice(ODD)
    text = json.dumps(value)
    return text[: generator.randrange(len(text))] if generator.random() < 0.1 else text


@pytest.mark.parametrize("seed", range(12))
def test_damaged_designs_are_read_or_refused_with_the_file(seed, tmp_path):
    generator = random.Random(seed)
    designs = list(DESIGNS.values())
    for _ in range(25):
        design = generator.choice(designs)
        value = to_json(design)
        value = added(value) if design.opcode == "add" and generator.random() < 0.5 else value
        (tmp_path / "sdsc_0.json").write_text(damaged(value, generator))
        try:
            bundle = read_bundle(tmp_path)
            validate(bundle)
        except CompileError as error:
            assert "sdsc_" in str(error.location) or str(tmp_path) in str(error.location), error
            assert error.message.strip() and "\n" not in error.message


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"0_add": []}', "null", "[" * 100_000, '{"a": NaN}'])
def test_files_that_are_no_designs(text, tmp_path):
    (tmp_path / "sdsc_0.json").write_text(text)
    with pytest.raises(CompileError) as caught:
        read_bundle(tmp_path)
    assert "sdsc_0.json" in str(caught.value.location)


def test_own_bundles_are_read_and_written_as_before(tmp_path):
    for name, build in bundles.GOOD.items():
        write_bundle(build(), tmp_path / name)
        assert read_bundle(tmp_path / name) == build()
        assert Context(build()).steps
        shutil.rmtree(tmp_path / name)
