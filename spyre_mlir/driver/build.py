# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compilation of a linalg module to the steps of a program: one bundle, or alternating bundles and host functions."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from spyre_mlir import problems
from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.bundle.instances import instance
from spyre_mlir.bundle.model import Bundle, LevelLine, Manifest
from spyre_mlir.bundle.sequence import split
from spyre_mlir.compile_lock import without_cycle_search
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.targets import empty_module
from spyre_mlir.dialects.torch_call import TORCH_CALL
from spyre_mlir.driver.collectives import CollectiveStep, MeshPlace
from spyre_mlir.driver.steps import BundleStep, HostStep, Step, TransferList, transfers
from spyre_mlir.errors import AlgorithmError, CompileError, FailedAssertionError
from spyre_mlir.host import HostFunction
from spyre_mlir.lowering.export import cuts_of, export
from spyre_mlir.mlir import indexing_maps, ir
from spyre_mlir.options import show_value
from spyre_mlir.pipelines import SpyrePipeline, Timing, check, run_pipeline
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import Remarks
from spyre_mlir.target.element_types import ELEMENT_TYPES
from spyre_mlir.timing import scope
from spyre_mlir.version import VERSION

#: The step name of a program that is one bundle.
ONLY = "device_0"


@dataclass(frozen=True)
class Value:
    """An argument or result of a program: name, kind (input, parameter, constant or result), and host array type."""

    name: str
    kind: str
    host_shape: tuple[int, ...]
    host_dtype: str
    #: Whether the numbers of an int8 result are uint8 in the model.
    is_unsigned: bool = False


def values_of(manifest: Manifest) -> list[Value]:
    """Return the arguments of a bundle that are host arrays of their own, including its results."""
    return [
        Value(
            argument.name,
            argument.kind,
            argument.host_shape,
            argument.host_dtype,
            argument.kind == "result" and argument.name in manifest.unsigned,
        )
        for argument in manifest.arguments
        if argument.source is None
    ]


@dataclass
class Built:
    """The steps of a program in order. ``arguments`` are the arguments of a call, including weights.

    ``returned`` has the names of the values that a call returns as ``results``. ``place`` is the place of the program
    in a mesh of ranks.
    """

    steps: Sequence[Step]
    arguments: list[Value]
    results: list[Value]
    returned: list[str]
    remarks: Remarks = field(default_factory=Remarks)
    passes: Timing = field(default_factory=Timing)
    seconds: float = 0.0
    place: MeshPlace | None = None

    @property
    def bundles(self) -> list[BundleStep]:
        """The steps that run on the device, in order."""
        return [step for step in self.steps if isinstance(step, BundleStep)]

    @property
    def inputs(self) -> list[Value]:
        """The arguments that a call passes, in order."""
        return [argument for argument in self.arguments if argument.kind == "input"]

    def transfers(self, state: Mapping[str, str] | None = None) -> TransferList:
        """Return, for each step, the transfers between host and device in each call.

        ``state`` maps arguments that stay on the device to the names of their new values.
        """
        present = [value.name for value in self.arguments if value.kind != "input"]
        changed = set((state or {}).values())
        returned = [name for name in self.returned if name not in changed]
        return transfers(self.steps, [*present, *(state or {})], returned)


def plan_text(linalg: ir.Operation, pipeline: SpyrePipeline) -> str:
    """Return the text of the plan file of a program, by compiling the linalg again."""
    module = linalg.clone()
    run_pipeline(module, replace(pipeline, save_plan="").pipeline("placed"))
    return ir.StringAttr(module.operation.attributes[sdsc.PLAN]).value


def device_modules(linalg: ir.Operation, pipeline: SpyrePipeline) -> dict[str, ir.Operation]:
    """Return the parts of a program that the device runs, by the names of their steps."""
    whole = linalg.clone().operation
    run_pipeline(whole, pipeline.partition())
    named = {ir.StringAttr(func.attributes["sym_name"]).value: func for func in functions(whole)}
    return {name: _alone(func).operation for name, func in named.items() if name.startswith("device")}


