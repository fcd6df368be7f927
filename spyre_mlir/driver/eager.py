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
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.driver.compilation import compile
from spyre_mlir.driver.program import Program
from spyre_mlir.driver.program_calls import layout_of_argument
from spyre_mlir.errors import AlgorithmError, CompileError
from spyre_mlir.faults import InternalError
from spyre_mlir.frontend import host_operations, operations
from spyre_mlir.frontend.call_objects import CallOutcome, CallOutcomeForm
from spyre_mlir.frontend.number_inputs import Number, are_exact, is_near, is_same, number_inputs, number_types
from spyre_mlir.frontend.operations import OperationResults, ResultPlace, dense_layout
from spyre_mlir.frontend.signature import Signature, View, to_numpy
from spyre_mlir.layout import BufferView, StickLayout
from spyre_mlir.layout.padding import is_scattered
from spyre_mlir.layout.requests import LayoutRequest, device_dtype
from spyre_mlir.layout.stick_layout import is_convertible, is_restickified
from spyre_mlir.records import dataclass
from spyre_mlir.target.target import default_target
from spyre_mlir.tensors.device_activity import record_compilation, record_device, record_host
from spyre_mlir.tensors.device_tensor import DeviceTensor, Storage, element_type, host_type, laid_out

#: Programs in the cache at most.
_MAX_PROGRAMS = 1024
#: Programs of one operation with different numbers as constants at most.
_MAX_CONSTANTS = 8


@dataclass(eq=False)
class CompiledOperation:
    """Program of an operation or a graph, None if it returns only views of its arguments; and what it returns.

    Numbers of type ``dtype`` are inputs of the program, which follow the storages; None if they are its constants.
    ``prepared`` is what warm calls keep, after a first call has tried to make it.
    """

    program: Program | None
    results: operations.OperationResults
    dtype: Any = None
    prepared: PreparedCall | None = None
    is_tried: bool = False


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
    known = _known(applied, programs, compile, results_of)
    if isinstance(known, CompileError):
        raise known.with_traceback(None)
    program, results, dtype = known.program, known.results, known.dtype
    if known.prepared is not None:
        try:
            numbers = _number_inputs(applied, dtype) if dtype is not None else []
            leaves = known.prepared([whole.storage for whole in applied.storages], numbers)
            record_device(applied.operation, program)
            return leaves, results
        # A number that its layout cannot represent, and errors that an ordinary call reports.
        except CompileError:
            known.prepared = None
    computed, layouts = [], []
    if program is not None:
        numbers = _number_inputs(applied, dtype) if dtype is not None else []
        computed = program(*applied.inputs, *numbers)
        layouts = _layouts(program)
        record_device(applied.operation, program)
    storages = [storage.storage for storage in applied.storages]
    leaves = results.in_memory(computed, layouts, storages)
    if program is not None and not known.is_tried:
        known.is_tried = True
        known.prepared = PreparedCall.of(program, results, layouts, storages)
    return leaves, results


def _known(
    applied: operations.Application,
    programs: Programs,
    compile: Callable[..., Program],
    results_of: Callable[[operations.Application], operations.OperationResults],
) -> CompiledOperation | CompileError:
    """Program of an operation: one that was compiled with its numbers, one that takes them as inputs, or a new one."""
    key = applied.key
    if (known := _used(programs, key)) is not None:
        return known
    numbers = applied.numbers if applied.is_operation else ()
    family = _used(families, applied.key_without(numbers)) if numbers else None
    if family is not None:
        known = family.program(applied, compile)
    if known is None:
        try:
            known = _compiled(applied, compile, results_of)
        except (AlgorithmError, InternalError):
            raise
        except CompileError as error:
            known = error
        _keep(programs, key, known)
    if numbers and not isinstance(known, CompileError) and known.program is not None:
        if family is None:
            _keep(families, applied.key_without(numbers), NumberFamily(applied, known))
        elif known.dtype is None:
            family.add(applied, known)
            return family.program(applied, compile) or known
    return known


def _used(cache: OrderedDict[Hashable, Any], key: Hashable) -> Any:
    """Value of a key, which becomes the last used one; None without one."""
    value = cache.get(key)
    if value is not None:
        cache.move_to_end(key)
    return value


def _keep(cache: OrderedDict[Hashable, Any], key: Hashable, value: Any) -> None:
    """Keep a value, in place of the least recently used one of many."""
    cache[key] = value
    if len(cache) > _MAX_PROGRAMS:
        cache.popitem(last=False)


