"""From a PyTorch model to a ``linalg`` module whose parameters are function arguments.

The module has one public function ``@main`` over tensors of static shape. Its arguments are the inputs, the
parameters and the constants of the model in the order of ``Imported.arguments``; each says so with the
attributes ``{spyre.name = "layers.0.q.weight", spyre.kind = "parameter"}``. No tensor data is in the text.
Named dims (see hints.py) are ``sdsc.dims`` of the arguments and ``sdsc.dim_sizes`` of the function.
Locations carry the file and line of the model, the module path and the aten operation (see locations.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.extras.fx_importer import FxImporter, GraphNodeImporter

from spyre_mlir.device_tensor import DeviceTensor
from spyre_mlir.dialects import load_into
from spyre_mlir.dialects.attributes import to_attribute
from spyre_mlir.dialects.hints import DIM_SIZES, DIMS
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.exported import INPUT, Argument, ExportedGraph, Fixed, export_graph, quiet
from spyre_mlir.frontend.hints import name_tensor_dims, names_of
from spyre_mlir.frontend.locations import SourceLocations, source_of_error
from spyre_mlir.frontend.lowering import load_conversion_dialect, lower_to_linalg
from spyre_mlir.frontend.operators import is_layout_operator, layout_operation
from spyre_mlir.layout import StickLayout
from spyre_mlir.mlir import ir


@dataclass(frozen=True)
class Imported:
    """A model as MLIR, with what is needed to call it like the model.

    ``arguments``: name, kind and data of each argument of @main. ``results``: shape and dtype of each result.
    ``input_layouts``: by their position, the layouts of the inputs that were given on the device.
    """

    module: ir.Module
    arguments: list[Argument]
    results: list[tuple[tuple[int, ...], torch.dtype]]
    input_layouts: dict[int, StickLayout]
    _leaves: list[int | Fixed] = field(repr=False)
    _input_tree: pytree.TreeSpec = field(repr=False)
    _output_tree: pytree.TreeSpec = field(repr=False)

    def operands(self, *args: Any, **kwargs: Any) -> list[Any]:
        """What @main is called with when the model is called with ``args``: inputs, parameters, constants.

        They are arrays, but an input that is on the device already stays as it is.
        """
        leaves, tree = pytree.tree_flatten((args, kwargs))
        if tree != self._input_tree:
            raise CompileError(_other_inputs(self._input_tree, tree))
        values = [(arg.tensor if arg.leaf is None else leaves[arg.leaf], arg.name) for arg in self.arguments]
        return [value if isinstance(value, DeviceTensor) else to_numpy(value, name) for value, name in values]

    def unflatten(self, arrays: Sequence[np.ndarray]) -> Any:
        """What the model returns, from the results of @main."""
        tensors = [
            to_tensor(array, dtype).reshape(shape)
            for array, (shape, dtype) in zip(arrays, self.results, strict=True)
        ]
        values = [leaf.value if isinstance(leaf, Fixed) else tensors[leaf] for leaf in self._leaves]
        return pytree.tree_unflatten(values, self._output_tree)


def _other_inputs(wanted: pytree.TreeSpec, given: pytree.TreeSpec) -> str:
    if wanted.num_leaves != given.num_leaves:
        return f"The program takes {wanted.num_leaves} inputs, not {given.num_leaves}."
    structures = (" ".join(str(tree).split()) for tree in (wanted, given))
    return "The program takes inputs of the structure {}, not {}.".format(*structures)


def to_numpy(tensor: Any, name: str = "value") -> np.ndarray:
    """A tensor as an array; bfloat16, which numpy lacks, as the bits in uint16."""
    if not isinstance(tensor, torch.Tensor):
        raise CompileError(f"The input '{name}' must be a tensor, not a {type(tensor).__name__}.")
    tensor = tensor.detach().cpu().contiguous()
    return tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def to_tensor(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """The inverse of ``to_numpy``; other arrays are converted to ``dtype``."""
    tensor = torch.from_numpy(np.array(array, order="C"))
    if dtype == torch.bfloat16 and tensor.dtype == torch.uint16:
        return tensor.view(torch.bfloat16)
    return tensor.to(dtype)


def import_torch(
    model: torch.nn.Module | Callable | ExportedProgram,
    example_inputs: Sequence[Any] = (),
    *,
    context: ir.Context,
) -> Imported:
    """Import a model, a function or an exported program, called with ``example_inputs``, into ``context``."""
    given, _ = pytree.tree_flatten(example_inputs)
    exported = export_graph(model, pytree.tree_map(_off_the_device, example_inputs))
    module = lower_to_linalg(_import_graph(exported, context))
    call = exported.program.call_spec
    return Imported(
        module,
        exported.arguments,
        [(tuple(node.meta["val"].shape), node.meta["val"].dtype) for node in exported.results],
        _layouts(given, exported.arguments),
        exported.leaves,
        cast(pytree.TreeSpec, call.in_spec),
        cast(pytree.TreeSpec, call.out_spec),
    )


def _off_the_device(leaf: Any) -> Any:
    """An example input that is on the device, as PyTorch has it."""
    if not isinstance(leaf, DeviceTensor):
        return leaf
    tensor = to_tensor(leaf.numpy(), getattr(torch, leaf.dtype))
    if names := names_of(leaf):
        name_tensor_dims(tensor, names)
    return tensor


def _layouts(given: Sequence[Any], arguments: Sequence[Argument]) -> dict[int, StickLayout]:
    """By their position among the inputs, the layouts of the leaves that are on the device."""
    on_device = {leaf: tensor for leaf, tensor in enumerate(given) if isinstance(tensor, DeviceTensor)}
    inputs = [argument.leaf for argument in arguments if argument.kind == INPUT]
    return {at: on_device[leaf].layout for at, leaf in enumerate(inputs) if leaf in on_device}


class _NodeImporter(GraphNodeImporter):
    """torch-mlir's, which also knows the operators of ``operators.py``.

    They become ops of the ``stick`` dialect between casts to tensors and back, which torch-mlir's passes keep
    where they are; a ``torch.operator`` they would refuse.
    """

    __slots__ = ()

    def _import_torch_op_overload(self, loc: ir.Location, node: Node, concrete_target: Any = None) -> None:
        if not is_layout_operator(node):
            super()._import_torch_op_overload(loc, node, concrete_target)
            return
        build, source, layout, element = layout_operation(node)
        value = self.resolve_node_value(source)
        with loc:
            type_ = ir.RankedTensorType.get(layout.shape, ir.Type.parse(element))
            tensor = ir.Operation.create(
                "torch_c.to_builtin_tensor", results=[type_], operands=[value]
            ).result
            made = build(tensor, layout, loc)
            back = ir.Operation.create("torch_c.from_builtin_tensor", results=[value.type], operands=[made])
        self.bind_node_value(node, back.result)


def _import_graph(exported: ExportedGraph, context: ir.Context) -> ir.Module:
    """The graph in the torch dialect, with named arguments."""
    torch_dialect.register_dialect(context)
    load_into(context)
    load_conversion_dialect(context)
    importer = FxImporter(context=context, graph_node_importer_cls=_NodeImporter)
    importer._cc = SourceLocations(context, py_attr_tracker=importer._py_attr_tracker)
    try:
        with torch.no_grad(), quiet():
            function = importer.import_graph_module(exported.graph_module)
    except (NotImplementedError, TypeError, ValueError, KeyError, AssertionError) as error:
        raise CompileError(f"torch-mlir cannot import the model: {error}", source_of_error(error)) from error
    with context:
        function.arg_attrs = [to_attribute(_attributes(argument)) for argument in exported.arguments]
        if exported.dim_sizes:
            function.attributes[DIM_SIZES] = to_attribute(exported.dim_sizes)
    return importer.module


def _attributes(argument: Argument) -> dict[str, Any]:
    attributes = {"spyre.name": argument.name, "spyre.kind": argument.kind}
    return attributes | ({DIMS: argument.dims} if argument.dims else {})
