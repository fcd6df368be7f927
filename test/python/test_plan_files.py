# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plan files: their contents, their effect on a compilation, and errors of bad files."""

from __future__ import annotations

import copy
import functools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from looped import LOOPED, looped
from programs import PROGRAMS, check_close

import spyre_mlir
from spyre_mlir.dialects import context
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend import import_torch
from spyre_mlir.plans import read_plan
from spyre_mlir.plans.plan_file import json_text

SOFTMAX = "softmax_dim_0_512x1024"

#: One program of each kind: conversions, clones, weights in several layouts, parts of buffers, split reductions.
SOME = (
    SOFTMAX, "softmax_dim_last_63x65", "gelu_mlp", "sdpa", "sdpa_grouped", "rotary", "llama_block_small", "slice_odd",
    "where_eq", "logical_and", "constant_tensor", "permute_3", "transpose_4", "matmul_3d_2d", "sum_all_of_3",
    "amax_1_of_3",
)  # fmt: skip


@functools.cache
def planned(name: str = SOFTMAX) -> tuple[spyre_mlir.Program, dict[str, Any]]:
    """A program and its plan; callers copy the plan before they change it."""
    program = spyre_mlir.compile(*PROGRAMS[name]())
    return program, program.plan()


@functools.cache
def softmax() -> str:
    """The softmax as MLIR: importing it each time would take most of the time of these tests."""
    module = import_torch(*PROGRAMS[SOFTMAX](), context=context()).module
    return module.operation.get_asm(enable_debug_info=True)


def compiled(plan: dict[str, Any], name: str = SOFTMAX, **options: Any) -> spyre_mlir.Program:
    if name == SOFTMAX:
        return spyre_mlir.compile(softmax(), plan=plan, **options)
    return spyre_mlir.compile(*PROGRAMS[name](), plan=plan, **options)


def entry(plan: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in plan["operations"] if each["name"] == name)


