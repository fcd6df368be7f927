# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ``sdsc`` dialect: device operations, their work division and the placement of their results.

From the level *device ops* on, each compute op is a ``linalg.generic`` that represents one device operation. The
op carries three decisions as attributes, added level by level:

* ``sdsc.op = #sdsc.op<"clip", {clipMax = 6.0 : f64, clipMin = 0.0 : f64}>``: the operation and its
  constants (device-ops table, ``spyre_mlir/target/ops.py``). Operands are in device order.
* ``sdsc.division = #sdsc.division<[1, 16], affine_map<(d0) -> (0, d0)>>``: the number of slices of each iteration
  dim, and the slices of each core.
* ``sdsc.placement``: the memory of the result. ``#sdsc.hbm<"pool", 4096>`` (byte offset in the pool, whose size is
  ``sdsc.pool_bytes`` of the function), ``#sdsc.hbm<"result0", 0>`` (a kernel argument), ``#sdsc.lx<0>`` (byte address
  in every core's LX).

``sdsc.combine = "add"`` on an op whose division splits a reduced dim: how the cores combine their partial
results over the ring. The core of the last slice has the finished value.

``sdsc.masks = {d1 = 0.0 : f64}`` on a compute op: padding of iteration dim 1 reads as 0 in all its operands.
The number is the neutral element of the operation, the same for all its masks.

Host boundary: each argument and result of the kernel carries ``sdsc.host = #sdsc.host<name, kind, dtype>``; the tensor
type has the shape and dtype on the device. An argument with ``sdsc.source = "w"`` is another layout of the host array
of the argument ``w``. An argument with ``sdsc.host_view = {array = [512, 96], offset = 5, strides = [96, 1]}`` takes
only these elements of its host array, whose shape is ``array``. For a dim of several strided parts ``sizes`` are the
sizes of the parts, outermost first. ``sdsc.index_bounds = {lower = -8, upper = 8, operation = "aten.index_put"}`` on an
argument: its numbers are indices from -8 to 7 of that operation. The host checks them, because the device only compares
them. ``sdsc.runs = {ends = dense<[3, 16]> : tensor<2xi32>, values = dense<[0.0, 1.0]> : tensor<2xf32>}`` on an
argument: it is a constant of two runs of equal elements, the first run of 3. In this way an attention mask states which
of its tiles hide all keys, so that passes can skip these tiles. ``sdsc.hides`` on an operation: it masks scores or
weights by such an operand, and a tile that hides all keys need not be computed.

``sdsc.history = [["fusion", "fuse-device-ops", "reason"]]`` on an op lists the rewrites that made it, oldest first; the
bundle's debug handle contains it.

``sdsc.clone`` copies a tensor into its own buffer. A clone with ``sdsc.optional`` only saves traffic: without it,
its readers use the source. A clone with ``sdsc.evicted`` has its result in device memory, from which later clones
reload it.

``sdsc.shuffle`` is a relayout from LX to LX: its cores need other parts than the source's cores have, and the ring
moves them. ``sdsc.copies = 8 : i64`` on a clone or shuffle: 8 cores get each part (multicast, all-gather); the copies
are the last dim of the iteration space, and the division assigns a core to each.

``sdsc.windows`` is a view of a tensor by the windows that slide over it; reads beyond its ends are padding.

``sdsc.ping_pong = [3 : i64, 1 : i64]`` on an operation in loops that loads the tile of the next iteration during the
current one: its result is in the second buffer of pair 3, which directly follows the first buffer in any memory.

``sdsc.overwrites = 0 : i64`` on a ``linalg.generic``: its result overwrites operand 0, in the same buffer, element for
element, and the operand has no later reader. The buffer of an iter_arg is overwritten without this attribute.

``sdsc.spilled = ["core division mismatch: .."]`` on the defining op of a buffer in device memory: the reasons why it is
not in LX, in the order of ``scratchpad/eligibility.py``.

``sdsc.bundle = 2 : i64`` on an operation or loop of a function: the index of its bundle in a sequence
(``cut-bundles``); an operation without it is in the bundle of the previous operation.

