# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Eager execution: each operation on device tensors runs as a compiled program of one operation on the simulator.

A program is keyed by the operation, its arguments that are not tensors, and for each tensor the shape, dtype and layout
of its storage and the view steps. The program reads the storage in place, so the compiler decides the cost of a view.
The cache ``programs`` keeps the programs in order of last use.
"""

from __future__ import annotations

import contextvars
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spyre_mlir.driver.build import Value
from spyre_mlir.driver.program import Program
from spyre_mlir.driver.program_calls import layout_of_argument
from spyre_mlir.errors import AlgorithmError, CompileError
from spyre_mlir.faults import InternalError
from spyre_mlir.frontend import host_operations, operations
from spyre_mlir.frontend.call_objects import CallOutcome, CallOutcomeForm
from spyre_mlir.frontend.growing_sizes import GrowingSizes, GrowingSizesError
from spyre_mlir.frontend.model_compilation import compile_model
from spyre_mlir.frontend.operations import (
    Number,
    OperationResults,
    ResultPlace,
    are_exact,
    dense_layout,
    is_near,
    is_same,
    number_inputs,
    number_types,
)
from spyre_mlir.frontend.process_groups import over_process_group as over_process_group
from spyre_mlir.frontend.signature import Signature, View, to_numpy, to_tensor
from spyre_mlir.frontend.torch_device import SpyreTensor
from spyre_mlir.layout import BufferView, StickLayout
from spyre_mlir.layout.padding import is_scattered
from spyre_mlir.layout.requests import LayoutRequest, device_dtype
from spyre_mlir.layout.stick_layout import is_convertible, is_restickified
from spyre_mlir.records import dataclass
from spyre_mlir.target.target import default_target
from spyre_mlir.tensors.device_activity import record_compilation, record_device, record_host
from spyre_mlir.tensors.device_tensor import DeviceTensor, Storage, element_type, host_type, laid_out

#: Maximum number of programs in the cache.
_MAX_PROGRAMS = 1024
#: Maximum number of programs of one operation with different numbers as constants.
_MAX_CONSTANTS = 8


@dataclass(eq=False)
class CompiledOperation:
    """The program of an operation or a graph (None if it only returns views of its arguments) and its results.

    ``dtype`` is the type of the numbers that are inputs of the program, after the storages; None if the numbers are
    constants. ``prepared`` speeds up later calls; the first call tries to create it and sets ``is_tried``.
    """

    program: Program | None
    results: operations.OperationResults
    dtype: Any = None
    prepared: PreparedCall | None = None
    is_tried: bool = False


#: Programs by key, the least recently used first; for an operation that cannot be compiled, the error.
Programs = OrderedDict[Hashable, CompiledOperation | CompileError]

programs: Programs = OrderedDict()

growing = GrowingSizes()

#: Integer operations that run entirely on the host, whatever the sizes.
_of_the_host: set[Hashable] = set()


def forget_operations() -> None:
    """Forget the programs of operations, which operations run on the host alone and which sizes grow.

    The three go together: sizes that grow are learned from operations that have no program yet.
    """
    global growing
    growing = GrowingSizes()
    _of_the_host.clear()
    programs.clear()
    families.clear()


class OfTheHostError(CompileError):
    """An integer operation does not need a program, because the host runs all of it."""


to_torch = operations.to_torch
bits = operations.bits
as_torch = SpyreTensor.of


def call(name: str, *arguments: Any, **named: Any) -> Any:
    """Run the operation ``torch.ops.aten.<name>``; result tensors are on the device."""
    # PyTorch does not accept numpy scalars as numbers.
    numbers = [value.item() if isinstance(value, np.generic) else value for value in arguments]
    return _run_anywhere(operations.overload(name, numbers, named), numbers, named)


def _run_anywhere(operation: Any, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
    """Run one operation as a program, or on the host if it is for the host or its sizes grow."""
    try:
        return run(operation, arguments, named)
    except OfTheHostError as error:
        record_host(operation, error.message)
        return host_operations.run(operation, arguments, named).results
    except GrowingSizesError as error:
        record_host(operation, error.message)
        host_operations.report(operation, error.message)
        return host_operations.run(operation, arguments, named, error.examples).results


def run(operation: Any, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
    """Run one PyTorch operation, an ``OpOverload``; the tensors among the arguments are ``DeviceTensor``."""
    applied = operations.Application.of(operation, arguments, named)
    growing.observe(applied)
    leaves, results = execute(applied, programs, compile_model)
    return results.tree.unflatten(leaves)


def execute(
    applied: operations.Application,
    programs: Programs,
    compile: Callable[..., Program],
    results_of: Callable[
        [operations.Application], operations.OperationResults
    ] = operations.OperationResults.of_operation,
) -> tuple[list[Any], operations.OperationResults]:
    """Run an operation or a graph; return the leaves of its results, with tensors on the device.

    The program comes from the cache ``programs``, or is compiled and added to it. ``results_of`` computes the form of
    the results without computing values.
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
        # A number does not fit its layout, or an error occurs that the ordinary call below reports.
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
        if applied.is_operation:
            growing.note_results(applied, leaves)
        known.prepared = PreparedCall.of(program, results, layouts, storages)
    return leaves, results


