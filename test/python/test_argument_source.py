# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One array of the host as two arguments in two layouts: two readers need a weight with different sticks."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from bundle_edits import argument
from bundles import add_bundle

import spyre_mlir
from spyre_mlir.bundle import read_arrays, read_bundle, write_bundle
from spyre_mlir.bundle.json_fields import manifest_from_json, manifest_to_json
from spyre_mlir.bundle.model import Bundle, Transfer
from spyre_mlir.bundle.validate import validate
from spyre_mlir.driver.checking import random_arguments
from spyre_mlir.simulator import SimulationError, run
from spyre_mlir.tools.spyre_run import main

X = (np.arange(128 * 256) % 1999).reshape(128, 256).astype(np.float16)


def doubled() -> Bundle:
    """z = x + y, where y is the array of x."""
    return argument(add_bundle(), 1, source="x")


def test_the_array_is_given_once():
    """Under the name of the source; the other argument is loaded by its own transfer."""
    np.testing.assert_array_equal(run(doubled(), {"x": X}).outputs["z"], 2 * X)
    first, second, third = doubled().manifest.arguments
    # The first 64 of 128 rows, twice: enough to identify the transfers.
    second = replace(second, transfer=Transfer((4, 2, 64, 64), (64, 0, 256, 1), (8192, 4096, 64, 1)))
    bundle = replace(doubled(), manifest=replace(doubled().manifest, arguments=(first, second, third)))
    expected = X + np.concatenate((X[:64], X[:64]))
    np.testing.assert_array_equal(run(bundle, {"x": X}).outputs["z"], expected)


def test_arrays_under_the_other_name_are_refused():
    with pytest.raises(SimulationError, match="there is no such input; the inputs are x"):
        run(doubled(), {"x": X, "y": X})
    with pytest.raises(SimulationError, match="tensor 'x': no array was given"):
        run(doubled(), {})


def test_the_manifest_says_it_only_where_it_is_so():
    value = manifest_to_json(doubled().manifest)
    assert [each.get("source", "") for each in value["arguments"]] == ["", "x", ""]
    assert "source" not in value["arguments"][0]
    assert manifest_from_json(json.loads(json.dumps(value)), "manifest.json") == doubled().manifest


def test_a_good_bundle():
    assert validate(doubled()) == []


def test_checks_and_the_tool_give_the_source_alone(tmp_path):
    """--check makes no array for the second argument; inputs by index are the inputs with an array."""
    assert list(random_arguments([each for each in doubled().manifest.arguments if each.source is None])) == [
        "x"
    ]
    write_bundle(doubled(), tmp_path / "add")
    np.savez(tmp_path / "in.npz", X)
    arguments = ["--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz")]
    assert main([str(tmp_path / "add"), *arguments]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["z"], 2 * X)


def test_a_saved_weight_is_stored_once(tmp_path):
    """Operands of a product with its transpose need different sticks: two arguments, no restickify, one array."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(64, 64).half() / 8)

    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = weight

        def forward(self, x, y):
            return x @ self.w, y @ self.w.T

    x = torch.randn(64, 64).half()
    program = spyre_mlir.compile(Twice(), (x, x))
    sources = {each.name: each.source for each in program.bundle.manifest.arguments if each.source}
    assert list(sources.values()) == ["w"]
    program.save(tmp_path / "twice")
    arrays = read_arrays(tmp_path / "twice")
    assert list(arrays) == ["w"]
    outputs = run(read_bundle(tmp_path / "twice"), {**arrays, "x": x.numpy(), "y": x.numpy()}).outputs
    for found, expected in zip(outputs.values(), Twice()(x, x), strict=True):
        np.testing.assert_allclose(found, expected.detach().numpy(), atol=0.01)
