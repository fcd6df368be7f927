# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Samples of PyTorch's operator database on tensors of the device ``spyre``, without a compiler and with one.

A sample is right if numbers, types, sizes, strides, the device and the memory that results share with each other and
with inputs are as PyTorch has them on the CPU. The memory is compared by writes: what else changes when a result is
filled. Random numbers count: a seed gives the numbers of the CPU.

The kinds of a sample: the call; the variant in place; results written into ``out=``; the operands without elements;
the operands without dims; the error inputs of the database, which raise an error of the same class; and modules.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from unittest import mock

import modules_on_device
import opinfo_samples
import torch
from fuzz_case import Oracle, leaves
from fuzz_workers import INTERNAL, REFUSED, RIGHT, SKIPPED, WRONG, answer
from op_coverage import BOTH, DEVICE, ON_HOST
from opinfo_samples import DTYPES, NO_WORK, NoSampleError, Sample, Ticket
from torch import Tensor
from torch._dynamo.exc import TorchDynamoException
from torch.testing._internal import common_methods_invocations as database
from torch.utils import _pytree as pytree

import spyre_mlir
import spyre_mlir.frontend
from spyre_mlir.errors import RangeWarning
from spyre_mlir.tensors.device_activity import Listener, listening

EAGER, COMPILED = "eager", "compiled"
CALL, IN_PLACE, OUT, EMPTY, NO_DIMS, ERRORS, MODULE = (
    "call",
    "in-place",
    "out",
    "empty",
    "0-d",
    "errors",
    "module",
)
KINDS = (CALL, IN_PLACE, OUT, EMPTY, NO_DIMS, ERRORS, MODULE)

#: Types that an accelerator without them refuses.
_REFUSED_DTYPES = (torch.float64, torch.complex32, torch.complex64, torch.complex128)


#: Samples that kill PyTorch itself on the CPU.
_DEADLY = {("_chunk_cat", NO_DIMS)}


class DeviceTicket(NamedTuple):
    """Sample ``index`` of an operation in a type, by name, on the device; ``way`` is "eager" or "compiled"."""

    operation: str
    dtype: str
    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
    way: str
    kind: str = CALL


@dataclass
class _Places(Listener):
    """Recorder of the places of the operations of a sample."""

    device: int = 0
    host: int = 0

    def on_device(self, operation: str, program: Any) -> None:
        self.device += 1

    def on_host(self, operation: str, reason: str) -> None:
        self.host += 1

    @property
    def where(self) -> str:
        if not self.device:
            return ON_HOST if self.host else NO_WORK
        return BOTH if self.host else DEVICE


def tickets(
    names: Sequence[str], dtypes: Sequence[str], count: int, way: str, kinds: Sequence[str]
) -> Iterator[DeviceTicket]:
    """Yield the first samples of operations of each kind, in the types of each; error inputs have other types.

    The kinds of one sample follow each other, because they run the same programs.
    """
    for dtype, name in itertools.product(dtypes, names):
        chosen = [kind for kind in kinds if _has_kind(name, kind, dtype, dtypes)]
        for index, kind in itertools.product(range(count), chosen):
            yield DeviceTicket(name, dtype, index, way, kind)


def _has_kind(name: str, kind: str, dtype: str, dtypes: Sequence[str]) -> bool:
    """Return whether an operation or a module has samples of a kind in a type."""
    is_module = name in modules_on_device.modules()
    if is_module or kind == MODULE:
        return is_module and kind == MODULE and dtype in modules_on_device.dtypes_of(name)
    operation = opinfo_samples.operations()[name]
    if kind == ERRORS:
        return dtype == dtypes[0] and operation.error_inputs_func is not None
    has_kind = {IN_PLACE: operation.inplace_variant is not None, OUT: operation.supports_out}.get(kind, True)
    return has_kind and operation.supports_dtype(DTYPES[dtype], "cpu")


def names() -> dict[str, Any]:
    """The operations and the modules by name."""
    return {**opinfo_samples.operations(), **modules_on_device.modules()}


