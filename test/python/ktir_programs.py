# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Groups of programs in KTIR, each one bundle of f16, f32 and int32, and what ktir-cpu makes of them."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import fuzz_case
import fuzz_programs
import numpy as np
import torch
import torch.nn.functional as F
from programs import FLOOR, PROGRAMS, Apply, check_close
from random_programs import LARGE, RandomProgram
from suite_checks import floor
from test_convolution import CASES as CONVOLUTIONS
from test_convolution import whole_numbers
from test_native_windows import FORMS, GROUPS, STEMS, random_model
from torch import Tensor

import spyre_mlir
from spyre_mlir import CompileError, zoo
from spyre_mlir.driver.ktir_program import KtirProgram
from spyre_mlir.ktir.operand_tiles import ELEMENTS

#: Outcomes of a program; a program of several bundles or other types, or one that is refused, is "outside".
OUTCOMES = RIGHT, WRONG, REFUSED, OUTSIDE = "right", "wrong", "refused", "outside"


@dataclass(frozen=True)
class KtirCase:
    """A program: a factory of its model, or its text, and its inputs, a tuple or by name.

    An exact one has the numbers of float64 to the bit; another may be off by ``floor`` of its largest value.
    """

    make: Callable[[], tuple[Any, Any]]
    floor: float = FLOOR
    is_exact: bool = False


def groups() -> Mapping[str, Mapping[str, KtirCase]]:
    """Return the cases of each group by name."""
    return {
        "programs": {name: KtirCase(make) for name, make in PROGRAMS.items()},
        "windows": dict(_windows()),
        "zoo": {
            name: KtirCase(partial(zoo.load, name), floor(name.partition("/")[2]))
            for group in ("suite-reduced", "models-reduced", "linalg")
            for name in zoo.names(group)
            if name not in _TOO_LARGE
        },
        "tiles and splits": {name: KtirCase(partial(_seeded, name), 3e-3) for name in _TILED},
        "random": dict(_random()),
        "fuzz": {f"fuzz {seed}": KtirCase(partial(_fuzzed, seed)) for seed in range(160)},
    }


#: Texts with products of full size, which the suite has at reduced size.
_TOO_LARGE = ("linalg/layer_64", "linalg/mlp", "linalg/attention_512")


def outcome(name: str, case: KtirCase, cores: int) -> dict[bool, tuple[str, str]]:
    """Run a case in tensors (False) and at addresses (True); return outcomes with reasons, and "LX" for a larger LX."""
    model, inputs = case.make()
    if isinstance(model, fuzz_case.Case):
        return _of_fuzz(model, cores)
    try:
        program = spyre_mlir.compile(model, inputs, sencores=cores)
    except CompileError as error:
        return dict.fromkeys((False, True), (OUTSIDE, str(error)))
    if reason := _outside(program):
        return dict.fromkeys((False, True), (OUTSIDE, reason))

    if isinstance(model, str):
        program.arrays = {**_weights(program), **program.arrays}

    def check(results: Any) -> None:
        if isinstance(model, str) or isinstance(inputs, Mapping) or "mixtral" in name:
            _check_simulated(name, program, inputs, results, case.floor)
        elif case.is_exact:
            _check_exact(name, model, inputs, results)
        else:
            check_close(name, results, model, inputs, case.floor)

    return {
        addresses: _run(program, lambda made: _called(made, inputs), check, addresses)
        for addresses in (False, True)
    }


def _called(program: Any, inputs: Any) -> Any:
    return program(**inputs) if isinstance(inputs, Mapping) else program(*inputs)


def _run(
    program: Any, call: Callable[[KtirProgram], Any], check: Callable[[Any], None], addresses: bool
) -> tuple[str, str]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            check(call(KtirProgram.of(program, addresses)))
        except CompileError as error:
            return REFUSED, error.message
        except AssertionError as error:
            return WRONG, str(error)
    return RIGHT, "LX" if any("exceed LX" in str(each.message) for each in said) else ""


