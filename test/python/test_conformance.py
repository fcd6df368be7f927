# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The conformance check: designs of the compiler and of torch-spyre's front end pass, every old form is found."""

import copy
import functools
import json
import random
import sys
from pathlib import Path
from typing import Any

import bundles
import numpy as np
import pytest
import torch
from foreign_data import DESIGN_FOLDERS, DESIGNS, needs_designs, needs_schema
from op_coverage import ALL
from programs import PROGRAMS
from public_schema import public_schema

import spyre_mlir
from spyre_mlir.bundle.conformance import RULES, Weight, check_design, check_folder, packaged_schema
from spyre_mlir.bundle.design_json import to_json
from spyre_mlir.bundle.model import Design
from spyre_mlir.division import Division
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend import eager
from spyre_mlir.layout import BufferView
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.view import from_order
from spyre_mlir.lowering.design_builder import DesignBuilder
from spyre_mlir.target.target import packaged_target
from spyre_mlir.tools import spyre_validate

#: Programs with matmuls, batched ones, reductions, masks, constants, casts, gathers, restickifies and shuffles; the
#: benchmark ``conformance`` checks all of them.
SAMPLE = (
    "softmax_dim_0_63x65", "softmax_dim_last_65x1", "layernorm_odd", "rmsnorm", "matmul_3x65x130x64", "matmul_4d",
    "matmul_vector", "sdpa_mask_float", "mean_1", "sum_all", "clamp", "transpose_2", "flatten", "cast_float_sum",
    "embedding", "index_select", "rotary",
)  # fmt: skip


def dsc_of(value: dict) -> dict:
    """The configuration in the JSON of a design."""
    (body,) = value.values()
    (dsc,) = body["dscs_"][0].values()
    return dsc


@pytest.mark.parametrize("name", SAMPLE)
def test_designs_of_the_compiler_conform(name, tmp_path):
    spyre_mlir.compile(*PROGRAMS[name]()).save(tmp_path / "program")
    count, findings = check_folder(tmp_path / "program")
    assert count and findings == []


@needs_designs
def test_designs_of_the_other_front_end_conform():
    assert check_folder(DESIGNS) == (len(DESIGN_FOLDERS), [])


# -- the forms of before --------------------------------------------------------------------------------


def matmul(sizes=(4, 32, 128, 192), splits=(1, 4, 2, 1), starts=None) -> Design:
    """A batched matmul [x, mb, in] x [x, in, out] with the batch innermost, as torch-spyre's front end lays it out."""
    target, (x, mb, out, in_) = packaged_target(), sizes
    views, present = [], []
    for dims, stick in (((0, 1, 3), 3), ((0, 3, 2), 2), ((0, 1, 2), 2)):
        shape = [(x, mb, out, in_)[dim] for dim in dims]
        rows = next(dim for dim in dims if dim not in (0, stick))
        order = [dims.index(dim) for dim in (rows, stick, 0)]
        layout = from_order(target, shape, "f16", dims.index(stick), order)
        views.append(BufferView.of(layout).rename(dims, 4, sizes))
        present.append(frozenset(dims))
    space = Space(sizes, tuple(views), tuple(present), frozenset({3}))
    # Cores count the slices of the reduced dim fastest, then the slices of the other dims in order.
    division = Division.mixed_radix(splits, (3, 0, 1, 2))
    symbol = iter(range(-1, -1000, -1))
    starts = starts or (lambda operand, core, offset: next(symbol))
    return DesignBuilder("batchmatmul", space, division, {}, {}).build(0, starts, None)


def restickify(data_format="SEN169_FP16") -> Design:
    """A copy of [mb, out] from sticks of ``out`` to sticks of ``mb``."""
    source = bundles.operand("OUTPUT", "mb out", (-1, -2), data_format=data_format)
    target = bundles.operand("KERNEL", "out mb", (-3, -4), stick_dim="mb", data_format=data_format)
    return bundles.two_core_design(0, "ReStickifyOpHBM", (source, target))


