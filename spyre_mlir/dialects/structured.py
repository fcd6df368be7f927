"""Reading and building the ``linalg.generic`` ops that the device operations are carried on.

``Structured`` is a read-only look at one op with its maps as tuples of iteration dims; ``device_op``
builds one op that does one device operation, its body written from the table below, so that the body is a
function of the operation and every level can be run by upstream lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spyre_mlir.dialects import sdsc
from spyre_mlir.mlir import ir
from spyre_mlir.target.ops import NEUTRAL

#: For each dim of an operand the iteration dim that indexes it; None is the constant 0.
Map = tuple[int | None, ...]


@dataclass(frozen=True)
class Structured:
    """A ``linalg.generic`` with one result, taken apart."""

    op: ir.Operation
    inputs: tuple[ir.Value, ...]
    output: ir.Value
    maps: tuple[Map, ...]
    iterators: tuple[str, ...]

    @property
    def result(self) -> ir.Value:
        return self.op.results[0]

    @property
    def body(self) -> ir.Block:
        return self.op.regions[0].blocks[0]

    @property
    def reduced(self) -> tuple[int, ...]:
        """The iteration dims that are reduced."""
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


#: Maps and iterators of generic ops by their attributes, for as long as a caller keeps it.
Known = dict[tuple[ir.Attribute, ir.Attribute], tuple[tuple[Map | None, ...], tuple[str, ...]]]


def structured(op: ir.Operation, known: Known | None = None) -> Structured | None:
    """Takes a ``linalg.generic`` apart; None if it has several results or maps that are not selections.

    ``known`` remembers what attributes say: who asks for many ops of one module keeps one.
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
    """The dims that a map selects; None if a result is anything but a dim or the constant 0."""
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
    """The affine map of a selection."""
    return ir.AffineMap.get(
        rank, 0, [ir.AffineConstantExpr.get(0) if dim is None else ir.AffineDimExpr.get(dim) for dim in dims]
    )


def shape_of(value: ir.Value) -> tuple[int, ...]:
    """The shape of a ranked tensor value; () for a scalar."""
    if not isinstance(value.type, ir.RankedTensorType):
        return ()
    return tuple(ir.RankedTensorType(value.type).shape)


def element_of(value: ir.Value) -> str:
    """The element type of a tensor value, or the type of a scalar, as text."""
    if isinstance(value.type, ir.RankedTensorType):
        return str(ir.RankedTensorType(value.type).element_type)
    return str(value.type)