``sdsc.demoted`` on a device operation: its fp16 result is f32 in the program, and would change if a number beyond fp16
became an infinity. ``sdsc.amplified`` on a matmul: an exponential follows its 16-bit result (attention scores), and
turns the rounding error into a relative error. ``sdsc.wide_sum`` on a matmul of 8-bit operands and on the casts
that read its result: the sums between them are in DL16 for any numerics. ``sdsc.bfloat`` on a function: the
program has bf16 numbers, whose range fp16 cannot represent.

``sdsc.name = "exp.0"`` on a device operation is its name in plan files (``name-operations``). ``sdsc.plan`` on a
module is the text of a plan file that is to be applied, or that was saved. ``sdsc.pins`` on an operation or an
argument holds the plan's entries for later choices; passes obey them (``analysis/plan_pins.py``).
``sdsc.tiled`` on an operation with a name is its former ``sdsc.tiling``.

Working-set reduction (``dialects/hint_attributes.py``): an argument with ``sdsc.dims = ["M", "K"]`` has storage over
these dims, outermost first, and ``sdsc.dim_sizes = {K = 256 : i64, M = 64 : i64}`` of the function declares them.
``sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}]`` are the hints around an operation, outermost
first, with ``slices = [..]`` for the dims that it divides over cores (``sdsc.pins``);
``sdsc.dims = [["M"], ["K"], []]`` of an operation are the names of each of its iteration dims. The decision is
``sdsc.tiling = [{loop = "3.M", dim = 0 : i64, tiles = 8 : i64}]``: the loops around an operation, outermost first, with
the iteration dim that each loop tiles; operations with the same entry share the loop. With ``unrolled = true`` its
iterations are unrolled, with ``unrolled = false`` they are not; otherwise ``unroll-tiles`` decides.
"""

# Annotations must not be postponed: the bindings read the fields of ops and attributes from them.
# pyright: reportInvalidTypeForm=false

import itertools
import math
from collections.abc import Mapping, Sequence

from spyre_mlir.dialects.attributes import (
    copied_types,
    from_attribute,
    from_dims,
    i64_attr,
    keeps_elements,
    required,
    to_dims,
)
from spyre_mlir.division import Division
from spyre_mlir.errors import CompileError
from spyre_mlir.layout.host_transfer import HostView
from spyre_mlir.layout.space import Halos, halo_of
from spyre_mlir.mlir import ext, ir, location_of

OP, DIVISION, PLACEMENT, HOST = "sdsc.op", "sdsc.division", "sdsc.placement", "sdsc.host"
#: On an argument that the program updates: the index of the result that is its new value, in the same memory.
UPDATED = "spyre.updated"
HISTORY, SOURCE, MASKS = "sdsc.history", "sdsc.source", "sdsc.masks"
HOST_VIEW, COMBINE = "sdsc.host_view", "sdsc.combine"
OPTIONAL, EVICTED, SPILLED = "sdsc.optional", "sdsc.evicted", "sdsc.spilled"
COPIES, POOL_BYTES = "sdsc.copies", "sdsc.pool_bytes"
#: On a shuffle: iteration dims, and the number of positions before and after its slice that a core gets.
HALOS = "sdsc.halos"
NAME, PLAN, PINS, TILED = "sdsc.name", "sdsc.plan", "sdsc.pins", "sdsc.tiled"
DEMOTED, AMPLIFIED, BFLOAT = "sdsc.demoted", "sdsc.amplified", "sdsc.bfloat"
WIDE_SUM = "sdsc.wide_sum"
INDEX_BOUNDS = "sdsc.index_bounds"
BUNDLE = "sdsc.bundle"
PING_PONG = "sdsc.ping_pong"
OVERWRITES = "sdsc.overwrites"
#: The last one is on a module from which ``fold-repeated-layers`` removed layers.
RUNS, HIDES, FOLDED = "sdsc.runs", "sdsc.hides", "sdsc.folded"
#: On an argument that the frontend computed: the bytes of the model's data from which it was computed.
SOURCE_BYTES = "spyre.source_bytes"

#: The attributes of ``sdsc.windows``, each with a number per dim that windows slide along.
WINDOW_NUMBERS = ("dims", "strides", "dilations", "before")


class Sdsc(ext.Dialect, name="sdsc"):
    """Device operations and the decisions about them."""


class OpAttr(Sdsc.Attribute, name="op"):
    """``#sdsc.op<"add", {}>``: one device operation, its ``opcode``, and its ``constants`` (f64)."""

    opcode: ir.StringAttr
    constants: ir.DictAttr


