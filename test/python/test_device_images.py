# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights laid out ahead of time: the bytes, runs on them, files, and files that are refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from bundle_edits import argument
from bundles import add_bundle, reduction_bundle

import spyre_mlir
from spyre_mlir.bundle.model import Bundle, KernelArgument, Transfer
from spyre_mlir.bundle.transfer import DATA, INDEX, Images, laid_out, read_images, write_images
from spyre_mlir.errors import CompileError
from spyre_mlir.simulator import SimulationError, run
from spyre_mlir.target.formats import encode_dl16
from spyre_mlir.tools.spyre_compile import main as spyre_compile
from spyre_mlir.tools.spyre_run import main as spyre_run

X = (np.arange(128 * 256) % 1999).reshape(128, 256).astype(np.float16)
ROWS = np.arange(128 * 200).reshape(128, 200).astype(np.float16) / 2**12
TRANSPOSED = Transfer((4, 128, 64), (64, 256, 1), (64, 256, 1))


def with_weight(**changes) -> Bundle:
    """z = x + y for (128, 256), y a weight."""
    return argument(add_bundle(), 1, kind="parameter", **changes)


def by_definition(each: KernelArgument, array: np.ndarray) -> np.ndarray:
    """The device elements of an argument by the definition of a transfer, element by element; else its fill."""
    device = np.full(each.bytes // 2, each.fill, np.float16)
    transfer, flat = each.transfer, array.reshape(-1)
    for position in np.ndindex(transfer.ranges):
        if all(
            sum(position[loop] * weight for loop, weight in zip(loops, weights, strict=True)) < size
            for loops, weights, size in transfer.bounds
        ):
            at = np.dot(position, transfer.device_strides)
            device[at] = flat[transfer.host_offset + np.dot(position, transfer.host_strides)]
    return device


@pytest.mark.parametrize("transfer", [None, TRANSPOSED], ids=["as it is", "in another order"])
def test_an_image_is_what_the_transfer_says(transfer):
    """Padding has the fill."""
    each = replace(reduction_bundle().manifest.arguments[0], fill=3.0)
    array = ROWS
    if transfer is not None:
        each, array = replace(each, transfer=transfer, host_shape=(128, 256)), X
    image = laid_out([each], {"x": array}).by_name["x"]
    np.testing.assert_array_equal(image.view(np.float16), by_definition(each, array))


def test_bit_true_images_hold_codes_of_dl16():
    each = add_bundle().manifest.arguments[0]
    image = laid_out([each], {"x": X}, "dl16").by_name["x"].view(np.uint16)
    np.testing.assert_array_equal(image, encode_dl16(by_definition(replace(each, fill=0.0), X)))


@pytest.mark.parametrize("numerics", ["ieee", "dl16"])
def test_a_run_on_images_is_one_on_arrays(numerics):
    images = laid_out(with_weight().manifest.arguments, {"y": 2 * X}, numerics)
    assert list(images.by_name) == ["y"]
    found = run(with_weight(), {"x": X}, numerics, images=images)
    expected = run(with_weight(), {"x": X, "y": 2 * X}, numerics)
    np.testing.assert_array_equal(found.outputs["z"], expected.outputs["z"])
    assert found.statistics == expected.statistics


def test_padding_of_an_image_may_not_be_read():
    """Padding of an image is like padding of an array: the sum takes 256 columns, of which the host gives 200."""
    bundle = reduction_bundle()
    design = replace(bundle.designs["sdsc_0.json"], padding={})
    bundle = replace(bundle, designs={**bundle.designs, "sdsc_0.json": design})
    images = laid_out(bundle.manifest.arguments, {"x": ROWS})
    for arrays, made in (({"x": ROWS}, None), ({}, images)):
        with pytest.raises(SimulationError, match=r"sdsc_0\.json.*tensor 'x'.*never written"):
            run(bundle, arrays, images=made)


def test_each_layout_of_an_array_has_an_image():
    """The second argument is the first one's array in another layout."""
    bundle = argument(with_weight(source="x", transfer=TRANSPOSED), 0, kind="parameter")
    images = laid_out(bundle.manifest.arguments, {"x": X})
    assert list(images.by_name) == ["x", "y"]
    expected = run(bundle, {"x": X}).outputs["z"]
    assert not np.array_equal(expected, 2 * X)
    np.testing.assert_array_equal(run(bundle, {}, images=images).outputs["z"], expected)


def test_an_array_comes_before_an_image():
    images = laid_out(with_weight().manifest.arguments, {"y": 2 * X})
    np.testing.assert_array_equal(run(with_weight(), {"x": X, "y": X}, images=images).outputs["z"], 2 * X)


def test_images_of_other_numerics_are_refused():
    images = laid_out(with_weight().manifest.arguments, {"y": X}, "dl16")
    with pytest.raises(
        CompileError, match="laid out for the numerics 'dl16', so they cannot run with 'ieee'"
    ):
        run(with_weight(), {"x": X}, images=images)


def test_an_image_of_another_size_is_refused():
    images = Images("ieee", {"y": np.zeros(100, np.uint8)})
    with pytest.raises(
        SimulationError, match="tensor 'y': its image holds 100 elements of uint8, but it has 65536"
    ):
        run(with_weight(), {"x": X}, images=images)


def test_arrays_that_do_not_fit_are_refused():
    with pytest.raises(
        CompileError, match=r"weight 'y' cannot be laid out: the array has shape \[256, 128\]"
    ):
        laid_out(with_weight().manifest.arguments, {"y": X.T})


def test_files_give_the_images_back(tmp_path):
    """A file is mapped, and gives the same bytes every time."""
    arguments = argument(with_weight(), 0, kind="constant").manifest.arguments
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_images(tmp_path / name, arguments, {"x": X, "y": 2 * X})
    assert (tmp_path / "a" / DATA).read_bytes() == (tmp_path / "b" / DATA).read_bytes()
    assert (tmp_path / "a" / INDEX).read_bytes() == (tmp_path / "b" / INDEX).read_bytes()
    found, expected = read_images(tmp_path / "a", arguments), laid_out(arguments, {"x": X, "y": 2 * X})
    assert found.numerics == "ieee" and list(found.by_name) == ["x", "y"]
    for name, image in found.by_name.items():
        assert isinstance(image.base, np.memmap) or isinstance(image, np.memmap)
        np.testing.assert_array_equal(image, expected.by_name[name])


def test_a_folder_without_images(tmp_path):
    assert read_images(tmp_path, with_weight().manifest.arguments) == Images()


def edited(folder, change) -> None:
    """Changes the index of images in a folder."""
    index = json.loads((folder / INDEX).read_text())
    change(index)
    (folder / INDEX).write_text(json.dumps(index))


def test_a_changed_byte_is_found(tmp_path):
    write_images(tmp_path, with_weight().manifest.arguments, {"y": X})
    data = bytearray((tmp_path / DATA).read_bytes())
    data[-1] ^= 1
    (tmp_path / DATA).write_bytes(data)
    with pytest.raises(CompileError, match="The image of 'y' is damaged"):
        read_images(tmp_path, with_weight().manifest.arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-1], "is not a numpy array"),
        (lambda data: data[:40], "is not a numpy array"),
        (lambda data: data.replace(b"|u1", b"|i1"), "does not hold bytes"),
        (lambda data: data.replace(b"65536", b"65535"), "The image of 'y' is damaged"),
        (lambda data: data.replace(b"65536", b"65664") + bytes(128), "65664 bytes, but its images have 65536"),
    ],
)  # fmt: skip
def test_data_that_is_no_image(tmp_path, change, message):
    write_images(tmp_path, with_weight().manifest.arguments, {"y": X})
    (tmp_path / DATA).write_bytes(change((tmp_path / DATA).read_bytes()))
    with pytest.raises(CompileError, match=message):
        read_images(tmp_path, with_weight().manifest.arguments)


