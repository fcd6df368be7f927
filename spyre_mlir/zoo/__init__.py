# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs for reproducible results: a name for each, and its model or MLIR text with inputs.

``names()`` lists the names; ``load(name)`` returns a program as arguments of ``compile``. The groups are

- ``linalg/``: texts of linalg, which need no torch; their weights are arguments (``Program.arrays``);
- ``suite/`` and ``suite-reduced/``: layers of models, at full and at reduced size;
- ``families/``: programs at full size that no plans were tuned for, without numbers;
- ``models/`` and ``models-reduced/``: whole models, from configurations of transformers, and a ResNet.

All programs are seeded by their names. ``reference(name)`` returns a picklable function that loads a program. The
attribute of that name is such a function too: ``spyre_mlir.zoo:suite/mlp`` is an import path.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable
from importlib import resources
from typing import Any

import numpy as np

from spyre_mlir.errors import CompileError, listed, with_suggestion
from spyre_mlir.zoo.catalogue import NAMES, REDUCED

_SEED = 0
_INPUT = re.compile(r'%\w+: tensor<([\dx]+)xf16> \{spyre\.kind = "input"')


def names(group: str = "") -> tuple[str, ...]:
    """Return all names, or the names of one group, such as "suite"; torch is not needed."""
    return tuple(f"{key}/{name}" for key, members in NAMES.items() for name in members if group in ("", key))


def load(name: str, *, weights: bool = True) -> tuple[Any, Any]:
    """Return a program and its inputs: ``compile(*load(name))``.

    Args:
        name: A name from ``zoo.names()``, such as ``"linalg/softmax"``.
        weights: If false, a program of the suite needs no memory and has the same plan, but all its numbers are zero.

    Raises:
        CompileError: The name is unknown, or the program needs PyTorch, which is not installed.
    """
    if name not in names():
        sentence = f"The zoo has no '{name}'; it has {listed(names(), name)}."
        raise CompileError(with_suggestion(sentence, name, names()))
    group, _, member = name.partition("/")
    if group == "linalg":
        return _text(member)
    try:
        importlib.import_module("torch")
    except ImportError:
        raise CompileError(
            f"'{name}' needs PyTorch, which is not installed: pip install 'spyre-mlir[torch]'."
        ) from None
    module = importlib.import_module(f"spyre_mlir.zoo.{group.removesuffix(REDUCED)}")
    sizes = module.REDUCED if group.endswith(REDUCED) else getattr(module, "FULL", None)
    if group == "families":
        return module.all_families()[member].program()
    if group.startswith("models"):
        return module.model(member, sizes)
    return module.program(member, sizes, weights=weights)


def reference(name: str, *, weights: bool = False) -> Callable[[], tuple[Any, Any]]:
    """Return a picklable function without arguments that loads the program when it is called."""
    return functools.partial(load, name, weights=weights)


def _text(member: str) -> tuple[str, tuple[np.ndarray, ...]]:
    """Return the text of a program in linalg, and normally distributed numbers for its inputs."""
    text = resources.files("spyre_mlir.zoo").joinpath("linalg", f"{member}.mlir").read_text(encoding="utf-8")
    numbers = np.random.default_rng(_SEED)
    shapes = [tuple(map(int, sizes.split("x"))) for sizes in _INPUT.findall(text)]
    return text, tuple(numbers.standard_normal(shape, np.float32).astype(np.float16) for shape in shapes)


def __getattr__(name: str) -> Callable[[], tuple[Any, Any]]:
    if name in names():
        return reference(name)
    raise AttributeError(f"module 'spyre_mlir.zoo' has no attribute '{name}'")