class DivisionAttr(Sdsc.Attribute, name="division"):
    """``#sdsc.division<[1, 16], affine_map<(d0) -> (0, d0)>>``: ``splits`` per dim, ``mapping`` of core to slices."""

    splits: ir.ArrayAttr
    mapping: ir.AffineMapAttr


class HbmAttr(Sdsc.Attribute, name="hbm"):
    """``#sdsc.hbm<"pool", 4096>``: a buffer at an ``offset`` in bytes from a named ``base`` in HBM."""

    base: ir.StringAttr
    offset: ir.IntegerAttr


class LxAttr(Sdsc.Attribute, name="lx"):
    """``#sdsc.lx<0>``: a buffer at the same ``address`` in bytes of every core's LX."""

    address: ir.IntegerAttr


class HostAttr(Sdsc.Attribute, name="host"):
    """``#sdsc.host<"x", "input", "f16">``: name (``label``), ``kind`` and ``dtype`` of an argument on the host."""

    label: ir.StringAttr
    kind: ir.StringAttr
    dtype: ir.StringAttr


class CloneOp(Sdsc.Operation, name="clone"):
    """Copy ``source`` into its own buffer, ``result``; not pure, because two clones of one tensor are two buffers.

    ``%1 = "sdsc.clone"(%0) : (tensor<64x64xf16>) -> tensor<64x64xf16>``
    """

    source: ext.Operand[ir.RankedTensorType]
    result: ext.Result[ir.RankedTensorType]

    def verify_invariants(self) -> bool:
        """Require shape and element type of the source."""
        return keeps_elements(self, "clone keeps shape and element type of its source")


class WindowsOp(Sdsc.Operation, name="windows"):
    """View ``source`` by windows that slide along some of its dims; each such dim becomes two: windows and positions.

    Element ``(.., o, k, ..)`` of ``result`` is element ``(.., stride * o + dilation * k - before, ..)`` of the source,
    or the neutral element of the operation that reads it if that is outside. Only operations with windows read it.

    ``%1 = "sdsc.windows"(%0) {dims = array<i64: 1>, strides = array<i64: 2>, dilations = array<i64: 1>,
    before = array<i64: 1>} : (tensor<8x9x64xf16>) -> tensor<8x5x3x64xf16>``
    """

    source: ext.Operand[ir.RankedTensorType]
    result: ext.Result[ir.RankedTensorType]

    def verify_invariants(self) -> bool:
        """Require two dims of the result for each dim that windows slide along, and the element type of the source."""
        types = copied_types(self)
        if types is None:
            return True
        source, result = types
        given = [self.attributes[name] for name in WINDOW_NUMBERS if name in self.attributes]
        numbers = [list(attr) for attr in given if isinstance(attr, ir.DenseI64ArrayAttr)]
        is_sound = (
            len(numbers) == len(WINDOW_NUMBERS)
            and len({len(entries) for entries in numbers}) == 1
            and numbers[0] == sorted(set(numbers[0]))
            and result.rank == source.rank + len(numbers[0])
            and source.element_type == result.element_type
            and all(min(entries, default=1) > 0 for entries in numbers[1:3])
            and min(numbers[3], default=0) >= 0
        )
        message = "windows has a dim of positions and a dim of window elements for each dim in 'dims'"
        return required(self, is_sound, message)


class ShuffleOp(Sdsc.Operation, name="shuffle"):
    """Copy ``source`` in LX over the ring, to the cores that read ``result``; with ``sdsc.halos`` slices overlap.

    ``%1 = "sdsc.shuffle"(%0) : (tensor<64x64xf16>) -> tensor<64x64xf16>``
    """

    source: ext.Operand[ir.RankedTensorType]
    result: ext.Result[ir.RankedTensorType]

    def verify_invariants(self) -> bool:
        """Require the type of the source, including the layout: the ring moves bits unchanged."""
        types = copied_types(self)
        is_kept = types is None or types[0] == types[1]
        return required(self, is_kept, "shuffle keeps the type of its source")


def shuffle(source: ir.Value, location: ir.Location) -> ir.Value:
    """Build a relayout of ``source``, with its layout, at the current insertion point."""
    return ir.Operation.create("sdsc.shuffle", results=[source.type], operands=[source], loc=location).result