def run(ticket: DeviceTicket) -> tuple[str, str]:
    """Return the outcome of a sample, and ``Facts`` as JSON."""
    torch._dynamo.reset()
    if ticket.kind == MODULE:
        return modules_on_device.judged(*ticket[:3], ticket.way == COMPILED)
    without_seed = mock.patch.object(database, "wrapper_set_seed", opinfo_samples._without_seed)
    with warnings.catch_warnings(), torch.no_grad(), without_seed:
        warnings.simplefilter("ignore")
        judge = _error if ticket.kind == ERRORS else _sample
        return judge(ticket)


def _sample(ticket: DeviceTicket) -> tuple[str, str]:
    try:
        sample = _of_kind(opinfo_samples.draw(Ticket(*ticket[:3]), needs_tensors=False), ticket)
        truth = _expected(sample)
    except NoSampleError as error:
        return SKIPPED, opinfo_samples._facts(str(error))
    results = tuple(truth.typed[: len(truth.typed) - len(sample.tensors)])
    floors = [opinfo_samples._FLOORS.get(x.dtype, 0.0) for x in truth.typed if isinstance(x, Tensor)]
    sample = replace(sample, results=results, floor=max([*floors, opinfo_samples._LEAST_FLOOR]))
    places = _Places()
    with listening(places):
        kind, why = answer(lambda _: _compared(sample, truth, ticket.way), None)
    return kind, opinfo_samples._facts(why, places.where)


def _of_kind(sample: Sample, ticket: DeviceTicket) -> Sample:
    """The sample of a kind; NoSampleError where PyTorch does not have it."""
    operation = opinfo_samples.operations()[ticket.operation]
    if (ticket.operation, ticket.kind) in _DEADLY:
        raise NoSampleError("PyTorch: the process dies")
    if ticket.kind == IN_PLACE:
        return replace(sample, function=operation.inplace_variant)
    if ticket.kind == OUT:
        return _with_out(sample)
    if ticket.kind == NO_DIMS:
        if all(x.ndim == 0 for x in sample.tensors) or not all(x.numel() for x in sample.tensors):
            raise NoSampleError("no tensor with dims and elements")
        return replace(sample, tensors=tuple(x.reshape(-1)[0].clone() for x in sample.tensors))
    if ticket.kind == EMPTY:
        if not any(x.ndim for x in sample.tensors):
            raise NoSampleError("no tensor with dims")
        for dim in (0, -1):
            empty = tuple(x.narrow(dim, 0, 0).clone() if x.ndim else x for x in sample.tensors)
            changed = replace(sample, tensors=empty)
            try:
                _flat(_cpu_call(changed, changed.inputs()))
            except Exception:
                continue
            return changed
        raise NoSampleError("PyTorch: no call without elements")
    return sample


def _with_out(sample: Sample) -> Sample:
    """The sample that writes its results into tensors of their sizes and types."""
    if sample.name in opinfo_samples._STABLE:
        raise NoSampleError("an order of equal values that PyTorch leaves open")
    try:
        results = leaves(_cpu_call(sample, sample.inputs()))
    except Exception as error:
        raise NoSampleError(f"PyTorch: {opinfo_samples._first_line(error)}") from None
    if not results or not all(isinstance(x, Tensor) for x in results):
        raise NoSampleError("a result that is not a tensor")
    function = sample.function

    def into(first: Any, *args: Any, **kwargs: Any) -> Any:
        *rest, out = args
        return function(first, *rest, out=out[0] if len(out) == 1 else out, **kwargs)

    first, args, kwargs = pytree.tree_unflatten(list(sample.others), sample.structure)
    outputs = tuple(torch.zeros_like(x) for x in results)
    flat, structure = pytree.tree_flatten((first, (*args, tuple(Tensor for _ in outputs)), kwargs))
    # Tensors are in the order of the flat arguments: positional ones, the outputs, keywords.
    positional = sum(x is Tensor for x in pytree.tree_leaves((first, args)))
    tensors = (*sample.tensors[:positional], *outputs, *sample.tensors[positional:])
    return replace(sample, function=into, tensors=tensors, others=tuple(flat), structure=structure)