@pytest.mark.parametrize("name", [DATA, INDEX])
def test_one_file_without_the_other(tmp_path, name):
    write_images(tmp_path, with_weight().manifest.arguments, {"y": X})
    (tmp_path / name).unlink()
    with pytest.raises(CompileError, match="The file is missing from the bundle") as caught:
        read_images(tmp_path, with_weight().manifest.arguments)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda index: index.update(numerics="fp4"), "field numerics must be one of ieee, dl16"),
        (
            lambda index: index["images"].append(index["images"][0]),
            r"images\[1\].argument.name is a duplicate",
        ),
        (lambda index: index["images"][0].pop("crc32"), "has no member 'crc32'"),
        (lambda index: index["images"][0]["argument"].update(name="w"), "must be an argument of the bundle"),
        (lambda index: index["images"].clear(), "holds 65536 bytes, but its images have 0"),
    ],
)
def test_an_index_that_is_wrong(tmp_path, change, message):
    write_images(tmp_path, with_weight().manifest.arguments, {"y": X})
    edited(tmp_path, change)
    with pytest.raises(CompileError, match=message):
        read_images(tmp_path, with_weight().manifest.arguments)


def test_a_bundle_that_wants_another_layout_now(tmp_path):
    """The new layout has the same size, so the sizes alone do not show the change."""
    write_images(tmp_path, with_weight().manifest.arguments, {"y": X})
    message = r"images\[0\].argument.transfer.host_strides\[0\] must be 1 but is 64"
    other = replace(TRANSPOSED, host_strides=(1, 256, 4))
    with pytest.raises(CompileError, match=message):
        read_images(tmp_path, with_weight(transfer=other).manifest.arguments)