def reduction() -> Design:
    """A sum over the stick with a mask."""
    source = bundles.operand("OUTPUT", "mb out", (-1, -2))
    result = bundles.operand("OUTPUT", "mb out", (-3, -4), scale={"mb": 1, "out": -2})
    constants = (bundles.Constant("samv-maskvalue", bundles.FP16, 0),)
    masks = {"masks": {"out": (200, 56)}, "mask_constant": 0, "constants": constants}
    return bundles.two_core_design(0, "sum", (source, result), **masks)


def cast() -> Design:
    """A cast of 64 numbers in one stick."""
    target = packaged_target()
    views = [BufferView.of(from_order(target, (64,), dtype, 0, (0,))) for dtype in ("f16", "f32")]
    space = Space((64,), tuple(views), (frozenset({0}),) * 2)
    return DesignBuilder("dl16tofp32", space, Division.mixed_radix((1,)), {}, {}).build(
        0, lambda operand, core, offset: -1 - operand, None
    )


def leave_out_rows(value: dict) -> None:
    for role in ("OUTPUT", "KERNEL"):
        dsc_of(value)["primaryDsInfo_"][role]["layoutDimOrder_"].remove("mb")
    for label in dsc_of(value)["labeledDs_"]:
        label["scale_"].pop()


def shuffle() -> dict:
    value = to_json(bundles.relayout_bundle().designs["sdsc_1.json"])
    for label in dsc_of(value)["labeledDs_"]:
        label["dsType_"] = "OUTPUT"
    dsc_of(value)["primaryDsInfo_"] = {"OUTPUT": next(iter(dsc_of(value)["primaryDsInfo_"].values()))}
    return value


@functools.cache
def convolution_text() -> str:
    program = spyre_mlir.compile(
        torch.nn.Conv2d(64, 64, 3, stride=2, padding=1).half(),
        (torch.ones(1, 64, 18, 18).half(),),
        sencores=2,
    )
    design = next(design for design in program.bundle.designs.values() if design.operands[0].windows)
    return json.dumps(to_json(design))


def convolution() -> dict:
    """A convolution whose rows are divided."""
    return json.loads(convolution_text())


@functools.cache
def symbolic_text() -> str:
    x = torch.ones(256, 64).half()
    torch._dynamo.mark_dynamic(x, 0, min=64, max=256)
    program: Any = spyre_mlir.compile(torch.nn.Linear(64, 128).half(), (x,), sencores=4)
    assert program.symbolic is not None
    return json.dumps(to_json(next(iter(program.symbolic.bundle.designs.values()))))


def symbolic() -> dict:
    """An operation whose rows follow a run-time size."""
    return json.loads(symbolic_text())


def list_absent_dims(value: dict) -> None:
    """Operands list all dims of a matmul, those that they lack at -1."""
    dsc = dsc_of(value)
    for label, absent in zip(dsc["labeledDs_"], ("out", "mb", "in"), strict=True):
        dsc["primaryDsInfo_"][label["dsType_"]]["layoutDimOrder_"].append(absent)
        label["scale_"].append(-1)


def name_stages_outside(value: dict) -> None:
    stage = dsc_of(value)["dataStageParam_"]["0"]
    for half in ("ss_", "el_"):
        del stage[half]["name_"]


def count_constants(value: dict) -> None:
    for constant in dsc_of(value)["constantInfo_"].values():
        constant["data_"]["data_"] = {"[0, 0, 0]": [int(constant["data_"]["data_"]["[0, 0, 0]"][0])]}


def leave_out_members(value: dict) -> None:
    (body,) = value.values()
    del body["sdscFoldProps_"], body["sdscFolds_"]
    for half in ("ss_", "el_"):
        del dsc_of(value)["dataStageParam_"]["0"][half]["coreletSplit_"]
    for node in dsc_of(value)["scheduleTree_"]:
        del node["prev_"], node["indirectAllocType_"], node["coordinates_"]["coreIdToWkSlice_"]


def name_roles_by_use(value: dict) -> None:
    dsc, names = dsc_of(value), {"OUTPUT": "INPUT", "KERNEL": "OUTPUT"}
    dsc["primaryDsInfo_"] = {names[role]: layout for role, layout in dsc["primaryDsInfo_"].items()}
    for label in dsc["labeledDs_"]:
        label["dsType_"] = names[label["dsType_"]]