def pinned(name: str, *, result: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Return a plan that pins one operation only."""
    return {"version": 1, "operations": [{"name": name, **fields, **({"result": result} if result else {})}]}


def loop(*, dim: int = 0, tiles: int = 4) -> dict[str, Any]:
    return {"loop": "mine", "dim": dim, "tiles": tiles}


def files(program: spyre_mlir.Program, folder: Path) -> dict[str, bytes]:
    """Return the files of the bundle without the remarks, which list decisions of passes."""
    program.save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "remarks.jsonl"}


# -- given back ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOME)
def test_an_unchanged_plan_gives_the_same_bundle(name: str, tmp_path: Path):
    """Byte for byte, and the same plan again."""
    program, plan = planned(name)
    again = compiled(plan, name)
    assert files(again, tmp_path / "again") == files(program, tmp_path / "free")
    assert again.plan() == plan


@pytest.mark.parametrize(
    "options", [{"lx_planning": False}, {"sencores": 30, "uneven_splits": True}, {"sencores": 1}]
)
def test_an_unchanged_plan_of_other_options(options: dict[str, Any], tmp_path: Path):
    """Without LX, with slices that differ, and on one core."""
    program = spyre_mlir.compile(*PROGRAMS["gelu_mlp"](), **options)
    again = compiled(program.plan(), "gelu_mlp", **options)
    assert files(again, tmp_path / "again") == files(program, tmp_path / "free")


def test_an_unchanged_plan_of_a_tiled_program():
    """Operations in loops, and several parts of one operation, have separate names and keep all fields."""
    x = [torch.randn(1, 2, 2048, 64, generator=torch.Generator().manual_seed(9)).half() for _ in range(3)]
    program = spyre_mlir.compile(torch.nn.functional.scaled_dot_product_attention, x, sencores=4)
    plan = program.plan()
    again = spyre_mlir.compile(torch.nn.functional.scaled_dot_product_attention, x, sencores=4, plan=plan)
    assert (again.bundle, again.plan()) == (program.bundle, plan)


def test_a_plan_without_entries_leaves_all_to_the_compiler(tmp_path: Path):
    """The version alone is a plan."""
    program, _ = planned()
    assert files(compiled({"version": 1}), tmp_path / "a") == files(program, tmp_path / "b")


def test_a_plan_makes_another_compiler_option_the_same(tmp_path: Path):
    """The plan of the portfolio restores buffers that largest-first spills or moves: pins are not defaults."""
    program, plan = planned()
    again = compiled(plan, layout_solver="largest-first", reorder=False)
    assert files(again, tmp_path / "again") == files(program, tmp_path / "free")


def test_a_plan_file_is_the_same_as_its_value(tmp_path: Path):
    """``save_plan`` writes the value of ``plan``, and ``plan`` accepts a path."""
    path = tmp_path / "plan.json"
    program = spyre_mlir.compile(*PROGRAMS[SOFTMAX](), save_plan=str(path))
    assert json.loads(path.read_text()) == program.plan() == planned()[1]
    assert spyre_mlir.compile(*PROGRAMS[SOFTMAX](), plan=path).plan() == program.plan()


@pytest.mark.parametrize("name", LOOPED)
def test_an_unchanged_plan_gives_the_same_loops(name: str):
    """Whoever asked for them: hints, the compiler, or the module; with a plan it needs no pass that tiles."""
    given = looped(name)
    options = {**vars(given.options), "tile_for_lx": False, "tile_for_span": False}
    plan = given.program.plan()
    assert any(each.get("tiling") for each in plan["operations"])
    again = spyre_mlir.compile(given.copy(), plan=plan, **options)
    assert (again.bundle, again.plan()) == (given.program.bundle, plan)


# -- contents ------------------------------------------------------------------------------------------------


def test_names_do_not_depend_on_what_is_inserted():
    """A pin that inserts conversions does not change names of other operations; a conversion has its operand's name."""
    _, plan = planned()
    # With its operand in the default layout, else the argument is turned in place of an intermediate.
    layouts = {"sub.0": [0, 1], "exp.0": [1, 0]}
    pins = [{"name": name, "result": {"layout": {"dim_order": order}}} for name, order in layouts.items()]
    turned = compiled({"version": 1, "operations": pins}, argument_layouts="default").plan()
    inserted = [each for each in turned["operations"] if "source" in each]
    own = [each["name"] for each in turned["operations"] if "source" not in each]
    assert own == [each["name"] for each in plan["operations"] if "source" not in each]
    names = {"inputs_0", *(each["name"] for each in turned["operations"])}
    assert {each["source"] for each in inserted} <= names
    assert any(each["name"] == "sub.0/restickify.0" for each in inserted)


def test_small_values_stand_on_one_line():
    """Small values are on one line, as in handwritten JSON."""
    long = list(range(40))
    assert json_text({"a": [1, 2], "b": {"lx": 0}}) == '{"a": [1, 2], "b": {"lx": 0}}'
    assert json_text({"a": long, "b": 1}).splitlines()[0] == "{"
    assert json.loads(json_text({"a": [long, {"b": "x" * 200}]})) == {"a": [long, {"b": "x" * 200}]}


# -- edited --------------------------------------------------------------------------------------------------


def holds(wanted: dict[str, Any], found: dict[str, Any]) -> bool:
    """Return whether all fields of an entry are as requested; "hbm" is any place outside of LX."""
    for field, value in wanted.items():
        if field == "result":
            if not holds(value, found["result"]):
                return False
        elif value == "hbm":
            if "lx" in found[field]:
                return False
        elif found[field] != value:
            return False
    return True


@pytest.mark.parametrize(
    "plan",
    [
        pinned("exp.0", slices=[4, 2]),
        pinned("exp.0", slices=[4, 2], core_order=[1, 0], cores=8),
        pinned("exp.0", tiling=[loop(), {**loop(dim=1, tiles=2), "loop": "yours"}]),
        pinned("max.0", tiling=[loop()]),
        pinned("sum.0", slices=[8, 1]),
        pinned("exp.0", result={"layout": {"dim_order": [1, 0]}}),
        pinned("exp.0", result={"layout": "(d0, d1) -> (d0, d1 floordiv 64, d1 mod 64)"}),
        pinned("exp.0", result={"placement": {"lx": 4096}}),
        pinned("exp.0", result={"placement": "hbm"}),
        pinned("exp.0", result={"placement": {"pool": 1 << 20}}),
        pinned("inputs_0/clone.0", result={"placement": {"lx": 128 * 999}}),
    ],
    ids=lambda plan: json.dumps(plan["operations"][0])[10:70],
)
def test_a_pin_holds_and_the_numbers_are_right(plan: dict[str, Any]):
    """The plan pins one field of one operation; the compiler decides the rest."""
    program = compiled(plan)
    (wanted,) = plan["operations"]
    found = entry(program.plan(), wanted["name"])
    if isinstance(wanted.get("result", {}).get("layout"), str):
        wanted = {**wanted, "result": {"layout": {"dim_order": [1, 0], "stick_outermost": True}}}
        found["result"]["layout"] = {"dim_order": [1, 0], "stick_outermost": True}
    assert holds(wanted, found)
    model, inputs = PROGRAMS[SOFTMAX]()
    check_close(SOFTMAX, program(*inputs), model, inputs)


def test_the_first_part_of_a_sum_keeps_the_name():
    """The maximum over the first of 4 tiles, that over the others in a loop, and the maximum of both."""
    plan = compiled(pinned("max.0", tiling=[loop()])).plan()
    made = {each["name"]: each for each in plan["operations"] if each["name"].startswith("max.0")}
    assert list(made) == ["max.0", "max.0/part.0", "max.0/part.0/maximum.0"]
    assert [each.get("tiling") for each in made.values()] == [[loop()], None, None]


def test_an_empty_list_keeps_an_operation_untiled():
    """The compiler tiles both operations for LX; if one must not be tiled, no group remains."""
    given = looped("tiled for LX")
    options = vars(given.options)
    free = spyre_mlir.compile(given.copy(), **options).plan()
    assert all(each["tiling"] for each in free["operations"] if "source" not in each)
    held = spyre_mlir.compile(given.copy(), plan=pinned("add.0", tiling=[]), **options).plan()
    assert [each["tiling"] for each in held["operations"] if "source" not in each] == [[], []]


def test_a_pin_goes_before_a_hint():
    """The example asks for 8 tiles of M around both operations, and 4 of K; here the sum stays whole."""
    given = looped("hints")
    held = spyre_mlir.compile(given.copy(), plan=pinned("add.0", tiling=[]), **vars(given.options))
    assert entry(held.plan(), "add.0")["tiling"] == []
    assert [each["tiles"] for each in entry(held.plan(), "batchmatmul.0")["tiling"]] == [8, 4]


def test_the_layout_of_an_argument():
    """The program accepts the argument in the layout of the plan."""
    plan = {"version": 1, "arguments": [{"name": "inputs_0", "layout": {"dim_order": [1, 0]}}]}
    program = compiled(plan)
    assert program.bundle.manifest.arguments[0].device_size == (8, 1024, 64)
    model, inputs = PROGRAMS[SOFTMAX]()
    check_close(SOFTMAX, program(*inputs), model, inputs)


class Halves(torch.nn.Module):
    """The halves of a weight, one of them in two layouts."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(
            torch.randn(128, 256, generator=torch.Generator().manual_seed(7)).half() / 12
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = self.w[:, :128], self.w[:, 128:]
        return torch.exp(x @ left) @ right + x @ right.T


HALVES_INPUT = torch.randn(64, 128, generator=torch.Generator().manual_seed(8)).half()


def layouts(program: spyre_mlir.Program) -> dict[str, list[int]]:
    return {each["name"]: each["layout"]["dim_order"] for each in program.plan()["arguments"]}


def test_a_weight_in_several_layouts():
    """Each layout has an entry, which names its argument; a plan can request only one layout."""
    program = spyre_mlir.compile(Halves(), (HALVES_INPUT,))
    plan = program.plan()
    assert [each["name"] for each in plan["arguments"] if each.get("source") == "w@1"] == ["w@2"]
    assert spyre_mlir.compile(Halves(), (HALVES_INPUT,), plan=plan).bundle == program.bundle
    alone = {"version": 1, "arguments": [{"name": "w@1", "layout": {"dim_order": [1, 0]}}]}
    single = spyre_mlir.compile(Halves(), (HALVES_INPUT,), plan=alone)
    assert layouts(single)["w@1"] == [1, 0] and "w@2" not in layouts(single)
    check_close("halves", single(HALVES_INPUT), Halves(), (HALVES_INPUT,))


def test_others_are_planned_around_a_pinned_buffer():
    """A buffer at an odd place in LX: nobody else is in its way, and what can stays in LX."""
    _, plan = planned()
    moved = compiled(pinned("exp.0", result={"placement": {"lx": 65536}})).plan()
    in_lx = [each["name"] for each in plan["operations"] if "lx" in each["result"]["placement"]]
    assert [each["name"] for each in moved["operations"] if "lx" in each["result"]["placement"]] == in_lx


def _edit(rng: random.Random, found: dict[str, Any]) -> dict[str, Any]:
    """A random pin for an operation, legal or not."""
    rank = len(found["result"]["shape"])
    order = rng.sample(range(rank), rank)
    return rng.choice(
        [
            {"slices": [rng.choice((1, 1, 2, 4, 8)) for _ in found["slices"]]},
            # A scalar has one layout, which a plan says as a map.
            {"result": {"layout": {"dim_order": order} if rank else found["result"]["layout"]}},
            {"result": {"placement": {"lx": 128 * rng.randrange(4000)}}},
            {"result": {"placement": {"pool": 128 * rng.randrange(4000)}}},
            {"result": {"placement": "hbm"}},
        ]
    )


@pytest.mark.parametrize("seed", range(16))
def test_random_pins_hold_or_are_errors(seed: int):
    """Never a silent fallback: exactly as pinned with right numbers, or an error that names the operation."""
    rng = random.Random(seed)
    name = rng.choice(SOME)
    _, plan = planned(name)
    chosen = rng.choice(plan["operations"])
    edit = _edit(rng, chosen)
    try:
        program = compiled(pinned(chosen["name"], **edit), name)
    except CompileError as error:
        assert chosen["name"] in str(error) or "operations[0]" in str(error)
        return
    assert holds(edit, entry(program.plan(), chosen["name"]))
    model, inputs = PROGRAMS[name]()
    check_close(name, program(*inputs), model, inputs)


# -- errors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (pinned("exp.0", tiling=[loop(tiles=3)]), "cuts dim 0 of 512 elements into 3 tiles, but 3 does not divide it"),
        (pinned("exp.0", tiling=[loop(dim=2)]), "cuts dim 2, but the iteration dims of this operation are 0 of 512"),
        (pinned("max.0", tiling=[loop(), loop(dim=1)]), "loops over reduced dims are inside of the others"),
        (pinned("exp.0", slices=[30, 1]), "dim 0 has 512 rows or sticks, so the last of 30 slices has no work"),
        (pinned("exp.0", slices=[16, 4]), "it needs 64 cores, there are 32"),
        (pinned("exp.0", slices=[16]), "the operation has 2 dims"),
        (pinned("exp.0", slices=[0, 1]), "dim 0 has 0 slices; it has at least 1"),
        (pinned("exp.0", slices=[4, 2], core_order=[0]), "name each of the dims in several slices once"),
        (pinned("exp.0", slices=[4, 2], cores=4), "it is divided with cores 8"),
        (pinned("exp.0", result={"placement": {"lx": 100}}), "addresses are multiples of 128"),
        (pinned("exp.0", result={"placement": {"lx": 1 << 21}}), "it would end at byte"),
        (pinned("exp.0", result={"placement": {"pool": 100}}), "addresses are multiples of 128"),
        (pinned("realdiv.0", result={"placement": {"lx": 0}}), "graph input or output: the host reads it"),
        (pinned("realdiv.0", result={"placement": {"pool": 0}}), "its buffer is at {\"argument\": \"result0\"}"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)  # fmt: skip
def test_a_pin_that_cannot_hold(plan: dict[str, Any], reason: str):
    """The error is at the source line and names operation, pin and reason."""
    with pytest.raises(
        CompileError, match=f"(?s)the plan pins .* for '{plan['operations'][0]['name']}'.*{reason}"
    ):
        compiled(plan)


def test_a_layout_against_the_stick_rules():
    """A matmul leaves its columns, or its rows, in the stick."""
    plan = pinned("batchmatmul.0", result={"layout": {"dim_order": [0, 1, -1]}})
    with pytest.raises(
        CompileError, match=r"for 'batchmatmul.0', which is not possible: the pinned layout breaks a rule"
    ):
        compiled(plan, "gelu_mlp")


def test_a_layout_that_no_operation_can_make():
    """A dim in two pieces: a map, but none that an operation can address."""
    text = "(d0, d1) -> (d0 mod 8, d1 floordiv 64, d0 floordiv 8, d1 mod 64)"
    with pytest.raises(
        CompileError, match=r"for 'exp.0', which is not possible: the pinned layout breaks a rule: dim"
    ):
        compiled(pinned("exp.0", result={"layout": text}))


def test_pinned_neighbours_in_the_same_bytes():
    """Two buffers that are alive together; one can take the place of the other only where that is legal."""
    plan = pinned("sum.0", result={"placement": {"lx": 0}})
    plan["operations"] += pinned("exp.0", result={"placement": {"lx": 128}})["operations"]
    plan["operations"][0]["result"]["placement"]["lx"] = 256
    with pytest.raises(CompileError, match=r"is pinned to bytes 128 to .*, and both are live at once"):
        compiled(plan)


def test_pinned_neighbours_in_the_same_part_of_the_pool():
    """No result is in place of an operand in device memory."""
    plan = pinned("sub.0", result={"placement": {"pool": 0}})
    plan["operations"] += pinned("exp.0", result={"placement": {"pool": 0}})["operations"]
    with pytest.raises(
        CompileError, match=r"'sub.0' is pinned to bytes 0 to 1048576, and both are live at once"
    ):
        compiled(plan)


def test_owners_that_differ():
    """A buffer whose reader needs other slices than its writer has is in LX only with a relayout."""
    plan = pinned("sub.0", slices=[32, 1], result={"placement": {"lx": 0}})
    plan["operations"] += pinned("exp.0", slices=[1, 16])["operations"]
    found = compiled(plan).plan()
    assert entry(found, "sub.0")["result"]["placement"] == {"lx": 0}
    assert any("sub.0/shuffle" in each["name"] for each in found["operations"])
    with pytest.raises(CompileError, match=r"'sub.0', which is not possible: core division mismatch"):
        compiled(plan, co_optimizing_lx_planning=False)


def test_a_pinned_clone_that_nobody_needs():
    """An entry for an operation that the compiler does not insert any more is reported."""
    _, plan = planned()
    clone = next(each["name"] for each in plan["operations"] if "clone" in each["name"])
    with pytest.raises(CompileError, match=f"does not insert '{clone}' with these pins"):
        compiled(plan, clone_inputs=False)


def _changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    plan = copy.deepcopy(planned()[1])
    change(plan)
    return plan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.pop("version"), "has no 'version'"),
        (lambda p: p.update(version=2), "version is 2; this compiler reads version 1"),
        (lambda p: p.update(version="1"), 'version must be an integer but is "1"'),
        (lambda p: p.update(speed=1), "speed is unknown; known here are version, arguments, operations"),
        (lambda p: p.update(operations={}), "operations must be a list but is {}"),
        (lambda p: p["operations"][1].update(sclices=[1]), r"operations\[1\].sclices is unknown"),
        (lambda p: p["operations"][1].update(slices="1"), r"operations\[1\].slices must be a list"),
        (lambda p: p["operations"][1].update(slices=[True, 1]), r"operations\[1\].slices\[0\] must be an integer"),
        (lambda p: p["operations"][1].update(tiling=[{"dim": 0, "tiles": 2}]), r"\[1\].tiling\[0\] has no member 'l"),
        (lambda p: p["operations"][1].update(tiling=[loop(tiles=0)]), r"tiling\[0\].tiles must be 1 or more but is 0"),
        (lambda p: p["operations"][1].update(tiling=[loop(dim=-1)]), r"tiling\[0\].dim must not be negative but is -1"),
        (lambda p: p["operations"][1].update(tiling=[{**loop(), "id": 3}]), r"tiling\[0\].id is unknown"),
        (lambda p: p["operations"][0].update(tiling=[loop()]), r"operations\[0\].tiling is of 'inputs_0/clone.0'"),
        (lambda p: p["operations"][1].pop("name"), r"operations\[1\] has no member 'name'"),
        (lambda p: p["operations"].append(p["operations"][0]), "the same as operations.0."),
        (lambda p: p["operations"][0].update(name="exp.7"), "is 'exp.7', which is not an operation of this program"),
        (lambda p: p["operations"][0].update(name="y/clone.7"), "is 'y/clone.7', which is not an operation"),
        (lambda p: p["arguments"][0].update(name="w"), r"which is not an argument of this program \(inputs_0\)"),
        (lambda p: p["arguments"][0].update(shape=[4, 4]), r"shape is \[4, 4\], but argument 'inputs_0' has"),
        (lambda p: entry(p, "exp.0")["result"].update(shape=[4, 4]), "but operation 'exp.0' has the shape"),
        (lambda p: entry(p, "exp.0")["result"].update(dtype="f32"), "dtype is f32, but operation 'exp.0' has the type"),
        (lambda p: entry(p, "exp.0")["result"].update(layout=[0, 1]), "layout must be an object such as"),
        (lambda p: entry(p, "exp.0")["result"].update(layout="d0"), "layout is 'd0', which is not a map"),
        (lambda p: entry(p, "exp.0")["result"].update(layout="(d0, d1) -> (d0, d1)"), "is not a layout: its last"),
        (lambda p: entry(p, "exp.0")["result"].update(layout={"order": [0]}), "has no 'order'"),
        (lambda p: entry(p, "exp.0")["result"].update(placement="lx"), "placement must be"),
        (lambda p: entry(p, "exp.0")["result"].update(placement={"hbm": 0}), "is unknown; a placement is in lx"),
        (lambda p: entry(p, "exp.0")["result"].update(placement={"lx": -128}), "must not be negative"),
        (lambda p: entry(p, "exp.0")["result"].update(placement={"lx": 1 << 70}), "must be an integer of 64 bits"),
        (lambda p: entry(p, "exp.0").update(slices=[1 << 70, 1]), r"slices\[0\] must be an integer of 64 bits"),
    ],
)  # fmt: skip
def test_a_bad_plan(change: Callable[[dict[str, Any]], object], message: str):
    """The error is one sentence with the path of the field."""
    with pytest.raises(CompileError, match=message):
        compiled(_changed(change))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "p.json:1:2: error: The plan is not valid JSON"),
        ("[]", "p.json: error: The field at the root must be an object"),
        ('{"version": 1, "version": 1}', "duplicate key 'version'"),
    ],
)
def test_a_text_that_is_no_plan(text: str, message: str):
    """The error names the file."""
    with pytest.raises(CompileError, match=message):
        read_plan(text, "p.json")


def test_values_that_json_has_not():
    """A plan in Python can hold anything."""
    with pytest.raises(CompileError, match="The plan contains a value that JSON cannot represent"):
        compiled({"version": 1, "operations": [object()]})