def windows(
    source: ir.Value,
    shape: Sequence[int],
    dims: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    before: Sequence[int],
) -> ir.Value:
    """Build a view of ``source`` by windows, of ``shape``, at the current insertion point."""
    numbers = zip(WINDOW_NUMBERS, (dims, strides, dilations, before), strict=True)
    attributes = {name: ir.DenseI64ArrayAttr.get(list(entries)) for name, entries in numbers}
    type_ = ir.RankedTensorType.get(list(shape), ir.RankedTensorType(source.type).element_type)
    return ir.Operation.create(
        "sdsc.windows", results=[type_], operands=[source], attributes=attributes
    ).result


def halos_attr(halos: Halos) -> ir.DenseI64ArrayAttr:
    """Return the attribute of a shuffle's halos: for each halo its dim, the positions before and after, the size."""
    numbers = ((dim, halo.before, halo.extent - 1 - halo.before, halo.size) for dim, halo in halos)
    return ir.DenseI64ArrayAttr.get(list(itertools.chain.from_iterable(numbers)))


def halos_of(op: ir.Operation) -> Halos:
    """Return the halos of a shuffle, by its iteration dims."""
    numbers = list(ir.DenseI64ArrayAttr(op.attributes[HALOS])) if HALOS in op.attributes else []
    return tuple(
        (dim, halo_of(before, after, size))
        for dim, before, after, size in zip(*(numbers[first::4] for first in range(4)), strict=True)
    )


def copies_of(op: ir.Operation) -> int:
    """Return the number of cores that get each slice of a clone or a shuffle."""
    return ir.IntegerAttr(op.attributes[COPIES]).value if COPIES in op.attributes else 1


def overwritten_operand(op: ir.Operation) -> ir.Value | None:
    """Return the operand that the result of an op overwrites; None if the result has its own buffer."""
    if OVERWRITES not in op.attributes:
        return None
    number = op.attributes[OVERWRITES]
    if not isinstance(number, ir.IntegerAttr) or not 0 <= number.value < len(op.operands):
        raise CompileError(f"{OVERWRITES} is {number}, not the index of an operand", location_of(op.location))
    return op.operands[number.value]


def ping_pong_attr(pair: int, second: bool) -> ir.ArrayAttr:
    """Build ``sdsc.ping_pong``: the index of a pair of buffers, and which buffer of the pair holds a result."""
    return ir.ArrayAttr.get([i64_attr(number) for number in (pair, int(second))])


def ping_pong_of(op: ir.Operation) -> tuple[int, bool] | None:
    """Return the pair of buffers of a result, and whether it is in the second one; None if it has its own buffer."""
    if PING_PONG not in op.attributes:
        return None
    value = op.attributes[PING_PONG]
    numbers = list(value) if isinstance(value, ir.ArrayAttr) else []
    if len(numbers) != 2 or not all(isinstance(number, ir.IntegerAttr) for number in numbers):
        raise CompileError(
            f"{PING_PONG} is {value}, not the indices of a pair and of a buffer", location_of(op.location)
        )
    pair, second = (ir.IntegerAttr(number).value for number in numbers)
    return pair, bool(second)


def clone(source: ir.Value, location: ir.Location) -> ir.Value:
    """Build a copy of ``source``, with a layout yet to be chosen and a ``location``, at the current insertion point."""
    type_ = ir.RankedTensorType(source.type)
    result_type = ir.RankedTensorType.get(type_.shape, type_.element_type)
    return ir.Operation.create("sdsc.clone", results=[result_type], operands=[source], loc=location).result


def op_attr(opcode: str, constants: Mapping[str, float] | None = None) -> OpAttr:
    """Build ``#sdsc.op`` from Python values."""
    values = {name: ir.FloatAttr.get_f64(value) for name, value in (constants or {}).items()}
    return OpAttr.get(ir.StringAttr.get(opcode), ir.DictAttr.get(values))


def division_attr(splits: Sequence[int], mapping: ir.AffineMap) -> DivisionAttr:
    """Build ``#sdsc.division``: the slices per iteration dim, and the map from a core to its slices."""
    return DivisionAttr.get(ir.ArrayAttr.get(list(map(i64_attr, splits))), ir.AffineMapAttr.get(mapping))