def count_copies(value: dict) -> None:
    """A dim of neither side counts the cores that get the same."""
    (body,) = value.values()
    body["numWkSlicesPerDim_"]["y"] = 2
    dsc_of(value)["N_"]["y_"] = 2
    for label in dsc_of(value)["labeledDs_"]:
        label["scale_"].append(-1)
    dsc_of(value)["primaryDsInfo_"]["OUTPUT"]["layoutDimOrder_"].append("y")


def keep(value: dict) -> None:
    """The value itself differs."""


FORMS = {
    "V1 absent dims of a matmul": (matmul, list_absent_dims, "matmul-dims", Weight.REFUSED),
    "V2 name of a stage": (matmul, name_stages_outside, "stage-names", Weight.MISREAD),
    "V3 constants as integers": (reduction, count_constants, "constant-data", Weight.MISREAD),
    "V5 members left out": (matmul, leave_out_members, "members", Weight.COSMETIC),
    "V6 roles of a restickify": (restickify, name_roles_by_use, "roles", Weight.MISREAD),
    "V7 copies as a dim": (shuffle, count_copies, "shuffle", Weight.REFUSED),
    "V8 restickify of float32": (lambda: restickify("IEEE_FP32"), keep, "restickify-format", Weight.REFUSED),
    "V8 restickify of int32": (lambda: restickify("IEEE_INT32"), keep, "restickify-format", Weight.REFUSED),
    "padding of a dim": (
        reduction,
        lambda value: bundles.say_padding(value, {"out": 56}),
        "padding-sizes",
        Weight.REFUSED,
    ),
    "name of the mask value": (
        reduction,
        lambda value: dsc_of(value)["constantInfo_"]["0"].update(name_="maskValue"),
        "mask-constant",
        Weight.REFUSED,
    ),
    "output of a reduction": (
        reduction,
        lambda value: dsc_of(value)["computeOp_"][0].update(inputLabeledDs=["Tensor0-idx0"]),
        "reduction-inputs",
        Weight.MISREAD,
    ),
    "roles of a matmul": (matmul, lambda value: swap_roles(value), "matmul-roles", Weight.REFUSED),
    "a cast without rows": (cast, leave_out_rows, "cast-rows", Weight.REFUSED),
    "a label of no dim": (
        restickify,
        lambda value: dsc_of(value)["N_"].update(q_=4),
        "dim-labels",
        Weight.REFUSED,
    ),
    "folds that are too few": (
        restickify,
        lambda value: coordinate_of(value)["folds"]["dim_prop_attr"].pop(),
        "folds",
        Weight.MISREAD,
    ),
    "padding of an image": (
        convolution,
        lambda value: padding_of(value).update(totalSize_=9),
        "windows",
        Weight.REFUSED,
    ),
    "levels of a stick": (
        restickify,
        lambda value: coordinate_of(value).update(temporal=1),
        "coordinates",
        Weight.REFUSED,
    ),
    "slices for fewer cores": (
        matmul,
        lambda value: next(iter(value.values()))["numWkSlicesPerDim_"].update(mb=2),
        "work-slices",
        Weight.REFUSED,
    ),
    "a step without work": (
        matmul,
        lambda value: next(iter(value.values()))["coreIdToDscSchedule"].update({"0": [[-1, -1, 0, 0]]}),
        "schedule",
        Weight.REFUSED,
    ),
    "addresses by corelet": (
        matmul,
        lambda value: starts_of(value)["dim_prop_func"].reverse(),
        "start-addresses",
        Weight.REFUSED,
    ),
    "a run-time size without a name": (
        symbolic,
        lambda value: next(iter(value.values())).pop("inputSymbolsAndTags_"),
        "symbols",
        Weight.REFUSED,
    ),
    "an unknown member": (matmul, lambda value: dsc_of(value).update(x_=1), "schema", Weight.REFUSED),
}


