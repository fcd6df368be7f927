# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Graphs of torch.compile: each is compiled by the pipeline of a model and runs on the simulator.

Dynamo makes the parameters of a model inputs of its graph. They are still parameters of the program, and each call
passes their data again. A graph is compiled when it is called, once for each combination of shapes and names of dims,
so an error is a ``CompileError`` of the call. A graph with dynamic shapes becomes a program per shape; dims to which
``torch._dynamo.mark_dynamic`` gives a largest size share one program.

If a gradient is needed, AOTAutograd splits a graph into a forward and a backward graph; both are compiled in this way.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

import torch
import torch._dynamo.config
import torch._inductor.config
from torch._C._dynamo.eval_frame import set_eval_frame
from torch._decomp import core_aten_decompositions
from torch._dynamo import trace_rules
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.repro.after_dynamo import WrapBackendDebug
from torch._dynamo.utils import graph_break_reasons
from torch._functorch._aot_autograd import runtime_wrappers
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._guards import CompileContext
from torch._higher_order_ops.wrap import tag_activation_checkpoint
from torch._prims import rng_prims
from torch._subclasses import fake_tensor
from torch.amp.autocast_mode import _enter_autocast
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_aggregate
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.checkpoint import checkpoint

from spyre_mlir import faults
from spyre_mlir.errors import CompileError, UncapturedError, UnsupportedDtypeError
from spyre_mlir.frontend.autocast import autocast_dtype, autocasting
from spyre_mlir.frontend.dynamic_inputs import SizedGraph, ignoring_marks
from spyre_mlir.frontend.graph_edits import as_function
from spyre_mlir.frontend.hints import dim_sizes, name_tensor_dims, names_of, take_input_names
from spyre_mlir.frontend.host_operations import report
from spyre_mlir.frontend.kernel_calls import UnloweredError
from spyre_mlir.frontend.locations import source_of
from spyre_mlir.frontend.operations import (
    Application,
    OperationResults,
    UnknownResultsError,
    UnsharedMemoryError,
)
from spyre_mlir.frontend.random_numbers import UndrawnError
from spyre_mlir.frontend.sharded_models import LocalModel, compiled_shards, is_on_a_mesh
from spyre_mlir.frontend.storage import inexact_write
from spyre_mlir.frontend.torch_device import NAME, SpyreTensor, histc, operand
from spyre_mlir.mlir import called_name
from spyre_mlir.records import dataclass
from spyre_mlir.target.element_types import dtype_name
from spyre_mlir.tensors.device_tensor import DeviceTensor, eager

# Names of graphs of torch.compile, and the places of graph breaks, for reports.

Kind = Literal["graph", "forward", "backward"]

#: A frame in the stack that Dynamo records for a node, and the name of a function resumed after a graph break.
_FRAME = re.compile(r'File "([^"]*)", line (\d+), in (\S+)')
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.*)_at_\d+")

#: Number of digest digits in a name.
_DIGITS = 8


@dataclass(frozen=True)
class GraphLabel:
    """A graph of Dynamo, or its forward or backward graph, for inputs of given shapes.

    ``compile_id`` is Dynamo's: the number of the frame and of its compilation. ``place`` is ``file:line`` of the first
    operation, in ``function``. ``content`` is the text of the graph.
    """

    kind: Kind
    compile_id: str
    place: str
    function: str
    content: str
    inputs: tuple[str, ...] = ()

    @classmethod
    def of(cls, graph: GraphModule, kind: Kind = "graph", part: GraphModule | None = None) -> GraphLabel:
        """Describe a graph of Dynamo, or the ``part`` of it that AOTAutograd built."""
        place, function = _first_place(graph)
        modules = (module for module in (part or graph).modules() if isinstance(module, GraphModule))
        # Addresses of functions differ between runs.
        content = re.sub(r"0x[0-9a-f]+", "", "\n".join(str(module.graph) for module in modules))
        return cls(kind, str(CompileContext.current_compile_id() or "0/0"), place, function, content)

    def for_inputs(self, inputs: Sequence[Any]) -> GraphLabel:
        """Return the label of a program for these inputs."""
        texts = []
        for value in inputs:
            shape = getattr(value, "shape", None)
            dtype = dtype_name(getattr(value, "dtype", ""))
            texts.append(repr(value) if shape is None else f"{dtype} {list(shape)}")
        return replace(self, inputs=tuple(texts))

    def name(self, options: str) -> str:
        """Return a name for files: the same name for the same graph, inputs and options in any process."""
        text = "\n".join([self.content, *self.inputs, options])
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{self.kind}_{re.sub(r'[^0-9]+', '_', self.compile_id)}_{digest[:_DIGITS]}"


