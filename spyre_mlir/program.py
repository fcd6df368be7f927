"""The Python API: compile a model or a module, run it, look at it, save it."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from spyre_mlir.argument_layouts import choices, set_layouts
from spyre_mlir.bundle import write_bundle
from spyre_mlir.bundle.model import Argument, Bundle, Transfer
from spyre_mlir.bundle.transfer import same_moves
from spyre_mlir.device_tensor import DeviceTensor
from spyre_mlir.diagnostics import of_remark
from spyre_mlir.dialects import context as new_context
from spyre_mlir.dialects import sdsc
from spyre_mlir.errors import CompileError
from spyre_mlir.export import export
from spyre_mlir.mlir import ir
from spyre_mlir.options import show_value
from spyre_mlir.pipelines import SpyrePipeline, Timing, run_pipeline
from spyre_mlir.remarks import WARNING, Remark, Remarks
from spyre_mlir.report.program_facts import ProgramFacts, program_facts
from spyre_mlir.report.summary import summarize
from spyre_mlir.simulator import Result, run
from spyre_mlir.timeline import Timeline, timeline

__all__ = ["Program", "Traffic", "compile", "torch_backend"]


@dataclass(frozen=True)
class Traffic:
    """HBM bytes of one run, counted by the simulator. ``by_op`` lists (opcode, read, written) per execution."""

    read_bytes: int
    written_bytes: int
    by_op: tuple[tuple[str, int, int], ...]


class Program:
    """A compiled program: a bundle and what the host needs to call it.

    ``module`` is the IR at the bundle level, ``remarks`` are the decisions of all passes,
    ``compile_seconds`` the time of the pipeline, ``passes`` that of each pass, ``lx_frac_avail`` the part of LX
    that the program may not use.
    """

    def __init__(
        self,
        module: ir.Module,
        bundle: Bundle,
        arrays: dict[str, np.ndarray],
        remarks: list[Remark],
        compile_seconds: float,
        numerics: str = "ieee",
        lx_frac_avail: float | None = None,
        passes: Sequence[tuple[str, float]] = (),
    ) -> None:
        self.module = module
        self.bundle = bundle
        self.arrays = arrays
        self.remarks = remarks
        self.compile_seconds = compile_seconds
        self.numerics = numerics
        self.lx_frac_avail = lx_frac_avail
        self.passes = passes
        self.last_run: Result | None = None
        self._operands: Callable[..., dict[str, np.ndarray | DeviceTensor]] = self._by_position
        self._unflatten: Callable[[list[np.ndarray]], Any] = _one_or_all
        self._plan_text: Callable[[], str] | None = None

    @property
    def inputs(self) -> list[Argument]:
        """The arguments that a call gives, in order."""
        arguments = self.bundle.manifest.arguments
        return [argument for argument in arguments if argument.kind == "input" and argument.source is None]

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Runs the program on the simulator and returns what the model would (arrays for a .mlir program).

        A ``DeviceTensor`` is taken where its layout is that of the argument.
        """
        arguments = {argument.name: argument for argument in self.bundle.manifest.arguments}
        given = {
            name: _on_the_host(arguments[name], value) if isinstance(value, DeviceTensor) else value
            for name, value in self._operands(*inputs, **named).items()
        }
        self.last_run = run(self.bundle, {**self.arrays, **given}, self.numerics, self.lx_frac_avail)
        results = [argument.name for argument in self.bundle.manifest.arguments if argument.kind == "result"]
        return self._unflatten([self.last_run.outputs[name] for name in results])

    def _by_position(self, *inputs: Any, **named: Any) -> dict[str, np.ndarray | DeviceTensor]:
        if named:
            raise CompileError(
                f"The inputs of this program are given by position, not by name as '{next(iter(named))}'."
            )
        if len(inputs) != len(self.inputs):
            raise CompileError(f"The program takes {len(self.inputs)} inputs, not {len(inputs)}.")
        return {
            argument.name: value if isinstance(value, DeviceTensor) else _array(argument, value)
            for argument, value in zip(self.inputs, inputs, strict=True)
        }

    def traffic(self) -> Traffic:
        """The HBM bytes of the last run."""
        if self.last_run is None:
            raise CompileError("The program has not run yet; call it first.")
        statistics = self.last_run.statistics
        by_op = tuple(
            (each.opcode, each.read_bytes, each.write_bytes) for each in statistics.executes.values()
        )
        return Traffic(statistics.read_bytes, statistics.write_bytes, by_op)

    def summary(self) -> str:
        """One page: operations, cores, traffic, LX, spills with reasons, predicted time, compile time.

        It needs no run; after one it compares the traffic of the last run with the planned one.
        """
        return summarize(self.facts(), self.compile_seconds, self.last_run and self.last_run.statistics)

    def facts(self) -> ProgramFacts:
        """What the summary and the page of ``report`` tell, as numbers."""
        return program_facts(self.bundle, self.remarks, self.passes, self.lx_frac_avail)

    def timeline(self) -> Timeline:
        """How long the program takes by a simulation of the device, and why; to rank plans, not to predict times."""
        return timeline(self.bundle, self.lx_frac_avail)

    def save(self, folder: str | Path) -> None:
        """Writes the bundle folder, parameters and constants included, so that ``spyre-run`` can run it.

        The remarks are there too, for ``spyre-report``.
        """
        write_bundle(self.bundle, folder, self.arrays, self.remarks)

    def plan(self) -> dict[str, Any]:
        """What was decided about every operation, to be edited and given to ``compile`` as ``plan``.

        ``docs/plans.md`` says what is in it. The program is compiled once more for it, with the same plan file if
        it was made with one.
        """
        if self._plan_text is None:
            raise CompileError("Only a program that compile made has a plan; use its option save_plan.")
        return json.loads(self._plan_text())

    def report(self, path: str | Path) -> None:
        """Writes a page of HTML about the program: that of ``spyre-report``, with the time of each pass."""
        from spyre_mlir.report.page import page

        try:
            Path(path).write_text(page(self.facts(), self.bundle, Path(path).stem), encoding="utf-8")
        except OSError as error:
            raise CompileError(f"The file '{path}' cannot be written: {error.strerror}.") from None