def _known(
    applied: operations.Application,
    programs: Programs,
    compile: Callable[..., Program],
    results_of: Callable[[operations.Application], operations.OperationResults],
) -> CompiledOperation | CompileError:
    """Return a cached program with these numbers as constants, one with numbers as inputs, or a new program."""
    key = applied.key
    if (known := _used(programs, key)) is not None:
        return known
    numbers = applied.numbers if applied.is_operation else ()
    family = _used(families, applied.key_without(numbers)) if numbers else None
    if family is not None:
        known = family.program(applied, compile)
    if known is None:
        if applied.is_operation:
            growing.check(applied)
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
    """Return the value of a key and make it the most recently used; None for an unknown key."""
    value = cache.get(key)
    if value is not None:
        cache.move_to_end(key)
    return value


def _keep(cache: OrderedDict[Hashable, Any], key: Hashable, value: Any) -> None:
    """Add a value; evict the least recently used value if the cache is full."""
    cache[key] = value
    if len(cache) > _MAX_PROGRAMS:
        cache.popitem(last=False)


class NumberFamily:
    """Programs of one operation on equal tensors with different numbers.

    The first program has the numbers as constants, which gives the best plan. For the second set of numbers, a program
    with numbers as inputs is compiled, and later calls use it. Its results are compared with the results of a program
    with constants, to decide whether an input is rounded to float32, or to the 16-bit type of the tensors as a
    constant may be. If neither gives the same bits, float32 inputs are used, whose 16-bit results are closer to
    PyTorch's results.

    An operation that cannot take its numbers as inputs is compiled for each set of numbers, up to ``_MAX_CONSTANTS``
    programs; after that, it is a ``CompileError``.
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
        """Return the program with numbers as inputs; None if the caller must compile one with constants."""
        types = number_types(applied)
        # Numbers that are exact in the narrowest type do not show where a program rounds them.
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
        """Compile a program with numbers as inputs that agrees with the ``constant`` program; None if there is none."""
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


#: Families by key, the least recently used first.
families: OrderedDict[Hashable, NumberFamily] = OrderedDict()


def _numbers(applied: operations.Application) -> list[Number]:
    """Return the numbers among the arguments of an operation."""
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
    """Compile an operation; ``numbers`` are the leaf indices of the numbers that are ``inputs`` of the program."""
    function = applied.function(results, numbers)
    program = _in_a_thread(lambda: compile(function, [*applied.inputs, *inputs]))
    # PyTorch would run a single operation in pieces itself.
    if not isinstance(program, Program):
        raise program.reason
    # An MLIR context per program would take most of the memory of many small programs.
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
        raise OfTheHostError("integer arithmetic runs on the host")
    try:
        results = results_of(applied)
    except operations.UnknownResultsError:
        # An error of the compiler has a source location, so it takes precedence.
        _program_of(applied, None, compile)
        raise
    if not results.is_computed:
        return CompiledOperation(None, results)
    program = _program_of(applied, results, compile)
    # Whether an integer operation runs on the host or on the device does not depend on sizes.
    values = [*program.arguments, *program.results]
    if not program.bundles and all(host_type(value.host_dtype).kind in "iub" for value in values):
        _of_the_host.add(kind)
    return CompiledOperation(program, results)


def dense_copy(tensor: DeviceTensor) -> DeviceTensor:
    """Copy a device tensor to a tensor with the strides of a dense array."""
    operation, named = operations.DENSE_COPY
    return _run_anywhere(operation, (tensor,), named)


def restickify(tensor: DeviceTensor, **layout: Any) -> DeviceTensor:
    """Copy a device tensor to the layout that the fields of ``LayoutRequest`` describe.

    The host makes the copies that the device does not support: of one-byte elements, to layouts with padding between
    elements, and of elements of more than 16 bits to another stick dim.
    """
    target = LayoutRequest.of_mapping(layout, "the tensor").layout(
        default_target(), tensor.shape, element_type(tensor.dtype), "the tensor"
    )
    dtype = device_dtype(element_type(tensor.dtype))
    stays = BufferView.of(tensor.layout).main_stick_dim == BufferView.of(target).main_stick_dim
    # Checked before a program is compiled, which would fail or warn.
    if not is_convertible(dtype) or is_scattered(target) or not (stays or is_restickified(dtype)):
        return laid_out(tensor.numpy(), tensor.dtype, target)
    return run(operations.RESTICKIFY, (tensor,), layout)


def _in_a_thread(make: Callable[[], Program]) -> Program:
    """Return the result of ``make``, called in a new thread."""
    # Inside an operation, the state of PyTorch's dispatcher differs; it is local to the thread.
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
    """Return the layouts in which the device writes the results; None for results of the host."""
    layouts: dict[str, StickLayout] = {}
    for step in program.bundles:
        results = [argument for argument in step.bundle.manifest.arguments if argument.kind == "result"]
        for name, argument in zip(step.outputs, results, strict=True):
            layouts[name] = layout_of_argument(argument, step.bundle.target)
    return [layouts.get(name) for name in program.returned]


# Prepared calls: a program as a function of storages, with everything precomputed that does not change between calls.
#
# The cache key of an eager program contains the layouts and dtypes of its operands, so a call does not check them.
# A program can be prepared if it reads storages with layouts, returns new tensors and has no other effect.

#: Function from the arrays that a program returns to one result on the device.
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
        """Prepare calls of a program that ran once on these storages; None if its calls cannot be prepared."""
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
        # Results that share a storage cannot be created independently.
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
    """Return whether a call returns the list of the program's results and has no other effect."""
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
    """Return the maker of one result; None unless the result has its own dense memory."""
    if place is None or not place.is_new or layout is None or (dense := dense_layout(place, layout)) is None:
        return None
    (form, order), kind, shape = dense, host_type(dtype), place.strided.shape
    shared = DeviceTensor.of(Storage(form, dtype, np.zeros(0, np.uint8)), place.strided)
    strided, steps = shared.strided, shared.steps

    def made(arrays: Sequence[NDArray[Any]]) -> DeviceTensor:
        """Create the device tensor from the array of the result."""
        array = arrays[index]
        if array.dtype != kind:
            raise CompileError(f"A result has numbers of {array.dtype}, not of {kind}.")
        storage = Storage(form, dtype, np.zeros(form.bytes, np.uint8))
        storage.write(np.ascontiguousarray(array.reshape(shape).transpose(order)))
        return DeviceTensor.viewing(storage, strided, steps)

    return made