Keep = Callable[[GraphLabel, Any], None]


def keeping(compile: Callable[..., Any], label: GraphLabel, keep: Keep | None) -> Callable[..., Any]:
    """Wrap ``compile`` so that ``keep`` is called with the label and the program of each compilation."""
    if keep is None:
        return compile

    def compile_and_keep(function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
        program = compile(function, inputs)
        keep(label.for_inputs(inputs), program)
        return program

    return compile_and_keep


def _first_place(graph: GraphModule) -> tuple[str, str]:
    """Return the place and the function of the first operation, in its innermost frame; empty if none has one.

    If all frames belong to PyTorch, as in a ``Sequential``, the function is the class of the outermost module.
    """
    operations = [node for node in graph.graph.nodes if node.op not in ("placeholder", "output")]
    for node in operations:
        if frames := _FRAME.findall(node.stack_trace or ""):
            file, line, function = frames[-1]
            return f"{file}:{line}", _readable_function(function)
    for node in operations:
        for _, cls in (node.meta.get("nn_module_stack") or {}).values():
            return "", cls if isinstance(cls, str) else cls.__name__
    return "", ""


def _readable_function(name: str) -> str:
    match = _RESUMED.fullmatch(name)
    return match[1] if match else name


@dataclass(frozen=True)
class GraphBreak:
    """A place at which Dynamo ended a graph: the reason as a sentence, and the details that Dynamo adds."""

    place: str
    function: str
    line: str
    reason: str
    details: str


def graph_breaks() -> list[GraphBreak]:
    """Return the graph breaks of the process since Dynamo was last reset; each place and reason once."""
    breaks = []
    for entry in graph_break_reasons:
        reason, _, details = str(entry.reason).partition("\n")
        if reason.startswith("generic_jump"):
            reason, details = "A branch depends on the value of a tensor", reason
        frame = entry.user_stack[-1] if entry.user_stack else None
        place = f"{frame.filename}:{frame.lineno}" if frame else ""
        function, line = (_readable_function(frame.name), frame.line or "") if frame else ("", "")
        breaks.append(GraphBreak(place, function, line, reason, details.strip()))
    return list(dict.fromkeys(breaks))


#: Modules of the frontend with functions and modules for use inside a model.
_IN_MODELS = ("eight_bit_checkpoints", "hints", "layout_factories", "tile_loops")


def compiled(
    graph: GraphModule,
    example_inputs: Sequence[Any],
    compile: Callable[..., Callable[..., Any]],
    autocast: Any = None,
    keep: Keep | None = None,
) -> Callable[..., Any]:
    """Callable for a graph of Dynamo; ``compile(function, inputs)`` builds the programs that it runs.

    ``autocast`` is passed to ``compile`` if it is not None. ``keep`` is called with each program.
    """
    try:
        named = take_input_names(graph)
    except CompileError as error:
        return partial(refuse, error)
    if named:
        return partial(_with_named_inputs, named, compiled(graph, example_inputs, compile, autocast, keep))
    as_it_is = partial(_compiled_as_it_is, compile)
    if autocast is not None:
        compile = partial(compile, autocast=autocast)
    compile = keeping(compile, GraphLabel.of(graph), keep)
    if is_on_the_device(graph):
        return DeviceGraph(graph, compile)
    if not torch.is_grad_enabled() or not any(_wants_gradient(value) for value in example_inputs):
        return CompiledGraph(graph, compile)

    if (error := _lost_write(graph, example_inputs)) is not None:
        return partial(refuse, error)

    def compiler(kind: Kind, part: GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        """Callable for the forward or the backward graph, in the calling convention of AOTAutograd."""
        run = CompiledGraph(part, keeping(as_it_is, GraphLabel.of(graph, kind, part), keep))
        return make_boxed_func(partial(_with_traced_strides, run, part))

    # The CPU attention is one operation with its own gradient; decomposed it is matmuls and a softmax. AOTAutograd
    # writes the casts of autocast, and the gradients of these casts, into both graphs.
    with sdpa_kernel(SDPBackend.MATH), autocasting(autocast_dtype(autocast)):
        table = cast(dict[Any, Callable[..., Any]], core_aten_decompositions())
        backend = aot_autograd(
            fw_compiler=partial(compiler, "forward"),
            bw_compiler=partial(compiler, "backward"),
            decompositions={op: form for op, form in table.items() if "backward" in op.name()},
        )
        return backend(graph, example_inputs)


def _with_named_inputs(
    named: Sequence[tuple[int, Sequence[str]]], run: Callable[..., Any], *inputs: Any
) -> Any:
    """Name the dims of inputs, and call the graph."""
    for number, names in named:
        name_tensor_dims(inputs[number], names)
    return run(*inputs)


#: Functions that PyTorch supports for more dtypes on devices than on the CPU.
_OF_DEVICES: dict[Any, Callable[..., Any]] = {torch.histc: histc}

#: Views that PyTorch's functional form does not invert exactly, by their names in Dynamo.
_INEXACT_VIEWS = {
    "expand", "expand_as", "broadcast_to", "broadcast_tensors", "meshgrid", "unfold", "as_strided",
}  # fmt: skip


def _with_traced_strides(run: Callable[..., Any], part: GraphModule, *inputs: Any) -> Any:
    """Results of an AOTAutograd graph, with the strides of the trace: AOTAutograd makes views of these results."""
    nodes: Any = part.graph.output_node().args[0]
    traced = [node.meta.get("val") if isinstance(node, Node) else None for node in nodes]
    results = []
    for value, like in zip(run(*inputs), traced, strict=True):
        if isinstance(value, torch.Tensor) and isinstance(like, torch.Tensor):
            strides = like.stride()
            if value.stride() != strides and all(isinstance(stride, int) for stride in strides):
                strided = torch.empty_strided(value.shape, strides, dtype=value.dtype)
                # All elements along a dim of stride 0 are the same element.
                distinct = tuple(slice(0, None if stride else 1) for stride in strides)
                strided[distinct] = value[distinct]
                value = strided
        results.append(value)
    return tuple(results)


def refuse(error: CompileError, *_: Any) -> NoReturn:
    """Raise the error of a graph when the graph is called: Dynamo would wrap an error of its backend."""
    raise error


def _lost_write(graph: GraphModule, example_inputs: Sequence[Any]) -> CompileError | None:
    """Error about a write that AOTAutograd would lose when it makes the graph functional; None without such a write."""
    if not any(getattr(node.target, "__name__", node.target) in _INEXACT_VIEWS for node in graph.graph.nodes):
        return None
    with torch.no_grad(), _disable_current_modes():
        # Fake inputs of Dynamo keep the sizes that Dynamo fixed; a fake trace would make all sizes symbolic.
        is_fake = all(
            isinstance(x, fake_tensor.FakeTensor) for x in example_inputs if isinstance(x, torch.Tensor)
        )
        mode = "real" if is_fake else "fake"
        operations = make_fx(Interpreter(graph).run, tracing_mode=mode)(*example_inputs)
    if (node := inexact_write(operations.graph)) is None:
        return None
    return CompileError(
        f"{called_name(str(node.target))} writes to a view by expand or unfold, which PyTorch loses where it computes "
        "gradients; write to the tensor that the view shows, or call the model under torch.no_grad().",
        source_of(node),
    )


def _compiled_as_it_is(
    compile: Callable[..., Callable[..., Any]], function: Callable[..., Any], inputs: Sequence[Any]
) -> Callable[..., Any]:
    """Compile a graph that already contains the casts of autocast."""
    with autocasting(None):
        return compile(function, inputs)


class CompiledGraph:
    """Graph as a function that compiles one program for each combination of input shapes and dim names.

    A marked dim may have any size in one program.
    """

    def __init__(self, graph: GraphModule, compile: Callable[..., Callable[..., Any]]) -> None:
        self.model = as_function(graph, graph.graph, _readable)
        self.sized = SizedGraph.of(graph)
        self.compile = compile
        self.programs: dict[tuple, Callable[..., Any]] = {}

    def __call__(self, *inputs: Any) -> Any:
        # AOTAutograd observes the operations of a first call, but must not observe the operations of the compiler.
        with _disable_current_modes():
            marks = self.sized.marks(inputs) if self.sized is not None else ()
        program, operands = self._sized(marks, inputs) if marks else (self._of_shape(inputs), inputs)
        with torch.no_grad():
            return program(*operands)

    def _of_shape(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Return the program for inputs of these shapes."""
        key = (autocast_dtype(None), *map(_cache_key, inputs), *dim_sizes().items())
        if key not in self.programs:
            with _disable_current_modes(), ignoring_marks():
                if is_on_a_mesh(inputs):
                    self.programs[key] = compiled_shards(self._of_shards, self.model, inputs)
                else:
                    self.programs[key] = self.compile(self.model, inputs)
        return self.programs[key]

    def _of_shards(
        self, local: LocalModel, names: Sequence[str], tensors: Sequence[Any]
    ) -> Callable[..., Any]:
        return self.compile(local.of_tensors(names), tensors)

    def _sized(
        self, marks: Sequence[tuple[int, int]], inputs: Sequence[Any]
    ) -> tuple[Callable[..., Any], Sequence[Any]]:
        """Program for all sizes of the marked dims, given as (input, dim), and its inputs, which are all tensors."""
        assert self.sized is not None
        shapes = (
            _cache_key(value, [dim for position, dim in marks if position == number])
            for number, value in enumerate(inputs)
            if number not in self.sized.numbers
        )
        key = (autocast_dtype(None), *shapes, *dim_sizes().items())
        tensors = self.sized.tensors(inputs)
        if key not in self.programs:
            with _disable_current_modes():
                self.programs[key] = self.compile(self.sized.function(self.model), tensors)
        return self.programs[key], tensors


def is_on_the_device(graph: GraphModule) -> bool:
    """Return whether a graph has a tensor on the device ``spyre``."""
    return any(_device_of(node) == NAME for node in graph.graph.nodes)


def _device_of(node: Any) -> str | None:
    """Device type of a node's tensor, as Dynamo traced it; None for another value."""
    value = node.meta.get("example_value") if isinstance(node, Node) else None
    return value.device.type if isinstance(value, torch.Tensor) else None


#: The backend of graphs on the device; ``install`` sets it.
_device_backend: Callable[..., Callable[..., Any]]


def default_backend(graph: GraphModule, example_inputs: Sequence[Any], **named: Any) -> Callable[..., Any]:
    """Default backend of ``torch.compile``: this compiler for graphs on the device, else inductor."""
    if is_on_the_device(graph):
        options = dict(named.get("options") or {})
        # A caller who did not choose a backend may give options of PyTorch's default backend.
        known = vars(torch._inductor.config)["_config"]
        ignored = [name for name in options if name.replace("-", "_") in known]
        if ignored:
            warnings.warn(
                f"On the device, the options {', '.join(ignored)} of inductor do not change programs.",
                stacklevel=2,
            )
        return _device_backend(
            graph,
            example_inputs,
            options={name: options[name] for name in options if name not in ignored} or None,
        )
    # Called as torch.compile itself would call it, so that its modes and options hold.
    inductor = torch._TorchCompileInductorWrapper(named.get("mode"), named.get("options"), None)
    return cast(Callable[..., Any], inductor(graph, list(example_inputs)))


def install(device_backend: Callable[..., Callable[..., Any]]) -> None:
    """Make ``torch.compile`` compile graphs on the device by a backend, in its context, and skip this package.

    ``torch.compile`` without a backend does so unless the user has set another default.
    """
    global _device_backend
    _device_backend = device_backend
    if torch.compiler.get_default_backend() == "inductor":
        torch.compiler.set_default_backend(default_backend)
    # A trace must not make tensors on the device, because it would not see their data.
    cast(Any, fake_tensor)._is_privateuse1_backend_available = lambda: False
    # Modes of PyTorch accept tensors of the device: constants of a trace, operands of custom operations.
    modes: Any = (proxy_tensor, runtime_wrappers)
    for module in modes:
        module.HANDLED_TYPES += (SpyreTensor,)
    gradients: Any = runtime_wrappers.AOTDispatchAutograd
    # Step of AOTAutograd that also accepts gradients on the device, for results of a trace without data.
    process = gradients.process_runtime_tangent

    @functools.wraps(process)
    def processed(tangent: Any, meta: Any, *context: Any) -> tuple[Any, list[Any]]:
        """Return the gradient of a result and the tensors that the backward graph reads for it."""
        if not isinstance(tangent, SpyreTensor):
            return process(tangent, meta, *context)
        tangent = runtime_wrappers.coerce_to_expected_memory_format(tangent, meta.memory_format)
        return tangent, [tangent]

    gradients.process_runtime_tangent = staticmethod(processed)
    # Random numbers of a checkpoint on the device come from the generator of the host.
    device_of = rng_prims.get_device
    rng_prims.get_device = lambda *call: "cpu" if (device := device_of(*call)) == NAME else device
    for operation in (rng_prims.run_and_save_rng_state, rng_prims.run_with_rng_state):
        operation.py_impl(SpyreTensor)(operation.py_kernels[torch._C.DispatchKey.CPU])
    inductor: Any = torch._TorchCompileInductorWrapper
    inductor.__call__ = _for_the_device(inductor.__call__)
    wrapped: Any = WrapBackendDebug
    wrapped.backend_ctx_ctor = property(_context_of)
    # Dynamo skips this package, except files with functions and modules for use inside a model.
    frontend = Path(__file__).parent
    traced = ("frontend", "torch_spyre", "zoo")
    folders = [path for path in frontend.parent.iterdir() if path.is_dir() and path.name not in traced]
    files = [path for path in frontend.glob("*.py") if path.stem not in _IN_MODELS]
    trace_rules.SKIP_DIRS.extend(map(str, sorted([*folders, *files, frontend.parent / "api.py"])))
    trace_rules._recompile_re()
    # Dynamo finds the functions of its rules by name, and again after a process group was created. The rules are for
    # the functions of PyTorch, which ``torch._VF`` has as well, not for the extended factories of ``torch``.
    for rules in trace_rules.torch_name_rule_map:
        for key in [key for key in rules if key.startswith("torch.") and key.count(".") == 1]:
            name = key.removeprefix("torch.")
            function = getattr(torch._VF, name, None)
            if function is not None and getattr(getattr(torch, name, None), "__wrapped__", None) is function:
                rules[f"torch._VF.{name}"] = rules.pop(key)
    faults.untraced = untraced


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Context in which Dynamo does not trace calls, including calls of other libraries."""
    tracer = set_eval_frame(None)
    try:
        yield
    finally:
        set_eval_frame(tracer)


@contextlib.contextmanager
def unaffected() -> Iterator[None]:
    """Context of a compiled program: neither Dynamo nor the user's default device affects its PyTorch calls."""
    with untraced(), torch._C.DisableTorchFunction():
        yield


def _context_of(wrapped: Any) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """Return the context of a backend; PyTorch looks for the context only at its own wrappers of the backend."""
    backend = wrapped._torchdynamo_orig_backend
    return getattr(getattr(backend, "compiler_fn", backend), "backend_ctx_ctor", contextlib.nullcontext)


def _for_the_device(compile_graph: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the inductor backend, which cannot compile graphs on the device, so that it passes them to this backend."""

    @functools.wraps(compile_graph)
    def compile_or_hand_on(self: Any, graph: GraphModule, example_inputs: Sequence[Any], **named: Any) -> Any:
        """Return a callable for a graph of Dynamo."""
        if is_on_the_device(graph):
            return default_backend(graph, example_inputs)
        return compile_graph(self, graph, example_inputs, **named)

    return compile_or_hand_on


def tracing() -> contextlib.AbstractContextManager[Any]:
    """Context in which Dynamo traces models for this backend, including recurrent layers, which it skips by default."""
    return torch._dynamo.config.patch(allow_rnn=True)


#: Reasons why the operations of a graph run one by one, as without a compiler.
_RUN_ONE_BY_ONE = (UncapturedError, UndrawnError, UnknownResultsError, UnloweredError, UnsupportedDtypeError)


class DeviceGraph:
    """A graph on tensors of the device, run as programs that access the storages of these tensors in place.

    A result that is a view of an input shares its storage, and results that are views of one tensor share a storage.
    The operations of the graph run one by one, as without a compiler, if a gradient is needed, if an operation or a
    type does not have a form, if an operation is not captured, or if a program cannot leave the memory as the graph
    does.
    """

    def __init__(self, graph: GraphModule, compile: Callable[..., Any]) -> None:
        self.graph = _with_checkpoints(graph)
        self.on_host = _with_host_devices(graph)
        self.model = as_function(self.on_host, self.on_host.graph, _readable)
        # Dynamo makes a separate graph for each state of autocast.
        self.autocast = torch.get_autocast_dtype(NAME) if torch.is_autocast_enabled(NAME) else None
        self._compile = compile
        self._whole = as_function(self.graph, self.graph.graph, _readable)
        self.compile = partial(_compiled_under, self.autocast, compile)
        # The least recently used program is evicted first, see eager.py.
        self.programs: OrderedDict = OrderedDict()
        self._on_a_mesh: Callable[..., Any] | None = None

    def __call__(self, *inputs: Any) -> Any:
        if is_on_a_mesh(inputs):
            with torch.no_grad(), _disable_current_modes():
                if self._on_a_mesh is None:
                    self._on_a_mesh = compiled_shards(self._of_shards, self._whole, inputs)
                return self._on_a_mesh(*inputs)
        if torch.is_grad_enabled() and any(map(_wants_gradient, inputs)):
            return self.graph(*inputs)
        try:
            with unaffected():
                return self._compiled(inputs)
        except UnsharedMemoryError:
            return self.graph(*inputs)
        except _RUN_ONE_BY_ONE as error:
            report("A graph of torch.compile", error.message, "operation by operation")
            return self.graph(*inputs)

    def _of_shards(
        self, local: LocalModel, names: Sequence[str], tensors: Sequence[Any]
    ) -> Callable[..., Any]:
        graph = DeviceGraph(local.trace, self._compile)
        return lambda *tensors: local.finish(graph(*tensors))

    def _results(self, applied: Application, devices: Sequence[str]) -> OperationResults:
        """Results of the graph, on the devices that it names, with the strides that PyTorch returns on the CPU."""
        with _on_the_host_under(self.autocast):
            on_host = OperationResults.of(applied, self.on_host, ["cpu"] * len(devices))
        return replace(on_host, devices=OperationResults.of(applied, self.graph, devices).devices)

    def _compiled(self, inputs: Sequence[Any]) -> Any:
        """Compile and run the program for these inputs, and return its results."""
        with _disable_current_modes(), torch.no_grad():
            operands = [operand(value) if isinstance(value, torch.Tensor) else value for value in inputs]
            applied = Application.of(self.model, operands, {})
            # For each copied storage, the host tensor and its copy.
            copies = {
                id(copied.storage): (host, copied)
                for host, copied in zip(inputs, operands, strict=True)
                if isinstance(copied, DeviceTensor) and not isinstance(host, SpyreTensor)
            }
            hosts = [copies.get(id(whole.storage)) for whole in applied.storages]
            devices = [NAME if host is None else host[0].device.type for host in hosts]
            follow = partial(self._results, devices=devices)
            leaves, results = eager().execute(applied, self.programs, self.compile, follow)
            _write_back([hosts[index] for index in results.written], hosts)
            returned = []
            for leaf, place, device in zip(leaves, results.places, results.devices, strict=True):
                if device == NAME:
                    leaf = SpyreTensor.of(leaf)
                elif place is not None:
                    host = hosts[place.storage] if not place.is_new else None
                    leaf = leaf.cpu() if host is None else _view_of_host(host[0], host[1], leaf)
                returned.append(leaf)
        return pytree.tree_unflatten(returned, results.tree)


def _on_the_host_under(dtype: torch.dtype | None) -> contextlib.AbstractContextManager[Any]:
    """Context in which tensors of the host are cast as the autocast to ``dtype`` casts tensors of the device."""
    return contextlib.nullcontext() if dtype is None else autocasting(dtype)


def _compiled_under(dtype: torch.dtype | None, compile: Callable[..., Any], *arguments: Any) -> Any:
    """Compile a graph with the casts of an autocast to ``dtype``, in any thread."""
    with _on_the_host_under(dtype):
        return compile(*arguments)


def _view_of_host(host: torch.Tensor, copied: DeviceTensor, view: DeviceTensor) -> torch.Tensor:
    """View of a host tensor for a view of its copy on the device; a copy if their strides differ."""
    if host.stride() != copied.stride():
        return view.cpu()
    return host.as_strided(view.shape, view.stride(), host.storage_offset() + view.storage_offset())


def _write_back(written: Sequence[Any], hosts: Sequence[Any]) -> None:
    """Copy changed device copies back to their host tensors; ``CompileError`` if two of these share memory."""
    memories = [host[0].untyped_storage().data_ptr() for host in hosts if host is not None]
    for host, copied in filter(None, written):
        if memories.count(host.untyped_storage().data_ptr()) > 1:
            raise CompileError(
                "The graph changes a tensor of the host that shares its memory with another input; clone() one of them."
            )
        host.copy_(copied.cpu())


def _with_host_devices(graph: GraphModule) -> GraphModule:
    """Copy of a graph whose device arguments name the CPU, the only device that the importer supports."""

    def device(value: Any) -> Any:
        """Replace the device ``spyre`` by the CPU; return any other argument unchanged."""
        if isinstance(value, torch.device) and value.type == NAME:
            return torch.device("cpu")
        return "cpu" if isinstance(value, str) and value.split(":")[0] == NAME else value

    copied = _copied(graph)
    for node in copied.graph.nodes:
        node.target = _OF_DEVICES.get(node.target, node.target)
        if node.target is _enter_autocast and node.args[:2] == (NAME, None):
            # Without a type, autocast casts to the type of the device.
            node.args = (NAME, torch.get_autocast_dtype(NAME), *node.args[2:])
        node.args, node.kwargs = map_aggregate(node.args, device), map_aggregate(node.kwargs, device)
    return copied


def _copied(graph: GraphModule) -> GraphModule:
    """Copy of a graph on the same modules and tensors."""
    copied = copy.copy(graph)
    copied.graph = Graph()
    output = copied.graph.graph_copy(graph.graph, {})
    copied.graph.output(output)
    copied.recompile()
    return copied


def _with_checkpoints(graph: GraphModule) -> GraphModule:
    """Copy of a graph that runs operation by operation: its checkpoints draw their random numbers twice.

    PyTorch's operation for a checkpoint leaves the random numbers of the second run to AOTAutograd.
    """
    if all(node.target is not tag_activation_checkpoint for node in graph.graph.nodes):
        return graph
    copied = _copied(graph)
    for node in copied.graph.nodes:
        if node.target is tag_activation_checkpoint:
            node.target = _checkpoint
    copied.recompile()
    return copied


def _checkpoint(segment: GraphModule, *inputs: Any, **options: Any) -> Any:
    """Run a segment of a graph, and again in the backward with the same random numbers."""
    context = segment.meta.get("_checkpoint_context_fn")
    contexts = {} if context is None else {"context_fn": context}
    return checkpoint(_with_checkpoints(segment), *inputs, **{**options, "use_reentrant": False, **contexts})


def _readable(target: str) -> str:
    """Dynamo's name of an input without its prefix and suffix: ``x`` of ``L_x_``."""
    return target.removeprefix("L_").removesuffix("_")


def _wants_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _cache_key(value: Any, any_size: Sequence[int] = ()) -> Any:
    """Key of an argument: shape and dim names of a tensor, or the number itself; ``any_size`` dims are left out."""
    if not isinstance(value, torch.Tensor):
        return value
    shape = tuple(None if dim in any_size else size for dim, size in enumerate(value.shape))
    return shape, names_of(value)
