"""Reader and builder of the ``linalg.generic`` ops that represent device operations.

``Structured`` is a read-only view of one op with its maps as tuples of iteration dims; ``device_op`` builds the op
of one device operation. The body comes from the table below, so that it is a function of the operation and upstream's
lowering can run every level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spyre_mlir.dialects import sdsc
from spyre_mlir.mlir import ir
from spyre_mlir.target.ops import NEUTRAL

#: Indexing map of an operand: for each of its dims the iteration dim that indexes it; None is the constant 0.
Map = tuple[int | None, ...]


@dataclass(frozen=True)
class Structured:
    """View of a ``linalg.generic`` with one result; ``maps`` has one entry per input, then that of the output."""

    op: ir.Operation
    inputs: tuple[ir.Value, ...]
    output: ir.Value
    maps: tuple[Map, ...]
    iterators: tuple[str, ...]

    @property
    def result(self) -> ir.Value:
        """The result of the op."""
        return self.op.results[0]

    @property
    def body(self) -> ir.Block:
        """The block with the scalar ops."""
        return self.op.regions[0].blocks[0]

    @property
    def reduced(self) -> tuple[int, ...]:
        """The reduction dims of the iteration space."""
        return tuple(dim for dim, kind in enumerate(self.iterators) if kind == "reduction")

    @property
    def extents(self) -> tuple[int, ...]:
        """The size of each iteration dim."""
        sizes = [1] * len(self.iterators)
        for value, dims in zip((*self.inputs, self.output), self.maps, strict=True):
            for dim, size in zip(dims, shape_of(value), strict=True):
                if dim is not None:
                    sizes[dim] = size
        return tuple(sizes)

    @property
    def opcode(self) -> str:
        """The device operation recorded on the op; empty without one."""
        return sdsc.opcode_of(self.op) or ""


#: Cache of maps and iterators by the attributes of generic ops; its owner decides how long it lasts.
Known = dict[tuple[ir.Attribute, ir.Attribute], tuple[tuple[Map | None, ...], tuple[str, ...]]]


def structured(op: ir.Operation, known: Known | None = None) -> Structured | None:
    """Return the view of a ``linalg.generic``; None if it has several results or maps that are not selections.

    ``known`` caches parsed attributes: callers that read many ops of one module pass the same one.
    """
    if op.name != "linalg.generic" or len(op.results) != 1:
        return None
    key = op.attributes["indexing_maps"], op.attributes["iterator_types"]
    known = {} if known is None else known
    if key not in known:
        known[key] = _space_of(*key)
    maps, iterators = known[key]
    if any(dims is None for dims in maps):
        return None
    *inputs, output = op.operands
    return Structured(op, tuple(inputs), output, maps, iterators)  # type: ignore[arg-type]


def _space_of(maps: ir.Attribute, iterators: ir.Attribute) -> tuple[tuple[Map | None, ...], tuple[str, ...]]:
    names = ("reduction" if "reduction" in str(attr) else "parallel" for attr in ir.ArrayAttr(iterators))
    return tuple(selection(ir.AffineMapAttr(attr).value) for attr in ir.ArrayAttr(maps)), tuple(names)


def selection(map_: ir.AffineMap) -> Map | None:
    """Return the dims that a map selects; None if a result is anything but a dim or the constant 0."""
    dims: list[int | None] = []
    for result in map_.results:
        if isinstance(result, ir.AffineDimExpr):
            dims.append(result.position)
        elif isinstance(result, ir.AffineConstantExpr) and result.value == 0:
            dims.append(None)
        else:
            return None
    return tuple(dims)


def affine_map(dims: Map, rank: int) -> ir.AffineMap:
    """Build the affine map of a selection, from ``rank`` iteration dims."""
    return ir.AffineMap.get(
        rank, 0, [ir.AffineConstantExpr.get(0) if dim is None else ir.AffineDimExpr.get(dim) for dim in dims]
    )


def shape_of(value: ir.Value) -> tuple[int, ...]:
    """Return the shape of a ranked tensor value; () for a scalar."""
    if not isinstance(value.type, ir.RankedTensorType):
        return ()
    return tuple(ir.RankedTensorType(value.type).shape)


def element_of(value: ir.Value) -> str:
    """Return the element type of a tensor value, or the type of a scalar, as text."""
    if isinstance(value.type, ir.RankedTensorType):
        return str(ir.RankedTensorType(value.type).element_type)
    return str(value.type)


def defining_op(value: ir.Value) -> ir.Operation | None:
    """Return the defining op of a value; None for a block argument."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def maker_of(value: ir.Value) -> ir.Operation:
    """Return the defining op of a value; ``TypeError`` for a block argument."""
    op = defining_op(value)
    if op is None:
        raise TypeError("a block argument has no defining op")
    return op


