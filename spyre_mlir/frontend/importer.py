# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Import of a PyTorch model as a ``linalg`` module whose parameters are function arguments.

The module has one public function ``@main`` over tensors of static shape. Its arguments are the inputs, the parameters
and the constants of the model in the order of ``Imported.arguments``; attributes state which: ``{spyre.name =
"layers.0.q.weight", spyre.kind = "parameter"}``. The text does not contain tensor data. Named dims (see hints.py) are
``sdsc.dims`` of the arguments and ``sdsc.dim_sizes`` of the function. Locations contain the file and line of the model,
the module path and the aten operation (see locations.py).
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

import numpy as np
import torch
from torch._dynamo import convert_frame
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree
from torch_mlir.dialects import arith
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.extras.fx_importer import (
    FxImporter,
    FxImporterHooks,
    GraphNodeImporter,
    create_mlir_tensor_type,
)

from spyre_mlir.compile_lock import one_at_a_time, turns, without_cycle_search
from spyre_mlir.diagnostics import compile_error
from spyre_mlir.dialects import load_into
from spyre_mlir.dialects.attributes import to_attribute
from spyre_mlir.dialects.hint_attributes import DIM_SIZES, DIMS
from spyre_mlir.dialects.indices import read_index
from spyre_mlir.dialects.sdsc import INDEX_BOUNDS, RUNS, SOURCE_BYTES, UPDATED
from spyre_mlir.dialects.structured import generic_without_body, runs_attr, shape_of
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend import kernel_calls
from spyre_mlir.frontend.assertions import CHECK, asserts
from spyre_mlir.frontend.exported import (
    ExportedGraph,
    Inputs,
    WiderForms,
    as_call,
    call_inputs,
    capture,
    export_graph,
    quiet,
)
from spyre_mlir.frontend.graph_edits import operands_of
from spyre_mlir.frontend.kernel_calls import UnloweredError, from_builtin, nodes_of, to_builtin
from spyre_mlir.frontend.locations import SourceLocations, source_of_error
from spyre_mlir.frontend.meta_tensors import require_numbers
from spyre_mlir.frontend.operators import is_layout_operator, layout_operation
from spyre_mlir.frontend.row_writes import INSERT_ROWS
from spyre_mlir.frontend.signature import CONSTANT, INPUT, Argument, Call, Signature, View, to_numpy
from spyre_mlir.frontend.tile_loops import BEGIN, end_of, is_mark_read
from spyre_mlir.frontend.torch_device import SpyreTensor, as_device_tensor
from spyre_mlir.layout import StickLayout
from spyre_mlir.mlir import PassManager, ir, location_of, source_note
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.tensor_builders import (
    affine_apply,
    generic_op,
    index_constant,
    inserted,
    sliced,
    with_body,
)
from spyre_mlir.target.element_types import ELEMENT_TYPES, dtype_name
from spyre_mlir.tensors.device_tensor import DeviceTensor
from spyre_mlir.tiling.mask_tiles import RunLengths

#: Minimum size of a constant that is analyzed as a mask, and maximum runs of equal elements per row: a window or a
#: prefix has at most three runs, and more runs make the attribute as large as the mask.
_LEAST_MASK, _MOST_RUNS = 1 << 12, 8

#: The errors by which torch-mlir's importer rejects a graph.
_REFUSALS = (NotImplementedError, TypeError, ValueError, KeyError, AssertionError)