def built_at(built: Built, sizes: Mapping[str, int]) -> Built:
    """Return ``built`` specialized to run-time sizes; the weights are shared.

    Raise ``CompileError`` for a program of several steps, and for sizes that the program does not support.
    """
    (step, *others) = built.steps
    if others or not isinstance(step, BundleStep):
        raise CompileError("Only a program that is one bundle has run-time sizes.")
    at_size = replace(step, bundle=instance(step.bundle, sizes), module=None, last_run=None)
    shapes = {argument.name: argument.host_shape for argument in at_size.bundle.manifest.arguments}
    labels = [argument.name for argument in at_size.bundle.manifest.arguments if argument.kind == "result"]
    return replace(
        built,
        steps=[at_size],
        arguments=[
            replace(value, host_shape=shapes.get(value.name, value.host_shape)) for value in built.arguments
        ],
        results=[
            replace(value, host_shape=shapes[label])
            for value, label in zip(built.results, labels, strict=True)
        ],
    )


@without_cycle_search()
def build(module: ir.Module, pipeline: SpyrePipeline, fallback: bool = True) -> Built:
    """Compile ``module`` in place; with ``fallback``, the host runs the operations that the device cannot run.

    A module that starts below the linalg level has no fallback. Raise the pipeline's ``CompileError`` if there is no
    fallback, or if the host cannot run the operations either.
    """
    begun = time.perf_counter()
    if pipeline.insert or pipeline.passes:
        # A misspelt pass name is an error and does not trigger the host fallback.
        check(pipeline.pipeline(), module.context)
    entries = functions(module.operation)
    # The private functions of a module with one public function are inlined into it.
    if len(entries) > 1 and sum("sym_visibility" not in func.attributes for func in entries) == 1:
        run_pipeline(module, "builtin.module(inline,symbol-dce)")
        entries = functions(module.operation)
    # Before the pipeline, which changes the module in place: callers see the original arguments, and the host
    # runs the original operations.
    arguments, results = [], []
    if len(entries) == 1:
        arguments = _arguments(entries[0])
        types = ir.FunctionType(ir.TypeAttr(entries[0].attributes["function_type"]).value).results
        results = [_value(f"result{number}", "result", type_) for number, type_ in enumerate(types)]
    source = module.operation.clone() if fallback and not pipeline.from_level else None
    remarks, timing = Remarks(), Timing()
    try:
        compiled = _bundles(ONLY, module, pipeline, remarks, timing)
    # Do not fall back to the host to hide an error in a user-defined algorithm.
    except (AlgorithmError, FailedAssertionError):
        raise
    except CompileError as error:
        parts = _partitioned(source, pipeline, error) if source is not None else None
        if parts is None:
            raise
        steps, returned, remarks, timing = parts
    else:
        if pipeline.from_level == "bundle":
            # The host passes the arrays of all arguments of the bundle except its constants.
            values = values_of(compiled.whole.manifest)
            arguments = [value for value in values if value.kind not in ("result", "constant")]
            results = [value for value in values if value.kind == "result"]
        returned = [value.name for value in results]
        steps = compiled.wired([value.name for value in arguments], returned)
    return Built(steps, arguments, results, returned, remarks, timing, time.perf_counter() - begun)


@dataclass(frozen=True)
class _Compiled:
    """A module as one bundle, and the steps into which the bundle is split, usually one."""

    whole: Bundle
    steps: list[BundleStep]

    def wired(self, inputs: Sequence[str], outputs: Sequence[str]) -> list[BundleStep]:
        """Set the inputs and outputs of each step; all steps together read ``inputs`` and write ``outputs``."""
        labels = [argument.name for argument in self.whole.manifest.arguments if argument.kind == "result"]
        names = dict(zip(labels, outputs, strict=True))
        for step in self.steps:
            arguments = step.bundle.manifest.arguments
            array_names = {argument.array_name for argument in arguments if argument.kind != "result"}
            # Passes may have removed arguments that are not read any more, such as masks.
            step.inputs = tuple(name for name in inputs if name in array_names)
            step.outputs = tuple(names[argument.name] for argument in arguments if argument.kind == "result")
        return self.steps


