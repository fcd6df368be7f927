# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Problems of a compilation as files: written, read back unchanged, and errors of bad files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_algorithms import MATMUL

from spyre_mlir.algorithms import REGISTRIES
from spyre_mlir.division_search.joint_choice import JointDivider
from spyre_mlir.division_search.work_division import WorkDivision
from spyre_mlir.driver.problem_files import problem_text, read_problem, write_problem
from spyre_mlir.errors import CompileError
from spyre_mlir.experiments.check.algorithm_checks import random_division, random_joint, random_layouts
from spyre_mlir.layout_search.layout_choice import LayoutChoice
from spyre_mlir.scratchpad import MemorySpace, solver
from spyre_mlir.scratchpad.buffer_table import buffers_table, read_buffers
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer
from spyre_mlir.tools import spyre_compile, spyre_plan

MAKERS = {"division": random_division, "layout": random_layouts, "joint": random_joint}

#: A part that only the host can run cuts it into two bundles.
TWO_BUNDLES = """
func.func @main(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e = tensor.empty() : tensor<64x128xf16>
  %a = linalg.exp ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  %b = linalg.tanh ins(%a : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%b : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) {
  ^bb0(%in: f16, %out: f16):
    %v = math.atan %in : f16
    linalg.yield %v : f16
  } -> tensor<64x128xf16>
  %c = linalg.exp ins(%s : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  %d = linalg.tanh ins(%c : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %d : tensor<64x128xf16>
}
"""


def compiled(folder: Path, text: str, *flags: str) -> int:
    (folder / "p.mlir").write_text(text)
    return spyre_compile.main([str(folder / "p.mlir"), "-o", str(folder / "p.bundle"), *flags])


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("seed", range(8))
def test_a_problem_is_read_back_as_it_was(kind: str, seed: int, tmp_path: Path) -> None:
    problem, path = MAKERS[kind](seed), str(tmp_path / "p.json")
    write_problem(problem, path)
    again = read_problem(path)
    assert problem_text(again) == problem_text(problem)
    registry = REGISTRIES[
        {"division": "division", "layout": "layout_choice", "joint": "joint_division"}[kind]
    ]
    default = registry.make(registry.default)
    ask = {WorkDivision: "splits", LayoutChoice: "choose", JointDivider: "choose"}
    method = next(name for base, name in ask.items() if isinstance(default, base))
    assert getattr(default, method)(problem) == getattr(default, method)(again)


def test_the_compilers_answers_to_saved_problems_are_those_of_the_program(tmp_path: Path) -> None:
    """The files have all that the algorithms saw; equal problems are one file; the same twice."""
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        assert compiled(tmp_path, MATMUL, "--save-problems", str(folder)) == 0
    files = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders]
    assert files[0] == files[1]
    assert {name.split(".")[1] for name in files[0]} == {"division", "layout", "joint"}
    problem = read_problem(str(folders[0] / "device_0.division.0.json"))
    splits = WorkDivision.registry.make("priority").splits(problem)
    remarks = tmp_path / "remarks"
    assert compiled(tmp_path, MATMUL, "--remarks", str(remarks), "--no-cache") == 0
    divided = next(
        json.loads(line) for line in remarks.read_text().splitlines() if '"work-distribution"' in line
    )
    assert all(f"in {count} slices" in divided["reason"] for count in splits if count > 1)


