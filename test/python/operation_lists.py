# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operations of models as test cases, in the public format of torch-spyre's operation lists.

A list is a YAML file with one case per operation of a model: its name, and shapes, strides, types of its arguments. The
lists of public models are fetched by whoever runs them; ``models`` of the zoo give lists of their own.
"""

from __future__ import annotations

import ast
import functools
import operator
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils import _pytree as pytree

import spyre_mlir
from spyre_mlir.driver.steps import HostStep
from spyre_mlir.errors import CompileError
from spyre_mlir.files import read_text
from spyre_mlir.frontend.device_registration import register

#: Tolerances of the public lists, absolute and relative, and the CPU seconds of a slow case.
_TOLERANCE, _SLOW_SECONDS = 0.005, 5.0

#: The most elements of a case that runs, and the sizes that are divided for the run.
_MOST_ELEMENTS, _LARGE, _SCALES = 1 << 22, 512, (1, 2, 4, 8, 16, 32, 64)


@dataclass
class Case:
    """An operation with its arguments: entries of the list, in which ``tensor`` and ``tensor_list`` are tensors."""

    name: str
    args: list[Mapping[str, Any]]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def function(self) -> Callable[..., Any]:
        """The function of PyTorch, a method of tensors, or an operator of Python."""
        path = self.name.removeprefix("torch.").split(".")
        # A method such as ``__eq__`` of the module torch compares modules.
        roots = [] if path[-1].startswith("__") else [(torch, path)]
        for root, names in (*roots, (torch.Tensor, path[-1:]), (operator, path[-1:])):
            found: Any = root
            for name in names:
                found = getattr(found, name, None)
            if callable(found) and not isinstance(found, type | torch.dtype):
                return found
        raise CompileError(f"PyTorch has no operation '{self.name}'.")

    def arguments(self, made: Callable[[Mapping[str, Any], int], Any], scale: int) -> tuple[list, dict]:
        """Return the arguments with the tensors that ``made`` makes; large sizes are divided by ``scale``."""

        def value(entry: Mapping[str, Any]) -> Any:
            if "tensor" in entry:
                return made(entry["tensor"], scale)
            if "tensor_list" in entry:
                return [made(each, scale) for each in entry["tensor_list"]]
            return _scaled(_literal(entry["py"] if "py" in entry else entry["value"]), scale)

        keywords = {name: _scaled(_literal(each), scale) for name, each in self.kwargs.items()}
        return [value(entry) for entry in self.args], keywords

    def __str__(self) -> str:
        shapes = [
            each["shape"]
            for entry in self.args
            for each in entry.get("tensor_list", [entry["tensor"]] if "tensor" in entry else [])
        ]
        return f"{self.name} {' '.join(map(str, shapes))}"


def _scaled(value: Any, scale: int) -> Any:
    """Divide the large sizes in a value."""
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        return type(value)(_scaled(each, scale) for each in value)
    is_size = isinstance(value, int) and not isinstance(value, bool) and value >= _LARGE
    return value // scale if is_size and value % scale == 0 else value


def _literal(value: Any) -> Any:
    """Return the value of a literal: types and devices of PyTorch, slices, numbers."""
    if not isinstance(value, str):
        return value
    if value.startswith("torch."):
        return getattr(torch, value.removeprefix("torch."))
    if value.startswith("cuda"):
        return torch.device("spyre")
    try:
        node = ast.parse(value.strip(), mode="eval").body
    except SyntaxError:
        return value
    return _evaluated(node, value)


def _evaluated(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Tuple | ast.List):
        items = [_evaluated(each, text) for each in node.elts]
        return tuple(items) if isinstance(node, ast.Tuple) else items
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "slice":
        return slice(*(_evaluated(each, text) for each in node.args))
    if isinstance(node, ast.Name) and node.id in ("Ellipsis", "inf", "nan"):
        return ... if node.id == "Ellipsis" else float(node.id)
    try:
        return ast.literal_eval(node)
    except ValueError:
        return text


def _tensor(entry: Mapping[str, Any], scale: int, device: str = "cpu") -> torch.Tensor:
    """Return a tensor of an entry; on the meta device it has no numbers."""
    shape = _scaled(list(entry["shape"]), scale)
    dtype = _literal(str(entry.get("dtype", "torch.float16")))
    strides, offset = list(entry.get("stride") or ()), int(entry.get("storage_offset", 0))
    if scale > 1 or len(strides) != len(shape):
        strides, offset = list(torch.empty(shape, device="meta").stride()), 0
    size = offset + 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    size = 0 if 0 in shape else size
    if device == "meta":
        return torch.empty_strided(shape, strides, dtype=dtype, device="meta")
    arguments = entry.get("init_args") or {}
    low, high = arguments.get("low", 0), arguments.get("high", 1 if dtype.is_floating_point else 2)
    if dtype == torch.bool:
        # A mask that selects few elements: ``masked_scatter`` has as many sources as the mask of the model selects.
        storage = torch.rand(size) < 0.25
    elif dtype.is_floating_point or dtype.is_complex:
        storage = torch.rand(size).mul_(high - low).add_(low).to(dtype)
    else:
        storage = torch.randint(int(low), max(int(_scaled(int(high), scale)), int(low) + 1), (size,)).to(
            dtype
        )
    return storage.as_strided(shape, strides, offset) if size else torch.empty(shape, dtype=dtype)


def read_cases(path: str) -> list[Case]:
    """Return the different cases of an operation list; ``CompileError`` if the file is not a list."""
    import yaml

    try:
        root = yaml.safe_load(read_text(path, 1 << 26))
        entries = [
            entry
            for file in root["test_suite_config"]["files"]
            for test in file["tests"]
            for entry in test["edits"]["ops"]["include"]
        ]
        cases = [
            Case(entry["name"], entry["sample_inputs_func"].get("args") or [], entry.get("kwargs") or {})
            for entry in entries
        ]
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise CompileError(f"The file is not an operation list: {error}.", path) from None
    return list({repr((case.name, case.args, case.kwargs)): case for case in cases}.values())


@dataclass(frozen=True)
class FullShape:
    """A case compiled at full shape: its predicted time, and its floating-point operations, also on the host alone."""

    predicted_us: float = 0.0
    operations: int = 0
    on_host: int = 0


def run_case(case: Case, full: int) -> tuple[list[str], FullShape, str]:
    """Return the outcomes of a case, its figures at full shape, and a note if it is not right.

    With ``full`` 0 the case is not compiled at full shape, with 2 it does not run.
    """
    outcomes: list[str] = []
    notes: list[str] = []
    figures = FullShape()
    register()
    try:
        if full and case.args:
            figures, is_host = _at_full_shape(case)
            outcomes += ["full", *(["host"] if is_host else [])]
    except Exception as error:
        notes.append(f"at full shape: {_first_line(error)}")
    if full == 2:
        return outcomes, figures, "; ".join(notes)
    sizes = next((scale for scale in _SCALES if _fits(case, scale)), None)
    if sizes is None:
        return [*outcomes, "not_run"], figures, "; ".join([*notes, "has no small size"])
    for mode in ("eager", "compiled"):
        begin = time.process_time()
        try:
            problem = _difference(case, sizes, mode)
        except Exception as error:
            outcomes.append("refused")
            notes.append(f"{mode}: {_first_line(error)}")
            continue
        if time.process_time() - begin > _SLOW_SECONDS:
            outcomes.append("slow")
            notes.append(f"{mode}: {time.process_time() - begin:.0f} CPU seconds")
        outcomes.append("wrong" if problem else f"right_{mode}")
        notes += [f"{mode}: {problem}"] if problem else []
    return outcomes, figures, "; ".join(notes)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:160]}"


def _fits(case: Case, scale: int) -> bool:
    """Return whether a case with smaller sizes is small enough, and PyTorch accepts the sizes."""
    arguments, keywords = case.arguments(functools.partial(_tensor, device="meta"), scale)
    tensors = [each for each in pytree.tree_leaves(arguments) if isinstance(each, torch.Tensor)]
    if sum(each.numel() for each in tensors) > _MOST_ELEMENTS:
        return False
    if scale == 1:
        return True
    try:
        case.function(*_on("meta", arguments), **_on("meta", keywords))
    except Exception:
        return False
    return True


def _on(device: str, value: Any) -> Any:
    """Return arguments in which devices are ``device``."""
    return pytree.tree_map(
        lambda each: torch.device(device) if isinstance(each, torch.device) else each, value
    )


def _at_full_shape(case: Case) -> tuple[FullShape, bool]:
    """Return the figures at full shape, and whether the host has a step."""
    arguments, keywords = _on("cpu", case.arguments(functools.partial(_tensor, device="meta"), 1))
    leaves, spec = pytree.tree_flatten(arguments)
    places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def call(*tensors: torch.Tensor) -> Any:
        given = [*leaves]
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        return case.function(*pytree.tree_unflatten(given, spec), **keywords)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = spyre_mlir.compile(call, tuple(leaves[place] for place in places), cache=False)
    on_host = [step.float_operations for step in program.steps if isinstance(step, HostStep)]
    operations = sum(step.float_operations for step in program.steps)
    return FullShape(program.metrics()["predicted_us"], operations, sum(on_host)), bool(on_host)


def _difference(case: Case, scale: int, mode: str) -> str:
    """Return how results on the device differ from PyTorch in f64 on the CPU; empty if they do not."""
    torch.manual_seed(0)
    arguments, keywords = case.arguments(_tensor, scale)
    wide = pytree.tree_map(_double, arguments)
    expected = case.function(*_on("cpu", wide), **_on("cpu", keywords))
    on_device = [
        each.to("spyre") if isinstance(each, torch.Tensor) else each for each in pytree.tree_leaves(arguments)
    ]
    moved = pytree.tree_unflatten(on_device, pytree.tree_structure(arguments))
    function = torch.compile(case.function) if mode == "compiled" else case.function
    if mode == "compiled":
        torch._dynamo.reset()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        actual = function(*moved, **keywords)
    results, references = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
    if len(results) != len(references):
        return f"{len(results)} results instead of {len(references)}"
    for result, reference in zip(results, references, strict=True):
        if not isinstance(reference, torch.Tensor):
            if result != reference:
                return f"{result} instead of {reference}"
            continue
        got = result.cpu()
        if got.shape != reference.shape:
            return f"shape {list(got.shape)} instead of {list(reference.shape)}"
        if not torch.allclose(
            _double(got).double(), reference.double(), _TOLERANCE, _TOLERANCE, equal_nan=True
        ):
            error = (got.double() - reference.double()).abs().max()
            return f"the largest error is {float(error):.3g}"
    return ""


def _double(value: Any) -> Any:
    is_float = isinstance(value, torch.Tensor) and value.dtype.is_floating_point
    return value.double() if is_float else value.clone() if isinstance(value, torch.Tensor) else value


# Lists of the zoo's models.


class _Recorder(TorchFunctionMode):
    """Records the calls of functions of PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.cases: dict[str, Case] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = resolve_name(func) or f"torch.{getattr(func, '__name__', '')}"
        tensors = [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        if tensors and not name.endswith(("__get__", "__set__")):
            entries = list(map(_entry, args))
            values = {key: _value(each) for key, each in (kwargs or {}).items()}
            if None not in entries and not any(isinstance(each, torch.Tensor) for each in values.values()):
                case = Case(name, entries, values)  # type: ignore[arg-type]
                self.cases.setdefault(repr((name, entries, values)), case)
        return func(*args, **(kwargs or {}))


def _entry(value: Any) -> Mapping[str, Any] | None:
    """Return an argument as an entry of a list; None for an argument that has no form there."""
    if isinstance(value, torch.Tensor):
        init = {} if value.dtype.is_floating_point else {"init_args": {"high": 2}}
        return {
            "tensor": {
                "shape": list(value.shape),
                "stride": list(value.stride()),
                "storage_offset": value.storage_offset(),
                "dtype": str(value.dtype),
                **init,
            }
        }
    if isinstance(value, list | tuple) and value and all(isinstance(each, torch.Tensor) for each in value):
        return {"tensor_list": [_entry(each)["tensor"] for each in value]}  # type: ignore[index]
    if any(isinstance(each, torch.Tensor) for each in pytree.tree_leaves(value)):
        return None
    if isinstance(value, torch.Size):
        value = list(value)
    has_slices = isinstance(value, tuple | slice) or value is ...
    return {"py": str(value)} if has_slices else {"value": _value(value)}


def _value(value: Any) -> Any:
    is_plain = isinstance(value, int | float | str | list | None | torch.Tensor)
    return list(value) if isinstance(value, torch.Size) else value if is_plain else str(value)


def recorded(name: str) -> list[Case]:
    """Return the operations of a model of the zoo, as it computes them on the CPU."""
    from spyre_mlir.zoo import models

    model, inputs = models.model(name)
    with torch.no_grad(), _Recorder() as recorder:
        model(**inputs) if isinstance(inputs, Mapping) else model(*inputs)
    return list(recorder.cases.values())


def list_text(cases: list[Case]) -> str:
    """Return cases in the public format."""
    import yaml

    include = list(_entries(cases))
    root = {"test_suite_config": {"files": [{"tests": [{"edits": {"ops": {"include": include}}}]}]}}
    return yaml.safe_dump(root, sort_keys=False, default_flow_style=None, width=118)


def _entries(cases: list[Case]) -> Iterator[dict[str, Any]]:
    for case in cases:
        entry: dict[str, Any] = {"name": case.name, "sample_inputs_func": {"args": case.args}}
        yield entry | ({"kwargs": dict(case.kwargs)} if case.kwargs else {})