def _bundles(
    name: str, module: ir.Module, pipeline: SpyrePipeline, remarks: Remarks, timing: Timing
) -> _Compiled:
    """Compile a module to bundles; ``_Compiled.wired`` sets their inputs and outputs afterwards."""
    # Before the pipeline, whose passes replace the operations that are counted.
    work = sum(float_operations(func) for func in functions(module.operation))
    module_remarks = Remarks()
    known = len(timing)
    with timing.collecting(), problems.of_bundle(name):
        levels: dict[str, Sequence[LevelLine]] = {}
        run_pipeline(module, pipeline.pipeline(), timing=timing, remarks=module_remarks, levels=levels)
        whole, arrays = export(module)
    whole = replace(whole, manifest=replace(whole.manifest, made=_made(pipeline)))
    remarks.extend(module_remarks)
    passes = list(timing)[known:]
    parts = split(whole, cuts_of(module))
    steps = []
    for number, part in enumerate(parts):
        # The IR describes the whole bundle, so a step that is only a part of it has no IR.
        is_whole = len(parts) == 1
        read = {argument.name for argument in part.manifest.arguments}
        steps.append(
            BundleStep(
                name if is_whole else f"{name}_{number}",
                (),
                (),
                module if is_whole else None,
                part,
                {name: array for name, array in arrays.items() if name in read},
                list(module_remarks),
                passes,
                pipeline.lx_frac_avail,
                # Work is counted before the cuts are known, so it is distributed over the parts in proportion
                # to the number of their uses.
                work * len(part.manifest.uses) // max(len(whole.manifest.uses), 1),
                levels=levels,
            )
        )
    return _Compiled(whole, steps)


def _made(pipeline: SpyrePipeline) -> dict[str, str]:
    """Return the version of the compiler, and the options of the pipeline as ``--pipeline`` takes them.

    Plan files are paths of a machine, and their decisions are in the bundle.
    """
    given = {
        name: value for name, value in pipeline.changed().items() if name not in ("use_plan", "save_plan")
    }
    options = " ".join(f"{name.replace('_', '-')}={show_value(value)}" for name, value in given.items())
    return {"version": VERSION, **({"options": options} if options else {})}


def _partitioned(
    source: ir.OpView, pipeline: SpyrePipeline, error: CompileError
) -> tuple[list[Step], list[str], Remarks, Timing] | None:
    """Compile a program to device and host steps; return None if the program cannot be partitioned."""
    # A plan file describes one bundle.
    if pipeline.use_plan is not None or pipeline.save_plan is not None:
        return None
    whole = source.operation
    remarks, timing = Remarks(), Timing()
    try:
        run_pipeline(whole, pipeline.partition(), remarks=remarks, timing=timing)
    except (AlgorithmError, FailedAssertionError):
        raise
    except CompileError:
        # The first error says why the device cannot run the whole program; the second only says that the host
        # cannot run the rest.
        raise error from error.__cause__
    callees = {ir.StringAttr(func.attributes["sym_name"]).value: func for func in functions(whole)}
    main = callees.pop("main", None)
    if main is None or not callees:
        return None
    # The calls of @main in order: callee, names of the operands, names of the results.
    calls: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []
    returned: list[str] = []
    block = main.regions[0].blocks[0]
    names = dict(zip(block.arguments, (value.name for value in _arguments(main)), strict=True))
    for op in (op.operation for op in block.operations):
        operands = tuple(names[value] for value in op.operands)
        if op.name == "func.call":
            callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
            result_names = tuple(f"{callee}.{number}" for number in range(len(op.results)))
            names.update(zip(op.results, result_names, strict=True))
            calls.append((callee, operands, result_names))
        elif op.name == "func.return":
            returned = list(operands)
        else:
            names[op.results[0]] = operands[0]
    # A call in the source program, which the device passes reject.
    if any(name not in callees for name, *_ in calls):
        return None
    steps: list[Step] = []
    for number, (name, inputs, outputs) in enumerate(calls, 1):
        with timing.collecting(), scope(name, "stages", place=(number, len(calls))):
            func = callees[name]
            if name.startswith("collective"):
                steps.append(CollectiveStep.of(name, inputs, outputs, func))
                continue
            module = _alone(func)
            if name.startswith("device"):
                steps += _bundles(name, module, pipeline, remarks, timing).wired(inputs, outputs)
                continue
            try:
                function = HostFunction(module)
            except CompileError:
                raise error from error.__cause__
            work = float_operations(callees[name])
            steps.append(HostStep(name, inputs, outputs, function, function.operations, work))
    return steps, returned, remarks, timing


def _alone(func: ir.Operation) -> ir.Module:
    """Return a module for the same target with a copy of one function, named @main."""
    with func.context, func.location:
        module = empty_module(func)
        copy = func.clone(ir.InsertionPoint(module.body)).operation
        copy.attributes["sym_name"] = ir.StringAttr.get("main")
    return module