def defining_op(value: ir.Value) -> ir.Operation | None:
    """The op that makes a value; None for a block argument."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def maker_of(value: ir.Value) -> ir.Operation:
    """The op that makes a value which is known not to be a block argument."""
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
    """Builds one device operation at the current insertion point and gives its result.

    ``shape`` are the iteration extents, ``maps`` one selection per input; ``result_map`` defaults to all
    dims that are not ``reduced``, in order.
    """
    rank = len(shape)
    kept: Map = tuple(dim for dim in range(rank) if dim not in reduced) if result_map is None else result_map
    type_ = ir.RankedTensorType.get([shape[dim] for dim in kept if dim is not None], ir.Type.parse(element))
    init = _init(opcode, type_, location)
    attributes = {
        "indexing_maps": ir.ArrayAttr.get(
            [ir.AffineMapAttr.get(affine_map(dims, rank)) for dims in (*maps, kept)]
        ),
        "iterator_types": iterators(rank, frozenset(reduced)),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), 1]),
        sdsc.OP: sdsc.op_attr(opcode, constants),
    }
    made = ir.Operation.create(
        "linalg.generic",
        results=[type_],
        operands=[*inputs, init],
        attributes=attributes,
        regions=1,
        loc=location,
    )
    scalars = [ir.RankedTensorType(value.type).element_type for value in inputs]
    block = ir.Block.create_at_start(made.regions[0], [*scalars, type_.element_type])
    with ir.InsertionPoint(block), location:
        body = Body(type_.element_type, constants or {}, rank)
        value = BODIES[opcode](body, *block.arguments)
        ir.Operation.create("linalg.yield", operands=[value])
    return made.result


def rebuilt(
    generic: Structured, inputs: Sequence[ir.Value], extents: Sequence[int] | None = None
) -> ir.Value:
    """The same device operation on other inputs, of other iteration extents if given; it keeps its history."""
    made = device_op(
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
    sdsc.inherit(maker_of(made), generic.op)
    return made


def iterators(rank: int, reduced: frozenset[int]) -> ir.Attribute:
    """The iterator types of so many dims."""
    names = ["reduction" if dim in reduced else "parallel" for dim in range(rank)]
    return ir.Attribute.parse("[" + ", ".join(f"#linalg.iterator_type<{name}>" for name in names) + "]")


def _init(opcode: str, type_: ir.RankedTensorType, location: ir.Location) -> ir.Value:
    """The destination: empty, or filled with the neutral value of a reduction."""
    empty = ir.Operation.create("tensor.empty", results=[type_], loc=location).result
    neutral = NEUTRAL.get(opcode)
    if neutral is None:
        return empty
    with location:
        constant = Body(type_.element_type, {}).constant(neutral)
        return filled(constant, empty)


def filled(constant: ir.Value, empty: ir.Value) -> ir.Value:
    """Builds a ``linalg.fill`` of a tensor with a scalar."""
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


class Body:
    """Writes scalar ops into the body of a device operation, in its element type."""

    def __init__(self, element: ir.Type, constants: Mapping[str, float], rank: int = 0) -> None:
        self.element = element
        self.constants = constants
        self.rank = rank  # of the iteration

    def __call__(
        self, name: str, *operands: ir.Value, result: ir.Type | None = None, **attributes
    ) -> ir.Value:
        return ir.Operation.create(
            name, results=[result or self.element], operands=list(operands), attributes=attributes
        ).result

    def constant(self, value: float | str) -> ir.Value:
        number = self.constants[value] if isinstance(value, str) else value
        if isinstance(self.element, ir.IntegerType):
            attr: ir.Attribute = ir.IntegerAttr.get(self.element, int(number))
        else:
            attr = ir.FloatAttr.get(self.element, number)
        return self("arith.constant", value=attr)

    def compare(self, predicate: int, left: ir.Value, right: ir.Value) -> ir.Value:
        """1.0 where an ordered (or for ``ne`` unordered) comparison holds, else 0.0."""
        i1, i64 = ir.IntegerType.get_signless(1), ir.IntegerType.get_signless(64)
        flag = self("arith.cmpf", left, right, result=i1, predicate=ir.IntegerAttr.get(i64, predicate))
        return self("arith.uitofp", flag)

    def nonzero(self, value: ir.Value) -> ir.Value:
        i1, i64 = ir.IntegerType.get_signless(1), ir.IntegerType.get_signless(64)
        zero = ir.Operation.create(
            "arith.constant", results=[value.type], attributes={"value": ir.FloatAttr.get(value.type, 0.0)}
        ).result
        return self("arith.cmpf", value, zero, result=i1, predicate=ir.IntegerAttr.get(i64, 13))


def _sigmoid(b: Body, x: ir.Value) -> ir.Value:
    return b(
        "arith.divf", b.constant(1.0), b("arith.addf", b.constant(1.0), b("math.exp", b("arith.negf", x)))
    )


def _softplus(b: Body, x: ir.Value) -> ir.Value:
    scaled = b("arith.mulf", x, b.constant("softplusBeta"))
    soft = b("arith.divf", b("math.log1p", b("math.exp", scaled)), b.constant("softplusBeta"))
    i1, i64 = ir.IntegerType.get_signless(1), ir.IntegerType.get_signless(64)
    over = b(
        "arith.cmpf", scaled, b.constant("softplusThresh"), result=i1, predicate=ir.IntegerAttr.get(i64, 2)
    )
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
    """The last dim runs over the rows of the table: the one at the position is kept."""
    i1, i64 = ir.IntegerType.get_signless(1), ir.IntegerType.get_signless(64)
    index = b("linalg.index", result=ir.IndexType.get(), dim=ir.IntegerAttr.get(i64, b.rank - 1))
    at = b("arith.index_cast", index, result=position.type)
    found = b("arith.cmpi", at, position, result=i1, predicate=ir.IntegerAttr.get(i64, 0))
    return b("arith.select", found, row, acc)


def _leaky(b: Body, x: ir.Value) -> ir.Value:
    return b("arith.select", _positive(b, x), x, b("arith.mulf", x, b.constant("alpha")))


def _positive(b: Body, x: ir.Value) -> ir.Value:
    i1, i64 = ir.IntegerType.get_signless(1), ir.IntegerType.get_signless(64)
    return b("arith.cmpf", x, b.constant(0.0), result=i1, predicate=ir.IntegerAttr.get(i64, 2))


def _reduce(name: str) -> Callable[..., ir.Value]:
    return lambda b, x, acc: b(name, acc, x)


def _scaled(constant: str, square: bool = False) -> Callable[..., ir.Value]:
    def write(b: Body, x: ir.Value, acc: ir.Value) -> ir.Value:
        term = b("arith.mulf", x, x) if square else x
        return b("arith.addf", acc, b("arith.mulf", term, b.constant(constant)))

    return write


def _absmax(b: Body, x: ir.Value, acc: ir.Value) -> ir.Value:
    return b("arith.maximumf", acc, b("math.absf", x))


_EQ, _GT, _GE, _LT, _LE, _NE = 1, 2, 3, 4, 5, 13  # arith.cmpf predicates: ordered, ne unordered

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


#: Operation -> writes its scalar body from (Body, input scalars.., accumulator).
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
    "equal": lambda b, x, y, _: b.compare(_EQ, x, y),
    "notequal": lambda b, x, y, _: b.compare(_NE, x, y),
    "greaterthan": lambda b, x, y, _: b.compare(_GT, x, y),
    "greaterequal": lambda b, x, y, _: b.compare(_GE, x, y),
    "lesserthan": lambda b, x, y, _: b.compare(_LT, x, y),
    "lesserequal": lambda b, x, y, _: b.compare(_LE, x, y),
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