def padding_of(value: dict, stage: str = "") -> dict:
    sizes = dsc_of(value)["dataStageParam_"]["0"][stage] if stage else dsc_of(value)["N_"]
    return sizes["paddingSizes_"]["i"]


def starts_of(value: dict) -> dict:
    return dsc_of(value)["scheduleTree_"][0]["startAddressCoreCorelet_"]


#: Deviations from "SuperDSC Semantics" and its pages, in a convolution of 3 x 3 by steps of 2 with padding 1 over 18
#: rows on two cores, and the place that the check names.
DEVIATIONS: dict[str, tuple[Any, str]] = {
    "the total of the image without padding": (lambda v: padding_of(v).update(totalSize_=18), "N_"),
    "the total of a core without padding": (lambda v: padding_of(v, "ss_").update(totalSize_=8), "ss_"),
    "padding of a divided dim in a core": (lambda v: padding_of(v, "el_").update(padFront_=1), "el_"),
    "a core with other steps": (lambda v: padding_of(v, "ss_").update(stride_=1), "ss_"),
    "a window of another dim": (lambda v: padding_of(v, "el_").update(windowDim_="kj"), "el_"),
    "a stage without windows": (lambda v: stage_of(v)["paddingSizes_"].pop("i"), "ss_"),
    "no sum of unneeded positions": (lambda v: padding_of(v).pop("unneededPad_"), "N_"),
    "coordinates without padding": (lambda v: image_of(v).update(padding="nopad"), "coordInfo.i"),
    "the type without padding": (lambda v: padding_node(v).update(i="PADDED_FULLSPAN_WUNNEEDED"), "scheduleTree_"),
    "no type of padding": (lambda v: dsc_of(v)["scheduleTree_"][0].pop("padding_"), "scheduleTree_"),
    "padding of the result": (
        lambda v: dsc_of(v)["scheduleTree_"][2]["coordinates_"]["coordInfo"]["i"].update(padding="padded_nozeropad"),
        "coordInfo.i",
    ),
    "slices without overlap": (
        lambda v: image_of(v)["folds"]["dim_prop_func"][0]["Affine"].update(alpha_=11),
        "coordInfo.i",
    ),
    "the size of the image as the size of the dim": (lambda v: dsc_of(v)["N_"].update(i_=18), "N_"),
    "a core with a slice beyond the last": (
        lambda v: next(iter(v.values()))["coreIdToWkSlice_"]["1"].update(i=2),
        "coreIdToWkSlice_",
    ),
    "cores with separate schedules": (
        lambda v: next(iter(v.values()))["coreIdToDscSchedule"].update({"1": [[-1, 0, 1, 0]]}),
        "coreIdToDscSchedule",
    ),
}  # fmt: skip


def stage_of(value: dict) -> dict:
    return dsc_of(value)["dataStageParam_"]["0"]["ss_"]


def padding_node(value: dict) -> dict:
    return dsc_of(value)["scheduleTree_"][0]["padding_"]


def image_of(value: dict) -> dict:
    return dsc_of(value)["scheduleTree_"][0]["coordinates_"]["coordInfo"]["i"]


@pytest.mark.parametrize("name", DEVIATIONS)
def test_a_deviation_from_the_semantics_of_designs_is_found(name):
    change, place = DEVIATIONS[name]
    value = copy.deepcopy(convolution())
    assert check_design(value, "sdsc_0.json") == []
    change(value)
    assert any(place in finding.path for finding in check_design(value, "sdsc_0.json"))


@pytest.mark.parametrize("member", ["maxSize_", "granularity_"])
@pytest.mark.parametrize("half", ["ss_", "el_"])
def test_a_run_time_size_has_a_largest_value_in_steps(half, member):
    value = symbolic()
    assert check_design(value, "sdsc_0.json") == []
    ((_, info),) = dsc_of(value)["dataStageParam_"]["0"][half]["symbolicDimInfo_"].items()
    info[member] += 1
    (finding,) = check_design(value, "sdsc_0.json")
    assert finding.rule == "symbols" and half in finding.path


