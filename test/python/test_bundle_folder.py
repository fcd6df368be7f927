# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bundle folders: reading gives the written bundle, bytes do not change, damage is reported."""

import json

import bundles
import numpy as np
import pytest

from spyre_mlir.bundle import read_arrays, read_bundle, write_bundle
from spyre_mlir.bundle.validate import validate
from spyre_mlir.errors import CompileError
from spyre_mlir.tools.spyre_validate import main

ARRAYS = {"w": np.arange(6, dtype=np.float16).reshape(2, 3), "b": np.array(2, dtype=np.int64)}


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("build", bundles.GOOD.values(), ids=bundles.GOOD)
def test_round_trip(build, tmp_path):
    write_bundle(build(), tmp_path / "out" / "bundle")
    assert read_bundle(tmp_path / "out" / "bundle") == build()


def test_arrays_round_trip(tmp_path):
    write_bundle(bundles.add_bundle(), tmp_path, ARRAYS)
    arrays = read_arrays(tmp_path)
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


def test_no_arrays(tmp_path):
    write_bundle(bundles.add_bundle(), tmp_path)
    assert read_arrays(tmp_path) == {}


def test_same_bytes_every_time(tmp_path):
    write_bundle(bundles.loop_bundle(), tmp_path / "a", ARRAYS)
    write_bundle(bundles.loop_bundle(), tmp_path / "b", dict(reversed(ARRAYS.items())))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_a_bundle_is_replaced_as_a_whole(tmp_path):
    folder = tmp_path / "bundle"
    write_bundle(bundles.loop_bundle(), folder, ARRAYS)
    write_bundle(bundles.add_bundle(), folder)
    assert sorted(contents(folder)) == ["bundle.mlir", "manifest.json", "sdsc_0.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(CompileError, match="not empty and holds no bundle"):
        write_bundle(bundles.add_bundle(), tmp_path)
    assert contents(tmp_path) == {"thesis.txt": b"years of work"}


def test_a_file_in_the_way_is_left_alone(tmp_path):
    (tmp_path / "out").write_text("text")
    with pytest.raises(CompileError, match="there is a file with this name"):
        write_bundle(bundles.add_bundle(), tmp_path / "out")


def test_failed_writing_leaves_the_old_bundle(tmp_path):
    folder = tmp_path / "bundle"
    write_bundle(bundles.add_bundle(), folder)
    before = contents(folder)
    with pytest.raises(ValueError):
        write_bundle(bundles.loop_bundle(), folder, {"w": np.array([object()])})
    assert contents(folder) == before


@pytest.mark.parametrize("name", ["bundle.mlir", "manifest.json", "sdsc_1.json"])
def test_a_missing_file_is_named(name, tmp_path):
    # The arrays are of this package: without them a folder lacks no manifest, it is of another writer.
    write_bundle(bundles.loop_bundle(), tmp_path, {"w": np.ones(3)})
    (tmp_path / name).unlink()
    with pytest.raises(CompileError, match="missing from the bundle") as caught:
        read_bundle(tmp_path)
    assert caught.value.location == str(tmp_path / name)


@pytest.mark.parametrize("name", ["manifest.json", "sdsc_0.json"])
def test_damaged_json_names_file_and_line(name, tmp_path):
    write_bundle(bundles.add_bundle(), tmp_path)
    text = (tmp_path / name).read_text()
    (tmp_path / name).write_text(text.replace("\n", "\n!", 1))
    with pytest.raises(CompileError, match="not valid JSON") as caught:
        read_bundle(tmp_path)
    assert caught.value.location == f"{tmp_path / name}:2:1"


def test_damaged_arrays_are_named(tmp_path):
    write_bundle(bundles.add_bundle(), tmp_path)
    (tmp_path / "constants.npz").write_bytes(b"PK nonsense")
    with pytest.raises(CompileError, match="is not an archive"):
        read_arrays(tmp_path)


def test_no_folder():
    with pytest.raises(CompileError, match="no bundle folder"):
        read_bundle("/nowhere")


def test_tool_says_valid(tmp_path, capsys):
    write_bundle(bundles.loop_bundle(), tmp_path)
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path}: valid (2 designs, 2 executes)\n"


def test_tool_prints_findings(tmp_path, capsys):
    write_bundle(bundles.loop_bundle(), tmp_path)
    write_bundle(bundles.add_bundle(), tmp_path / "other")
    text = (tmp_path / "sdsc_1.json").read_text().replace("1_add", "2_add")
    (tmp_path / "sdsc_2.json").write_text(text)
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out == "sdsc_2.json: No execute of the program names this file. [files]\n"


def test_tool_names_a_damaged_file(tmp_path, capsys):
    (tmp_path / "bundle.mlir").write_text("module {")
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(f"{tmp_path / 'bundle.mlir'}:1:9: error: Expected 'func.func'")


# -- padding of dims ------------------------------------------------------------------------------------


def _change(path, change) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def test_padding_of_dims_stands_in_the_manifest(tmp_path):
    """The manifest has the padding by design and dim, because the format of designs has padding of windows only."""
    write_bundle(bundles.reduction_bundle(), tmp_path / "padded")
    manifest = json.loads((tmp_path / "padded" / "manifest.json").read_text())
    assert manifest["padding"] == {"sdsc_0.json": {"out": 56}, "sdsc_1.json": {"out": 56}}
    assert '"paddingSizes_": {}' in (tmp_path / "padded" / "sdsc_0.json").read_text()
    assert "padBack_" not in (tmp_path / "padded" / "sdsc_0.json").read_text()
    write_bundle(bundles.add_bundle(), tmp_path / "whole")
    assert "padding" not in json.loads((tmp_path / "whole" / "manifest.json").read_text())


def test_a_folder_with_padding_in_its_designs_is_read(tmp_path):
    """Folders of older versions have the padding in designs, and not in the manifest; having both is valid."""
    write_bundle(bundles.reduction_bundle(), tmp_path)
    for number in (0, 1):
        _change(tmp_path / f"sdsc_{number}.json", lambda value: bundles.say_padding(value, {"out": 56}))
    assert read_bundle(tmp_path) == bundles.reduction_bundle()
    _change(tmp_path / "manifest.json", lambda value: value.pop("padding"))
    assert read_bundle(tmp_path) == bundles.reduction_bundle()


@pytest.mark.parametrize(
    ("padding", "message"),
    [
        ({"sdsc_7.json": {"out": 56}}, r"padding.sdsc_7.json is for a design that the bundle does not have"),
        ({"sdsc_0.json": {"out": 40}}, r"padding.sdsc_0.json is not the padding that the design has"),
        ({"sdsc_1.json": {"out": "56"}}, r"padding.sdsc_1.json.out must be an integer"),
        ([], r"padding must be an object"),
    ],
)
def test_padding_that_contradicts_the_designs_is_refused(tmp_path, padding, message):
    write_bundle(bundles.reduction_bundle(), tmp_path)
    _change(tmp_path / "sdsc_0.json", lambda value: bundles.say_padding(value, {"out": 56}))
    _change(tmp_path / "manifest.json", lambda value: value.update(padding=padding))
    with pytest.raises(CompileError, match=message) as caught:
        read_bundle(tmp_path)
    assert caught.value.location == str(tmp_path / "manifest.json")


def test_padding_of_a_dim_that_a_design_lacks_is_a_finding(tmp_path):
    write_bundle(bundles.reduction_bundle(), tmp_path)
    _change(tmp_path / "manifest.json", lambda value: value["padding"]["sdsc_0.json"].update(q=1))
    assert "padding name the dim q" in str(validate(read_bundle(tmp_path))[0])
