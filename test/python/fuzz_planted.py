# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A compiler with planted faults, by the operation that a program has, for tests of the fuzzer."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import fuzz_case
import torch

import spyre_mlir


def _wrong(results: list[Any]) -> list[Any]:
    return [x * 1.5 if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in results]


def _raise(_: object) -> list[Any]:
    raise KeyError("planted")


def _die(_: object) -> list[Any]:
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def _hang(_: object) -> list[Any]:
    while True:
        pass


def _wait(_: object) -> list[Any]:
    time.sleep(1000)
    raise AssertionError


def _take_memory(_: object) -> list[Any]:
    return [bytes(8 * 2**30)]


def _refuse(_: object) -> list[Any]:
    raise spyre_mlir.CompileError("The operation is not one of the device.")


#: What an operation of the text does to the results of a program.
FAULTS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "torch.exp(": _wrong,
    "torch.tanh(": _raise,
    "torch.sigmoid(": _die,
    "torch.sin(": _hang,
    "torch.cos(": _wait,
    "torch.erf(": _take_memory,
    "torch.log1p(": _refuse,
}


def run(case: fuzz_case.Case) -> tuple[str, str]:
    """Runs a case in PyTorch itself, but for the faults of its operations."""
    source = case.source()

    class Program:
        def __init__(self, model: torch.nn.Module, *_: object, **__: object) -> None:
            self.model = model

        def __call__(self, *inputs: torch.Tensor, **named: torch.Tensor) -> Any:
            results = fuzz_case.leaves(self.model(*inputs, **named))
            for operation, fault in FAULTS.items():
                if operation in source:
                    results = fault(results)
            return results

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch("spyre_mlir.compile", Program))
        return fuzz_case.run(case)
