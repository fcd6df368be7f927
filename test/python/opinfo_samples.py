# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Samples of PyTorch's operator database: each is drawn by name, run through ``compile`` and compared with PyTorch.

A sample is a function of its tensors, also the tensors in lists and keywords; it closes over everything else. These
samples are excluded and reported separately: PyTorch cannot run the sample on the host in its type, the results are
random, there is no tensor, or tensors are sparse, nested, quantised or on no device.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from unittest import mock

import special_values
import torch
from fuzz_case import Oracle, complaint, leaves, quiet_float64
from fuzz_workers import REFUSED, RIGHT, SKIPPED, WRONG, answer
from op_coverage import BOTH, DEVICE, ON_HOST
from programs import Apply
from torch import Tensor
from torch.utils import _pytree as pytree

import spyre_mlir
from spyre_mlir.errors import RangeWarning
from spyre_mlir.frontend.piecewise import PiecewiseProgram
from spyre_mlir.remarks import HOST

DTYPES = {
    "f16": torch.float16, "f32": torch.float32, "bf16": torch.bfloat16, "i64": torch.int64, "bool": torch.bool,
}  # fmt: skip

#: Place of a program without steps: results are views of its inputs, or known when it is compiled.
NO_WORK = "no work"

#: The error that is always allowed, of the largest value, by the coarsest type of inputs and results.
_FLOORS = {torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.complex32: 1e-3}
_LEAST_FLOOR = 1e-4

#: Numbers in float64 for the exact results.
_EXACT = {
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64),
    **dict.fromkeys((torch.complex32, torch.complex64), torch.complex128),
}