def compile(
    module_or_mlir: Any,
    inputs: Sequence[Any] = (),
    *,
    sencores: int | None = None,
    precision: str = "device",
    numerics: str = "ieee",
    layouts: Mapping[str | int, Any] | None = None,
    plan: Mapping[str, Any] | str | Path | None = None,
    **pipeline_options: Any,
) -> Program:
    """Compile a ``torch.nn.Module``, a function, an exported program, or MLIR (text, path, ``ir.Module``).

    ``inputs`` are example inputs of a PyTorch model. ``sencores`` is the number of cores, 1 to 32
    (default: SENCORES, or 32). ``precision`` is "device" (fp16 islands stay fp16) or "strict" (the types
    of the linalg). ``numerics`` is that of the simulator, "ieee" or bit-true "dl16". ``layouts`` chooses the
    layouts of inputs, parameters and constants, by name or by the position of an input: each is a mapping
    with the ``stick_dims``, ``dim_order`` and ``stick_outermost`` of ``to_device``; an input that is a
    ``DeviceTensor`` says its own. ``plan`` has to hold: a plan file, or what ``Program.plan`` gives. Other options are
    those of the spyre pipeline. Warnings of passes are Python's. Raises ``CompileError``.
    """
    options = {"sencores": sencores, "precision": precision, **pipeline_options}
    given = (f"{name}={show_value(value)}" for name, value in options.items() if value is not None)
    pipeline = SpyrePipeline.parse(" ".join(given))
    chosen = choices(layouts or {}, pipeline.stick_outermost)
    if isinstance(module_or_mlir, ir.Module | str | Path):
        module = _parsed(module_or_mlir)
        laid_out = {at: each.layout for at, each in enumerate(inputs) if isinstance(each, DeviceTensor)}
        set_layouts(module, laid_out, chosen)
        return _compiled(module, pipeline, numerics, plan)
    from spyre_mlir.frontend import import_torch

    imported = import_torch(module_or_mlir, inputs, context=new_context())
    set_layouts(imported.module, imported.input_layouts, chosen)
    program = _compiled(imported.module, pipeline, numerics, plan)
    given = [argument for argument in imported.arguments if argument.kind != "input"]
    from spyre_mlir.frontend.importer import to_numpy

    program.arrays.update({argument.name: to_numpy(argument.tensor) for argument in given})

    def operands(*values: Any, **named: Any) -> dict[str, np.ndarray | DeviceTensor]:
        arrays = imported.operands(*values, **named)
        return {argument.name: array for argument, array in zip(imported.arguments, arrays, strict=True)}

    program._operands = operands
    program._unflatten = imported.unflatten
    return program


