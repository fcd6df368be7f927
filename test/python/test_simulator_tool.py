# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spyre-run: names of arrays, constants of the bundle, the table, diagnostics, nothing written on errors."""

from dataclasses import replace

import numpy as np
import pytest
from bundles import add_bundle, reduction_bundle, relayout_bundle

from spyre_mlir.bundle.folder import write_bundle
from spyre_mlir.tools.spyre_run import main
from spyre_mlir.tools.spyre_validate import main as validate_tool

X = np.arange(128 * 256).reshape(128, 256).astype(np.float16) % 97


@pytest.fixture
def folder(tmp_path):
    write_bundle(add_bundle(), tmp_path / "add")
    return tmp_path


def run_tool(folder, *options: str, **arrays: np.ndarray) -> int:
    np.savez(folder / "in.npz", **arrays)
    return main([str(folder / "add"), "--inputs", str(folder / "in.npz"), *options])


def test_inputs_by_name_and_by_position(folder):
    for arrays in ({"x": X, "y": 2 * X}, {"arr_0": X, "arr_1": 2 * X}, {"x": X, "arr_1": 2 * X}):
        assert run_tool(folder, "--outputs", str(folder / "out.npz"), **arrays) == 0
        np.testing.assert_array_equal(np.load(folder / "out.npz")["z"], 3 * X)


def test_constants_come_from_the_bundle(tmp_path):
    bundle = add_bundle()
    first, second, third = bundle.manifest.arguments
    manifest = replace(bundle.manifest, arguments=(first, replace(second, kind="constant"), third))
    write_bundle(replace(bundle, manifest=manifest), tmp_path / "add", {"y": X})
    assert run_tool(tmp_path, "--outputs", str(tmp_path / "out.npz"), x=X) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["z"], 2 * X)


def test_the_table_of_traffic(tmp_path, capsys):
    write_bundle(reduction_bundle(), tmp_path / "add")
    assert run_tool(tmp_path, "--stats", x=np.ones((128, 200), np.float16)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "operation    op   runs  cores  HBM read  HBM written",
        "sdsc_0.json  exp     1      2    65,536            0",
        "sdsc_1.json  sum     1      2         0       16,384",
        "total                2      2    65,536       16,384",
        "HBM read, per-core sum: 65,536 bytes",
        "LX high water: 32,768 bytes",
    ]


def test_the_table_says_what_went_over_the_ring(tmp_path, capsys):
    """Half of the rows of two cores are sent to the other core, which needs columns."""
    write_bundle(relayout_bundle(), tmp_path / "add")
    assert run_tool(tmp_path, "--stats", x=X) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Sent over the ring: 32,768 bytes"


def test_bit_true_numbers_lose_a_bit(folder):
    x = np.full((128, 256), 1 + 1 / 1024, np.float16)
    options = ("--outputs", str(folder / "out.npz"), "--numerics", "dl16")
    assert run_tool(folder, *options, x=x, y=0 * x) == 0
    assert (np.load(folder / "out.npz")["z"] == 1 + 1 / 512).all()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"x": X},
            "error: tensor 'y': no array was given for this input; give an array with its name, or "
            "random numbers (spyre-run --random).\n",
        ),
        ({"x": X, "y": X, "w": X}, "error: tensor 'w': there is no such input; the inputs are x, y.\n"),
        ({"x": X, "arr_0": X}, "error: Input 'x' is given twice, by name and by position.\n"),
        ({"arr_2": X}, "error: Array 'arr_2' has no argument: the program has 2 inputs.\n"),
        (
            {"x": X, "y": X[:1]},
            "error: tensor 'y': the array has shape [1, 256], but the argument has [128, 256]; "
            "compile for this shape.\n",
        ),
    ],
)
def test_one_diagnostic_and_no_output(folder, capsys, arrays, message):
    assert run_tool(folder, "--outputs", str(folder / "out.npz"), **arrays) == 1
    assert capsys.readouterr().err == message
    assert not (folder / "out.npz").exists()


def test_random_inputs(folder, capsys):
    """Equal seeds give equal results; given arrays stay."""
    outputs = []
    for arguments in (["--random"], ["--random", "0"], ["--random", "1"]):
        assert main([str(folder / "add"), *arguments, "--outputs", str(folder / "out.npz")]) == 0
        outputs.append(dict(np.load(folder / "out.npz")))
    first, again, other = (next(iter(arrays.values())) for arrays in outputs)
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert run_tool(folder, "--random", "--outputs", str(folder / "out.npz"), x=X, y=X) == 0
    assert np.array_equal(next(iter(np.load(folder / "out.npz").values())), X + X)
    assert not capsys.readouterr().err


def test_files_that_cannot_be_used(folder, capsys):
    (folder / "bad.npz").write_text("no archive")
    assert main([str(folder / "add"), "--inputs", str(folder / "bad.npz")]) == 1
    assert main([str(folder / "add"), "--inputs", str(folder / "none.npz")]) == 1
    assert run_tool(folder, "--outputs", str(folder / "none" / "out.npz"), x=X, y=X) == 1
    assert [line[:16] for line in capsys.readouterr().err.splitlines()] == ["error: The file "] * 3


def test_the_part_of_lx_for_the_backend_comes_from_the_environment(tmp_path, monkeypatch, capsys):
    write_bundle(reduction_bundle(), tmp_path / "add")
    monkeypatch.setenv("DXP_LX_FRAC_AVAIL", "0.99")
    assert run_tool(tmp_path, x=np.ones((128, 200), np.float16)) == 1
    assert "ends at the LX address 32768; expected at most 20352" in capsys.readouterr().err
    assert run_tool(tmp_path, "--no-validate", x=np.ones((128, 200), np.float16)) == 1
    assert "usable bytes of LX" in capsys.readouterr().err
    assert run_tool(tmp_path, "--lx-backend-fraction", "0.2", x=np.ones((128, 200), np.float16)) == 0
    assert validate_tool([str(tmp_path / "add"), "--lx-backend-fraction", "0.2"]) == 0
    assert validate_tool([str(tmp_path / "add")]) == 1
    assert "ends at the LX address 32768; expected at most 20352" in capsys.readouterr().out
    monkeypatch.setenv("DXP_LX_FRAC_AVAIL", "much")
    assert validate_tool([str(tmp_path / "add")]) == 1
    assert run_tool(tmp_path, x=np.ones((128, 200), np.float16)) == 1
    assert run_tool(tmp_path, "--lx-backend-fraction", "1", x=np.ones((128, 200), np.float16)) == 1