def _outside(program: Any) -> str:
    """Return the reason why KTIR does not support a program; empty if it does."""
    if not isinstance(program, spyre_mlir.Program) or not program.is_one_bundle:
        return "a part of it runs on the host"
    bundle = program.bundle
    operands = [operand for design in bundle.designs.values() for operand in design.operands]
    formats = {each.data_format for each in (*operands, *bundle.manifest.arguments)}
    if others := formats - ELEMENTS.keys():
        return f"numbers of the format {min(others)}"
    return "" if bundle.manifest.numerics is None else "bfloat16 numbers"


# -- numbers ------------------------------------------------------------------------------------------------------


def _leaves(results: Any) -> list[Tensor]:
    found = [leaf for leaf in torch.utils._pytree.tree_leaves(results) if hasattr(leaf, "shape")]
    return [torch.as_tensor(np.asarray(leaf)) for leaf in found]


def _check_exact(name: str, model: Any, inputs: Sequence[Tensor], results: Any) -> None:
    with torch.no_grad():
        expected = _leaves(copy.deepcopy(model).double()(*(x.double() for x in inputs)))
    for number, (result, exact) in enumerate(zip(_leaves(results), expected, strict=True)):
        assert result.shape == exact.shape, f"{name}: result {number} has the shape {tuple(result.shape)}"
        wrong = int((result.double() != exact).sum())
        assert not wrong, f"{name}: {wrong} of {exact.numel()} elements of result {number} are wrong"


def _check_simulated(name: str, program: Any, inputs: Any, results: Any, floor: float) -> None:
    """Assert that results equal our simulator: for texts, and models that PyTorch cannot run in float64."""
    for number, (result, other) in enumerate(
        zip(_leaves(results), _leaves(_called(program, inputs)), strict=True)
    ):
        error, largest = (result.double() - other.double()).abs().max(), other.double().abs().max()
        assert error <= 2 * floor * largest, f"{name}: result {number} is off by {error:.3e} of {largest:.3e}"


def _weights(program: Any) -> dict[str, np.ndarray]:
    """Return numbers for the weights of a text, which are arguments."""
    numbers = np.random.default_rng(0)
    weights = [each for each in program.arguments if each.kind == "parameter"]
    return {
        each.name: (numbers.standard_normal(each.host_shape) / 32).astype(each.host_dtype) for each in weights
    }


# -- groups -------------------------------------------------------------------------------------------------------


#: Dims of one position: of a memory, of a result, of a window.
_SMALL_WINDOWS: Mapping[str, tuple[torch.nn.Module, Sequence[int]]] = {
    "one row": (torch.nn.Conv2d(64, 64, 3, padding=1), (1, 64, 1, 5)),
    "one pixel": (torch.nn.Conv2d(64, 32, 3, padding=1), (1, 64, 1, 1)),
    "one window": (torch.nn.Conv2d(64, 64, 3), (1, 64, 3, 3)),
    "one mean": (torch.nn.AvgPool2d(4), (2, 64, 4, 4)),
    "one maximum": (torch.nn.MaxPool2d((1, 3), 2, (0, 1)), (1, 130, 1, 3)),
    "rows alone": (torch.nn.Conv2d(64, 64, (3, 1), (2, 3), (1, 0)), (1, 64, 7, 7)),
}


def _windows() -> Iterator[tuple[str, KtirCase]]:
    """Yield convolutions and poolings of small integers."""
    for name, (model, shape) in {**CONVOLUTIONS, **FORMS, **STEMS, **GROUPS}.items():
        yield name, KtirCase(partial(_whole, model, shape, 0), is_exact=True)
    for name, (model, shape) in _SMALL_WINDOWS.items():
        yield name, KtirCase(partial(_whole, model, shape, 0), is_exact=True)
    for seed in range(24):
        yield f"windows {seed}", KtirCase(partial(_random_windows, seed), is_exact=True)


def _whole(model: torch.nn.Module, shape: Sequence[int], seed: int) -> tuple[Any, tuple[Tensor]]:
    small, x = whole_numbers(model, *shape, seed=seed)
    return small, (x,)


def _random_windows(seed: int) -> tuple[Any, tuple[Tensor]]:
    return _whole(*random_model(random.Random(seed)), seed)