def torch_backend(
    graph: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable:
    """The backend of ``torch.compile``: each graph of the model is a program on the simulator.

    ``torch.compile(model, backend=spyre_mlir.torch_backend, options={"sencores": 8})``; the options are those of
    ``compile``. For inference: what cannot be compiled is a ``CompileError`` of the call.
    """
    from spyre_mlir.frontend.dynamo import CompiledGraph

    return CompiledGraph(graph, partial(compile, **(options or {})))


def _parsed(source: ir.Module | str | Path) -> ir.Module:
    """A module of our own: from text, from a file, or a copy of the caller's."""
    if isinstance(source, ir.Module):
        return ir.Module.parse(str(source.operation.get_asm(enable_debug_info=True)), new_context())
    from spyre_mlir.diagnostics import compile_error

    is_file = isinstance(source, Path) or ("\n" not in source and source.endswith(".mlir"))
    try:
        if is_file:
            return ir.Module.parseFile(str(source), new_context())
        return ir.Module.parse(str(source), new_context())
    except ir.MLIRError as error:
        raise compile_error(error, "The module cannot be parsed.") from error


def _compiled(
    module: ir.Module,
    pipeline: SpyrePipeline,
    numerics: str,
    plan: Mapping[str, Any] | str | Path | None = None,
) -> Program:
    if plan is not None:
        pipeline = replace(pipeline, use_plan=_given_plan(module, plan))
    source = module.operation.clone()
    remarks, timing = Remarks(), Timing()
    begun = time.perf_counter()
    run_pipeline(module, pipeline.pipeline(), timing=timing, remarks=remarks)
    seconds = time.perf_counter() - begun
    bundle, arrays = export(module)
    program = Program(
        module, bundle, arrays, list(remarks), seconds, numerics, pipeline.lx_frac_avail, timing
    )
    program._plan_text = partial(_plan_text, source, pipeline)
    for remark in remarks.of_kind(WARNING):
        warnings.warn(str(of_remark(remark)), stacklevel=3)
    return program


def _given_plan(module: ir.Module, plan: Mapping[str, Any] | str | Path) -> str:
    """The name of a plan file; empty for a plan that the module now carries."""
    if isinstance(plan, str | Path):
        return str(plan)
    try:
        text = json.dumps(plan)
    except (TypeError, ValueError) as error:
        raise CompileError(f"The plan has a value that JSON has not: {error}.") from None
    module.operation.attributes[sdsc.PLAN] = ir.StringAttr.get(text, module.context)
    return ""


def _plan_text(source: ir.OpView, pipeline: SpyrePipeline) -> str:
    """The plan file of a program, which is compiled once more."""
    module = source.operation.clone()
    run_pipeline(module, replace(pipeline, save_plan="").pipeline("placed"))
    return ir.StringAttr(module.operation.attributes[sdsc.PLAN]).value


def _array(argument: Argument, value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as error:
        raise CompileError(
            f"The input '{argument.name}' is not an array: {str(error).rstrip('.')}."
        ) from error


def _on_the_host(argument: Argument, value: DeviceTensor) -> np.ndarray:
    """The array of a tensor that lies as the argument wants it; the simulator loads it into its own memory."""
    is_like = value.shape == argument.host_shape and value.dtype == argument.host_dtype
    if is_like and not same_moves(value.transfer, argument.transfer):
        raise CompileError(
            f"The input '{argument.name}' is laid out as {_described(value.layout.device_size, value.transfer)}, "
            f"but the program takes it as {_described(argument.device_size, argument.transfer)}."
        )
    return value.numpy()


def _described(device_size: Sequence[int], transfer: Transfer) -> str:
    return f"device size {list(device_size)} with host strides {list(transfer.host_strides)}"


def _one_or_all(arrays: list[np.ndarray]) -> Any:
    return arrays[0] if len(arrays) == 1 else tuple(arrays)