def hbm_attr(base: str, offset: int) -> HbmAttr:
    """Build ``#sdsc.hbm`` from the name of the base and the ``offset`` in bytes."""
    return HbmAttr.get(ir.StringAttr.get(base), i64_attr(offset))


def lx_attr(address: int) -> LxAttr:
    """Build ``#sdsc.lx`` from a byte address."""
    return LxAttr.get(i64_attr(address))


def placement_of(op: ir.Operation) -> HbmAttr | LxAttr | None:
    """Return the placement of the buffer that an ``op`` writes; None before it is decided."""
    return op.attributes[PLACEMENT] if PLACEMENT in op.attributes else None


def host_attr(label: str, kind: str, dtype: str) -> HostAttr:
    """Build ``#sdsc.host`` from name, kind and dtype of the argument on the host."""
    return HostAttr.get(*(ir.StringAttr.get(text) for text in (label, kind, dtype)))


def again(arguments: Sequence[ir.DictAttr], number: int) -> ir.DictAttr:
    """Build the attributes of another argument with the host array of argument ``number``, in another layout."""
    entries = {entry.name: entry.attr for entry in arguments[number]}
    host = entries[HOST]
    # If the argument has a source itself, the new layout shows the array of that source.
    source = entries.get(SOURCE, host.label)
    name = ir.StringAttr(source).value
    count = sum(SOURCE in argument and argument[SOURCE] == source for argument in arguments)
    entries[HOST] = HostAttr.get(ir.StringAttr.get(f"{name}@{count + 1}"), host.kind, host.dtype)
    return ir.DictAttr.get({**entries, SOURCE: source})


def host_view_attr(view: HostView) -> ir.DictAttr:
    """Build ``sdsc.host_view`` from a view of the host array; the argument has the shape of the view."""
    pieces = [piece for dim in view.dims for piece in dim]
    entries = {
        "array": ir.DenseI64ArrayAttr.get(view.array_shape),
        "offset": i64_attr(view.offset),
        "strides": ir.DenseI64ArrayAttr.get([stride for _, stride in pieces]),
    }
    if view.in_pieces:
        entries["sizes"] = ir.DenseI64ArrayAttr.get([size for size, _ in pieces])
    return ir.DictAttr.get(entries)


def index_bounds_of(attributes: ir.DictAttr) -> tuple[int, int, str] | None:
    """Return the lower bound, excluded upper bound and operation of ``sdsc.index_bounds``; None without the attribute.

    ``CompileError`` for a malformed attribute.
    """
    if INDEX_BOUNDS not in attributes:
        return None
    value = from_attribute(attributes[INDEX_BOUNDS])
    match value:
        case {"lower": int(lower), "upper": int(upper), "operation": str(operation)}:
            return lower, upper, operation
    raise CompileError(f"'{INDEX_BOUNDS}' must have a lower, an upper and an operation, not {value}")


def host_view_of(attrs: ir.DictAttr, shape: Sequence[int]) -> HostView:
    """Return the view of the host array for an argument of ``shape``; without ``sdsc.host_view`` the whole array."""
    if HOST_VIEW not in attrs:
        return HostView.whole(shape)
    view = ir.DictAttr(attrs[HOST_VIEW])
    array, strides = (tuple(ir.DenseI64ArrayAttr(view[name])) for name in ("array", "strides"))
    sizes = ir.DenseI64ArrayAttr(view["sizes"]) if "sizes" in view else shape
    offset = ir.IntegerAttr(view["offset"]).value
    return HostView.of_pieces(array, shape, list(zip(sizes, strides, strict=True)), offset)


def record(op: ir.Operation, kind: str, pass_name: str, reason: str) -> None:
    """Add a step to the history of an op; ``kind`` is a kind of the SuperDSC specification (fusion, remap, ...)."""
    before = list(op.attributes[HISTORY]) if HISTORY in op.attributes else []
    step = ir.ArrayAttr.get([ir.StringAttr.get(text) for text in (kind, pass_name, reason)])
    op.attributes[HISTORY] = ir.ArrayAttr.get([*before, step])


def inherit(op: ir.Operation, source: ir.Operation) -> None:
    """Copy history, precision and plan attributes from ``source`` to the op that replaces it."""
    for name in (HISTORY, NAME, PINS, TILED, DEMOTED, AMPLIFIED, WIDE_SUM):
        if name in source.attributes:
            op.attributes[name] = source.attributes[name]