def device_op(
    opcode: str,
    inputs: Sequence[ir.Value],
    maps: Sequence[Map],
    shape: Sequence[int],
    element: str,
    *,
    location: ir.Location,
    reduced: Sequence[int] = (),
    result_map: Map | None = None,
    constants: Mapping[str, float] | None = None,
) -> ir.Value:
    """Build one device operation at the current insertion point and return its result.

    ``shape`` are the iteration extents, ``maps`` one selection per input; ``result_map`` defaults to all
    dims that are not ``reduced``, in order.
    """
    rank = len(shape)
    if result_map is None:
        result_map = tuple(dim for dim in range(rank) if dim not in reduced)
    sizes = [shape[dim] for dim in result_map if dim is not None]
    type_ = ir.RankedTensorType.get(sizes, ir.Type.parse(element))
    all_maps = [ir.AffineMapAttr.get(affine_map(dims, rank)) for dims in (*maps, result_map)]
    attributes = {
        "indexing_maps": ir.ArrayAttr.get(all_maps),
        "iterator_types": iterators(rank, frozenset(reduced)),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), 1]),
        sdsc.OP: sdsc.op_attr(opcode, constants),
    }
    operands = [*inputs, _init(opcode, type_, location)]
    op = ir.Operation.create("linalg.generic", [type_], operands, attributes, regions=1, loc=location)
    scalars = [ir.RankedTensorType(value.type).element_type for value in inputs]
    block = ir.Block.create_at_start(op.regions[0], [*scalars, type_.element_type])
    with ir.InsertionPoint(block), location:
        body = Body(type_.element_type, constants or {}, rank)
        value = BODIES[opcode](body, *block.arguments)
        ir.Operation.create("linalg.yield", operands=[value])
    return op.result


def rebuilt(
    generic: Structured, inputs: Sequence[ir.Value], extents: Sequence[int] | None = None
) -> ir.Value:
    """Build the device operation of ``generic`` on other inputs, with its history; ``extents`` default to its own."""
    result = device_op(
        generic.opcode,
        inputs,
        generic.maps[:-1],
        generic.extents if extents is None else extents,
        element_of(generic.result),
        location=generic.op.location,
        reduced=generic.reduced,
        result_map=generic.maps[-1],
        constants=sdsc.constants_of(generic.op),
    )
    sdsc.inherit(maker_of(result), generic.op)
    return result


def iterators(rank: int, reduced: frozenset[int]) -> ir.Attribute:
    """Build the iterator types of ``rank`` dims."""
    names = ["reduction" if dim in reduced else "parallel" for dim in range(rank)]
    return ir.Attribute.parse("[" + ", ".join(f"#linalg.iterator_type<{name}>" for name in names) + "]")


def _init(opcode: str, type_: ir.RankedTensorType, location: ir.Location) -> ir.Value:
    """Build the destination operand: empty, or filled with the neutral value of a reduction."""
    empty = ir.Operation.create("tensor.empty", results=[type_], loc=location).result
    neutral = NEUTRAL.get(opcode)
    if neutral is None:
        return empty
    with location:
        constant = Body(type_.element_type, {}).constant(neutral)
        return filled(constant, empty)


def filled(constant: ir.Value, empty: ir.Value) -> ir.Value:
    """Build a ``linalg.fill`` of a tensor with a scalar."""
    fill = ir.Operation.create(
        "linalg.fill",
        results=[empty.type],
        operands=[constant, empty],
        attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1])},
        regions=1,
    )
    block = ir.Block.create_at_start(fill.regions[0], [constant.type, constant.type])
    with ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=[block.arguments[0]])
    return fill.result


# Predicates of arith.cmpf: ordered, so false for NaN; but unordered "ne", as in C and PyTorch.
_EQ, _GT, _GE, _LT, _LE, _NE = 1, 2, 3, 4, 5, 13
_CMPI_EQ = 0