def _cpu_call(sample: Sample, inputs: Sequence[Tensor], way: str = "", device: str = "cpu") -> Any:
    """Return the result of a sample for its tensors, on their device."""
    rest = iter(inputs)
    flat = [next(rest) if other is Tensor else _on(device, other) for other in sample.others]
    first, args, kwargs = pytree.tree_unflatten(flat, sample.structure)

    def function(first: Any, *args: Any, **kwargs: Any) -> Any:
        return sample.function(first, *args, **kwargs)

    torch.manual_seed(0)
    called = torch.compile(function, dynamic=False) if way == COMPILED else function
    return called(first, *args, **kwargs)


def _on(device: str, value: Any) -> Any:
    """An argument that is a device of the database, as the device of the sample."""
    if isinstance(value, torch.device) and value.type == "cpu":
        return torch.device(device)
    return device if value == "cpu" and isinstance(value, str) else value


def _expected(sample: Sample) -> Oracle:
    """Return results and inputs of PyTorch; NoSampleError if PyTorch or accelerators do not support the sample."""
    inputs = sample.inputs()
    try:
        typed = _flat(_cpu_call(sample, inputs), inputs)
    except Exception as error:
        raise NoSampleError(f"PyTorch: {opinfo_samples._first_line(error)}") from None
    opinfo_samples._check_strided([x for x in typed if isinstance(x, Tensor)])
    if any(isinstance(x, Tensor) and x.dtype in _REFUSED_DTYPES for x in (*typed, *sample.tensors)):
        raise NoSampleError("float64 or complex numbers")
    with mock.patch.object(opinfo_samples, "_SEEDS", (0, 1)):
        exact = opinfo_samples._exact(sample, typed) if sample.tensors else typed
    same = len(exact) == len(typed) and all(
        not isinstance(x, Tensor) or (isinstance(y, Tensor) and x.shape == y.shape)
        for x, y in zip(typed, exact, strict=True)
    )
    exact = exact if same and not _is_random(sample, typed) else typed
    return Oracle(typed, exact, exact)


def _is_random(sample: Sample, typed: Sequence[Any]) -> bool:
    state = torch.get_rng_state()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    inputs = sample.inputs()
    _cpu_call(sample, inputs)
    is_random = not torch.equal(torch.get_rng_state(), before)
    torch.set_rng_state(state)
    return is_random


def _flat(results: Any, inputs: Sequence[Tensor] = ()) -> list[Any]:
    return [_host(x) for x in (*leaves(results), *inputs)]


def _host(x: Any) -> Any:
    return opinfo_samples._real(x.detach().cpu()) if isinstance(x, Tensor) else x