DIVISION = json.loads(problem_text(random_division(3)))
LAYOUT = json.loads(problem_text(random_layouts(3)))
JOINT = json.loads(problem_text(random_joint(3)))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ("{", "The problem is not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ([], "must be an object"),
        ({}, "has no member 'format'"),
        ({**DIVISION, "version": 2}, "field version must be 1 but is 2"),
        ({**DIVISION, "kind": "tiling"}, "field kind is 'tiling'; there are division, layout, joint"),
        ({**DIVISION, "units": [0]}, "field units must have at most 1048576 whole numbers from 1"),
        ({**DIVISION, "cores": True}, "field cores must be an integer but is true"),
        ({**DIVISION, "uneven": 1}, "field uneven must be true or false"),
        ({**DIVISION, "reduced": [99]}, "lists that do not match its"),
        ({**DIVISION, "cost_ns": [1]}, "field cost_ns must have"),
        ({**DIVISION, "cost_ns": ["x"]}, "field cost_ns must have .* numbers from 0, or null"),
        ({**DIVISION, "cost_ns": [10**400]}, "field cost_ns must have .* numbers from 0, or null"),
        ({**DIVISION, "cores": 1, "splits": [[9] * len(DIVISION["units"])], "cost_ns": [1], "read_bytes": [1]},
         "a product of at most 1"),
        ({**LAYOUT, "tables": 3}, "field tables must be a list"),
        ({**LAYOUT, "tables": [{"scope": [1, 0]}]}, r"field tables\[0\].scope must have increasing variables"),
        ({**LAYOUT, "tables": [{"scope": [0], "costs": [[1]]}]}, r"field tables\[0\].costs must have"),
        ({**LAYOUT, "names": [1]}, r"field names\[0\] must be a string"),
        ({**LAYOUT, "width": 0}, "field width must be a whole number from 1"),
        ({**JOINT, "counts_as_is": [99] * len(JOINT["counts"])}, "field counts_as_is must not exceed 'counts'"),
        ({**JOINT, "tables": [{"scope": [0], "operation": 99}]}, r"field tables\[0\].operation is not an operation"),
        ({**JOINT, "splits": [[]]}, r"field splits\[0\] must have"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_one_error(fields: object, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(fields if isinstance(fields, str) else json.dumps(fields))
    with pytest.raises(CompileError, match=sentence) as caught:
        read_problem(str(path))
    assert caught.value.location.startswith(str(path))


def test_buffers_are_read_back_as_they_were() -> None:
    """All attributes that determine their traffic are read back."""
    buffers = (
        LifetimeBoundBuffer("a", 128, (0, 2, 5), True, (), 2, 640, 128),
        LifetimeBoundBuffer("b", 256, (5, 6), in_place_parents=("a",), traffic_of_uses=(100, 300)),
    )
    text = buffers_table({"": buffers})
    assert tuple(scoped.buffer for scoped in read_buffers(text, "t.csv", 128, 10, [""])) == buffers
    several = read_buffers(buffers_table({"x": buffers, "y": buffers}), "t.csv", 128, 10, ["x", "y"])
    assert [(scoped.scope, scoped.buffer.name) for scoped in several][1:3] == [("x", "x.b"), ("y", "y.a")]
    assert several[1].buffer.in_place_parents == ("x.a",)
    plans = [solver("portfolio").plan(group, MemorySpace(256, 128)) for group in (buffers,)]
    assert plans[0].traffic <= sum(buffer.traffic_if_spilled for buffer in buffers)


def test_the_buffers_of_a_program_are_compared_by_all_solvers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two bundles are two scopes; the note is a command that can be run."""
    table = tmp_path / "b.csv"
    assert compiled(tmp_path, TWO_BUNDLES, "--save-buffers", str(table)) == 0
    note = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("note: spyre-plan"))
    assert note.count("--capacity device_") == 2
    offsets = tmp_path / "offsets.csv"
    assert spyre_plan.main([*note.split()[2:], "-o", str(offsets)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["solver", "placed", "traffic", "bound", "time"]
    assert {line.split()[0] for line in lines[1:]} >= {"greedy", "firstfit", "portfolio"}
    assert offsets.read_text().startswith("id,offset\ndevice_0.")


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        ("2,,,", "has 0 or 1, not 2"),
        (",-1,,", "has numbers from 0, not -1"),
        (",x,,", "has whole numbers, not 'x'"),
    ],
)
def test_traffic_that_makes_no_sense_is_refused(cell: str, sentence: str) -> None:
    columns = "id,lower,upper,size,first_use_is_read,spilled_traffic,placed_traffic,traffic_of_uses"
    with pytest.raises(CompileError, match=sentence):
        read_buffers(f"{columns}\na,0,2,8,{cell}\n", "t.csv", 8, 10, [""])