def _arguments(func: ir.Operation) -> list[Value]:
    arg_attrs = list(func.attributes["arg_attrs"]) if "arg_attrs" in func.attributes else []
    values = []
    for number, value in enumerate(func.regions[0].blocks[0].arguments):
        attrs = ir.DictAttr(arg_attrs[number]) if arg_attrs else ir.DictAttr.get({}, func.context)
        if sdsc.HOST in attrs:  # a level below linalg
            host = attrs[sdsc.HOST]
            label, kind, dtype = (
                ir.StringAttr(attribute).value for attribute in (host.label, host.kind, host.dtype)
            )
            values.append(_value(label, kind, value.type, dtype))
            continue
        name = ir.StringAttr(attrs["spyre.name"]).value if "spyre.name" in attrs else f"arg{number}"
        kind = ir.StringAttr(attrs["spyre.kind"]).value if "spyre.kind" in attrs else "input"
        values.append(_value(name, kind, value.type))
    return values


def _value(name: str, kind: str, type_: ir.Type, element: str = "") -> Value:
    """Create a value from a type; a type that is not a tensor gets an empty shape, and the pipeline rejects it."""
    if not isinstance(type_, ir.RankedTensorType):
        return Value(name, kind, (), str(type_))
    element = element or str(ir.RankedTensorType(type_).element_type)
    dtype = ELEMENT_TYPES[element].host if element in ELEMENT_TYPES else element
    return Value(name, kind, tuple(ir.RankedTensorType(type_).shape), dtype)


# Floating-point work of a linalg function, to compare the host's share with the device's share.

#: Scalar floating-point operations that count as work; casts and selections do not count.
_COMPUTES = re.compile(
    r"arith\.(addf|subf|mulf|divf|remf|negf|cmpf|maximumf|minimumf|maxnumf|minnumf)"
    r"|math\.(?!absi|ctlz|cttz|ctpop|ipowi)"
)

_FLOATS = ir.FloatType | ir.F16Type | ir.BF16Type | ir.F32Type | ir.F64Type


def float_operations(func: ir.Operation) -> int:
    """Return the number of scalar floating-point operations in a call, including all loop iterations."""
    return sum(
        _work_of(op.operation)
        for region in func.regions
        for block in region.blocks
        for op in block.operations
    )


def _work_of(op: ir.Operation) -> int:
    """Return the floating-point operations of one execution of an op; loops and bodies count by their iterations."""
    if _COMPUTES.match(op.name):
        return int(isinstance(op.operands[0].type, _FLOATS))
    if op.name == TORCH_CALL:
        # The work of a kernel is unknown; the elements of its largest tensor of floats are a lower bound.
        return _elements([*op.operands, *op.results], floats_only=True)
    inner = float_operations(op)
    if not inner:
        return 0
    if op.name == "scf.for":
        # A loop with bounds that are not constant counts once.
        bounds = [bound.owner for bound in list(op.operands)[:3]]
        if any(isinstance(owner, ir.Block) or owner.name != "arith.constant" for owner in bounds):
            return inner
        return inner * len(range(*(ir.IntegerAttr(owner.attributes["value"]).value for owner in bounds)))
    # Ops of other dialects, such as a scan, do not have maps: their body runs once per element.
    if not op.name.startswith("linalg."):
        return inner * max(_elements([*op.operands, *op.results]), 1)
    extents: dict[int, int] = {}
    for value, map_ in zip(op.operands, indexing_maps(op), strict=True):
        if isinstance(value.type, ir.RankedTensorType):
            for result, size in zip(map_.results, ir.RankedTensorType(value.type).shape, strict=True):
                # Other results of a map, such as a sliding window, give no extent.
                if isinstance(result, ir.AffineDimExpr):
                    extents[result.position] = size
    return inner * math.prod(extents.values())


def _elements(values: Sequence[ir.Value], floats_only: bool = False) -> int:
    """Return the number of elements of the largest tensor among values; 0 without a tensor."""
    types = [
        ir.RankedTensorType(value.type) for value in values if isinstance(value.type, ir.RankedTensorType)
    ]
    counts = (
        math.prod(type_.shape)
        for type_ in types
        if not floats_only or isinstance(type_.element_type, _FLOATS)
    )
    return max(counts, default=0)
