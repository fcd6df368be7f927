# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ``ktdp`` dialect of KTIR (RFC 0682): kernels of tiles, an alternative to bundles as input of Spyre's back end.

At this level a module has one ``func.func`` with ``grid = [cores]``, which every core runs: the ops below read and
write memory, and the code between them is ``linalg``, ``arith``, ``math``, ``tensor`` and ``scf`` on tensors. The
bindings print Python-defined ops in generic form; ``spyre_mlir/ktir/ktir_text.py`` has the custom syntax.

* ``ktdp.get_compute_tile_id`` returns the core id.
* ``ktdp.construct_memory_view`` describes memory from an address on, an index in elements, with sizes and strides.
  ``memory_space`` is "global" (device memory), or "ct_local" (the LX of this core, or of core ``ct_id``);
  ``coordinate_set`` has the coordinates of the elements in the view.
* ``ktdp.construct_distributed_memory_view`` combines several views, each with a part of the coordinates, into one.
* ``ktdp.construct_access_tile`` selects a tile of a view, from its subscripts on.
* ``ktdp.construct_indirect_access_tile`` selects elements of a view (its first operand) by index views (the others),
  as stated by ``subscripts``.
* ``ktdp.load`` and ``ktdp.store`` move a tile.
* ``ktdp.inter_tile_produce`` offers tensors to the cores of a group, and one other operation delivers them: it waits
  for the producers and combines (``reduce``), copies (``consume``), concatenates (``gather``), splits (``scatter``), or
  splits and concatenates (``all_to_all``) their tensors ("Inter-tile communications in KTIR"). Nothing else
  synchronises cores.
* ``ktdp.runtime_arg_extract`` returns the value, granularity or upper bound of a run-time argument.