def _compared(sample: Sample, truth: Oracle, way: str) -> tuple[str, str]:
    """Runs a sample on the device and compares it; wrong numbers with a warning about them are refused."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        outcome, why = _judged(sample, truth, way)
    ranges = [str(each.message) for each in said if each.category is RangeWarning]
    if outcome == WRONG and why.startswith("numbers") and ranges:
        return REFUSED, f"{RangeWarning.__name__}: {ranges[0]}"
    return outcome, why


def _judged(sample: Sample, truth: Oracle, way: str) -> tuple[str, str]:
    try:
        inputs = [x.to("spyre") for x in sample.inputs()]
        returned = _cpu_call(sample, inputs, way, "spyre")
        results = _flat(returned, inputs)
    except spyre_mlir.CompileError as error:
        return REFUSED, error.message
    except Exception as error:
        # Dynamo wraps errors of a compiler.
        if isinstance(error.__cause__, spyre_mlir.CompileError):
            return REFUSED, error.__cause__.message
        raise
    own_inputs = sample.inputs()
    own = _cpu_call(sample, own_inputs)
    if text := opinfo_samples._complaint(sample, results, truth):
        return WRONG, f"numbers: {text}"
    pairs = list(zip(leaves(returned), leaves(own), strict=True))
    for index, (result, wanted) in enumerate(pairs):
        if text := _metadata(result, wanted):
            return WRONG, f"{text} of result {index}"
    if text := _sharing(pairs, list(zip(inputs, own_inputs, strict=True))):
        return WRONG, f"aliasing: {text}"
    return RIGHT, ""


def _metadata(result: Any, wanted: Any) -> str:
    if not isinstance(wanted, Tensor):
        return ""
    if result.device.type != "spyre":
        return f"device: {result.device.type}"
    if _strides(result) != _strides(wanted):
        return f"strides: {result.stride()} instead of {wanted.stride()}, sizes {list(wanted.shape)},"
    return ""


def _strides(x: Tensor) -> tuple[int, ...]:
    """The strides that address elements."""
    return (
        tuple(each for size, each in zip(x.shape, x.stride(), strict=True) if size > 1) if x.numel() else ()
    )


def _sharing(results: Sequence[tuple[Any, Any]], inputs: Sequence[tuple[Any, Any]]) -> str:
    """Return a wrong alias of results: for each result that is filled, the others that change."""
    both = [*results, *inputs]
    for index, (result, wanted) in enumerate(results):
        if not isinstance(wanted, Tensor) or not wanted.numel():
            continue
        first = wanted.reshape(-1)[0]
        number: Any = not bool(first) if wanted.dtype == torch.bool else (3 if first == 5 else 5)
        if 0 in _strides(wanted):
            continue
        changes = []
        for side, target in enumerate((result, wanted)):
            before = [_host(pair[side]) for pair in both]
            before = [x.clone() if isinstance(x, Tensor) else x for x in before]
            target.fill_(number)
            after = [_host(pair[side]) for pair in both]
            changes.append(
                [
                    at
                    for at, pair in enumerate(zip(before, after, strict=True))
                    if not opinfo_samples._same(*pair)
                ]
            )
        if changes[0] != changes[1]:
            of_device, of_host = (
                [f"result {at}" if at < len(results) else f"input {at - len(results)}" for at in side]
                for side in changes
            )
            return f"a write to result {index} changes {of_device} instead of {of_host}"
    return ""


def _error(ticket: DeviceTicket) -> tuple[str, str]:
    """An error input of the database: the device raises an error of the class that PyTorch raises."""
    operation = opinfo_samples.operations()[ticket.operation]
    torch.manual_seed(0)
    found = next(itertools.islice(operation.error_inputs("cpu"), ticket.index, None), None)
    if found is None:
        return SKIPPED, opinfo_samples._facts("no more samples")
    sample = found.sample_input
    flat, structure = pytree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
    tensors = tuple(x for x in flat if isinstance(x, Tensor))
    if any(x.dtype in _REFUSED_DTYPES or x.layout != torch.strided or x.is_meta for x in tensors):
        return SKIPPED, opinfo_samples._facts("a tensor that no accelerator takes")
    if not tensors:
        return SKIPPED, opinfo_samples._facts("no tensor")
    others = tuple(Tensor if isinstance(x, Tensor) else x for x in flat)
    case = Sample(operation.name, operation.op, tensors, others, structure)
    wanted = _raised(functools.partial(_cpu_call, case, case.inputs()))
    if wanted is None:
        return SKIPPED, opinfo_samples._facts("PyTorch: no error on the CPU")

    def judged(_: Any) -> tuple[str, str]:
        inputs = [x.to("spyre") for x in case.inputs()]
        error = _raised(functools.partial(_cpu_call, case, inputs, ticket.way, "spyre"))
        if error is None:
            return WRONG, f"errors: no error where PyTorch raises {opinfo_samples._first_line(wanted)}"
        known: tuple[type, ...] = (type(wanted),)
        if ticket.way == COMPILED:
            known += (TorchDynamoException, RuntimeError)
        if isinstance(error, known):
            return RIGHT, ""
        return INTERNAL, f"errors: {opinfo_samples._first_line(error)} in place of {type(wanted).__name__}"

    kind, why = answer(judged, None)
    return kind, opinfo_samples._facts(why)


def _raised(call: Callable[[], Any]) -> Exception | None:
    try:
        leaves(call())
    except Exception as error:
        return error
    return None
