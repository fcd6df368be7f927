"""From a linalg module to the steps of a program: one bundle, or bundles and host functions in turn."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from numpy.typing import NDArray

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.bundle.model import Bundle, Manifest
from spyre_mlir.bundle.sequence import split
from spyre_mlir.dialects import sdsc
from spyre_mlir.driver.steps import BundleStep, HostStep, Step
from spyre_mlir.driver.transfers import Transfers, transfers
from spyre_mlir.errors import CompileError
from spyre_mlir.host import HostFunction
from spyre_mlir.host.float_operations import float_operations
from spyre_mlir.lowering.export import cuts_of, export
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import SpyrePipeline, Timing, run_pipeline
from spyre_mlir.remarks import Remarks
from spyre_mlir.target.element_types import ELEMENT_TYPES
from spyre_mlir.timing import scope

#: The name of a program that is one bundle, where steps are named.
ONLY = "device_0"


@dataclass(frozen=True)
class Value:
    """An argument of a program: its name, its kind (input, parameter or constant), and the array of the host."""

    name: str
    kind: str
    host_shape: tuple[int, ...]
    host_dtype: str


@dataclass
class Built:
    """The steps in order. ``arguments`` are what the program is called with, weights included.

    ``returned`` are the names of the values that ``results`` are.
    """

    steps: Sequence[Step]
    arguments: list[Value]
    results: list[Value]
    returned: list[str]
    remarks: Remarks = field(default_factory=Remarks)
    passes: Timing = field(default_factory=Timing)
    seconds: float = 0.0

    def transfers(self) -> list[Transfers]:
        """What each step moves between host and device at each call."""
        weights = [value.name for value in self.arguments if value.kind != "input"]
        return transfers(self.steps, weights, self.returned)


def build(module: ir.Module, pipeline: SpyrePipeline, fallback: bool = True) -> Built:
    """Compile ``module`` in place; what the device cannot run goes to the host if there is a ``fallback``.

    A module that is at a level of ours already has no other way. Raises ``CompileError``: what the pipeline says where
    the host cannot help or must not.
    """
    begun = time.perf_counter()
    found = functions(module.operation)
    arguments, results = (_arguments(found[0]), _results(found[0])) if len(found) == 1 else ([], [])
    source = module.operation.clone() if fallback and not pipeline.from_level else None
    remarks, timing = Remarks(), Timing()
    try:
        made = _bundles(ONLY, module, pipeline, remarks, timing)
    except CompileError as error:
        parts = _partitioned(source, pipeline, error) if source is not None else None
        if parts is None:
            raise
        steps, returned, remarks, timing = parts
    else:
        if pipeline.from_level == "bundle":
            arguments, results = _of_manifest(made.whole.manifest)
        returned = [value.name for value in results]
        steps = made.wired([value.name for value in arguments], returned)
    return Built(steps, arguments, results, returned, remarks, timing, time.perf_counter() - begun)


def _of_manifest(manifest: Manifest) -> tuple[list[Value], list[Value]]:
    """Arguments and results of a module that is a bundle already: those whose arrays the host gives and takes."""
    values = [
        Value(each.name, each.kind, each.host_shape, each.host_dtype)
        for each in manifest.arguments
        if each.source is None
    ]
    return [each for each in values if each.kind not in ("result", "constant")], [
        each for each in values if each.kind == "result"
    ]


@dataclass(frozen=True)
class _Compiled:
    """A module as a bundle, and as the steps that it is cut into, mostly one."""

    whole: Bundle
    steps: list[BundleStep]

    def wired(self, inputs: Sequence[str], outputs: Sequence[str]) -> list[BundleStep]:
        """The steps with the names of the values that they take and give; together they take ``inputs``."""
        labels = [each.name for each in self.whole.manifest.arguments if each.kind == "result"]
        names = dict(zip(labels, outputs, strict=True))
        for step in self.steps:
            arguments = step.bundle.manifest.arguments
            taken = {each.array_name for each in arguments if each.kind != "result"}
            step.inputs = tuple(name for name in inputs if len(self.steps) == 1 or name in taken)
            step.outputs = tuple(names[each.name] for each in arguments if each.kind == "result")
        return self.steps


def _bundles(
    name: str, module: ir.Module, pipeline: SpyrePipeline, remarks: Remarks, timing: Timing
) -> _Compiled:
    """The bundles of a module, whose inputs and outputs are yet to be named."""
    work = sum(float_operations(func) for func in functions(module.operation))
    own = Remarks()
    known = len(timing)
    with timing.collecting():
        run_pipeline(module, pipeline.pipeline(), timing=timing, remarks=own)
        whole, arrays = export(module)
    remarks.extend(own)
    passes = list(timing)[known:]
    parts = split(whole, cuts_of(module))
    steps = []
    for number, part in enumerate(parts):
        is_whole = len(parts) == 1
        steps.append(
            BundleStep(
                name if is_whole else f"{name}_{number}",
                (),
                (),
                module if is_whole else None,
                part,
                _of_arguments(part, arrays),
                list(own),
                passes,
                pipeline.lx_frac_avail,
                work * len(part.manifest.uses) // max(len(whole.manifest.uses), 1),
            )
        )
    return _Compiled(whole, steps)


def _of_arguments(bundle: Bundle, arrays: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """The arrays of constants that a bundle has as arguments."""
    names = {each.name for each in bundle.manifest.arguments}
    return {name: array for name, array in arrays.items() if name in names}


def _partitioned(
    source: ir.OpView, pipeline: SpyrePipeline, error: CompileError
) -> tuple[list[Step], list[str], Remarks, Timing] | None:
    """The program in several steps; None if the device could run all of it alone, or the host cannot help."""
    if pipeline.use_plan is not None or pipeline.save_plan is not None:
        return None
    whole = source.operation
    remarks, timing = Remarks(), Timing()
    try:
        run_pipeline(whole, pipeline.partition(), remarks=remarks, timing=timing)
    except CompileError:
        raise error from error.__cause__
    found = {_name(func): func for func in functions(whole)}
    main = found.pop("main", None)
    if main is None or not found:
        return None
    wiring = _Wiring(main)
    steps: list[Step] = []
    for number, (name, inputs, outputs) in enumerate(wiring.calls, 1):
        with timing.collecting(), scope(name, "stages", place=(number, len(wiring.calls))):
            made = _step(name, found[name], pipeline, remarks, timing, error)
        if isinstance(made, _Compiled):
            steps += made.wired(inputs, outputs)
        else:
            made.inputs, made.outputs = inputs, outputs
            steps.append(made)
    return steps, wiring.results, remarks, timing


def _step(
    name: str,
    func: ir.Operation,
    pipeline: SpyrePipeline,
    remarks: Remarks,
    timing: Timing,
    error: CompileError,
) -> _Compiled | HostStep:
    """A function as bundles or as a host step.

    ``error`` is why there are several, and is raised if the host cannot run its part.
    """
    module = _alone(func)
    if name.startswith("device"):
        return _bundles(name, module, pipeline, remarks, timing)
    try:
        function = HostFunction(module)
    except CompileError:
        raise error from error.__cause__
    return HostStep(name, (), (), function, function.operations, float_operations(func))


def _alone(func: ir.Operation) -> ir.Module:
    """A module with a copy of one function, as @main."""
    with func.context, func.location:
        made = ir.Module.create()
        copy = func.clone(ir.InsertionPoint(made.body)).operation
        copy.attributes["sym_name"] = ir.StringAttr.get("main")
    return made


class _Wiring:
    """The calls of @main in order: (callee, names of its operands, names of its results)."""

    def __init__(self, main: ir.Operation) -> None:
        block = main.regions[0].blocks[0]
        names = dict(zip(block.arguments, (value.name for value in _arguments(main)), strict=True))
        self.calls: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []
        self.results: list[str] = []
        for op in (each.operation for each in block.operations):
            operands = tuple(names[value] for value in op.operands)
            if op.name == "func.call":
                callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
                made = tuple(f"{callee}.{number}" for number in range(len(op.results)))
                names.update(zip(op.results, made, strict=True))
                self.calls.append((callee, operands, made))
            elif op.name == "func.return":
                self.results = list(operands)
            else:
                names[op.results[0]] = operands[0]


def _arguments(func: ir.Operation) -> list[Value]:
    given = list(func.attributes["arg_attrs"]) if "arg_attrs" in func.attributes else []
    values = []
    for number, value in enumerate(func.regions[0].blocks[0].arguments):
        attrs = ir.DictAttr(given[number]) if given else ir.DictAttr.get({}, func.context)
        if sdsc.HOST in attrs:  # a level below linalg
            host = attrs[sdsc.HOST]
            label, kind, dtype = (ir.StringAttr(each).value for each in (host.label, host.kind, host.dtype))
            values.append(_value(label, kind, value.type, dtype))
            continue
        name = ir.StringAttr(attrs["spyre.name"]).value if "spyre.name" in attrs else f"arg{number}"
        kind = ir.StringAttr(attrs["spyre.kind"]).value if "spyre.kind" in attrs else "input"
        values.append(_value(name, kind, value.type))
    return values


def _results(func: ir.Operation) -> list[Value]:
    types = ir.FunctionType(ir.TypeAttr(func.attributes["function_type"]).value).results
    return [_value(f"result{number}", "result", type_) for number, type_ in enumerate(types)]


def _value(name: str, kind: str, type_: ir.Type, element: str = "") -> Value:
    """What is no tensor has no shape here; the pipeline says that it is no program."""
    if not isinstance(type_, ir.RankedTensorType):
        return Value(name, kind, (), str(type_))
    element = element or str(ir.RankedTensorType(type_).element_type)
    dtype = ELEMENT_TYPES[element].host if element in ELEMENT_TYPES else element
    return Value(name, kind, tuple(ir.RankedTensorType(type_).shape), dtype)


def _name(func: ir.Operation) -> str:
    return ir.StringAttr(func.attributes["sym_name"]).value
