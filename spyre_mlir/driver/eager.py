# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations on tensors of the device, each by a compiled program of that one operation on the simulator.

A program depends on the operation, its arguments that are no tensors, and of each tensor on the shape, dtype and layout
of its storage and on the view steps from there: the program takes the storage where it lies, and the compiler says
what a view costs. Programs are kept; ``programs`` has them, the last used one last.
"""

from __future__ import annotations

import contextvars
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

from spyre_mlir.driver.compilation import compile
from spyre_mlir.driver.program import Program
from spyre_mlir.driver.program_calls import layout_of_argument
from spyre_mlir.errors import AlgorithmError, CompileError
from spyre_mlir.faults import InternalError
from spyre_mlir.frontend import host_operations, operations
from spyre_mlir.layout import BufferView, StickLayout
from spyre_mlir.layout.padding import is_scattered
from spyre_mlir.layout.requests import LayoutRequest, device_dtype
from spyre_mlir.layout.stick_layout import is_convertible, is_restickified
from spyre_mlir.target.target import default_target
from spyre_mlir.tensors.device_activity import record_compilation, record_device, record_host
from spyre_mlir.tensors.device_tensor import DeviceTensor, element_type, laid_out

#: Programs in the cache at most.
_MAX_PROGRAMS = 1024


class CompiledOperation(NamedTuple):
    """Program of an operation or a graph, None if it returns only views of its arguments; and what it returns."""

    program: Program | None
    results: operations.OperationResults


#: The least recently used one first. An operation that is not compiled has the error.
Programs = OrderedDict[Hashable, CompiledOperation | CompileError]

programs: Programs = OrderedDict()

#: Operations on integers whose program the host runs alone, at any sizes.
_of_the_host: set[Hashable] = set()


class OfTheHostError(CompileError):
    """An operation on integers needs no program, because the host runs all of the operation."""


to_torch = operations.to_torch
bits = operations.bits


def call(name: str, *arguments: Any, **named: Any) -> Any:
    """Run the operation ``torch.ops.aten.<name>``; tensors of the result are on the device."""
    # PyTorch takes no scalar of numpy for a number.
    numbers = [value.item() if isinstance(value, np.generic) else value for value in arguments]
    return _run_anywhere(operations.overload(name, numbers, named), numbers, named)


def _run_anywhere(operation: Any, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
    """Run one operation in a program, or on the host where the operation needs no program."""
    try:
        return run(operation, arguments, named)
    except OfTheHostError as error:
        record_host(operation, error.message)
        return host_operations.run(operation, arguments, named).results


def run(operation: Any, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
    """Run one operation of PyTorch, an ``OpOverload``, on arguments whose tensors are ``DeviceTensor``."""
    applied = operations.Application.of(operation, arguments, named)
    leaves, results = execute(applied, programs, compile)
    return results.tree.unflatten(leaves)


def execute(
    applied: operations.Application,
    programs: Programs,
    compile: Callable[..., Program],
    results_of: Callable[
        [operations.Application], operations.OperationResults
    ] = operations.OperationResults.of_operation,
) -> tuple[list[Any], operations.OperationResults]:
    """Run an operation or a graph; return the leaves of its results, of which the tensors are on the device.

    The program comes from the cache ``programs``, or is compiled into it. ``results_of`` follows the operation without
    numbers.
    """
    # Popped and set again: the order of the cache is that of last use.
    key = applied.key
    known = programs.pop(key, None)
    if known is None:
        try:
            known = _compiled(applied, compile, results_of)
        except (AlgorithmError, InternalError):
            raise
        except CompileError as error:
            known = error
    programs[key] = known
    if len(programs) > _MAX_PROGRAMS:
        programs.popitem(last=False)
    if isinstance(known, CompileError):
        raise known.with_traceback(None)
    program, results = known
    computed = program(*applied.inputs) if program is not None else []
    layouts = _layouts(program) if program is not None else []
    storages = [storage.storage for storage in applied.storages]
    if program is not None:
        record_device(applied.operation, program)
    return results.in_memory(computed, layouts, storages), results


def _compiled(
    applied: operations.Application,
    compile: Callable[..., Program],
    results_of: Callable[[operations.Application], operations.OperationResults],
) -> CompiledOperation:
    def program_of(results: operations.OperationResults | None) -> Program:
        program = _in_a_thread(lambda: compile(applied.function(results), applied.inputs))
        # One operation in pieces would be run by PyTorch.
        if not isinstance(program, Program):
            raise program.reason
        return program

    kind = str(applied.operation), tuple(map(type, applied.leaves)), *(x.dtype for x in applied.storages)
    if kind in _of_the_host:
        raise OfTheHostError("integers are for the host")
    try:
        results = results_of(applied)
    except operations.UnknownResultsError:
        # A refusal of the compiler has its place in the source, so it goes first.
        program_of(None)
        raise
    if not results.is_computed:
        return CompiledOperation(None, results)
    program = program_of(results)
    record_compilation(applied.operation, program)
    # The side of an operation on integers does not depend on sizes.
    values = [*program.arguments, *program.results]
    if not program.bundles and all(np.dtype(value.host_dtype).kind in "iub" for value in values):
        _of_the_host.add(kind)
    return CompiledOperation(program, results)


def dense_copy(tensor: DeviceTensor) -> DeviceTensor:
    """Copy a tensor on the device to one with the strides of a dense array."""
    operation, named = operations.DENSE_COPY
    return _run_anywhere(operation, (tensor,), named)


def restickify(tensor: DeviceTensor, **layout: Any) -> DeviceTensor:
    """Copy a tensor to the layout that the fields of ``LayoutRequest`` choose.

    The host copies elements of one byte, which no operation of the device copies, to layouts with padding between
    elements, which none writes, and elements of more than 16 bits to another stick.
    """
    target = LayoutRequest.of(layout, "the tensor").layout(
        default_target(), tensor.shape, element_type(tensor.dtype), "the tensor"
    )
    dtype = device_dtype(element_type(tensor.dtype))
    stays = BufferView.of(tensor.layout).main_stick_dim == BufferView.of(target).main_stick_dim
    # These would be a CompileError or a warning of a program, so they are asked before one is compiled.
    if not is_convertible(dtype) or is_scattered(target) or not (stays or is_restickified(dtype)):
        return laid_out(tensor.numpy(), tensor.dtype, target)
    return run(operations.RESTICKIFY, (tensor,), layout)


def _in_a_thread(make: Callable[[], Program]) -> Program:
    """Return the result of ``make`` from a thread of its own."""
    # Inside of an operation PyTorch's dispatcher is in another state, which belongs to the thread.
    program: Future[Program] = Future()
    run_in_context = contextvars.copy_context().run

    def work() -> None:
        try:
            program.set_result(run_in_context(make))
        except BaseException as error:
            program.set_exception(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return program.result()


def _layouts(program: Program) -> list[StickLayout | None]:
    """Return the layouts in which the device wrote the results; None for results of the host."""
    layouts: dict[str, StickLayout] = {}
    for step in program.bundles:
        results = [argument for argument in step.bundle.manifest.arguments if argument.kind == "result"]
        for name, argument in zip(step.outputs, results, strict=True):
            layouts[name] = layout_of_argument(argument, step.bundle.target)
    return [layouts.get(name) for name in program.returned]