Programs of other writers have sizes, strides and symbols of sets that are values; they are the last operands.
"""

# Annotations must not be postponed: the bindings read the fields of ops and attributes from them.
# pyright: reportInvalidTypeForm=false

from collections.abc import Sequence
from typing import Any

from spyre_mlir.dialects.attributes import attribute_of, required
from spyre_mlir.mlir import ext, ir

GRID = "grid"
#: Attributes of the module, as at the bundle level: the manifest for the host, and the values of constants.
MANIFEST, CONSTANTS = "ktdp.manifest", "ktdp.constants"
GLOBAL, LOCAL = "global", "ct_local"
#: A size or stride of a view that is a value.
DYNAMIC = ir.ShapedType.get_dynamic_size()


class Ktdp(ext.Dialect, name="ktdp"):
    """Tiles of memory, and synchronisation between cores."""


class AccessTileType(Ktdp.Type, name="access_tile"):
    """``!ktdp.access_tile<tensor<4x64xindex>>``: positions in memory of a tile of 4 x 64 elements, its ``shape``."""

    shape: ir.TypeAttr


class RuntimeArgType(Ktdp.Type, name="runtime_arg"):
    """``!ktdp.runtime_arg<"index, granularity=3, upperbound=300">``: a number that the execution passes."""

    text: ir.StringAttr


class TileFutureType(Ktdp.Type, name="tile_future"):
    """``!ktdp.tile_future<tensor<4x64xf16>, "(g) : (g >= 0)">``: the tensors that cores of each group produce.

    A future of several tensors has a ``tuple`` of their types, and operations between cores have one tuple as operand
    and result, because all operands of a Python-defined op have one type.
    """

    tile: ir.TypeAttr
    groups: ir.StringAttr


class GetComputeTileIdOp(Ktdp.Operation, name="get_compute_tile_id"):
    """``%core = "ktdp.get_compute_tile_id"() : () -> index``: the core id, or ``tiles`` of a grid."""

    tiles: Sequence[ext.Result[ir.IndexType]]


class ConstructMemoryViewOp(Ktdp.Operation, name="construct_memory_view"):
    """Element ``(i, ..)`` of the ``view`` is the memory element at ``address + sum of i * stride``, in elements.

    ``%v = "ktdp.construct_memory_view"(%a) {sizes = array<i64: 4, 64>, strides = array<i64: 64, 1>,
    coordinate_set = affine_set<(d0, d1) : (..)>, memory_space = "global"} : (index) -> memref<4x64xf16>``

    Sizes and strides that are values, ``numbers``, are ``DYNAMIC`` in the attributes, and follow the address in order.
    """

    address: ext.Operand[ir.IndexType]
    numbers: Sequence[ext.Operand[ir.IndexType]]
    view: ext.Result[ir.MemRefType]

    def verify_invariants(self) -> bool:
        """Require a memory space, and a size and a stride for each dim of the view."""
        op = self.operation
        sizes, strides, space = (attribute_of(op, name) for name in ("sizes", "strides", "memory_space"))
        numbers = [list(each) for each in (sizes, strides) if isinstance(each, ir.DenseI64ArrayAttr)]
        shape = _shape(op.results[0])
        values = sum(list(each).count(DYNAMIC) for each in numbers)
        return (
            required(
                self,
                isinstance(space, ir.StringAttr) and space.value in (GLOBAL, LOCAL),
                "the memory_space of a view is 'global' or 'ct_local'",
            )
            and required(
                self,
                len(numbers) == 2 and len(numbers[0]) == len(numbers[1]) == len(shape),
                "a memory view has a size and a stride for each dim",
            )
            and required(
                self,
                all(size in (DYNAMIC, extent) for size, extent in zip(numbers[0], shape, strict=True)),
                "the sizes of a memory view equal the shape of its type",
            )
            and required(
                self,
                values == len(op.operands) - 1,
                "a memory view has a value for each size or stride that lacks a number",
            )
        )


class ConstructDistributedMemoryViewOp(Ktdp.Operation, name="construct_distributed_memory_view"):
    """Combine several ``parts`` into one ``view``; their ``coordinate_set`` states the part of each."""

    parts: Sequence[ext.Operand[Any]]
    view: ext.Result[ir.MemRefType]


class ConstructAccessTileOp(Ktdp.Operation, name="construct_access_tile"):
    """Select the ``tile`` of a ``view`` from its ``subscripts`` on, one for each dim; ``symbols`` of them are symbols.

    ``%t = "ktdp.construct_access_tile"(%v, %i, %j) {access_tile_set = affine_set<..>} : (memref<4x64xf16>, index,
    index) -> !ktdp.access_tile<tensor<2x64xindex>>``
    """

    view: ext.Operand[ir.MemRefType]
    subscripts: Sequence[ext.Operand[ir.IndexType]]
    tile: ext.Result[AccessTileType]

    def verify_invariants(self) -> bool:
        """Require a subscript for each dim, and a tile within the view."""
        op = self.operation
        view, tile = _shape(op.operands[0]), _tile_shape(op.results[0])
        symbols, order = (attribute_of(op, name) for name in ("symbols", "access_tile_order"))
        count = symbols.value if isinstance(symbols, ir.IntegerAttr) else 0
        if isinstance(order, ir.AffineMapAttr) and len(view) == len(tile):
            # A dim of the tile is the dim of the view that the order names.
            dims = [result.position for result in order.value.results if isinstance(result, ir.AffineDimExpr)]
            view = [view[dim] for dim in dims] if sorted(dims) == list(range(len(view))) else view
        return required(
            self,
            len(op.operands) - 1 - count == len(view) == len(tile),
            "an access tile has a subscript and an extent for each dim of its view",
        ) and required(
            self,
            all(extent <= size or DYNAMIC in (extent, size) for extent, size in zip(tile, view, strict=True)),
            "an access tile is no larger than its view",
        )


class ConstructIndirectAccessTileOp(Ktdp.Operation, name="construct_indirect_access_tile"):
    """Select elements of a ``view`` as a ``tile``, at coordinates that other views, ``indices``, contain.

    ``subscripts`` has one text for each dim of the view, in the variables ``%d0``, ``%d1`` .. of the tile:
    ``ind(1, %d0)`` is the number in the first index view at ``%d0``.
    """

    view: ext.Operand[ir.MemRefType]
    indices: Sequence[ext.Operand[Any]]
    tile: ext.Result[AccessTileType]


class LoadOp(Ktdp.Operation, name="load"):
    """Copy a ``tile`` of memory to a tensor, ``value``."""

    tile: ext.Operand[AccessTileType]
    value: ext.Result[ir.RankedTensorType]

    def verify_invariants(self) -> bool:
        """Require the shape of the tile."""
        return _verify_shapes(self, self.operation.results[0], self.operation.operands[0])


class StoreOp(Ktdp.Operation, name="store"):
    """Copy a tensor, ``value``, to a ``tile`` of memory."""

    value: ext.Operand[ir.RankedTensorType]
    tile: ext.Operand[AccessTileType]

    def verify_invariants(self) -> bool:
        """Require the shape of the tile."""
        return _verify_shapes(self, *self.operation.operands)


class RuntimeArgExtractOp(Ktdp.Operation, name="runtime_arg_extract"):
    """Return the ``field`` of a run-time argument: "value", "granularity" or "upperbound"."""

    argument: ext.Operand[RuntimeArgType]
    number: ext.Result[Any]


class InterTileProduceOp(Ktdp.Operation, name="inter_tile_produce"):
    """Offer the tensors that the region yields to the cores of the group that wait for them.

    ``producers`` is the text of the set of cores of a group, such as "(i)[g] : (i - g == 0)".
    """

    future: ext.Result[TileFutureType]
    body: ext.Region


class InterTileReduceOp(Ktdp.Operation, name="inter_tile_reduce"):
    """Combine the tensors from the producers of this core's group, two at a time, by the region.

    ``producers`` is the set of the cores that wait. ``dependency``, a set of producers by core, restricts the producers
    that a core waits for, as in all operations that deliver tensors.
    """

    future: ext.Operand[TileFutureType]
    identity: ext.Operand[Any]
    result: ext.Result[Any]
    body: ext.Region


class InterTileReduceScatterOp(Ktdp.Operation, name="inter_tile_reduce_scatter"):
    """Combine as ``inter_tile_reduce`` does, and give each core its slice along the ``scatter_dimensions``."""

    future: ext.Operand[TileFutureType]
    identity: ext.Operand[Any]
    result: ext.Result[Any]
    body: ext.Region


class InterTileConsumeOp(Ktdp.Operation, name="inter_tile_consume"):
    """Copy the tensors of the one producer of each core that waits: a broadcast, or a route by ``dependency``."""

    future: ext.Operand[TileFutureType]
    result: ext.Result[Any]


class InterTileGatherOp(Ktdp.Operation, name="inter_tile_gather"):
    """Concatenate the tensors of the producers along the ``gather_dimensions``, the first dim slowest."""

    future: ext.Operand[TileFutureType]
    result: ext.Result[Any]


class InterTileAllToAllOp(Ktdp.Operation, name="inter_tile_all_to_all"):
    """Split along the ``split_dimensions``, and concatenate the slices of all producers along ``concat_dimensions``."""

    future: ext.Operand[TileFutureType]
    result: ext.Result[Any]


class InterTileScatterOp(Ktdp.Operation, name="inter_tile_scatter"):
    """Give each core that waits its slice of the producer's tensors along the ``scatter_dimensions``."""

    future: ext.Operand[TileFutureType]
    result: ext.Result[Any]