@dataclass(frozen=True)
class Imported:
    """A model as MLIR, with the data needed to call it like the model.

    Attributes:
        module: The module; None for a model that computes nothing and returns only views of its inputs or known values.
        signature: The arguments and results of the model.
        input_layouts: The layouts of the inputs that were given on the device, by input index.
    """

    module: ir.Module | None
    signature: Signature
    input_layouts: dict[int, StickLayout]

    @property
    def arguments(self) -> list[Argument]:
        """Name, kind and data of each argument of @main."""
        return self.signature.arguments

    def bind(self, *args: Any, **kwargs: Any) -> Call:
        """Bind the inputs of one call of the model: operands for @main, and the processing of its results.

        Args:
            *args: Inputs by position.
            **kwargs: Inputs by name.
        """
        return self.signature.bind(args, kwargs)

    def operands(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Return the operands of @main for a call of the model: inputs, parameters, constants.

        Args:
            *args: Inputs by position.
            **kwargs: Inputs by name.
        """
        return self.bind(*args, **kwargs).operands()


def import_torch(
    model: torch.nn.Module | Callable[..., Any] | ExportedProgram,
    inputs: Inputs = (),
    *,
    context: ir.Context,
    precision: str = "device",
    state: Collection[str] = (),
) -> Imported:
    """Import a model as linalg.

    Args:
        model: A module, a function or an exported program.
        inputs: Example inputs: a tuple, or a mapping for keyword inputs.
        context: The context of the module.
        precision: The option of ``compile``.
        state: Names of buffers that are inputs, changed or not.

    Raises:
        CompileError: The model cannot be captured or imported, in which case the message names the line; or the
            precision is unknown.
    """
    if precision not in ("device", "strict"):
        raise CompileError(f"The precision must be one of device, strict, not '{precision}'.")
    with tracing_alone(), without_cycle_search():
        exported, module = _lowered(capture_torch(model, inputs), context, precision, state)
        # The model computes nothing, so it does not need a program.
        if module is None:
            return Imported(None, exported.signature, {})
    signature, layouts = exported.signature, {}
    leaves = map(as_device_tensor, call_inputs(inputs).leaves)
    # Inputs may be missing: an exported program has its own example inputs.
    if any(isinstance(leaf, DeviceTensor) for leaf in leaves):
        leaves, _ = signature.leaves_of(*as_call(inputs))
        taken = [argument.leaf for argument in signature.arguments if argument.kind == INPUT]
        tensors = [None if leaf is None else leaves[leaf] for leaf in taken]
        layouts = {
            index: tensor.layout for index, tensor in enumerate(tensors) if isinstance(tensor, DeviceTensor)
        }
    return Imported(module, signature, layouts)


def capture_torch(
    model: torch.nn.Module | Callable[..., Any] | ExportedProgram,
    inputs: Inputs = (),
    autocast: torch.dtype | str | None = None,
) -> ExportedProgram:
    """Trace a model, called with example ``inputs``; ``import_torch`` accepts the program in place of the model.

    ``autocast`` is the option of ``compile``.
    """
    register_caches()
    if isinstance(model, torch.nn.Module) and any(
        isinstance(tensor, SpyreTensor) for tensor in (*model.parameters(), *model.buffers())
    ):
        raise CompileError(
            "The model is on the device; compile takes it on the host, as model.cpu(), torch.compile where it is."
        )
    with tracing_alone(), without_cycle_search():
        program = capture(model, inputs, autocast)
    require_numbers(program)
    return program


def _lowered(
    program: ExportedProgram, context: ir.Context, precision: str, state: Collection[str]
) -> tuple[ExportedGraph, ir.Module | None]:
    """Lower a program to linalg; return its graph and the module, or None if the program computes nothing.

    In each round, a call without a linalg form is decomposed as PyTorch does, or becomes a call of PyTorch's kernel.
    """
    wider = WiderForms()
    exported = export_graph(program, (), precision, state=state)
    while exported.signature.results or asserts(exported.graph_module.graph):
        kernel_calls.mark_exact_kernels(exported.graph_module.graph)
        try:
            module = lower_to_linalg(_import_graph(exported, context))
            # Raise ``UnloweredError`` for results whose element types in linalg differ from the types of
            # the graph.  A call converts results to the types of the graph, which would hide that they were
            # computed in another type.
            names = {torch.uint8: "i8"} | {
                getattr(torch, element.host): element.name
                for element in ELEMENT_TYPES.values()
                if hasattr(torch, element.host)
            }
            returned = list(module.body.operations[0].operation.regions[0].blocks[0].operations)[-1].operation
            for value, result in zip(returned.operands, exported.signature.results, strict=True):
                element, expected = str(ir.RankedTensorType(value.type).element_type), names[result.dtype]
                if element != expected:
                    location = value.location
                    message = f"A result is {element} in linalg, and {expected} in PyTorch."
                    raise kernel_calls.UnloweredError(
                        message, location_of(location), frozenset(kernel_calls.nodes_of(location))
                    )
            return exported, module
        except kernel_calls.UnloweredError as error:
            graph = exported.graph_module.graph
            if wider.add(graph, error.nodes):
                exported = export_graph(program, (), precision, wider, state)
            elif not kernel_calls.mark_kernels(graph, error.nodes):
                raise
    return exported, None


class _NodeImporter(GraphNodeImporter):
    """torch-mlir's node importer, extended by the operators of ``operators.py`` and by calls of PyTorch's kernels.

    These become ops of this project's dialects between casts to and from builtin tensors, which torch-mlir's passes
    keep; the passes would reject a ``torch.operator``.
    """

    __slots__ = ()

    def import_nodes(self, nodes: Iterable[Node], **options: bool) -> None:
        """Import nodes in order; nodes between the marks of a loop are imported into the body of the loop."""
        straight: list[Node] = []
        remaining = iter(nodes)
        for node in remaining:
            if node.target is BEGIN:
                super().import_nodes(straight, **options)
                straight = []
                self._import_loop(node, remaining, **options)
            else:
                straight.append(node)
        super().import_nodes(straight, **options)

    def _import_loop(self, begin: Node, following: Iterator[Node], **options: bool) -> None:
        """Import a loop: the nodes after ``begin`` up to the end of the loop."""
        end = end_of(begin)
        assert end is not None, "a loop without readers is dead"
        nodes = list(itertools.takewhile(lambda node: node is not end, following))
        outside, location = self._b, self._cc.get_node_location(begin) or ir.Location.unknown(self._c)
        with location, ir.InsertionPoint(outside):
            loop = LoopImport(begin, end, self.resolve_node_value, self._cc.tensor_to_vtensor_type)
        self._b = loop.block
        with location, ir.InsertionPoint(self._b):
            self._bind_results(begin, loop.begin_values())
        self.import_nodes(nodes, **options)
        with location, ir.InsertionPoint(self._b):
            loop.finish()
        self._b = outside
        with location, ir.InsertionPoint(outside):
            self._bind_results(end, loop.results(end.meta["val"]))

    def _bind_results(self, node: Node, values: Sequence[ir.Value]) -> None:
        """Bind the values of a node that returns a list; a loop mark has no value, and its reads are not imported."""
        self._multi_result_nodes.add(node)
        for index, value in enumerate(values):
            self.bind_node_value(node, value, index)

    def _import_getitem(self, loc: ir.Location, node: Node) -> None:
        if not is_mark_read(node):
            super()._import_getitem(loc, node)

    def _import_torch_op_overload(self, loc: ir.Location, node: Node, concrete_target: Any = None) -> None:
        if node.target is CHECK:
            self._import_check(loc, node)
        elif kernel_calls.KERNEL in node.meta:
            self._import_kernel_call(loc, node)
        elif is_layout_operator(node):
            build, source, layout = layout_operation(node)
            value = self.resolve_node_value(source)
            with loc:
                result = build(to_builtin(source, value), layout, loc)
                self.bind_node_value(node, from_builtin(result, value.type))
        elif node.target is INSERT_ROWS:
            with loc:
                self.bind_node_value(node, _import_rows(node, self.resolve_node_value))
        else:
            try:
                super()._import_torch_op_overload(loc, node, concrete_target)
            except _REFUSALS:
                if not kernel_calls.can_be_kernel(node):
                    raise
                self._import_kernel_call(loc, node)

    def _import_kernel_call(self, loc: ir.Location, node: Node) -> None:
        values = [self.resolve_node_value(operand) for operand in kernel_calls.operands_of_call(node)]
        kept = kernel_calls.kept_results(node)
        types = [self._cc.tensor_to_vtensor_type(tensor) for tensor in kept.values()]
        with loc:
            results = kernel_calls.import_kernel_call(node, values, types)
        # A list or a tuple of one tensor is also read through getitem.
        if not isinstance(node.meta["val"], torch.Tensor):
            self._multi_result_nodes.add(node)
        for index, result in zip(kept, results, strict=True):
            self.bind_node_value(node, result, index)

    def _import_check(self, loc: ir.Location, node: Node) -> None:
        condition, text = cast(tuple[Node, str], node.args)
        value = self.resolve_node_value(condition)
        with loc:
            tensor = to_builtin(condition, value)
            boolean = ir.IntegerType.get_signless(1)
            element = ir.Operation.create("tensor.extract", results=[boolean], operands=[tensor]).result
            ir.Operation.create("cf.assert", operands=[element], attributes={"msg": ir.StringAttr.get(text)})


class _Hooks(FxImporterHooks):
    """torch-mlir's hooks, but tensors that torch-mlir creates, the indices of ``as_strided``, are written as elements.

    torch-mlir would write resources, whose values the bindings cannot read.
    """

    def resolve_literal(self, gni: GraphNodeImporter, literal: Any, info: Any) -> ir.Value | None:
        """Literal of an integer tensor; None leaves other tensors to torch-mlir."""
        if not isinstance(literal, torch.Tensor) or literal.dtype not in (torch.int32, torch.int64):
            return None
        array = np.array(literal.tolist(), dtype=dtype_name(literal.dtype))
        element_type = create_mlir_tensor_type(literal).element_type
        values = ir.DenseElementsAttr.get(array, type=element_type, shape=array.shape)
        type_ = gni._cc.tensor_to_vtensor_type(literal)
        return ir.Operation.create("torch.vtensor.literal", [type_], attributes={"value": values}).result


def _import_graph(exported: ExportedGraph, context: ir.Context) -> ir.Module:
    """Return the module of the graph in the torch dialect, with named arguments."""
    torch_dialect.register_dialect(context)
    load_into(context)
    load_conversion_dialect(context)
    importer = FxImporter(context=context, hooks=_Hooks(), graph_node_importer_cls=_NodeImporter)
    importer._cc = SourceLocations(context, py_attr_tracker=importer._py_attr_tracker)
    try:
        with torch.no_grad(), quiet():
            function = importer.import_graph_module(exported.graph_module)
    except _REFUSALS as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CompileError(f"torch-mlir cannot import the model: {reason}", source_of_error(error)) from error
    updated = {
        update.argument.name: update.value.base
        for update in exported.signature.updates
        if isinstance(update.value, View) and isinstance(update.value.base, int) and not update.value.steps
    }
    with context:
        function.arg_attrs = [_attributes(argument, updated) for argument in exported.signature.arguments]
        if exported.dim_sizes:
            function.attributes[DIM_SIZES] = to_attribute(exported.dim_sizes)
    return importer.module


def _attributes(argument: Argument, updated: Mapping[str, int]) -> ir.DictAttr:
    """Attributes of an argument of @main, and run lengths of a constant that may be a mask. Needs a current context."""
    attributes: dict[str, Any] = {"spyre.name": argument.name, "spyre.kind": argument.kind}
    if argument.source_bytes is not None:
        attributes[SOURCE_BYTES] = argument.source_bytes
    if argument.index_bounds:
        attributes[INDEX_BOUNDS] = asdict(argument.index_bounds)
    if argument.dims:
        attributes[DIMS] = argument.dims
    if argument.name in updated:
        attributes[UPDATED] = updated[argument.name]
    named, tensor = to_attribute(attributes), argument.tensor
    if argument.kind != CONSTANT or tensor is None or tensor.ndim < 2 or tensor.numel() < _LEAST_MASK:
        return named
    # Numpy does not support bfloat16: its bits would be read as numbers.
    if tensor.dtype not in (torch.bool, torch.float16, torch.float32):
        return named
    rows = tensor.numel() // tensor.shape[-1]
    runs = RunLengths.of(to_numpy(tensor.contiguous()), _MOST_RUNS * rows)
    if runs is None:
        return named
    return ir.DictAttr.get({**{entry.name: entry.attr for entry in named}, RUNS: runs_attr(runs)})


# One trace at a time per process, of an import or of Dynamo: PyTorch keeps the state of a trace in globals.

#: Dynamo holds this lock while it traces a function, and while a backend compiles its graph.
_no_dynamo = turns(lambda: convert_frame.compile_lock)


@contextlib.contextmanager
def tracing_alone() -> Iterator[None]:
    """Context of an import, in which no other thread compiles or traces."""
    with one_at_a_time(), _no_dynamo():
        yield


# The caches of transformers' models as trees of tensors, so that a model may take, change and return them.
#
# The registration of transformers itself fills a new cache by operations of the model, which a trace would record.


def register_caches() -> None:
    """Register every kind of transformers cache as a pytree node, if transformers is imported."""
    cache_utils = sys.modules.get("transformers.cache_utils")
    if cache_utils is None:
        return
    for kind in vars(cache_utils).values():
        if inspect.isclass(kind) and issubclass(kind, (cache_utils.Cache, cache_utils.CacheLayerMixin)):
            if kind not in pytree.SUPPORTED_NODES:
                _register(kind)


def _register(kind: type) -> None:
    """Register a class as a pytree node.

    The children are the attributes that are tensors, layers or caches; all other attributes are the context.
    """

    def unflatten(parts: Any, context: tuple[tuple[str, ...], dict[str, Any]]) -> Any:
        names, others = context
        # Bypass __init__, which requires a configuration and may allocate tensors.
        cache = object.__new__(kind)
        vars(cache).update(others, **dict(zip(names, parts, strict=True)))
        return cache

    def named_parts(value: Any) -> tuple[list[tuple[Any, Any]], Any]:
        parts, context = _parts(value)
        return [
            (pytree.GetAttrKey(name), part) for name, part in zip(context[0], parts, strict=True)
        ], context

    pytree.register_pytree_node(kind, _parts, unflatten, flatten_with_keys_fn=named_parts)


def _parts(value: Any) -> tuple[list[Any], tuple[tuple[str, ...], dict[str, Any]]]:
    """Children of a cache; their names, and all other attributes, which must be equal in each call."""
    parts, others = {}, {}
    for name, part in vars(value).items():
        is_part = isinstance(part, (torch.Tensor, list)) or type(part) in pytree.SUPPORTED_NODES
        (parts if is_part else others)[name] = part
    return list(parts.values()), (tuple(parts), others)


# Import of ``spyre::insert_rows`` as insertions of slices at indices that the host reads.


def _import_rows(node: Node, value_of: Callable[[Node], ir.Value]) -> ir.Value:
    """Build the insertions of a node at the current insertion point, one after the other.

    ``value_of`` returns the value of a node in the torch dialect. The result is also in the torch dialect.
    """
    operands = operands_of(node)
    dims, elements, rows = operands["dims"], operands["elements"], operands["rows"]
    shape = tuple(operands["x"].meta["val"].shape)
    result = to_builtin(operands["x"], value_of(operands["x"]))
    tensors = [to_builtin(index, value_of(index)) for index in operands["indices"]]
    for number, node_of_row in enumerate(rows):
        offsets: list[int | ir.Value] = [0] * len(shape)
        for axis, (dim, tensor) in enumerate(zip(dims, tensors, strict=True)):
            lower = -shape[dim] if operands["negative"] else 0
            bounds = {"lower": lower, "upper": shape[dim], "operation": operands["operation"]}
            offsets[dim] = read_index(tensor, elements[axis * len(rows) + number], bounds)
        result = inserted(to_builtin(node_of_row, value_of(node_of_row)), result, offsets)
    return from_builtin(result, value_of(operands["x"]).type)


# Loops of a graph as ``scf.for`` on tensors, built while torch-mlir imports the operations around and inside them.


class LoopImport:
    """The loop between a begin and an end mark, at the current insertion point and location.

    ``resolve`` returns the value of a node, ``type_of`` the torch-mlir type of a tensor.
    """

    def __init__(
        self, begin: Node, end: Node, resolve: Callable[[Node], ir.Value], type_of: Callable[[Any], ir.Type]
    ) -> None:
        self.begin, self.end = operands_of(begin), operands_of(end)
        self.tensors = begin.meta["val"]
        self.resolve, self.type_of = resolve, type_of
        carried = [self._tensor(node) for node in self.begin["carried"]]
        wholes = [
            ir.Operation.create("tensor.empty", results=[kernel_calls.builtin_type(tensor)]).result
            for tensor in end.meta["val"][len(carried) :]
        ]
        #: The tiled tensors, outside the loop.
        self.wholes = [self._tensor(node) for node in self.begin["wholes"]]
        bounds = [index_constant(number) for number in (0, self.begin["trips"], 1)]
        initial = [*carried, *wholes]
        types = [value.type for value in initial]
        self.loop = ir.Operation.create("scf.for", results=types, operands=[*bounds, *initial], regions=1)
        self.block = ir.Block.create_at_start(self.loop.regions[0], [ir.IndexType.get(), *types])

    def begin_values(self) -> list[ir.Value]:
        """The values of the begin mark at the start of an iteration, except the mark itself."""
        carried = len(self.begin["carried"])
        values = list(self.block.arguments)[1 : 1 + carried]
        for whole, dim, size in zip(self.wholes, self.begin["dims"], self.begin["sizes"], strict=True):
            type_ = ir.RankedTensorType(whole.type)
            shape = list(type_.shape)
            shape[dim] = size
            tile = ir.RankedTensorType.get(shape, type_.element_type)
            values.append(sliced([whole], self._offsets(shape, dim), shape, [1] * len(shape), tile))
        return [self._torch(value, tensor) for value, tensor in zip(values, self.tensors, strict=False)]

    def finish(self) -> None:
        """End the iteration: yield the carried values, and the whole tensors with the new tiles inserted."""
        values = [self._tensor(node) for node in self.end["carried"]]
        buffers = list(self.block.arguments)[1 + len(values) :]
        for node, dim, whole in zip(self.end["tiles"], self.end["dims"], buffers, strict=True):
            tile = self._tensor(node)
            values.append(inserted(tile, whole, self._offsets(shape_of(tile), dim)))
        ir.Operation.create("scf.yield", operands=values)

    def results(self, tensors: Sequence[Any]) -> list[ir.Value]:
        """The values of the end mark, after the loop."""
        return [self._torch(value, tensor) for value, tensor in zip(self.loop.results, tensors, strict=True)]

    def _offsets(self, shape: Sequence[int], dim: int) -> list[int | ir.Value]:
        """Build the offsets of the tile of an iteration, which has ``shape`` and moves along ``dim``."""
        position = self.block.arguments[0]
        if shape[dim] != 1:
            map_ = ir.AffineMap.get(1, 0, [ir.AffineDimExpr.get(0) * shape[dim]])
            position = affine_apply(map_, [position])
        return [position if axis == dim else 0 for axis in range(len(shape))]

    def _tensor(self, node: Any) -> ir.Value:
        return to_builtin(node, self.resolve(node))

    def _torch(self, value: ir.Value, tensor: Any) -> ir.Value:
        return from_builtin(value, self.type_of(tensor))


# Lowering of the torch dialect to linalg on tensors: torch-mlir's pipeline as pass lists of this project.
#
# torch-mlir's own driver prints the module with all its data before each stage, and sends diagnostics to stderr.


_TO_LINALG = (
    "func.func(torch-match-quantized-custom-ops,torch-reduce-op-variants{extra-library=},canonicalize,"
    "torch-decompose-complex-ops,torch-recompose-complex-ops,canonicalize)",
    "func.func(torch-restructure-non-constant-axes,torch-fuse-quantized-ops,convert-torch-to-tmtensor,"
    "canonicalize,convert-torch-to-linalg)",
    "func.func(canonicalize,convert-torch-to-scf,convert-torch-to-arith,convert-torch-to-tensor)",
)
_FINISH = (
    "convert-torch-conversion-to-mlprogram,func.func(memref-expand,canonicalize,resolve-shaped-type-result-dims,cse),"
    "torch-func-backend-type-conversion,func.func(canonicalize,torch-finalizing-backend-type-conversion,canonicalize,cse)",
)
_ATEN_OP = re.compile(r'"?torch\.((?:aten|prims|prim)\.[\w.]+)"?')

#: Start of the MLIR operation that the bindings append to a message.
_IR = re.compile(r": (?=%|\(!|\")|\n")


def lower_to_linalg(module: ir.Module) -> ir.Module:
    """Lower a module in place; raise ``UnloweredError`` at the line of the model if an operation is not lowered."""
    run_passes(module, _TO_LINALG)
    # Before the last passes: an operation without a lowering still has its PyTorch name here.
    unlowered = [
        (named[1], operation)
        for operation in operations(module.operation)
        if (named := _ATEN_OP.match(operation.name))
    ]
    if unlowered:
        name, first = unlowered[0]
        error = _unlowered(
            f"The PyTorch operation {name} has no form in linalg.", *(operation for _, operation in unlowered)
        )
        error.module = source_note(first.location, "module")
        raise error
    run_passes(module, _FINISH)
    clean(module)
    # Cleaning folds constants into others, and leaves the folded constants without a use.
    run_passes(module, ("func.func(canonicalize,cse)",))
    return module


def _unlowered(message: str, *at: ir.Operation) -> UnloweredError:
    """Create an error about operations, at the location of the first one."""
    nodes = frozenset(node for operation in at for node in nodes_of(operation.location))
    return UnloweredError(message, location_of(at[0].location), nodes)


def load_conversion_dialect(context: ir.Context) -> None:
    """Load ``torch_c``, the dialect of casts between torch types and tensors.

    The bindings cannot load the dialect by name; a pass that creates such casts loads it for any module.
    """
    with ir.Location.unknown(context):
        run_passes(ir.Module.create(), ("func.func(convert-torch-to-linalg)",))


def run_passes(module: ir.Module, passes: tuple[str, ...]) -> None:
    """Run passes with diagnostics in the exception, not on stderr; the module is verified after each list."""
    context = module.context
    emit, context.emit_error_diagnostics = context.emit_error_diagnostics, False
    try:
        with context:
            for names in passes:
                manager = PassManager.parse(f"builtin.module({names})")
                # Verifying after each pass would take as long as the passes.
                manager.enable_verifier(False)
                manager.run(module.operation)
                module.operation.verify()
    except ir.MLIRError as error:
        # Turn the first diagnostic into a sentence about the PyTorch operation that it names.
        diagnostic = compile_error(error, f"Lowering to linalg failed: {error}")
        if named := _ATEN_OP.search(diagnostic.message):
            message = f"The PyTorch operation {named[1]} has no form in linalg."
        else:
            message = f"The model cannot be lowered to linalg: {_IR.split(diagnostic.message)[0]}."
        nodes: frozenset[str] = frozenset()
        for first in error.error_diagnostics[:1]:
            # The bindings return a location of the base class; built from its attribute, it has its derived class.
            nodes = frozenset(nodes_of(ir.Location.from_attr(first.location.attr, first.location.context)))
        unlowered = UnloweredError(message, diagnostic.location, nodes)
        unlowered.operation, unlowered.module = diagnostic.operation, diagnostic.module
        raise unlowered from error
    finally:
        context.emit_error_diagnostics = emit


# Cleanup of torch-mlir's linalg: settled assertions, scalars in f64 and tensors of one number are removed.

#: Assertions of torch-mlir in bodies that are not needed: PyTorch's division by 0 returns an infinity, and the reader
#: of a table checks its indices.
_NEEDLESS = {
    "unimplemented: tensor with zero element",
    "index must be smaller than dim size",
    "index must be larger or equal to 0",
}

#: Predicates of arith.cmpf, ordered and unordered.
_GREATER, _LESSER = (2, 3, 9, 10), (4, 5, 11, 12)


def operations(operation: ir.Operation) -> Iterator[ir.Operation]:
    """Operations nested in ``operation``; each follows the operations of its regions, so it may be erased."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from operations(inner.operation)
                yield inner.operation


def clean(module: ir.Module) -> None:
    """Reject dynamic shapes, fold scalars, build min and max ops, drop torch attributes and settled assertions."""
    # A list, because operations are erased during the iteration.
    for operation in list(operations(module.operation)):
        for value in operation.results:
            if isinstance(value.type, ir.RankedTensorType) and not value.type.has_static_shape:
                raise _unlowered(f"The shape of {value.type} is not static.", operation)
        for name in [name for name in operation.attributes if name.startswith("torch.")]:
            del operation.attributes[name]
        if operation.name == "cf.assert":
            # torch-mlir guards forms that suit only some operands. An assertion that depends on values is kept.
            parent = operation.parent
            is_in_body = parent is not None and parent.name.startswith(("linalg.", "tensor.", "tm_tensor."))
            constant = _constant(operation.operands[0])
            text = ir.StringAttr(operation.attributes["msg"]).value
            holds = constant is not None and bool(ir.IntegerAttr(constant.attributes["value"]).value)
            if holds or (is_in_body and text in _NEEDLESS):
                operation.erase()
            elif constant is not None or is_in_body:
                raise _unlowered(f"The form in linalg is not right for these operands: {text}.", operation)
        elif operation.name == "tensor.extract_slice":
            source = operation.operands[0].owner
            # Other operations write only a part of the source, and nobody has written this slice.
            if not isinstance(source, ir.Block) and source.name == "tensor.empty":
                _replace(operation, "tensor.empty", [])
        elif operation.name in ("arith.truncf", "math.sqrt"):
            _fold_scalar(operation)
        elif operation.name == "arith.select":
            _write_as_extreme(operation)
        elif operation.name == "linalg.fill" and _BodyNumbers(operation).captures(operation):
            _fill_in_body(operation)
    generics = [operation for operation in operations(module.operation) if operation.name == "linalg.generic"]
    for generic in generics:
        _inline_uniform_operands(_BodyNumbers(generic).as_operands())


def _replace(operation: ir.Operation, name: str, operands: list[ir.Value]) -> None:
    """Replace an operation by an operation with a result of the same type."""
    result = operation.results[0]
    with operation.location, ir.InsertionPoint(operation):
        new = ir.Operation.create(name, results=[result.type], operands=operands)
    result.replace_all_uses_with(new.result)
    operation.erase()


def _constant(value: ir.Value) -> ir.Operation | None:
    """The arith.constant that defines a value, or None."""
    owner = value.owner
    return owner if not isinstance(owner, ir.Block) and owner.name == "arith.constant" else None


def _fold_scalar(operation: ir.Operation) -> None:
    """Fold a rounding or a root of a scalar constant, which upstream folds only if the result is exact.

    Torch writes an epsilon as f64 that the body rounds, and sqrt(2) in gelu as a root.
    """
    source = _constant(operation.operands[0])
    if source is None:
        return
    number = ir.FloatAttr(source.attributes["value"]).value
    result_type = operation.results[0].type
    with source.location, ir.InsertionPoint(source):
        value = ir.FloatAttr.get(result_type, math.sqrt(number) if operation.name == "math.sqrt" else number)
        constant = arith.ConstantOp(result_type, value)
    operation.results[0].replace_all_uses_with(constant.result)
    operation.erase()


def _write_as_extreme(select: ir.Operation) -> None:
    """select(a > b, a, b) -> maximumf(a, b), likewise the minimum.

    torch-mlir lowers ``relu``, ``clamp``, ``maximum`` and ``minimum`` to a comparison and a selection in one body,
    which loses a NaN that PyTorch keeps. The comparison of ``torch.where`` is in a separate body.
    """
    compare = select.operands[0].owner
    if isinstance(compare, ir.Block) or compare.name != "arith.cmpf":
        return
    first, second = list(select.operands)[1:]
    is_greater = ir.IntegerAttr(compare.attributes["predicate"]).value in _GREATER
    is_lesser = ir.IntegerAttr(compare.attributes["predicate"]).value in _LESSER
    is_swapped = list(compare.operands) == [second, first]
    if not (is_greater or is_lesser) or not (is_swapped or list(compare.operands) == [first, second]):
        return
    name = "arith.maximumf" if is_greater != is_swapped else "arith.minimumf"
    _replace(select, name, [first, second])


def _splat(value: ir.Value) -> ir.Attribute | None:
    """The element of a constant tensor whose elements are all equal, or None."""
    source = _constant(value)
    if source is None or not isinstance(value.type, ir.RankedTensorType):
        return None
    elements = source.attributes["value"]
    uniform = isinstance(elements, ir.DenseElementsAttr) and elements.is_splat
    return elements.get_splat_value() if uniform else None


class _BodyNumbers:
    """Numbers that the body of a linalg.generic captures: ``tensor.extract %t[]``, and arithmetic on such numbers.

    torch-mlir captures the number of a tensor without dims. On the device the tensor is a broadcast operand that the
    body computes with.
    """

    def __init__(self, generic: ir.Operation) -> None:
        self._generic, self._body = generic, generic.regions[0].blocks[0]
        self._arguments: dict[ir.Value, ir.Value] = {}
        self._moved: dict[ir.Value, ir.Value] = {}

    def as_operands(self) -> ir.Operation:
        """Return the operation with these tensors as inputs; the operation itself if it does not capture a number."""
        generic, body = self._generic, self._body
        outer = [operation for operation in operations(generic) if self.captures(operation)]
        if not outer:
            return generic
        results = len(generic.results)
        outputs = list(body.arguments)[-results:]
        for operation in outer:
            for index, operand in enumerate(operation.operands):
                operation.operands[index] = self._inside(operand)
        # The block arguments of the outputs follow the arguments of all inputs.
        for output in outputs:
            output.replace_all_uses_with(body.add_argument(output.type, generic.location))
        first = len(generic.operands) - results
        for _ in outputs:
            body.erase_argument(first)
        maps = list(ir.ArrayAttr(generic.attributes["indexing_maps"]))
        dims = ir.AffineMapAttr(maps[-1]).value.n_dims
        number = ir.AffineMapAttr.get(ir.AffineMap.get(dims, 0, [], generic.context))
        operands = list(generic.operands)
        return _with_operands(
            generic,
            [*operands[:first], *self._arguments, *operands[first:]],
            [*maps[:first], *(number for _ in self._arguments), *maps[first:]],
        )

    def captures(self, operation: ir.Operation) -> bool:
        """Return whether an operand of an operation in the body is a captured number."""
        return any(self._is_number(operand) for operand in operation.operands)

    def _is_number(self, value: ir.Value) -> bool:
        """Return whether a value outside the body is the number of a tensor, or computed from such numbers."""
        owner = value.owner
        if isinstance(owner, ir.Block) or _is_in(owner, self._generic):
            return False
        if owner.name == "tensor.extract":
            return len(owner.operands) == 1
        return owner.name.startswith(("arith.", "math.")) and self.captures(owner)

    def _inside(self, value: ir.Value) -> ir.Value:
        """Value in the body that replaces a captured number; any other value is unchanged."""
        if not self._is_number(value):
            return value
        owner = value.owner
        if owner.name == "tensor.extract":
            tensor = owner.operands[0]
            if tensor not in self._arguments:
                self._arguments[tensor] = self._body.add_argument(value.type, owner.location)
            return self._arguments[tensor]
        if value not in self._moved:
            operands = [self._inside(operand) for operand in owner.operands]
            with ir.InsertionPoint.at_block_begin(self._body):
                copy = owner.clone()
            for index, operand in enumerate(operands):
                copy.operation.operands[index] = operand
                if not isinstance(operand.owner, ir.Block) and _is_in(operand.owner, self._generic):
                    copy.operation.move_after(operand.owner)
            self._moved[value] = copy.operation.results[0]
        return self._moved[value]


def _fill_in_body(fill: ir.Operation) -> None:
    """linalg.fill ins(%number) -> linalg.generic with a body that captures the number."""
    number, output = fill.operands
    rank = ir.RankedTensorType(output.type).rank
    with fill.location, ir.InsertionPoint(fill):
        filled = with_body(generic_op([], output, [tuple(range(rank))], rank, 0), lambda _: number)
    fill.results[0].replace_all_uses_with(filled)
    fill.erase()


def _is_in(operation: ir.Operation, outer: ir.Operation) -> bool:
    """Return whether an operation is nested in ``outer``."""
    parent = operation.parent
    return parent is not None and (parent == outer or _is_in(parent.operation, outer))


def _inline_uniform_operands(generic: ir.Operation) -> None:
    """linalg.generic ins(%x, %splat) {f(a, b)} -> ins(%x) {f(a, number)}.

    Upstream's linalg-inline-scalar-operands would also inline computed 0-d tensors.
    """
    # A dropped input may be the only operand that determines the extent of a reduction.
    if "reduction" in str(generic.attributes["iterator_types"]):
        return
    inputs = range(len(generic.operands) - len(generic.results))
    numbers = {index: number for index in inputs if (number := _splat(generic.operands[index])) is not None}
    if not numbers:
        return
    block = generic.regions[0].blocks[0]
    for index, number in numbers.items():
        argument = block.arguments[index]
        with generic.location, ir.InsertionPoint(generic):
            argument.replace_all_uses_with(arith.ConstantOp(argument.type, number).result)
    remaining = [index for index in range(len(generic.operands)) if index not in numbers]
    maps = ir.ArrayAttr(generic.attributes["indexing_maps"])
    # The order is reversed, because erasing an argument renumbers the arguments after it.
    for index in sorted(numbers, reverse=True):
        block.erase_argument(index)
    _with_operands(
        generic, [generic.operands[index] for index in remaining], [maps[index] for index in remaining]
    )


def _with_operands(generic: ir.Operation, operands: list[ir.Value], maps: list[ir.Attribute]) -> ir.Operation:
    """Replace a linalg.generic by an operation with the same body and other operands."""
    types = [result.type for result in generic.results]
    with generic.location, ir.InsertionPoint(generic):
        new = generic_without_body(operands, types, maps, generic.attributes["iterator_types"])
    generic.regions[0].blocks[0].append_to(new.regions[0])
    for old_result, new_result in zip(generic.results, new.results, strict=True):
        old_result.replace_all_uses_with(new_result)
    generic.erase()
    return new
