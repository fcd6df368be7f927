# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A compiler with planted faults, by the operation that a program has, for tests of the fuzzer."""

from __future__ import annotations

import contextlib
import copy
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import fuzz_case
import fuzz_loops
import torch
from torch.utils._pytree import tree_map

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


#: Faults by a text of an operation: functions that change the results of a program.
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
    """Run a case in PyTorch with the planted faults of its operations."""
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


# Faults of the kinds of programs that run in a way of their own.


class Faithful:
    """A program that PyTorch itself runs, compiled by ``compile``."""

    def __init__(self, model: Any, inputs: Sequence[Any] = (), **options: Any) -> None:
        self.model, self.example, self.options = model, inputs, options

    def __call__(self, *inputs: torch.Tensor) -> Any:
        return self.model(*inputs)


class _WrongAtOtherSizes(Faithful):
    def __call__(self, *inputs: torch.Tensor) -> Any:
        results = self.model(*inputs)
        is_other = any(x.shape != y.shape for x, y in zip(inputs, self.example, strict=True))
        return tree_map(lambda x: x.flip(0) + 1 if is_other and x.ndim else x, results)


class _Forgetful(Faithful):
    def __call__(self, *inputs: torch.Tensor) -> Any:
        return copy.deepcopy(self.model)(*inputs)


class _Signed(Faithful):
    """Bytes have a sign."""

    def __call__(self, *inputs: torch.Tensor) -> Any:
        return self.model(*(x.view(torch.int8) if x.dtype == torch.uint8 else x for x in inputs))


class _Wide(Faithful):
    """Results of 16 bits are of 32."""

    def __call__(self, *inputs: torch.Tensor) -> Any:
        return tree_map(lambda x: x.float() if x.dtype == torch.float16 else x, self.model(*inputs))


class _Finite(Faithful):
    def __call__(self, *inputs: torch.Tensor) -> Any:
        results = self.model(*inputs)
        return tree_map(lambda x: torch.nan_to_num(x) if x.is_floating_point() else x, results)


class _Unwatched(Faithful):
    def __call__(self, *inputs: torch.Tensor) -> Any:
        with mock.patch("torch._assert_async", lambda *_: None):
            return self.model(*inputs)


class _Forward(Faithful):
    """Loops do not turn round."""

    def __call__(self, *inputs: torch.Tensor) -> Any:
        results = self.model(*inputs)
        return tree_map(lambda x: x.flip(0) if x.is_floating_point() and x.ndim else x, results)


class _Shared(Faithful):
    """Threads that call the program share its inputs."""

    def __call__(self, *inputs: torch.Tensor) -> Any:
        self.inputs = inputs
        time.sleep(0.02)
        return self.model(*self.inputs)


class _OfKtir(Faithful):
    def __call__(self, *inputs: torch.Tensor) -> Any:
        results = self.model(*inputs)
        is_planted = self.options.get("target") == "ktir"
        return tree_map(lambda x: x * 2 + 1 if is_planted and x.is_floating_point() else x, results)


#: A compiler with a fault that cases of a kind find.
OF_KINDS: dict[str, type[Faithful]] = {
    "sizes": _WrongAtOtherSizes,
    "state": _Forgetful,
    "loops": _Forward,
    "bytes": _Signed,
    "types": _Wide,
    "specials": _Finite,
    "asserts": _Unwatched,
    "ktir": _OfKtir,
    "threads": _Shared,
}


@contextlib.contextmanager
def compiler(program: type[Faithful]) -> Iterator[None]:
    """Return a function in place of ``compile``: PyTorch, or a planted fault, with plain loops."""
    with (
        mock.patch("spyre_mlir.compile", program),
        mock.patch("fuzz_loops.of_pytorch", lambda: fuzz_loops.PLAIN),
    ):
        yield


def wrong_backend(graph: Any, _: Any) -> Callable[..., Any]:
    """Return a wrong backend of ``torch.compile``: its results are 1.5 times the results of PyTorch, plus 1."""
    return lambda *inputs: tree_map(lambda x: x * 1.5 + 1 if x.is_floating_point() else x, graph(*inputs))