def bind_tensors(
    operands: Mapping[str, Any], results: Sequence[Value]
) -> tuple[dict[str, Any], Callable[[Sequence[NDArray[Any]]], list[Tensor]]]:
    """Return the operands with arrays in place of tensors, and the function that converts the arrays of the results.

    The results are tensors on the device of the first tensor among the operands. ``CompileError`` for unsigned
    operands if a result has the same width, because its sign is unknown.
    """
    device = next(value.device for value in operands.values() if isinstance(value, Tensor))
    unsigned = [name for name, value in operands.items() if getattr(value, "dtype", None) == torch.uint8]
    if unsigned and any(result.host_dtype == "int8" and not result.is_unsigned for result in results):
        raise CompileError(
            f"The input '{unsigned[0]}' is uint8, but a program without its model has integers without signs: give "
            "'view(torch.int8)' of the tensor, and view the results as the type that they have."
        )
    arrays = {
        name: to_numpy(value, name) if isinstance(value, Tensor) else value
        for name, value in operands.items()
    }

    def tensors(outputs: Sequence[NDArray[Any]]) -> list[Tensor]:
        types = ("uint8" if result.is_unsigned else result.host_dtype for result in results)
        pairs = zip(outputs, types, strict=True)
        return [to_tensor(output, getattr(torch, dtype)).to(device) for output, dtype in pairs]

    return arrays, tensors
