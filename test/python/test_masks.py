# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks of whole programs: each is needed, none is missing, and a wrong word about padding is found out."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from programs import PROGRAMS, check_close

import spyre_mlir
from spyre_mlir.bundle.model import Bundle
from spyre_mlir.dialects import context
from spyre_mlir.frontend import Imported, import_torch
from spyre_mlir.simulator import SimulationError, run

#: Programs of odd shape, and how many masks they have if the host leaves padding undefined or makes it 0.
MASKED = {
    "sum_1": (1, 0), "mean_1": (1, 0), "amax_1": (1, 1), "amin_1": (1, 1), "sum_0": (0, 0),
    "matmul_67x71x256": (1, 0), "matmul_vector": (1, 1), "linear_bias": (1, 1), "var_last": (2, 2),
    "softmax_dim_last_63x65": (2, 2), "layernorm_odd": (2, 2), "rmsnorm_odd": (1, 1), "add_1d_65": (0, 0),
}  # fmt: skip


@functools.cache
def imported(name: str) -> Imported:
    model, inputs = PROGRAMS[name]()
    return import_torch(model, inputs, context=context())


@functools.cache
def compiled(name: str, host_padding: str) -> tuple[Bundle, dict[str, np.ndarray]]:
    """The bundle of a program, all levels verified, and the arrays it runs on."""
    source = imported(name)
    options = {"verify_each": True, "host_padding": host_padding}
    program = spyre_mlir.compile(str(source.module), **options)
    arguments = [each for each in program.bundle.manifest.arguments if each.source is None]
    given = [each.name for each in arguments if each.kind in ("input", "parameter")]
    operands = source.operands(*PROGRAMS[name]()[1])
    return program.bundle, {**program.arrays, **dict(zip(given, operands, strict=True))}


def masks(bundle: Bundle) -> list[tuple[str, str]]:
    """The design and the dim of each mask."""
    return [(filename, label) for filename, design in bundle.designs.items() for label in design.masks]


def without_one_mask(bundle: Bundle) -> Iterator[Bundle]:
    for filename, label in masks(bundle):
        design = bundle.designs[filename]
        kept = {each: where for each, where in design.masks.items() if each != label}
        yield replace(bundle, designs={**bundle.designs, filename: replace(design, masks=kept)})


def failure(bundle: Bundle, arrays: dict[str, np.ndarray]) -> SimulationError:
    with pytest.raises(SimulationError) as caught:
        run(bundle, arrays)
    return caught.value


@pytest.mark.parametrize("host_padding", ["undefined", "zero"])
@pytest.mark.parametrize("name", MASKED)
def test_each_mask_is_needed(name, host_padding):
    """Without any one of them padding would reach a result."""
    bundle, arrays = compiled(name, host_padding)
    assert len(masks(bundle)) == MASKED[name][host_padding == "zero"]
    for broken in without_one_mask(bundle):
        assert failure(broken, arrays).kind == "padding"


@pytest.mark.parametrize("name", MASKED)
def test_no_mask_is_missing_where_the_host_writes_zeros(name):
    """The numbers with fewer masks equal PyTorch, too."""
    model, inputs = PROGRAMS[name]()
    results = list(run(*compiled(name, "zero")).outputs.values())
    check_close(name, imported(name).bind(*inputs).finish(results), model, inputs)


@pytest.mark.parametrize("fill", [None, 1.0])
def test_a_host_that_does_not_keep_its_word_is_found_out(fill):
    """Compiled for zeros in the padding of arguments, run with something else there."""
    bundle, arrays = compiled("sum_1", "zero")
    given = tuple(replace(argument, fill=fill) for argument in bundle.manifest.arguments)
    error = failure(replace(bundle, manifest=replace(bundle.manifest, arguments=given)), arrays)
    assert (error.kind, error.tensor) == ("padding", "inputs_0")


def test_the_manifest_says_what_the_host_writes():
    """The fill of an argument is the state of its padding in the IR."""
    for host_padding, fill in (("undefined", None), ("zero", 0.0)):
        bundle, _ = compiled("sum_1", host_padding)
        assert [argument.fill for argument in bundle.manifest.arguments] == [fill, None]