def _random() -> Iterator[tuple[str, KtirCase]]:
    for seed in range(140):
        yield f"random {seed}", KtirCase(partial(_drawn, seed), is_exact=True)
    for seed in range(300, 340):
        yield f"large random {seed}", KtirCase(partial(_drawn, seed, LARGE), is_exact=True)


def _drawn(seed: int, *drawing: Any) -> tuple[Any, tuple[Tensor, ...]]:
    program = RandomProgram(seed, *drawing)
    return program, tuple(program.inputs)


def _attention(**options: Any) -> torch.nn.Module:
    return Apply(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options))


#: Attention whose keys are in tiles, products with a long contracted dim, and programs larger than LX.
_TILED: Mapping[str, tuple[torch.nn.Module, Sequence[Sequence[int]]]] = {
    "attention in tiles": (_attention(), [(1, 2, 1024, 64)] * 3),
    "causal attention in tiles": (_attention(is_causal=True), [(1, 2, 1024, 64)] * 3),
    "attention in tiles of a batch": (_attention(), [(2, 4, 512, 64)] * 3),
    "attention of grouped heads": (_attention(enable_gqa=True), [(1, 8, 512, 64), *[(1, 2, 512, 64)] * 2]),
    "attention of one query": (_attention(), [(1, 8, 1, 64), *[(1, 8, 2048, 64)] * 2]),
    "attention of wide heads": (_attention(), [(1, 2, 768, 128)] * 3),
    "long sum of products": (Apply(torch.matmul), [(64, 4096), (4096, 64)]),
    "long sum, few rows": (Apply(torch.matmul), [(1, 8192), (8192, 128)]),
    "long sum, uneven": (Apply(torch.matmul), [(33, 2080), (2080, 70)]),
    "long sums of a batch": (Apply(torch.matmul), [(3, 17, 2048), (3, 2048, 65)]),
    "large product": (Apply(torch.matmul), [(512, 1024), (1024, 1024)]),
    "product with a large result": (Apply(torch.matmul), [(1024, 512), (512, 2048)]),
    "large addition": (Apply(lambda x, y: (x + y) * 2), [(2048, 2048), (2048, 2048)]),
    "large softmax": (Apply(lambda x: torch.softmax(x, -1)), [(512, 8192)]),
    "large norm": (Apply(lambda x: F.layer_norm(x, (4096,))), [(512, 4096)]),
    "large sums of columns": (Apply(lambda x: x.sum(0)), [(4096, 1024)]),
    "large transpose": (Apply(lambda x: x.t() + 1), [(1024, 2048)]),
}  # fmt: skip


def _seeded(name: str) -> tuple[torch.nn.Module, tuple[Tensor, ...]]:
    model, shapes = _TILED[name]
    torch.manual_seed(0)
    inputs = [torch.randn(shape).half() for shape in shapes]
    return model, (inputs[0], *(x / 8 if "sum" in name or "product" in name else x for x in inputs[1:]))


def _fuzzed(seed: int) -> tuple[fuzz_case.Case, None]:
    return fuzz_programs.draw(seed), None


def _quiet(program: Any, case: fuzz_case.Case) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fuzz_case.call(program, case, case.tensors())


def _of_fuzz(case: fuzz_case.Case, cores: int) -> dict[bool, tuple[str, str]]:
    """Run a random program of PyTorch with its own options, in the numbers that KTIR has."""
    options = {"sencores": cores, **{key: value for key, value in case.options.items() if key != "numerics"}}
    case = replace(case, options=options)
    try:
        example = case.tensors() if case.by_keyword else tuple(case.tensors().values())
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = spyre_mlir.compile(case.model(), example, **options)
    except CompileError as error:
        return dict.fromkeys((False, True), (OUTSIDE, str(error)))
    if reason := _outside(program):
        return dict.fromkeys((False, True), (OUTSIDE, reason))
    expected = fuzz_case.oracle(case)

    def check(results: Any) -> None:
        text = fuzz_case.complaint(case, results, expected)
        # The plan of some programs rounds too much, and a warning reports it.
        assert not text or fuzz_case.complaint(case, _quiet(program, case), expected), text

    return {
        addresses: _run(program, lambda made: fuzz_case.call(made, case, case.tensors()), check, addresses)
        for addresses in (False, True)
    }