def swap_roles(value: dict) -> None:
    layouts = dsc_of(value)["primaryDsInfo_"]
    layouts["INPUT"], layouts["KERNEL"] = layouts["KERNEL"], layouts["INPUT"]
    first, second, _ = dsc_of(value)["labeledDs_"]
    first["dsType_"], second["dsType_"] = "KERNEL", "INPUT"


def coordinate_of(value: dict) -> dict:
    return dsc_of(value)["scheduleTree_"][0]["coordinates_"]["coordInfo"]["out"]


@pytest.mark.parametrize("form", FORMS)
def test_a_form_that_differs_is_found(form):
    """A finding names its rule, with file and field, its weight and its source; the current form has no finding."""
    build, change, rule, weight = FORMS[form]
    value = build()
    value = to_json(value) if isinstance(value, Design) else value
    if change is not keep:
        assert check_design(value, "sdsc_0.json") == []
    change(value)
    findings = [finding for finding in check_design(value, "sdsc_0.json") if finding.rule == rule]
    assert findings and {finding.weight for finding in findings} == {weight}
    assert all(str(finding).startswith(f"sdsc_0.json: {finding.path} ") for finding in findings)


@pytest.mark.parametrize("stage", ["N_", "ss_", "el_"])
def test_the_padding_of_a_window_names_the_window(stage):
    value = to_json(matmul())
    sizes = dsc_of(value)["N_"] if stage == "N_" else dsc_of(value)["dataStageParam_"]["0"][stage]
    sizes["paddingSizes_"] = {"x": {"padFront_": 1, "padBack_": 1, "totalSize_": 4, "windowDim_": "mb"}}
    assert check_design(value, "sdsc_0.json") == []
    sizes["paddingSizes_"]["x"]["windowDim_"] = "ki"
    assert [finding.rule for finding in check_design(value, "sdsc_0.json")] == ["padding-sizes"]


def test_a_check_without_jsonschema_names_the_extra(monkeypatch):
    packaged_schema.cache_clear()
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(CompileError, match="the extra 'conformance' of spyre-mlir has it"):
        check_design(to_json(matmul()), "sdsc_0.json")


def test_every_rule_has_a_form_and_a_source():
    assert {rule for _, _, rule, _ in FORMS.values()} == {*RULES, "schema"}
    assert all(rule.source for rule in RULES.values())


def test_the_tool_prints_differences_and_says_whether_they_matter(tmp_path, capsys):
    value = to_json(matmul())
    (tmp_path / "sdsc_0.json").write_text(json.dumps(value))
    assert spyre_validate.main([str(tmp_path), "--conformance"]) == 0
    leave_out_members(value)
    (tmp_path / "sdsc_0.json").write_text(json.dumps(value))
    assert spyre_validate.main([str(tmp_path), "--conformance"]) == 0
    name_stages_outside(value)
    (tmp_path / "sdsc_0.json").write_text(json.dumps(value))
    assert spyre_validate.main([str(tmp_path), "--conformance"]) == 1
    assert "[stage-names, may be misread; " in capsys.readouterr().out


# -- restickifies of other numbers than 16-bit numbers -----------------------------------------------------


def test_a_restickify_of_32_bits_is_avoided_where_other_layouts_are_possible(tmp_path):
    spyre_mlir.compile(*ALL["avgpool_adaptive"]()).save(tmp_path / "program")
    assert [finding for finding in check_folder(tmp_path / "program")[1]] == []


def test_a_restickify_of_32_bits_that_cannot_be_avoided_is_a_warning(tmp_path):
    """The simulator runs it; the check reports that the back end likely refuses it."""
    with pytest.warns(
        spyre_mlir.PassWarning, match="a restickify of i32: the back end accepts only 16-bit elements"
    ):
        # The numbers are read in rows and in columns.
        numbers = torch.arange(64 * 64, dtype=torch.int32).reshape(64, 64)
        program = spyre_mlir.compile(lambda x: x + x.t(), (numbers,))
    program.save(tmp_path / "program")
    assert {finding.rule for finding in check_folder(tmp_path / "program")[1]} == {"restickify-format"}


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_the_host_copies_numbers_of_32_bits_to_another_stick(dtype):
    array = np.arange(70 * 40, dtype=dtype).reshape(70, 40)
    tensor = spyre_mlir.to_device(array)
    programs = len(eager.programs)
    columns = spyre_mlir.restickify(tensor, stick_dims=(0,))
    assert len(eager.programs) == programs
    assert np.array_equal(columns.numpy(), array)