def history_of(op: ir.Operation) -> tuple[tuple[str, str, str], ...]:
    """Return the history of an ``op``: (kind, pass, reason), oldest first."""
    if HISTORY not in op.attributes:
        return ()
    steps = [
        [ir.StringAttr(text).value for text in ir.ArrayAttr(step)]
        for step in ir.ArrayAttr(op.attributes[HISTORY])
    ]
    return tuple((kind, pass_name, reason) for kind, pass_name, reason in steps)


def pool_bytes_of(func: ir.Operation) -> int:
    """Return the bytes of a placed function's pool in device memory; 0 if it does not have a pool."""
    return ir.IntegerAttr(func.attributes[POOL_BYTES]).value if POOL_BYTES in func.attributes else 0


def spilled_of(op: ir.Operation) -> tuple[str, ...]:
    """Return the reasons why the buffer that an ``op`` writes is not in LX; empty without ``sdsc.spilled``."""
    if SPILLED not in op.attributes:
        return ()
    return tuple(ir.StringAttr(reason).value for reason in ir.ArrayAttr(op.attributes[SPILLED]))


def name_of(op: ir.Operation) -> str | None:
    """Return the name of an ``op`` in plan files; None before ``name-operations``."""
    return ir.StringAttr(op.attributes[NAME]).value if NAME in op.attributes else None


def opcode_of(op: ir.Operation) -> str | None:
    """Return the device operation recorded on an ``op``, or None."""
    attributes = op.attributes
    return ir.StringAttr(attributes[OP].opcode).value if OP in attributes else None


def constants_of(op: ir.Operation) -> dict[str, float]:
    """Return the constants of a device operation, ``op``, by name."""
    return {entry.name: ir.FloatAttr(entry.attr).value for entry in ir.DictAttr(op.attributes[OP].constants)}


def masks_attr(masks: Mapping[int, float]) -> ir.DictAttr:
    """Build ``sdsc.masks`` from the value of the padding of each masked iteration dim."""
    return from_dims(masks)


def masks_of(op: ir.Operation) -> dict[int, float]:
    """Return the value of the padding by masked iteration dim; {} without masks. ``CompileError`` if malformed."""
    if MASKS not in op.attributes:
        return {}
    values = to_dims(MASKS, op.attributes[MASKS])
    masks = {dim: value for dim, value in values.items() if value is not None}
    if masks != values:
        raise CompileError(f"'{MASKS}' has no number for a dim", location_of(op.location))
    return masks


# Keyed by text, because an attribute belongs to a context and this cache outlives contexts.
_DIVISIONS: dict[str, Division] = {}


def division_of(op: ir.Operation) -> Division:
    """Return the work division of an ``op``."""
    return division_from(op.attributes[DIVISION])


def division_from(attr: DivisionAttr) -> Division:
    """Convert an attribute to a division: its splits, and the slices of each core according to its core map.

    Cached by the text of the attribute, because a program often repeats the same few divisions.
    """
    text = str(attr)
    if text not in _DIVISIONS:
        splits = tuple(ir.IntegerAttr(split).value for split in ir.ArrayAttr(attr.splits))
        results = list(ir.AffineMapAttr(attr.mapping).value.results)
        owners = tuple(
            tuple(_evaluate(result, core) for result in results) for core in range(math.prod(splits))
        )
        _DIVISIONS[text] = Division(splits, owners)
    return _DIVISIONS[text]


def _evaluate(expression: ir.AffineExpr, core: int) -> int:
    """Evaluate a result of a core map for one core. ``check_forms`` rejects divisors other than constants above 0."""
    if isinstance(expression, ir.AffineConstantExpr):
        return expression.value
    if isinstance(expression, ir.AffineDimExpr):
        return core
    lhs, rhs = _evaluate(expression.lhs, core), _evaluate(expression.rhs, core)
    if isinstance(expression, ir.AffineAddExpr):
        return lhs + rhs
    if isinstance(expression, ir.AffineMulExpr):
        return lhs * rhs
    if isinstance(expression, ir.AffineCeilDivExpr):
        return -(-lhs // rhs)
    return lhs % rhs if isinstance(expression, ir.AffineModExpr) else lhs // rhs