class NumberFamily:
    """Programs of one operation on equal tensors with different numbers.

    The first program has the numbers as constants, from which the compiler makes the best plan. The second numbers
    make a program that takes numbers as inputs, and all others use it. Its results are compared with those of a program
    of constants, which decides how an input is rounded: to float32, or to the 16 bits of the tensors where the
    constant is rounded so. Where neither gives the same bits, 16-bit results of float32 numbers are the nearer ones to
    PyTorch's.

    An operation that cannot take its numbers as inputs is compiled for each, up to ``_MAX_CONSTANTS``; then it is a
    ``CompileError``.
    """

    def __init__(self, applied: operations.Application, known: CompiledOperation) -> None:
        self.constants: list[tuple[list[Number], CompiledOperation]] = [(_numbers(applied), known)]
        self.general: CompiledOperation | None = None
        self.is_refused: bool = bool(known.results.written)

    def add(self, applied: operations.Application, known: CompiledOperation) -> None:
        """Add a program with other numbers as constants."""
        self.constants.append((_numbers(applied), known))

    def program(
        self, applied: operations.Application, compile: Callable[..., Program]
    ) -> CompiledOperation | CompileError | None:
        """Program that takes these numbers; None if one has to be compiled with the numbers as constants."""
        types = number_types(applied)
        # Such numbers do not show where a program rounds them.
        shows = [
            constants
            for constants in self.constants
            if len(types) == 1 or not are_exact(constants[0], types[-1])
        ]
        if self.general is None and not self.is_refused:
            if not shows and len(self.constants) == 1 and not are_exact(_numbers(applied), types[-1]):
                return None
            self.general = self._generalized(applied, types, compile, *(shows or self.constants)[-1])
            self.is_refused = self.general is None
        if self.general is not None and _number_inputs(applied, self.general.dtype) is not None:
            return self.general
        if len(self.constants) < _MAX_CONSTANTS:
            return None
        return CompileError(
            f"{applied.operation} was compiled for {len(self.constants)} different numbers, and its program does not "
            "take a number as an input; give the number as a tensor."
        )

    def _generalized(
        self,
        applied: operations.Application,
        types: Sequence[Any],
        compile: Callable[..., Program],
        numbers: list[Number],
        constant: CompiledOperation,
    ) -> CompiledOperation | None:
        """Program that takes numbers as inputs, compared with one that has these numbers as constants."""
        if constant.program is None or constant.dtype is not None:
            return None
        expected = constant.program(*applied.inputs)
        nearest = None
        for dtype in types:
            if (inputs := number_inputs(numbers, dtype)) is None:
                continue
            try:
                program = _program_of(applied, constant.results, compile, applied.numbers, inputs)
                results = program(*applied.inputs, *inputs)
            except (AlgorithmError, InternalError):
                raise
            except CompileError:
                continue
            general = CompiledOperation(program, constant.results, dtype)
            if is_same(results, expected):
                return general
            if nearest is None and is_near(results, expected):
                nearest = general
        return nearest


#: Families by key, the least recently used one first.
families: OrderedDict[Hashable, NumberFamily] = OrderedDict()


def _numbers(applied: operations.Application) -> list[Number]:
    """Numbers that an operation computes with."""
    return [applied.leaves[index] for index in applied.numbers]


def _number_inputs(applied: operations.Application, dtype: Any) -> Any:
    return number_inputs(_numbers(applied), dtype)


def _program_of(
    applied: operations.Application,
    results: operations.OperationResults | None,
    compile: Callable[..., Program],
    numbers: Sequence[int] = (),
    inputs: Sequence[Any] = (),
) -> Program:
    """Compile an operation, of which some numbers are inputs."""
    function = applied.function(results, numbers)
    program = _in_a_thread(lambda: compile(function, [*applied.inputs, *inputs]))
    # One operation in pieces would be run by PyTorch.
    if not isinstance(program, Program):
        raise program.reason
    # A context of MLIR for each of many small programs would be most of their memory.
    if applied.is_operation:
        program.drop_ir()
    record_compilation(applied.operation, program)
    return program


def _compiled(
    applied: operations.Application,
    compile: Callable[..., Program],
    results_of: Callable[[operations.Application], operations.OperationResults],
) -> CompiledOperation:
    kind = str(applied.operation), tuple(map(type, applied.leaves)), *(x.dtype for x in applied.storages)
    if kind in _of_the_host:
        raise OfTheHostError("integers are for the host")
    try:
        results = results_of(applied)
    except operations.UnknownResultsError:
        # A refusal of the compiler has its place in the source, so it goes first.
        _program_of(applied, None, compile)
        raise
    if not results.is_computed:
        return CompiledOperation(None, results)
    program = _program_of(applied, results, compile)
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


