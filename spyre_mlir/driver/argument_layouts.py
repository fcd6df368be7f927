# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""User-chosen layouts of a program, by name or position: fixed types of arguments, requests for results."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from spyre_mlir import problems
from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.cost.units import PICOSECONDS
from spyre_mlir.dialects import stick
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.errors import AlgorithmError, CompileError, counted, kind_of, listed
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.padding import why_not_made
from spyre_mlir.layout.requests import LayoutRequest, device_dtype, same_order
from spyre_mlir.mlir import ir
from spyre_mlir.passes.choose_layouts import ChosenLayouts
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import Remarks
from spyre_mlir.target.target import Target
from spyre_mlir.tensors.device_tensor import DeviceTensor

#: An argument's name, or the position of an input.
Key = str | int

#: The number of results whose names "result0", "result1", .. are recognized.
_MAX_RESULTS = 1000
Choice = LayoutRequest | StickLayout


def choices(layouts: Mapping[Key, Any], stick_outermost: bool) -> dict[Key, Choice]:
    """Convert the option ``layouts`` of ``compile`` to layouts and layout requests.

    A value is a mapping with the fields of ``LayoutRequest``, a layout, or a device tensor, whose layout is used.
    ``stick_outermost`` is the default of that field in mappings.
    """
    if not isinstance(layouts, Mapping):
        raise CompileError(
            "The option 'layouts' is a mapping from names such as {'x': {'stick_dims': [0]}}, "
            f"not {kind_of(layouts)}."
        )
    chosen: dict[Key, Choice] = {}
    for key, value in layouts.items():
        if isinstance(value, DeviceTensor):
            chosen[key] = value.layout
        elif isinstance(value, StickLayout | LayoutRequest):
            chosen[key] = value
        else:
            if isinstance(value, Mapping):
                value = {"stick_outermost": stick_outermost, **value}
            chosen[key] = LayoutRequest.of_mapping(
                value, f"'{key}'" if isinstance(key, str) else f"input {key}"
            )
    return chosen


def set_layouts(module: ir.Module, target: Target, *layouts: Mapping[Any, Choice]) -> None:
    """Set layouts as the encodings of argument types, in the only function of a ``linalg`` module.

    The layouts replace existing encodings. Raise ``CompileError`` for an unknown argument, for an argument that is
    named twice, and for a layout that does not fit.
    """
    if not any(layouts):
        return
    func = _function(module)
    arguments = _arguments(func)
    # All layouts are computed before the first is set, so that an error leaves the module unchanged.
    chosen: dict[int, StickLayout] = {}
    for key, choice in itertools.chain.from_iterable(mapping.items() for mapping in layouts):
        argument = _find(key, arguments)
        if argument.index in chosen:
            raise CompileError(f"The layout of '{argument.name}' is given twice.")
        chosen[argument.index] = _layout(argument, choice, target)
    block = func.regions[0].blocks[0]
    with func.location:
        for index, layout in chosen.items():
            # The uses of the argument read a cast to the type without layout.
            value = block.arguments[index]
            with ir.InsertionPoint.at_block_begin(block):
                type_ = stick.without_layout(value.type)
                value.set_type(stick.with_layout(value.type, layout))
                # Upstream's verifiers require equal types of operands and results, including the encoding.
                cast = ir.Operation.create("tensor.cast", results=[type_], operands=[value])
            value.replace_all_uses_except(cast.result, cast)
        # The bindings change only the types of block arguments, so the function type is updated here.
        types = [value.type for value in block.arguments]
        results = ir.FunctionType(ir.TypeAttr(func.attributes["function_type"]).value).results
        func.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, results))


def split_results(
    module: ir.Module, target: Target, layouts: Mapping[Key, Choice]
) -> tuple[dict[Key, Choice], dict[int, StickLayout]]:
    """Split ``layouts`` into the layouts of arguments, by name, and of results (``result0``, ..), by index.

    An argument with such a name takes precedence. Raise ``CompileError`` for a layout that does not fit its result.
    """
    indices: dict[Key, int] = {f"result{index}": index for index in range(_MAX_RESULTS)}
    if not any(key in indices for key in layouts):
        return dict(layouts), {}
    func = _function(module)
    names = {argument.name for argument in _arguments(func)}
    values = returned(func)
    results = {}
    for key, choice in layouts.items():
        if key not in indices or key in names:
            continue
        index = indices[key]
        if index >= len(values):
            raise CompileError(
                f"There is no '{key}' to lay out; the program has {counted(len(values), 'result')}."
            )
        type_ = ir.RankedTensorType(values[index].type)
        result = _HostArgument(index, str(key), False, tuple(type_.shape), str(type_.element_type))
        results[index] = _layout(result, choice, target)
        if reason := why_not_made(results[index]):
            raise CompileError(f"The layout of '{key}' {reason}.")
    return {key: choice for key, choice in layouts.items() if key not in indices or key in names}, results


def request_results(module: ir.Module, results: Mapping[int, StickLayout], build: Any) -> None:
    """Insert layout requests for results before the return, with ``stick.pin`` or ``stick.requested_restickify``."""
    terminator = _terminator(_function(module))
    with ir.InsertionPoint(terminator), terminator.location:
        for index, layout in results.items():
            terminator.operands[index] = build(terminator.operands[index], layout, terminator.location)