def _sorted(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Any:
    return torch.sort(x, dim=dim, descending=descending, stable=True)


def _argsort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    return _sorted(x, dim, descending).indices


def _topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return tuple(each.narrow(dim, 0, k) if x.ndim else each for each in _sorted(x, dim, largest))


def _kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    results = tuple(each.narrow(dim, k - 1, 1) if x.ndim else each for each in _sorted(x, dim))
    return results if keepdim or not x.ndim else tuple(each.squeeze(dim) for each in results)


#: Operations of which PyTorch leaves open which of equal values is first: as a stable sort has them is right, too.
_STABLE: dict[str, Callable[..., Any]] = {
    "sort": _sorted, "argsort": _argsort, "topk": _topk, "kthvalue": _kthvalue,
}  # fmt: skip

#: Seeds of the two runs that detect random results.
_SEEDS = (0, 1)


class Ticket(NamedTuple):
    """Sample ``index`` of an operation in a type, by name."""

    operation: str
    dtype: str
    index: int
    #: "special" mixes special numbers into the inputs of a pointwise operation or a reduction.
    values: str = ""


@dataclass(frozen=True)
class Facts:
    """Facts that a worker reports of a sample: where the program ran, whether it computes floating-point numbers."""

    why: str = ""
    where: str = ""
    is_floating: bool = True


class NoSampleError(Exception):
    """Reason why a sample does not count."""


@dataclass(frozen=True)
class Sample:
    """Tensors, and what puts them into the arguments of a function; has what ``complaint`` asks of a case."""

    name: str
    function: Callable[..., Any]
    tensors: tuple[Tensor, ...]
    others: tuple[Any, ...]
    structure: Any
    results: tuple[Any, ...] = ()
    floor: float = _LEAST_FLOOR
    coarseness: int = 1
    values: str = ""
    how: Mapping[str, Any] = field(default_factory=dict)

    def model(self) -> Apply:
        """The module of the tensors."""

        def function(*tensors: Tensor) -> Any:
            rest = iter(tensors)
            flat = [next(rest) if other is Tensor else other for other in self.others]
            first, args, kwargs = pytree.tree_unflatten(flat, self.structure)
            return self.function(first, *args, **kwargs)

        return Apply(function)

    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(x.clone() for x in self.tensors)


def _database() -> Any:
    """Import PyTorch's operator database, which takes two seconds."""
    from torch.testing._internal import common_methods_invocations

    return common_methods_invocations


@functools.cache
def operations() -> dict[str, Any]:
    """Return the operations by name, a variant as ``name.variant``, without in-place and nondeterministic ones."""
    return {each.full_name: each for each in _database().op_db if not _is_excluded(each)}


def _is_excluded(operation: Any) -> bool:
    return _writes_in_place(operation.name) or operation.has_nondeterministic_output


def _writes_in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def tickets(names: Sequence[str], dtypes: Sequence[str], count: int, values: str = "") -> Iterator[Ticket]:
    """The first samples of operations in the types that each has."""
    for dtype, name in itertools.product(dtypes, names):
        if operations()[name].supports_dtype(DTYPES[dtype], "cpu"):
            yield from (Ticket(name, dtype, index, values) for index in range(count))


def draw(ticket: Ticket, needs_tensors: bool = True) -> Sample:
    """Return the sample of a ticket, the same in every process; NoSampleError if it is excluded."""
    operation = operations()[ticket.operation]
    torch.manual_seed(zlib.crc32(f"{ticket.operation} {ticket.dtype}".encode()))
    drawn = operation.sample_inputs("cpu", DTYPES[ticket.dtype], requires_grad=False)
    sample = next(itertools.islice(drawn, ticket.index, None), None)
    if sample is None:
        raise NoSampleError("no more samples")
    flat, structure = pytree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
    tensors = tuple(x for x in flat if isinstance(x, Tensor))
    if needs_tensors and not tensors:
        raise NoSampleError("no tensor")
    _check_strided(tensors)
    others = tuple(Tensor if isinstance(x, Tensor) else x for x in flat)
    drawn = Sample(operation.name, operation.op, tensors, others, structure)
    return _with_special_values(drawn) if ticket.values else drawn


def _with_special_values(sample: Sample) -> Sample:
    """The sample with special numbers; NoSampleError for one that is neither pointwise nor a reduction."""
    try:
        kind = special_values.kind_of(sample.name, sample.model(), sample.inputs())
    except Exception as error:
        raise NoSampleError(f"PyTorch: {_first_line(error)}") from None
    tensors = special_values.planted(sample.name, kind, sample.tensors) if kind else ()
    if not tensors:
        raise NoSampleError("no floating-point input of a pointwise operation or a reduction")
    return replace(sample, tensors=tensors, values=kind)


def _check_strided(values: Iterable[Any]) -> None:
    for x in values:
        if isinstance(x, Tensor) and (
            x.layout != torch.strided or x.is_nested or x.is_quantized or x.is_meta
        ):
            raise NoSampleError("a tensor that is sparse, nested, quantised or on no device")


def expected(sample: Sample) -> Oracle:
    """Return the results of PyTorch and the inputs after the call; NoSampleError if there are none to compare with."""
    try:
        typed, again = (_called(sample.model(), sample.inputs(), seed) for seed in _SEEDS)
    except Exception as error:
        raise NoSampleError(f"PyTorch: {_first_line(error)}") from None
    _check_strided(typed)
    if not all(map(_same, typed, again)):
        raise NoSampleError("random results")
    exact = _exact(sample, typed)
    return Oracle(typed, exact, exact)


def _exact(sample: Sample, typed: list[Any]) -> list[Any]:
    """The results in float64; the typed ones where PyTorch has no such kernel."""
    others = tuple(_EXACT.get(x, x) if isinstance(x, torch.dtype) else x for x in sample.others)
    inputs = tuple(x.to(_EXACT.get(x.dtype, x.dtype), copy=True) for x in sample.tensors)
    try:
        with quiet_float64():
            exact = _called(replace(sample, others=others).model(), inputs, _SEEDS[0])
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return typed
    return [_in_range(*pair) for pair in zip(exact, typed, strict=True)]


def _in_range(exact: Any, typed: Any) -> Any:
    """Replace numbers outside the range of the model's type by infinities: one such would allow errors of any size."""
    if not isinstance(exact, Tensor) or not exact.is_floating_point() or not typed.is_floating_point():
        return exact
    return torch.where(exact.abs() > torch.finfo(typed.dtype).max, exact.sign() * torch.inf, exact)


def _called(model: Callable[..., Any], inputs: tuple[Tensor, ...], seed: int) -> list[Any]:
    """Return the results of a model or a program, and then its inputs; complex numbers are pairs."""
    torch.manual_seed(seed)
    with torch.no_grad():
        return [_real(x) for x in (*leaves(model(*inputs)), *inputs)]


def _real(x: Any) -> Any:
    return torch.view_as_real(x.resolve_conj()) if isinstance(x, Tensor) and x.is_complex() else x


def _same(one: Any, other: Any) -> bool:
    if not isinstance(one, Tensor):
        return type(one) is type(other) and bool(one == other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())


def run(ticket: Ticket) -> tuple[str, str]:
    """Return the outcome of a sample, and ``Facts`` as JSON."""
    with mock.patch.object(_database(), "wrapper_set_seed", _without_seed):
        return _outcome(ticket)


def _without_seed(operation: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """In place of what makes random operations of the database look as if they were not."""
    return operation(*args, **kwargs)


def _outcome(ticket: Ticket) -> tuple[str, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            sample = draw(ticket)
            truth = expected(sample)
        except NoSampleError as error:
            return SKIPPED, _facts(str(error))
    tensors = [x for x in truth.typed if isinstance(x, Tensor)]
    results = tuple(truth.typed[: len(truth.typed) - len(sample.tensors)])
    floor = max((_FLOORS.get(x.dtype, 0.0) for x in tensors), default=0.0)
    sample = replace(sample, results=results, floor=max(floor, _LEAST_FLOOR))
    programs: list[Any] = []
    kind, why = answer(functools.partial(_compare, sample, programs), truth)
    is_floating = any(isinstance(x, Tensor) and x.is_floating_point() for x in results)
    for program in programs:
        # A program that only moves numbers, sorts or looks them up does not compute floating-point numbers.
        is_floating = is_floating and any(step.float_operations for step in program.steps)
    return kind, _facts(why, "".join(map(_where, programs)), is_floating)


def _facts(why: str, where: str = "", is_floating: bool = True) -> str:
    return json.dumps({"why": why, "where": where, "is_floating": is_floating})


def facts(text: str) -> Facts:
    """The inverse; the text of who has no facts, such as a worker that died, is the reason."""
    return Facts(**json.loads(text)) if text.startswith("{") else Facts(text)


def _compare(sample: Sample, programs: list[Any], truth: Oracle) -> tuple[str, str]:
    """Compiles and runs a sample; ``programs`` gets its program."""
    with warnings.catch_warnings(record=True) as said, torch.no_grad():
        warnings.simplefilter("always")
        try:
            program = spyre_mlir.compile(sample.model(), sample.inputs())
            programs.append(program)
            results = _called(program, sample.inputs(), _SEEDS[0])
        except spyre_mlir.CompileError as error:
            return REFUSED, error.message
    if text := _complaint(sample, results, truth):
        ranges = [str(each.message) for each in said if each.category is RangeWarning]
        return (REFUSED, f"{RangeWarning.__name__}: {ranges[0]}") if ranges else (WRONG, text)
    reasons = [remark.reason for remark in program.remarks if remark.kind == HOST]
    return RIGHT, next(iter(reasons), "")


def _complaint(sample: Sample, results: list[Any], truth: Oracle) -> str:
    if sample.values:
        exact = [_as(*pair) for pair in zip(truth.exact, truth.typed, strict=True)]
        accepted = [truth.typed, exact, *_of_another_layout(sample)]
        return special_values.complaint(sample.name, sample.values, results, accepted)
    text = complaint(sample, results, truth)
    if text and sample.name in _STABLE:
        stable = replace(sample, function=_STABLE[sample.name])
        return text if complaint(sample, results, expected(stable)) else ""
    return text


def _of_another_layout(sample: Sample) -> Iterator[list[Any]]:
    """PyTorch's results for tensors with strides; its kernels for vectors and for single numbers differ."""
    with contextlib.suppress(RuntimeError):
        yield _called(sample.model(), special_values.spaced(sample.tensors), _SEEDS[0])


def _as(exact: Any, typed: Any) -> Any:
    return exact.to(typed.dtype) if isinstance(exact, Tensor) else exact


def _where(program: Any) -> str:
    # Between its pieces the model itself runs, on the host.
    if isinstance(program, PiecewiseProgram):
        return BOTH if program.bundles else ON_HOST
    if not program.steps:
        return NO_WORK
    if program.is_one_bundle:
        return DEVICE
    return BOTH if program.bundles else ON_HOST


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