# A program of an operation as a function of storages: what each call would derive again is kept.
#
# The key of a program in the cache of eager mode has the layouts and dtypes of its operands, so a call checks neither.
# A program is prepared if it takes storages in layouts, returns new tensors and changes nothing else.

#: What makes a tensor of the device of the arrays that a program returns.
_Maker = Callable[[Sequence[NDArray[Any]]], DeviceTensor]


class PreparedCall:
    """A call of a program on storages and numbers."""

    def __init__(self, program: Program, inputs: Sequence[tuple[str, int]], makers: Sequence[_Maker]) -> None:
        self._program, self._inputs, self._makers = program, inputs, makers

    @classmethod
    def of(
        cls,
        program: Program,
        results: OperationResults,
        layouts: Sequence[StickLayout | None],
        storages: Sequence[Storage],
    ) -> PreparedCall | None:
        """Prepare the call of a program that ran once on these storages; None if the program does more than that."""
        signature = program.signature
        if not isinstance(signature, Signature) or not _returns_its_results(signature) or program.state:
            return None
        if any(storage.form is None for storage in storages) or len(layouts) != len(results.places):
            return None
        if any(
            argument.kind == "input" and (argument.leaf is None or argument.part)
            for argument in signature.arguments
        ):
            return None
        # Results that share a storage are made together.
        if len({place.storage for place in results.places if place is not None}) < len(results.places):
            return None
        makers = [
            _maker(index, place, layout, str(signature.results[cast(int, cast(View, leaf).base)].dtype)[6:])
            for index, (place, layout, leaf) in enumerate(
                zip(results.places, layouts, signature.leaves, strict=True)
            )
        ]
        if any(maker is None for maker in makers):
            return None
        order = [cast(int, cast(View, leaf).base) for leaf in signature.leaves]
        if order != list(range(len(signature.results))):
            return None
        inputs = [
            (argument.name, cast(int, argument.leaf))
            for argument in signature.arguments
            if argument.kind == "input"
        ]
        return cls(program, inputs, cast(list[_Maker], makers))

    def __call__(self, storages: Sequence[Storage], numbers: Sequence[Any]) -> list[Any]:
        """Run the program; return its results on the device."""
        count = len(storages)
        arrays = {
            name: storages[leaf].read() if leaf < count else to_numpy(numbers[leaf - count])
            for name, leaf in self._inputs
        }
        if self._program.arrays:
            arrays = {**self._program.arrays, **arrays}
        made = self._program.run(arrays)
        return [maker(made) for maker in self._makers]


def _returns_its_results(signature: Signature) -> bool:
    """Return whether a call returns a list of the results of the program, and changes nothing."""
    form = signature.output_tree.context
    if (
        signature.updates
        or signature.numbers
        or signature.random
        or signature.output_tree.type is not CallOutcome
    ):
        return False
    if not isinstance(form, CallOutcomeForm) or form.changes or (form.effect and form.effect.acts):
        return False
    graph = form.graph
    is_list = len(graph.nodes) == 1 and graph.nodes[0].kind is list
    parts = [part for _, part in graph.nodes[0].parts] if is_list else []
    return (
        is_list
        and [(part.kind, part.value) for part in parts] == [("leaf", i) for i in range(len(signature.leaves))]
        and all(
            isinstance(leaf, View) and isinstance(leaf.base, int) and not leaf.steps
            for leaf in signature.leaves
        )
    )


def _maker(index: int, place: ResultPlace | None, layout: StickLayout | None, dtype: str) -> _Maker | None:
    """Return what makes the tensor of one result; None for a result in memory that is not its own and dense."""
    if place is None or not place.is_new or layout is None or (dense := dense_layout(place, layout)) is None:
        return None
    (form, order), kind, shape = dense, host_type(dtype), place.strided.shape
    shared = DeviceTensor.of(Storage(form, dtype, np.zeros(0, np.uint8)), place.strided)
    strided, steps = shared.strided, shared.steps

    def made(arrays: Sequence[NDArray[Any]]) -> DeviceTensor:
        """Tensor of the device with the numbers of a result."""
        array = arrays[index]
        if array.dtype != kind:
            raise CompileError(f"A result has numbers of {array.dtype}, not of {kind}.")
        storage = Storage(form, dtype, np.zeros(form.bytes, np.uint8))
        storage.write(np.ascontiguousarray(array.reshape(shape).transpose(order)))
        return DeviceTensor.viewing(storage, strided, steps)

    return made