def returned(func: ir.Operation) -> list[ir.Value]:
    """Return the operands of a function's return."""
    return list(_terminator(func).operands)


def _terminator(func: ir.Operation) -> ir.Operation:
    return list(func.regions[0].blocks[0].operations)[-1].operation


@dataclass(frozen=True)
class _HostArgument:
    """One argument or result of the function; ``element`` is the MLIR element type on the host."""

    index: int
    name: str
    is_input: bool
    shape: tuple[int, ...]
    element: str


def _function(module: ir.Module) -> ir.Operation:
    ops = [op.operation for op in module.body.operations]
    funcs = [op for op in ops if op.name == "func.func" and op.regions[0].blocks]
    if len(funcs) != 1:
        raise CompileError(f"Layouts are for the arguments of one function; this module has {len(funcs)}.")
    return funcs[0]


def _arguments(func: ir.Operation) -> list[_HostArgument]:
    values = list(func.regions[0].blocks[0].arguments)
    entries = list(func.attributes["arg_attrs"]) if "arg_attrs" in func.attributes else [None] * len(values)
    arguments = []
    for index, (value, attr) in enumerate(zip(values, entries, strict=True)):
        attrs = ir.DictAttr(attr) if attr is not None else {}
        name = ir.StringAttr(attrs["spyre.name"]).value if "spyre.name" in attrs else f"arg{index}"
        kind = ir.StringAttr(attrs["spyre.kind"]).value if "spyre.kind" in attrs else "input"
        if not isinstance(value.type, ir.RankedTensorType) or not value.type.has_static_shape:
            raise CompileError(f"The argument '{name}' must be a tensor of static shape, not {value.type}.")
        element = str(value.type.element_type)
        arguments.append(_HostArgument(index, name, kind == "input", tuple(value.type.shape), element))
    return arguments


def _find(key: Key, arguments: list[_HostArgument]) -> _HostArgument:
    inputs = [argument for argument in arguments if argument.is_input]
    if isinstance(key, int):
        if not 0 <= key < len(inputs):
            raise CompileError(
                f"There is no input {key} to lay out; the program has {counted(len(inputs), 'input')}."
            )
        return inputs[key]
    for argument in arguments:
        if argument.name == key:
            return argument
    names = listed(argument.name for argument in arguments)
    raise CompileError(f"There is no argument '{key}' to lay out; the arguments are {names}.")


def _layout(argument: _HostArgument, choice: Choice, target: Target) -> StickLayout:
    if isinstance(choice, LayoutRequest):
        return choice.layout(target, argument.shape, argument.element, f"'{argument.name}'")
    if (choice.shape, device_dtype(choice.dtype)) != (argument.shape, device_dtype(argument.element)):
        raise CompileError(
            f"The layout given for '{argument.name}' is one of {list(choice.shape)} {choice.dtype}, "
            f"but the tensor is {list(argument.shape)} {argument.element}."
        )
    return choice


# Layouts of results: produced in the layout or converted to it, whichever costs less.

#: Builders of a layout request for a result: pin the layout of the producer, or convert the result.
_REQUESTS = (stick.pin, stick.requested_restickify)

#: Costs of an illegal request. If both are illegal, the conversion is chosen, and its compilation reports the error.
_IMPOSSIBLE = {stick.pin: 2e30, stick.requested_restickify: 1e30}


def lay_out(
    module: ir.Module,
    pipeline: SpyrePipeline,
    input_layouts: Mapping[Any, Choice],
    chosen: Mapping[Any, Choice],
) -> None:
    """Set the layouts of inputs and the user-chosen layouts in a ``linalg`` module.

    Results are either produced in their layouts or converted to them, whichever costs less in the cost model of
    ``choose-layouts``; the choice is the same for all results.
    """
    target = pipeline.target_from(target_of(module))
    arguments, results = split_results(module, target, chosen)
    set_layouts(module, target, input_layouts, arguments)
    if results:
        # ``min`` returns the first of equal costs, so a tie selects the pin, without a conversion.
        best = min(_REQUESTS, key=lambda request: _layout_cost(module, pipeline, results, request))
        request_results(module, results, best)


def _layout_cost(
    module: ir.Module,
    pipeline: SpyrePipeline,
    results: Mapping[int, StickLayout],
    request: Callable[..., Any],
) -> float:
    """Return the cost of the layouts (predicted ns) with one kind of request; from ``_IMPOSSIBLE`` if illegal."""
    trial = module.operation.clone()
    request_results(trial, results, request)
    remarks = Remarks()
    try:
        with problems.collecting(None):
            run_pipeline(trial, pipeline.pipeline("laid-out"), remarks=remarks)
    except AlgorithmError:
        raise
    except CompileError:
        return _IMPOSSIBLE[request]
    # A pin of a view does not change the layout of its source, so a returned view may not have the layout.
    values = returned(functions(trial)[0])
    for index, layout in results.items():
        produced = stick.layout_of(values[index].type, target_of(trial))
        if produced is None or not same_order(produced, layout):
            return _IMPOSSIBLE[request]
    return sum(remark.data.cost / PICOSECONDS for remark in remarks if isinstance(remark.data, ChosenLayouts))