LINEAR = """
func.func @main(%x: tensor<5x100xf16> {spyre.name = "x"},
                %w: tensor<100x70xf16> {spyre.name = "w", spyre.kind = "parameter"}) -> tensor<5x70xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<5x70xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<5x70xf16>) -> tensor<5x70xf16>
  %0 = linalg.matmul ins(%x, %w : tensor<5x100xf16>, tensor<100x70xf16>)
      outs(%f : tensor<5x70xf16>) -> tensor<5x70xf16>
  return %0 : tensor<5x70xf16>
}
"""


@pytest.mark.parametrize("numerics", ["ieee", "dl16"])
def test_a_checked_bundle_with_images(tmp_path, capsys, numerics):
    """spyre-compile writes images instead of arrays, for the numerics of the check, which runs the folder."""
    (tmp_path / "linear.mlir").write_text(LINEAR)
    options = ["--check", "--lay-out-weights", "--numerics", numerics]
    assert spyre_compile([str(tmp_path / "linear.mlir"), "-o", str(tmp_path / "out"), *options]) == 0
    assert "PASS" in capsys.readouterr().out
    assert (tmp_path / "out" / DATA).exists() and not (tmp_path / "out" / "constants.npz").exists()


def test_the_tool_runs_on_images(tmp_path, capsys):
    """With the results that the program has; in.npz may still give the weight; other numerics are a diagnostic."""
    program, x = spyre_mlir.compile(LINEAR), np.ones((5, 100), np.float16)
    weight = (np.arange(7000) % 13).reshape(100, 70).astype(np.float16) / 64
    program.arrays["w"] = weight
    program.save(tmp_path / "out", lay_out_weights=True)
    for given, expected in (({"x": x}, program(x)), ({"x": x, "w": 0 * weight}, np.zeros((5, 70)))):
        np.savez(tmp_path / "in.npz", **given)  # type: ignore[arg-type]
        options = ["--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz")]
        assert spyre_run([str(tmp_path / "out"), *options]) == 0
        np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["result0"], expected)
    np.savez(tmp_path / "in.npz", x=x)
    assert spyre_run([str(tmp_path / "out"), "--inputs", str(tmp_path / "in.npz"), "--numerics", "dl16"]) == 1
    assert "laid out for the numerics 'ieee'" in capsys.readouterr().err


def test_weights_are_laid_out_once():
    """A program with images accepts other arrays, but does not see changes of arrays that it has laid out."""
    program, x = spyre_mlir.compile(LINEAR), np.ones((5, 100), np.float16)
    program.arrays["w"] = np.ones((100, 70), np.float16)
    program.lay_out_weights()
    program.arrays["w"][...] = 2
    assert (program(x) == 100).all()
    program.arrays["w"] = np.full((100, 70), 3, np.float16)
    assert (program(x) == 300).all()


def test_a_model_is_laid_out_once():
    """Each call makes views of its parameters, which are the same memory."""
    torch.manual_seed(0)
    model, x = torch.nn.Linear(100, 70).half(), torch.randn(5, 100).half()
    program = spyre_mlir.compile(model, (x,))
    program.lay_out_weights()
    with torch.no_grad():
        wanted = model(x)
        model.weight.zero_()
    torch.testing.assert_close(program(x), wanted, atol=0.01, rtol=0)


def test_a_program_of_several_steps(tmp_path):
    """Bundles have images of the weights that they read; host functions have arrays."""
    torch.manual_seed(0)
    weight, x = torch.nn.Parameter(torch.randn(100, 64).half() / 8), torch.randn(5, 100).half()

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = weight

        def forward(self, x):
            return torch.sin(x @ self.w) @ self.w.T + torch.sin(self.w[:5].sum())

    program = spyre_mlir.compile(Model(), (x,))
    program.save(tmp_path / "out", lay_out_weights=True)
    assert not list((tmp_path / "out").glob("*/constants.npz"))
    assert len(list((tmp_path / "out").glob("*/device_weights.npy"))) == len(program.bundles) == 2
    loaded = spyre_mlir.Program.load(tmp_path / "out")
    np.testing.assert_array_equal(loaded(x.numpy()), program(x).numpy())