class YieldPartialOp(Ktdp.Operation, name="yield_partial", traits=[ir.IsTerminatorTrait]):
    """Terminator of the region of a producer."""

    value: ext.Operand[Any]


class YieldReducedOp(Ktdp.Operation, name="yield_reduced", traits=[ir.IsTerminatorTrait]):
    """Terminator of the region of a reduction."""

    value: ext.Operand[Any]


#: The operations that deliver the tensors of a future, with the attributes that name dims.
DELIVERIES = {
    "inter_tile_consume": (),
    "inter_tile_gather": ("gather_dimensions",),
    "inter_tile_all_to_all": ("split_dimensions", "concat_dimensions"),
    "inter_tile_scatter": ("scatter_dimensions",),
    "inter_tile_reduce": (),
    "inter_tile_reduce_scatter": ("scatter_dimensions",),
}


def tile_type(shape: Sequence[int]) -> ir.Type:
    """Build the type of an access tile of a shape."""
    return AccessTileType.get(ir.TypeAttr.get(ir.RankedTensorType.get(list(shape), ir.IndexType.get())))


def _shape(value: ir.Value) -> list[int]:
    return list(ir.ShapedType(value.type).shape)


def _tile_shape(tile: ir.Value) -> list[int]:
    return list(ir.RankedTensorType(ir.TypeAttr(tile.type.shape).value).shape)


def _verify_shapes(op: ext.Operation, value: ir.Value, tile: ir.Value) -> bool:
    is_equal = _shape(value) == _tile_shape(tile)
    return required(op, is_equal, "a tensor that is moved has the shape of its access tile")
