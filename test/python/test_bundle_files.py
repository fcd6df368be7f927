# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folders that somebody else made: no file leads out of the folder, none makes the reader wait or fills memory."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path

import bundles
import numpy as np
import pytest

from spyre_mlir.bundle import write_bundle
from spyre_mlir.bundle.transfer import read_images
from spyre_mlir.tools import spyre_run, spyre_validate

X = np.ones((128, 256), np.float16)
FILES = ["bundle.mlir", "manifest.json", "sdsc_0.json", "constants.npz", "program.json"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_bundle(bundles.add_bundle(), tmp_path / "bundle", {"y": X})
    np.savez(tmp_path / "in.npz", x=X, y=X)
    return tmp_path / "bundle"


def diagnostic(folder: Path, capsys, *options: str) -> str:
    """Return the only line of output of spyre-run."""
    inputs = folder.with_name("in.npz")
    assert spyre_run.main([str(folder), "--inputs", str(inputs), *options]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "Internal error" not in line
    return line


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize("name", ["../sdsc_0.json", "/dev/zero", "sdsc_0.json/", "a\0b", ".", "sdsc_x.json"])
def test_a_design_is_in_a_file_of_the_folder(folder, capsys, name):
    (folder / "../sdsc_0.json").write_bytes((folder / "sdsc_0.json").read_bytes())
    rewrite(folder / "bundle.mlir", "sdsc_0.json", name)
    assert "A design is in a file 'sdsc_<number>.json', not in" in diagnostic(folder, capsys)


@pytest.mark.parametrize("name", FILES)
def test_links_are_not_followed(folder, capsys, name):
    path = folder / name
    if path.exists():
        path.rename(folder.with_name("outside"))
    path.symlink_to(folder.with_name("outside") if name != "program.json" else "/dev/zero")
    if name == "program.json":
        path.unlink()
        path.symlink_to(folder / "manifest.json")
    assert "The file is a link" in diagnostic(folder, capsys)


@pytest.mark.parametrize("name", FILES[:4])
def test_what_is_no_regular_file_is_not_read(folder, capsys, name):
    for make in (os.mkfifo, os.mkdir):
        path = folder / name
        path.unlink()
        make(path)
        assert "is not a regular file" in diagnostic(folder, capsys)
        (os.rmdir if path.is_dir() else os.unlink)(path)
        path.touch()


def test_images_and_inputs_are_regular_files(folder, capsys):
    (folder / "device_weights.json").write_text('{"numerics": "ieee", "images": []}')
    os.mkfifo(folder / "device_weights.npy")
    assert "is not a regular file" in diagnostic(folder, capsys)
    (folder / "device_weights.npy").unlink()
    (folder / "device_weights.json").unlink()
    assert read_images(folder, ()).by_name == {}
    folder.with_name("in.npz").unlink()
    os.mkfifo(folder.with_name("in.npz"))
    assert "is not a regular file" in diagnostic(folder, capsys)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"version": 1, "version": 1}', "duplicate key 'version'"),
        ('{"version": ' + "9" * 5000 + "}", "not valid JSON"),
        ('{"version": NaN}', "NaN is not valid JSON"),
        ('{"\\ud800": 1}', "a name with an unpaired surrogate"),
        (f'{{"version": {2**70}}}', "must be an integer of 64 bits"),
    ],
)
def test_json_that_nobody_wrote(folder, capsys, text, message):
    (folder / "manifest.json").write_text(text)
    assert message in diagnostic(folder, capsys)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"name": "x"', '"name": "x\\u0000"', "must be text in Unicode without NUL"),
        ('"name": "x"', '"name": "\\udc00"', "must be text in Unicode without NUL"),
        ('"float16"', '"zzz"', "Its host type is 'zzz'"),
        ('"host_offset": 0', f'"host_offset": {2**70}', "must be an integer of 64 bits"),
        ('"host_offset": 0', f'"host_offset": {2**62}', "reaches host element"),
        ('"bytes": 65536', f'"bytes": {2**60}', "expected 65536 for its device size"),
    ],
)
def test_manifests_that_nobody_wrote(folder, capsys, old, new, message):
    rewrite(folder / "manifest.json", old, new)
    assert message in diagnostic(folder, capsys)


