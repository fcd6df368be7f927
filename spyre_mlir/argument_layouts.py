"""The layouts that a caller chooses for the arguments of a program: by name or position, into the types of @main."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spyre_mlir.device_tensor import DeviceTensor
from spyre_mlir.dialects import stick
from spyre_mlir.errors import CompileError
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.padding import why_not_made
from spyre_mlir.layout.requests import LayoutRequest, device_dtype
from spyre_mlir.mlir import ir

#: An argument's name, or the position of an input.
Key = str | int

#: More results than a program has.
_RESULTS = 1000
Choice = LayoutRequest | StickLayout


def choices(layouts: Mapping[Key, Any], stick_outermost: bool) -> dict[Key, Choice]:
    """The layouts of ``compile(layouts=..)``: each a mapping of the fields of ``LayoutRequest``, a layout, or a
    tensor on the device, whose layout it is. ``stick_outermost`` holds where a mapping does not say.
    """
    return {key: _choice(key, given, stick_outermost) for key, given in layouts.items()}


def _choice(key: Key, given: Any, stick_outermost: bool) -> Choice:
    if isinstance(given, DeviceTensor):
        return given.layout
    if isinstance(given, StickLayout | LayoutRequest):
        return given
    if isinstance(given, Mapping):
        given = {"stick_outermost": stick_outermost, **given}
    return LayoutRequest.of(given, _named(key))


def _named(key: Key) -> str:
    return f"'{key}'" if isinstance(key, str) else f"input {key}"


def set_layouts(module: ir.Module, *layouts: Mapping[Any, Choice]) -> None:
    """Give arguments of the only function of a ``linalg`` module their layouts, as the encodings of their types.

    In place of those that the text has. What does not exist, is named twice or does not fit is a CompileError.
    """
    if not any(layouts):
        return
    func = _function(module)
    arguments = _arguments(func)
    chosen: dict[int, StickLayout] = {}
    for key, choice in itertools.chain.from_iterable(each.items() for each in layouts):
        argument = _find(key, arguments)
        if argument.index in chosen:
            raise CompileError(f"The layout of '{argument.name}' is given twice.")
        chosen[argument.index] = _layout(argument, choice)
    block = func.regions[0].blocks[0]
    with func.location:
        for index, layout in chosen.items():
            _set(block, index, layout)
        types = [value.type for value in block.arguments]
        results = ir.FunctionType(ir.TypeAttr(func.attributes["function_type"]).value).results
        func.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, results))


def split_results(
    module: ir.Module, layouts: Mapping[Key, Choice]
) -> tuple[dict[Key, Choice], dict[int, StickLayout]]:
    """The layouts of arguments, and those of results, ``result0`` and so on, by position.

    An argument of such a name comes first. A layout that does not fit its result is a CompileError.
    """
    names = {f"result{at}": at for at in range(_RESULTS)}
    if not any(key in names for key in layouts):
        return dict(layouts), {}
    func = _function(module)
    own = {argument.name for argument in _arguments(func)}
    values = returned(func)
    results = {}
    for key, choice in layouts.items():
        if key not in names or key in own:
            continue
        at = names[key]
        if at >= len(values):
            raise CompileError(f"There is no '{key}' to lay out; the program has {len(values)} results.")
        type_ = ir.RankedTensorType(values[at].type)
        made = _Argument(at, key, False, tuple(type_.shape), str(type_.element_type))
        results[at] = _layout(made, choice)
        if reason := why_not_made(results[at]):
            raise CompileError(f"The layout of '{key}' {reason}.")
    return {key: choice for key, choice in layouts.items() if key not in names or key in own}, results


def request_results(module: ir.Module, results: Mapping[int, StickLayout], build: Any) -> None:
    """Ask for the layouts of results by ``stick.pin`` or ``stick.requested_restickify`` before they are returned."""
    func = _function(module)
    end = list(func.regions[0].blocks[0].operations)[-1].operation
    with ir.InsertionPoint(end), end.location:
        for at, layout in results.items():
            value = end.operands[at]
            end.operands[at] = build(value, layout, end.location)


def returned(func: ir.Operation) -> list[ir.Value]:
    """What a function returns."""
    return list(list(func.regions[0].blocks[0].operations)[-1].operation.operands)


@dataclass(frozen=True)
class _Argument:
    """One argument of @main, before decisions: ``element`` is the host's element type in MLIR."""

    index: int
    name: str
    is_input: bool
    shape: tuple[int, ...]
    element: str


def _function(module: ir.Module) -> ir.Operation:
    ops = [op.operation for op in module.body.operations]
    found = [op for op in ops if op.name == "func.func" and op.regions[0].blocks]
    if len(found) != 1:
        raise CompileError(f"Layouts are for the arguments of one function; this module has {len(found)}.")
    return found[0]


def _arguments(func: ir.Operation) -> list[_Argument]:
    values = list(func.regions[0].blocks[0].arguments)
    given = list(func.attributes["arg_attrs"]) if "arg_attrs" in func.attributes else [None] * len(values)
    made = []
    for index, (value, attr) in enumerate(zip(values, given, strict=True)):
        attrs = ir.DictAttr(attr) if attr is not None else {}
        name = ir.StringAttr(attrs["spyre.name"]).value if "spyre.name" in attrs else f"arg{index}"
        kind = ir.StringAttr(attrs["spyre.kind"]).value if "spyre.kind" in attrs else "input"
        if not isinstance(value.type, ir.RankedTensorType) or not value.type.has_static_shape:
            raise CompileError(f"The argument '{name}' is no tensor of static shape but {value.type}.")
        element = str(value.type.element_type)
        made.append(_Argument(index, name, kind == "input", tuple(value.type.shape), element))
    return made


def _find(key: Key, arguments: list[_Argument]) -> _Argument:
    inputs = [argument for argument in arguments if argument.is_input]
    if isinstance(key, int):
        if not 0 <= key < len(inputs):
            raise CompileError(f"There is no input {key} to lay out; the program has {len(inputs)} inputs.")
        return inputs[key]
    for argument in arguments:
        if argument.name == key:
            return argument
    names = ", ".join(argument.name for argument in arguments) or "none"
    raise CompileError(f"There is no argument '{key}' to lay out; the arguments are {names}.")


def _layout(argument: _Argument, choice: Choice) -> StickLayout:
    if isinstance(choice, LayoutRequest):
        return choice.layout(argument.shape, argument.element, f"'{argument.name}'")
    if (choice.shape, device_dtype(choice.dtype)) != (argument.shape, device_dtype(argument.element)):
        raise CompileError(
            f"The layout given for '{argument.name}' is one of {list(choice.shape)} {choice.dtype}, "
            f"but the tensor is {list(argument.shape)} {argument.element}."
        )
    return choice


def _set(block: ir.Block, index: int, layout: StickLayout) -> None:
    """The type of one argument; the body reads it through a cast, for upstream's ops want one type throughout."""
    value = block.arguments[index]
    with ir.InsertionPoint.at_block_begin(block):
        plain = stick.without_layout(value.type)
        value.set_type(stick.with_layout(value.type, layout))
        cast = ir.Operation.create("tensor.cast", results=[plain], operands=[value])
    value.replace_all_uses_except(cast.result, cast)