class Body:
    """Builder of scalar ops in the body of a device operation, in its element type."""

    def __init__(self, element: ir.Type, constants: Mapping[str, float], rank: int = 0) -> None:
        self.element = element
        self.constants = constants
        self.rank = rank  # of the iteration space

    def __call__(
        self, name: str, *operands: ir.Value, result: ir.Type | None = None, **attributes
    ) -> ir.Value:
        return ir.Operation.create(
            name, results=[result or self.element], operands=list(operands), attributes=attributes
        ).result

    def constant(self, value: float | str) -> ir.Value:
        """Build a constant: a number, or by its name a constant of the device operation."""
        number = self.constants[value] if isinstance(value, str) else value
        if isinstance(self.element, ir.IntegerType):
            attr: ir.Attribute = ir.IntegerAttr.get(self.element, int(number))
        else:
            attr = ir.FloatAttr.get(self.element, number)
        return self("arith.constant", value=attr)

    def compare(self, predicate: int, lhs: ir.Value, rhs: ir.Value, op: str = "arith.cmpf") -> ir.Value:
        """Build an i1 comparison."""
        i1, i64 = ir.IntegerType.get_signless(1), ir.IntegerType.get_signless(64)
        return self(op, lhs, rhs, result=i1, predicate=ir.IntegerAttr.get(i64, predicate))

    def truth(self, predicate: int, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
        """Build the device's truth value of a comparison: 1.0 or 0.0."""
        return self("arith.uitofp", self.compare(predicate, lhs, rhs))

    def nonzero(self, value: ir.Value) -> ir.Value:
        """Build the i1 that a truth value stands for; its element type need not be that of the body."""
        zero = ir.FloatAttr.get(value.type, 0.0)
        return self.compare(_NE, value, self("arith.constant", result=value.type, value=zero))


def _sigmoid(b: Body, x: ir.Value) -> ir.Value:
    return b(
        "arith.divf", b.constant(1.0), b("arith.addf", b.constant(1.0), b("math.exp", b("arith.negf", x)))
    )


def _softplus(b: Body, x: ir.Value) -> ir.Value:
    scaled = b("arith.mulf", x, b.constant("softplusBeta"))
    soft = b("arith.divf", b("math.log1p", b("math.exp", scaled)), b.constant("softplusBeta"))
    over = b.compare(_GT, scaled, b.constant("softplusThresh"))
    return b("arith.select", over, x, soft)


def _gelu(b: Body, x: ir.Value) -> ir.Value:
    erf = b("math.erf", b("arith.mulf", x, b.constant(0.5**0.5)))
    return b("arith.mulf", b("arith.mulf", x, b.constant(0.5)), b("arith.addf", erf, b.constant(1.0)))


def _clip(b: Body, x: ir.Value) -> ir.Value:
    return b("arith.minimumf", b("arith.maximumf", x, b.constant("clipMin")), b.constant("clipMax"))


def _matmul(b: Body, x: ir.Value, y: ir.Value, acc: ir.Value) -> ir.Value:
    x, y = _widened(b, x), _widened(b, y)
    if isinstance(b.element, ir.IntegerType):
        return b("arith.addi", acc, b("arith.muli", x, y))
    return b("arith.addf", acc, b("arith.mulf", x, y))


def _widened(b: Body, x: ir.Value) -> ir.Value:
    if x.type == b.element:
        return x
    if not isinstance(x.type, ir.IntegerType):
        return b("arith.extf", x)
    return b("arith.extsi" if isinstance(b.element, ir.IntegerType) else "arith.sitofp", x)


def _gather(b: Body, position: ir.Value, row: ir.Value, acc: ir.Value) -> ir.Value:
    """Select the row at the position; the last iteration dim runs over all rows of the table."""
    i64 = ir.IntegerType.get_signless(64)
    index = b("linalg.index", result=ir.IndexType.get(), dim=ir.IntegerAttr.get(i64, b.rank - 1))
    row_number = b("arith.index_cast", index, result=position.type)
    is_match = b.compare(_CMPI_EQ, row_number, position, "arith.cmpi")
    return b("arith.select", is_match, row, acc)


def _leaky(b: Body, x: ir.Value) -> ir.Value:
    is_positive = b.compare(_GT, x, b.constant(0.0))
    return b("arith.select", is_positive, x, b("arith.mulf", x, b.constant("alpha")))


def _reduce(name: str) -> Callable[..., ir.Value]:
    return lambda b, x, acc: b(name, acc, x)


def _scaled(constant: str, square: bool = False) -> Callable[..., ir.Value]:
    def write(b: Body, x: ir.Value, acc: ir.Value) -> ir.Value:
        term = b("arith.mulf", x, x) if square else x
        return b("arith.addf", acc, b("arith.mulf", term, b.constant(constant)))

    return write


def _absmax(b: Body, x: ir.Value, acc: ir.Value) -> ir.Value:
    return b("arith.maximumf", acc, b("math.absf", x))


_ONE_TO_ONE = {
    "add": "arith.addf", "sub": "arith.subf", "mul": "arith.mulf", "realdiv": "arith.divf",
    "maximum": "arith.maximumf", "minimum": "arith.minimumf", "abs": "math.absf", "neg": "arith.negf",
    "exp": "math.exp", "floor": "math.floor", "log": "math.log", "sqrt": "math.sqrt", "rsqrt": "math.rsqrt",
    "tanh": "math.tanh", "dl16tofp32": "arith.extf", "fp32todl16": "arith.truncf",
    "fp32toint32": "arith.fptosi", "int32tofp32": "arith.sitofp", "addi32toi32": "arith.addi",
    "muli32toi32": "arith.muli", "erf": "math.erf", "log1p": "math.log1p",
}  # fmt: skip


def _direct(name: str) -> Callable[..., ir.Value]:
    return lambda b, *operands: b(name, *operands[:-1])


def _without_output(write: Callable[..., ir.Value]) -> Callable[..., ir.Value]:
    return lambda b, *operands: write(b, *operands[:-1])


#: By operation: builds its scalar body from (Body, input scalars.., accumulator).
BODIES: dict[str, Callable[..., ir.Value]] = {
    **{opcode: _direct(name) for opcode, name in _ONE_TO_ONE.items()},
    "revsub": lambda b, x, y, _: b("arith.subf", y, x),
    "identity": lambda b, x, _: x,
    "reciprocal": lambda b, x, _: b("arith.divf", b.constant(1.0), x),
    "sigmoid": _without_output(_sigmoid),
    "silu": lambda b, x, _: b("arith.mulf", x, _sigmoid(b, x)),
    "relufwd": lambda b, x, _: b("arith.maximumf", x, b.constant(0.0)),
    "relu6fwd": lambda b, x, _: b("arith.minimumf", b("arith.maximumf", x, b.constant(0.0)), b.constant(6.0)),
    "gelufwd": _without_output(_gelu),
    "mish": lambda b, x, _: b("arith.mulf", x, b("math.tanh", b("math.log1p", b("math.exp", x)))),
    "clip": _without_output(_clip),
    "leakyrelufwd": _without_output(_leaky),
    "softplus": _without_output(_softplus),
    "layernormscale": lambda b, x, _: b("math.rsqrt", b("arith.addf", x, b.constant("eps"))),
    "where3": lambda b, c, x, y, _: b("arith.select", b.nonzero(c), x, y),
    "equal": lambda b, x, y, _: b.truth(_EQ, x, y),
    "notequal": lambda b, x, y, _: b.truth(_NE, x, y),
    "greaterthan": lambda b, x, y, _: b.truth(_GT, x, y),
    "greaterequal": lambda b, x, y, _: b.truth(_GE, x, y),
    "lesserthan": lambda b, x, y, _: b.truth(_LT, x, y),
    "lesserequal": lambda b, x, y, _: b.truth(_LE, x, y),
    **dict.fromkeys(("sum", "sumnonstick"), _reduce("arith.addf")),
    **dict.fromkeys(("max", "maxnonstick"), _reduce("arith.maximumf")),
    **dict.fromkeys(("min", "minnonstick"), _reduce("arith.minimumf")),
    **dict.fromkeys(("absmax", "absmaxnonstick"), _absmax),
    "prod": _reduce("arith.mulf"),
    **dict.fromkeys(("mean", "meannonstick"), _scaled("scaling_factor")),
    "exx2_zeromean": _scaled("exx2scale", square=True),
    **dict.fromkeys(("batchmatmul", "batchmatmulint8", "batchmatmulfp8"), _matmul),
    "gather": _gather,
}