# -- the SuperDSC schema ----------------------------------------------------------------------------------


def leaves(value: Any, path: tuple = ()) -> list[tuple]:
    """The paths of all members and items of a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, item in inner for place in ((*path, key), *leaves(item, (*path, key)))]


@needs_schema
@pytest.mark.parametrize("seed", range(200))
def test_the_schema_of_the_package_allows_what_the_public_one_does(seed):
    """Both schemas have the same verdict on a design with one field removed, renamed, or of another value."""
    rng = random.Random(seed)
    value = copy.deepcopy(to_json(rng.choice([matmul, restickify, reduction])()))
    *path, last = rng.choice(leaves(value))
    place = value
    for key in path:
        place = place[key]
    change = rng.randrange(3)
    if change == 0:
        del place[last]
    elif change == 1 and isinstance(place, dict):
        place[rng.choice(("extra", "name_", "0", "y_", "mb", "[0]"))] = place.pop(last)
    else:
        place[last] = rng.choice((-1, 0, 1.5, "text", "{}", True, None, [], {}, [1], ["1"], {"a": 1}))
    assert packaged_schema().is_valid(value) == public_schema().is_valid(value)


# -- field by field -------------------------------------------------------------------------------------

#: Members of our designs that are absent from designs of June 2026, and the reason.
ADDITIONS = {
    "debug_handle_": "provenance; upstream writes it since",
    "indirectAllocType_": "upstream writes it since",
    **dict.fromkeys(
        (
            "symbolicDimInfo_",
            "maxSymbolicVolume_",
            "coreletSplit_",
            "rowSplit_",
            "peSfpSplit_",
            "paddingSizes_",
        ),
        "upstream writes it since",
    ),
    "name_": "of a stage: the schema has it beside both halves, upstream in each",
}


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """The fields in which two JSON values differ; members that only ours has are allowed if ``ADDITIONS`` has them."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        extra = [f"{path}.{key} is ours alone" for key in ours if key not in theirs and key not in ADDITIONS]
        missing = [f"{path}.{key} is theirs alone" for key in theirs if key not in ours]
        common = [
            line
            for key in ours
            if key in theirs
            for line in differences(ours[key], theirs[key], f"{path}.{key}")
        ]
        return extra + missing + common
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for number, pair in pairs for line in differences(*pair, f"{path}[{number}]")]
    return [] if ours == theirs else [f"{path} is {ours!r}, theirs is {theirs!r}"]


@needs_designs
@pytest.mark.parametrize("folder", DESIGN_FOLDERS, ids=lambda folder: folder.name)
def test_a_matmul_is_that_of_the_other_front_end_field_by_field(folder):
    """Equal sizes, layouts, division and addresses give equal fields, except ``ADDITIONS``."""
    theirs = json.loads((folder / "sdsc_0.json").read_text())
    (body,) = theirs.values()
    sizes, slices = dsc_of(theirs)["N_"], body["numWkSlicesPerDim_"]
    dims = ("x", "mb", "out", "in")
    ours = matmul(
        tuple(sizes[f"{dim}_"] for dim in dims),
        tuple(slices[dim] for dim in dims),
        # A segment of 16 GiB for each tensor.
        lambda operand, core, offset: (operand << 34) + offset,
    )
    assert differences(to_json(ours), theirs) == []


def test_the_table_of_the_docs_is_that_of_the_rules():
    page = (Path(__file__).parents[2] / "docs" / "conformance.md").read_text()
    rules = page.partition("## The rules")[2].partition("## What is left")[0]
    rows = [line.split(" | ") for line in rules.splitlines() if line.startswith("| `")]
    documented = {row[0].strip("| `"): row[1] for row in rows}
    assert documented == {"schema": "likely refused"} | {
        name: rule.weight.value for name, rule in RULES.items()
    }