LOOPS = "".join(f"scf.for %i{at} = %c0 to %c1 step %c1 {{\n" for at in range(2000))


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (f"%huge = arith.constant {2**70} : index\n    return", "Expected an integer of 64 bits"),
        (f"%huge = arith.constant {'9' * 5000} : index\n    return", "Expected an integer here"),
        (
            "%c0 = arith.constant 0 : index\n%c1 = arith.constant 1 : index\n" + LOOPS,
            "nests more than 8 deep",
        ),
        ("%a\0b = arith.constant 0 : index\n    return", "Expected"),
    ],
)
def test_programs_that_nobody_wrote(folder, capsys, new, message):
    rewrite(folder / "bundle.mlir", "return", new)
    assert message in diagnostic(folder, capsys)


def test_a_map_that_nests(folder, capsys):
    path = folder / "bundle.mlir"
    path.write_text(f"#map = affine_map<(d0) -> ({'(' * 5000}d0{')' * 5000})>\n{path.read_text()}")
    assert "nests more than 8 deep" in diagnostic(folder, capsys)


def entry(shape: tuple[int, ...], dtype: str = "<f2", data: bytes = b"") -> bytes:
    """Return the file of an array whose header has a shape, with some bytes."""
    stream = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue() + data


def archive(path: Path, compression: int = zipfile.ZIP_STORED, **entries: bytes) -> None:
    with zipfile.ZipFile(path, "w", compression) as made:
        for name, data in entries.items():
            made.writestr(f"{name}.npy", data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (entry((2**40,)), "does not have the size that its shape takes"),
        (entry((2**20, 2**20, 2**20, 2**20)), "does not have the size that its shape takes"),
        (entry((-1, 256)), "negative number of elements"),
        (entry((1,), "|O", b"12345678"), "holds Python objects"),
        (entry((128, 256), "<f4", bytes(131072)), "the array is float32, but the argument is float16"),
        (entry((64, 256), data=bytes(32768)), "the array has shape [64, 256]"),
        (b"", "is not an archive of numpy arrays"),
        (b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535, "is not an archive of numpy arrays"),
    ],
)
def test_arrays_are_checked_before_they_are_unpacked(folder, capsys, data, message):
    archive(folder.with_name("in.npz"), zipfile.ZIP_DEFLATED, x=data, y=entry((128, 256), data=bytes(65536)))
    assert message in diagnostic(folder, capsys)


def test_an_archive_that_unpacks_to_much_is_not_unpacked(folder, capsys, monkeypatch):
    """64 MiB of zeros are some kilobytes; the argument has 64 KiB."""
    data = entry((2**25,), data=bytes(2**26))
    archive(folder.with_name("in.npz"), zipfile.ZIP_DEFLATED, x=data)
    monkeypatch.setattr(np.lib.format, "read_array", None)
    assert "the array has shape [33554432]" in diagnostic(folder, capsys)
    monkeypatch.undo()
    archive(folder / "constants.npz", zipfile.ZIP_DEFLATED, y=data)
    np.savez(folder.with_name("in.npz"), x=X)
    assert "is compressed" in diagnostic(folder, capsys)


@pytest.mark.parametrize(
    "data", [b"", b"PK\x05\x06" + bytes(18), b"\x93NUMPY"], ids=["empty", "no entry", "an array"]
)
def test_archives_with_nothing(folder, capsys, data):
    folder.with_name("in.npz").write_bytes(data)
    line = diagnostic(folder, capsys)
    assert "is not an archive" in line or "no array was given" in line or "argument 'x'" in line


def test_what_is_not_valid_does_not_run(folder, capsys):
    """Half of the result is not written: an error before the run, or at its end without validation."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["arguments"][2]["transfer"]["ranges"] = [4, 64, 64]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    text = "Its transfer has 16384 of the 32768 elements of the result; expected all. [transfer]"
    assert text in diagnostic(folder, capsys)
    assert spyre_validate.main([str(folder)]) == 1
    assert text in capsys.readouterr().out
    inputs = str(folder.with_name("in.npz"))
    assert spyre_run.main([str(folder), "--inputs", inputs, "--no-validate"]) == 0
