# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random mutants of bundles: what is valid and gives other numbers is another program, by judges of its own kind.

The judges know nothing of the validator: ``unsharded`` runs the same operations on whole tensors, and a transfer is
gone through element by element.
"""

from __future__ import annotations

import functools
import itertools
import shutil
from collections import Counter
from pathlib import Path

import bundles
import numpy as np
import pytest
from bundle_mutants import Mutant, folder_mutants, mutants
from part_programs import Parts
from unsharded import unsharded

import spyre_mlir
from spyre_mlir.bundle import read_bundle, write_bundle
from spyre_mlir.bundle.model import Bundle, KernelArgument
from spyre_mlir.bundle.transfer import filled_parts
from spyre_mlir.bundle.validate import validate
from spyre_mlir.errors import CompileError
from spyre_mlir.simulator import run
from spyre_mlir.tools import spyre_diff, spyre_report

SEED, COUNT = 17, 90


@functools.cache
def chain_bundle() -> Bundle:
    """Operations in place, which may come in any order, on a square, between device memory and LX."""
    module = """
func.func @main(%x: tensor<64x64xf16>) -> tensor<64x64xf16> {
  %e = tensor.empty() : tensor<64x64xf16>
  %a = linalg.abs ins(%x : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  %b = linalg.exp ins(%a : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  %c = linalg.negf ins(%b : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  %d = linalg.tanh ins(%c : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  return %d : tensor<64x64xf16>
}"""
    return spyre_mlir.compile(module, sencores=4).bundle


GOOD = {
    **bundles.GOOD,
    "chain": chain_bundle,
    "loop": lambda: bundles.loop_bundle(2),
    "accumulator": lambda: bundles.accumulating_bundle(6),
    "window": bundles.window_bundle,
}


def inputs(bundle: Bundle) -> dict[str, np.ndarray]:
    """Numbers that all differ within a few rows; positions of a lookup that every table has."""
    rng = np.random.default_rng(SEED)
    arrays = {}
    for each in bundle.manifest.arguments:
        if each.kind != "result" and each.source is None:
            low, high = (0, 16) if each.host_dtype == "int32" else (-8, 8)
            dtype = "float32" if each.host_dtype == "bfloat16" else each.host_dtype
            arrays[each.name] = rng.uniform(low, high, each.host_shape).astype(dtype)
    return arrays


def outcome(bundle: Bundle) -> dict[str, np.ndarray] | None:
    """Return the results; None if a sentence refuses the bundle."""
    try:
        return None if validate(bundle) else run(bundle, inputs(bundle)).outputs
    except CompileError:
        return None


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray], tolerance: float = 0.0) -> bool:
    return one.keys() == other.keys() and all(
        one[name].shape == other[name].shape
        and np.allclose(
            one[name].astype(float), other[name].astype(float), tolerance, tolerance, equal_nan=True
        )
        for name in one
    )


def check_transfer(argument: KernelArgument) -> None:
    """Each host element has one place on the device, and the other way round; a result is whole."""
    moved = argument.transfer
    places = []
    for strides, offset in ((moved.host_strides, moved.host_offset), (moved.device_strides, 0)):
        found = []
        for part in filled_parts(moved):
            numbers = np.full(1, offset)
            for (first, count), stride in zip(part, strides, strict=True):
                numbers = np.add.outer(numbers, (first + np.arange(count)) * stride).ravel()
            found.append(numbers)
        places.append(np.concatenate(found))
    assert all(len(np.unique(each)) == len(each) for each in places)
    if argument.kind in ("result", "input"):
        assert len(places[0]) == np.prod(argument.host_shape)


def check_is_a_program(mutant: Mutant, found: dict[str, np.ndarray]) -> bool:
    """Return whether a bundle could be judged by its numbers: subviews in LX have no form on whole tensors."""
    for argument in mutant.bundle.manifest.arguments:
        check_transfer(argument)
    try:
        whole = unsharded(mutant.bundle)
    except ValueError:
        return False
    expected = run(whole, inputs(mutant.bundle)).outputs
    assert same(found, expected, 2e-2), f"{mutant.kind}: {mutant.description}"
    return True


@pytest.mark.parametrize("name", GOOD)
def test_a_bundle_gives_the_numbers_of_its_whole_tensors(name):
    """The judge itself is right about good bundles."""
    good = GOOD[name]()
    assert same(run(good, inputs(good)).outputs, run(unsharded(good), inputs(good)).outputs, 2e-2)


def counts(name: str, count: int, *kinds: str) -> Counter[str]:
    """Return the numbers of mutants that are refused, equal, a subview in LX or another program; wrong ones fail."""
    good = GOOD[name]()
    expected, found = run(good, inputs(good)).outputs, Counter()
    for mutant in itertools.islice(mutants(good, SEED, kinds), count):
        results = outcome(mutant.bundle)
        if results is None:
            found["refused"] += 1
        elif same(results, expected):
            found["same"] += 1
        else:
            found["other" if check_is_a_program(mutant, results) else "part"] += 1
    return found


@pytest.mark.parametrize("name", GOOD)
def test_what_is_valid_and_gives_other_numbers_is_another_program(name):
    kinds = ("address",) if name == "window" else ()
    assert sum(counts(name, COUNT, *kinds).values()) == COUNT


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("address", "window"), ("fold", "gather"), ("loop bound", "accumulator"), ("filename", "chain"),
        ("transfer", "chain"), ("constant", "reduction"),
    ],
)  # fmt: skip
def test_mutants_of_a_kind_are_refused_or_programs(kind, name):
    """Some mutants are refused, and others run to other numbers."""
    found = counts(name, COUNT // 2, kind)
    assert found["refused"] and found["other"]


@pytest.mark.parametrize("kind", ["slice map", "buffer"])
def test_mutants_of_what_only_says_where_give_no_other_numbers(kind):
    found = counts("chain", COUNT, kind)
    assert found["refused"] and not found["other"]


@pytest.mark.parametrize("name", ["reduction", "accumulator", "relayout"])
def test_slices_of_cores_never_change_numbers(name):
    """A design whose slices go to other cores is refused, or gives the numbers of before."""
    good = GOOD[name]()
    expected = run(good, inputs(good)).outputs
    refused = 0
    for mutant in itertools.islice(mutants(good, SEED, ("slice map",)), 20):
        results = outcome(mutant.bundle)
        refused += results is None
        assert results is None or same(results, expected)
    assert refused


def test_slices_of_cores_never_change_numbers_of_parts_in_lx():
    model = Parts(5).eval()
    # Joint planning puts so little work on one core.
    good = spyre_mlir.compile(model, model.inputs(), sencores=2, co_optimizing_lx_planning=False).bundle
    expected = run(good, inputs(good)).outputs
    refused = 0
    for mutant in itertools.islice(mutants(good, SEED, ("slice map",)), 20):
        results = outcome(mutant.bundle)
        refused += results is None
        assert results is None or same(results, expected)
    assert refused


def test_changed_folders_are_read_or_refused(tmp_path: Path):
    """Text, JSON and files of all sorts give a bundle or a CompileError."""
    refused = 0
    for number, (_, change) in enumerate(itertools.islice(folder_mutants(SEED), 40)):
        folder = tmp_path / str(number)
        write_bundle(bundles.loop_bundle(), folder)
        change(folder)
        try:
            outcome(read_bundle(folder))
        except CompileError:
            refused += 1
    assert 0 < refused < 40


@pytest.mark.parametrize("tool", [spyre_report, spyre_diff])
def test_tools_show_changed_folders_or_refuse_them(tool, tmp_path: Path, capsys):
    """Exit status 0 or 1, and one diagnostic where it is 1."""
    good, statuses = tmp_path / "good", Counter()
    write_bundle(bundles.loop_bundle(), good)
    for number, (_, change) in enumerate(itertools.islice(folder_mutants(SEED), 30)):
        folder = tmp_path / str(number)
        shutil.copytree(good, folder)
        change(folder)
        others = [str(good)] if tool is spyre_diff else ["-o", str(tmp_path / "page.html")]
        status = tool.main([str(folder), *others])
        assert status == 0 or capsys.readouterr().err.count("error: ") == 1
        statuses[status] += 1
    assert statuses[0] and statuses[1] and sum(statuses.values()) == 30
