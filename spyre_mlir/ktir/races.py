# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races of a program in KTIR: two cores access one byte, at least one of them writes, and no order is between them.

All cores run one function. The accesses of one core are in order, and ``ktdp.inter_tile_reduce`` comes after the
``ktdp.inter_tile_produce`` of each core of its group; nothing else orders cores (docs/concurrency.md). The function is
run for all cores at once: an index is an array with one number for each core, tensors have no values. Each access
records the vector clock of its core, which has, for each other core, the number of tensors that the other core had
produced before anything that this core has waited for. An access is before an access of another core if that clock
says so. Accesses to areas that several cores use and some core writes are then replayed, byte by byte.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.validate import Finding
from spyre_mlir.dialects import context, ktdp
from spyre_mlir.errors import CompileError
from spyre_mlir.ktir.function_lowering import KtirManifest
from spyre_mlir.ktir.ktir_text import parse_ktir
from spyre_mlir.mlir import ir

#: One number for each core; None if it is data of the program.
Numbers = NDArray[np.int64] | None

#: The distance of the memories that the arguments of the function are the begin of.
_MEMORY = 1 << 48

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "arith.addi": np.add, "arith.subi": np.subtract, "arith.muli": np.multiply, "arith.divui": np.floor_divide,
    "arith.divsi": lambda one, other: np.trunc(one / other).astype(np.int64), "arith.floordivsi": np.floor_divide,
    "arith.ceildivsi": lambda one, other: -(-one // other), "arith.ceildivui": lambda one, other: -(-one // other),
    "arith.remui": np.remainder, "arith.remsi": np.fmod, "arith.minsi": np.minimum, "arith.minui": np.minimum,
    "arith.maxsi": np.maximum, "arith.maxui": np.maximum, "arith.andi": np.bitwise_and, "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
}  # fmt: skip
_CASTS = {
    "arith.index_cast",
    "arith.index_castui",
    "arith.extui",
    "arith.extsi",
    "arith.trunci",
    "memref.cast",
}
#: The comparisons of ``arith.cmpi`` by the number of the predicate.
_COMPARISONS = (
    np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal,
    np.less, np.less_equal, np.greater, np.greater_equal,
)  # fmt: skip


class TileAccess(NamedTuple):
    """An access of a core: its operation, its runs of bytes from ``begin`` on by ``steps``, and the clock of the core.

    ``steps`` are the distance and the number of runs of ``run_bytes`` bytes in each dim.
    """

    operation: int
    core: int
    writes: bool
    begin: int
    run_bytes: int
    steps: tuple[tuple[int, int], ...]
    clock: tuple[int, ...]

    @property
    def end(self) -> int:
        return self.begin + self.run_bytes + sum((count - 1) * distance for distance, count in self.steps)

    def follows(self, other: TileAccess) -> bool:
        """Return whether an order is between the accesses; ``other`` ran first."""
        return self.core == other.core or self.clock[other.core] >= other.clock[other.core]


class _Part(NamedTuple):
    """A view of one memory: its begin on each core in bytes, the core that owns it (None: device memory), its box.

    ``firsts`` are the coordinates of its first element in a distributed view.
    """

    address: NDArray[np.int64]
    owner: Numbers
    item_bytes: int
    strides: tuple[int, ...]
    sizes: tuple[int, ...]
    firsts: tuple[int, ...]


class _Tile(NamedTuple):
    parts: Sequence[_Part]
    subscripts: Sequence[Numbers]
    extents: Sequence[int]


class _Future(NamedTuple):
    """Offered tensors: the clocks of the cores, the groups, and the cores that offer in each group."""

    clocks: NDArray[np.int64]
    groups: str
    producers: dict[int, list[int]]


def ktir_races(text: str, path: str = "-", manifest: KtirManifest | None = None) -> list[Finding]:
    """Return the races of a program in KTIR, one for each pair of operations.

    Positions that a call gives count as their smallest and as their largest value.

    Args:
        text: The text of the program, of any writer.
        path: The name of the program in the findings.
        manifest: The ranges of the positions; without it they count as 0.

    Raises:
        CompileError: The text is not KTIR, or an address or the count of a loop is data.
    """
    with context() as active, ir.Location.unknown():
        module = parse_ktir(text, active, path)
        function = next(
            (op.operation for op in module.body.operations if op.operation.name == "func.func"), None
        )
        if function is None or ktdp.GRID not in function.attributes:
            raise CompileError("The program has no function with a grid of cores.", path)
        indices = manifest.indices if manifest is not None else ()
        found = dict[Finding, None]()
        for is_largest in sorted({False, bool(indices)}):
            run = _CoresRun(function, path, [(index.bounds.upper - 1) * is_largest for index in indices])
            found |= dict.fromkeys(run.races())
        return list(found)


class _CoresRun:
    """A run of a function on all cores at once; ``given`` are the values of its last arguments, which are positions.

    Attributes:
        accesses: The accesses by memory: the number of an argument, or the core that owns the LX.
    """

    def __init__(self, function: ir.Operation, path: str, given: Sequence[int]) -> None:
        self.path = path
        self.cores = math.prod(
            ir.IntegerAttr(size).value for size in ir.ArrayAttr(function.attributes[ktdp.GRID])
        )
        self.accesses: dict[tuple[str, int], list[TileAccess]] = defaultdict(list)
        self.operations: list[ir.Operation] = []
        self._numbers: dict[ir.Operation, int] = {}
        self._values: dict[ir.Value, Any] = {}
        # A core has produced one tensor more than others know of it.
        self._clocks = np.eye(self.cores, dtype=np.int64)
        self._rows: list[tuple[int, ...] | None] = [None] * self.cores
        block = function.regions[0].blocks[0]
        memories = _addressed(block)
        for number, argument in enumerate(block.arguments):
            self._values[argument] = self._all(number * _MEMORY if argument in memories else 0)
        for argument, value in zip(reversed(block.arguments), reversed(given), strict=False):
            self._values[argument] = self._all(value)
        self._block(block, np.ones(self.cores, bool))

    def _all(self, number: int) -> NDArray[np.int64]:
        return np.full(self.cores, number, np.int64)

    # -- operations ------------------------------------------------------------------------------------

    def _block(self, block: ir.Block, active: NDArray[np.bool_]) -> list[Any]:
        """Run a block on the ``active`` cores; return the values that its terminator yields."""
        for view in block.operations:
            op = view.operation
            if op.name in ("scf.yield", "func.return"):
                return [self._values.get(operand) for operand in op.operands]
            results = self._results(op, active)
            self._values.update(zip(op.results, results, strict=False))
        return []

    def _results(self, op: ir.Operation, active: NDArray[np.bool_]) -> Sequence[Any]:
        """Run an operation; return its results, none for tensors."""
        name, values = op.name, [self._values.get(operand) for operand in op.operands]
        if name in _BINARY or name in ("arith.cmpi", "arith.select"):
            return () if any(value is None for value in values) else [self._arithmetic(op, values)]
        if name in _CASTS:
            return values
        if name in _HANDLERS:
            return _HANDLERS[name](self, op, values, active)
        if op.regions and not name.startswith(("linalg.", "tensor.")):
            raise self._error(
                op, f"The order of accesses in a '{name}' is not known; expected scf.for or scf.if."
            )
        return ()

    def _arithmetic(self, op: ir.Operation, values: Sequence[Any]) -> Any:
        if op.name == "arith.select":
            return np.where(values[0] != 0, values[1], values[2])
        if op.name == "arith.cmpi":
            return _COMPARISONS[ir.IntegerAttr(op.attributes["predicate"]).value](*values).astype(np.int64)
        # Cores that are not active may divide by 0.
        with np.errstate(divide="ignore", invalid="ignore"):
            return _BINARY[op.name](*values)

    def _constant(self, op: ir.Operation, *_: Any) -> Sequence[Any]:
        """Return a number, or the table of a constant tensor of integers."""
        value = op.attributes["value"]
        if isinstance(value, ir.IntegerAttr):
            return [self._all(value.value)]
        if isinstance(value, ir.BoolAttr):
            return [self._all(int(value.value))]
        return [np.array(value)] if isinstance(value, ir.DenseIntElementsAttr) and not value.is_splat else ()

    def _extract(self, op: ir.Operation, values: Sequence[Any], active: NDArray[np.bool_]) -> Sequence[Any]:
        table, *indices = values
        if table is None or any(index is None for index in indices):
            return ()
        return [table[tuple(np.where(active, index, 0) for index in indices)].astype(np.int64)]

    def _core(self, op: ir.Operation, *_: Any) -> Sequence[Any]:
        if len(op.results) > 1:
            raise self._error(
                op, "The order of the cores of a grid with several dims is not known; expected one dim."
            )
        return [np.arange(self.cores)]

    def _apply(self, op: ir.Operation, values: Sequence[Any], _: Any) -> Sequence[Any]:
        map_ = ir.AffineMapAttr(op.attributes["map"]).value
        if any(value is None for value in values):
            return ()
        dims, symbols = values[: map_.n_dims], values[map_.n_dims :]
        return [self._all(0) + _evaluated(result, dims, symbols) for result in map_.results]

    # -- control ---------------------------------------------------------------------------------------

    def _if(self, op: ir.Operation, values: Sequence[Any], active: NDArray[np.bool_]) -> Sequence[Any]:
        """Run the sides of a branch, both of them on all cores if the condition is data."""
        (condition,) = values
        chosen = (
            (active, active) if condition is None else (active & (condition != 0), active & (condition == 0))
        )
        sides = [
            self._block(region.blocks[0], cores) if region.blocks and cores.any() else []
            for region, cores in zip(op.regions, chosen, strict=True)
        ]
        if condition is None or not all(sides):
            return () if condition is None else next(filter(None, sides), ())
        pairs = zip(*sides, strict=True)
        return [
            None if one is None or other is None else np.where(condition != 0, one, other)
            for one, other in pairs
        ]

    def _for(self, op: ir.Operation, values: Sequence[Any], active: NDArray[np.bool_]) -> Sequence[Any]:
        """Run the iterations of a loop, whose count may differ from core to core."""
        lower, upper, step, *carried = values
        if lower is None or upper is None or step is None:
            raise self._error(op, "The iterations of a loop are data; expected bounds that are known.")
        block = op.regions[0].blocks[0]
        variable, *arguments = block.arguments
        while (running := active & (lower < upper)).any():
            self._values[variable] = lower
            self._values.update(zip(arguments, carried, strict=True))
            pairs = zip(carried, self._block(block, running), strict=True)
            carried = [None if new is None else np.where(running, new, old) for old, new in pairs]
            lower = np.where(running, lower + step, lower)
        return carried

    # -- order between cores ---------------------------------------------------------------------------

    def _produce(self, op: ir.Operation, _: Any, active: NDArray[np.bool_]) -> Sequence[Any]:
        groups = ktdp.TileFutureType(op.results[0].type).groups
        producers = self._members(op, ir.StringAttr(groups).value)
        future = _Future(self._clocks.copy(), ir.StringAttr(groups).value, producers)
        self._clocks[active, active] += 1
        self._rows = [None] * self.cores
        return [future]

    def _deliver(self, op: ir.Operation, values: Sequence[Any], active: NDArray[np.bool_]) -> Sequence[Any]:
        future: _Future = values[0]
        named = ir.StringAttr(op.attributes["dependency"]).value if "dependency" in op.attributes else ""
        symbols = named.partition("[")[2].partition("]")[0].count(",") + 1
        cores = np.arange(self.cores)
        for group, consumers in self._members(op, future.groups).items():
            producers = np.array(future.producers.get(group, []), int)
            for core in consumers:
                if active[core]:
                    waits = (
                        producers[_contains(named, [producers], [cores[core], group][:symbols])]
                        if named
                        else producers
                    )
                    known = future.clocks[waits].max(axis=0, initial=0)
                    self._clocks[core] = np.maximum(self._clocks[core], known)
        self._rows = [None] * self.cores
        return ()

    def _members(self, op: ir.Operation, groups: str) -> dict[int, list[int]]:
        """Return the cores of each group by the text of ``producers``; for a reduction, the cores that wait."""
        text = ir.StringAttr(op.attributes["producers"]).value
        cores = np.arange(self.cores)
        chosen = np.flatnonzero(_contains(groups, [cores], []))
        return {int(g): np.flatnonzero(_contains(text, [cores], [cores * 0 + g])).tolist() for g in chosen}

    # -- memory ----------------------------------------------------------------------------------------

    def _view(self, op: ir.Operation, values: Sequence[Any], _: Any) -> Sequence[Any]:
        """Return the view of one memory; its address, in elements, is the number of a memory and an offset."""
        address, *numbers = values
        if address is None or any(number is None or np.ptp(number) for number in numbers):
            raise self._error(
                op,
                "The address or a size of a view is data; expected numbers that are known, and equal sizes.",
            )
        type_ = ir.MemRefType(op.results[0].type)
        item_bytes = max(1, type_.element_type.width // 8)
        sizes, strides = (list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in ("sizes", "strides"))
        given = iter(numbers)
        sizes, strides = (
            [int(next(given)[0]) if number == ktdp.DYNAMIC else number for number in each]
            for each in (sizes, strides)
        )
        owner = None
        if ir.StringAttr(op.attributes["memory_space"]).value == ktdp.LOCAL:
            named = op.attributes["ct_id"] if "ct_id" in op.attributes else None
            owner = np.arange(self.cores) if named is None else self._all(ir.IntegerAttr(named).value)
        memory, offset = np.divmod(address, _MEMORY)
        firsts = (
            _firsts(str(op.attributes["coordinate_set"]), len(sizes))
            if "coordinate_set" in op.attributes
            else ()
        )
        steps = tuple(stride * item_bytes for stride in strides)
        begin = memory * _MEMORY + offset * item_bytes
        return [[_Part(begin, owner, item_bytes, steps, tuple(sizes), firsts or (0,) * len(sizes))]]

    def _distributed(self, _: ir.Operation, values: Sequence[Any], __: Any) -> Sequence[Any]:
        return [[part for parts in values for part in parts]]

    def _tile(self, op: ir.Operation, values: Sequence[Any], _: Any) -> Sequence[Any]:
        parts, *subscripts = values
        return [_Tile(parts, subscripts[: len(parts[0].sizes)], _extents(op))]

    def _indirect_tile(self, op: ir.Operation, values: Sequence[Any], _: Any) -> Sequence[Any]:
        """Return a tile of the whole view, because its positions are data."""
        (part, *_), *_ = values
        return [_Tile([part], [self._all(0)] * len(part.sizes), part.sizes)]

    def _load(self, op: ir.Operation, values: Sequence[Any], active: NDArray[np.bool_]) -> Sequence[Any]:
        self._access(op, values[0], active, writes=False)
        return ()

    def _store(self, op: ir.Operation, values: Sequence[Any], active: NDArray[np.bool_]) -> Sequence[Any]:
        self._access(op, values[1], active, writes=True)
        return ()

    def _access(self, op: ir.Operation, tile: _Tile, active: NDArray[np.bool_], *, writes: bool) -> None:
        """Record the accesses of the active cores; an unknown subscript stands for all positions."""
        if op not in self._numbers:
            self._numbers[op] = len(self.operations)
            self.operations.append(op)
        for core in np.flatnonzero(active).tolist():
            if (clock := self._rows[core]) is None:
                clock = self._rows[core] = tuple(self._clocks[core].tolist())
            for part in tile.parts:
                begin, run_bytes, steps = int(part.address[core]), part.item_bytes, list[tuple[int, int]]()
                boxes = zip(tile.subscripts, tile.extents, part.firsts, part.sizes, part.strides, strict=True)
                for subscript, extent, low, size, stride in reversed(list(boxes)):
                    first = low if subscript is None else max(low, int(subscript[core]))
                    stop = low + size if subscript is None else min(low + size, int(subscript[core]) + extent)
                    begin += (first - low) * stride
                    if stride == run_bytes and not steps:
                        run_bytes *= max(0, stop - first)
                    elif stop != first + 1:
                        steps.append((stride, max(0, stop - first)))
                if run_bytes and all(count for _, count in steps):
                    memory, offset = divmod(begin, _MEMORY)
                    key = ("argument", memory) if part.owner is None else ("LX", int(part.owner[core]))
                    access = TileAccess(
                        self._numbers[op], core, writes, offset, run_bytes, tuple(steps), clock
                    )
                    self.accesses[key].append(access)

    # -- races -----------------------------------------------------------------------------------------

    def races(self) -> Iterator[Finding]:
        """Yield the races, one for each pair of operations."""
        seen = set[tuple[int, int]]()
        for (space, number), accesses in self.accesses.items():
            name = f"the LX of core {number}" if space == "LX" else f"the memory of argument {number}"
            for area in _areas(accesses):
                for one, other, byte in _unordered(area):
                    if (one.operation, other.operation) not in seen:
                        seen.add((one.operation, other.operation))
                        yield self._finding(one, other, f"byte {byte} of {name}")

    def _finding(self, one: TileAccess, other: TileAccess, place: str) -> Finding:
        where, earlier = (self._place(self.operations[each.operation]) for each in (other, one))
        verbs = ["writes" if each.writes else "reads" for each in (other, one)]
        text = f"A race: core {other.core} {verbs[0]} {place}; core {one.core} {verbs[1]} it at {earlier}, in no order"
        return Finding("race", f"{text} with the access.", where)

    def _error(self, op: ir.Operation, message: str) -> CompileError:
        return CompileError(message, self._place(op))

    def _place(self, op: ir.Operation) -> str:
        place = re.search(r":(\d+):(\d+)", str(op.location))
        return self.path if place is None else f"{self.path}:{place[1]}:{place[2]}"


_HANDLERS: Mapping[str, Callable[..., Sequence[Any]]] = {
    "arith.constant": _CoresRun._constant,
    "tensor.extract": _CoresRun._extract,
    "affine.apply": _CoresRun._apply,
    "scf.if": _CoresRun._if,
    "scf.for": _CoresRun._for,
    "ktdp.get_compute_tile_id": _CoresRun._core,
    "ktdp.inter_tile_produce": _CoresRun._produce,
    **{f"ktdp.{name}": _CoresRun._deliver for name in ktdp.DELIVERIES},
    "ktdp.construct_memory_view": _CoresRun._view,
    "ktdp.construct_distributed_memory_view": _CoresRun._distributed,
    "ktdp.construct_access_tile": _CoresRun._tile,
    "ktdp.construct_indirect_access_tile": _CoresRun._indirect_tile,
    "ktdp.load": _CoresRun._load,
    "ktdp.store": _CoresRun._store,
}


def _addressed(block: ir.Block) -> set[ir.Value]:
    """Return the arguments of a function that are addresses: a view begins there, or at a distance from there."""
    found = set[ir.Value]()

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "ktdp.construct_memory_view":
            pending = [op.operands[0]]
            while pending:
                value = pending.pop()
                owner = value.owner
                if isinstance(owner, ir.Block):
                    found.add(value)
                elif owner.name == "arith.addi":
                    pending += owner.operands
        return ir.WalkResult.ADVANCE

    for op in block.operations:
        op.operation.walk(visit)
    # A position may be added to an address after a multiplication, which is not followed.
    return {value for value in found if value in set(block.arguments)}


def _extents(op: ir.Operation) -> list[int]:
    return list(ir.RankedTensorType(ir.TypeAttr(ktdp.AccessTileType(op.results[0].type).shape).value).shape)


# Sets and maps of cores and coordinates, evaluated for all cores at once.


def _contains(text: str, dims: Sequence[Any], symbols: Sequence[Any]) -> NDArray[np.bool_]:
    """Return where a set, "(d0)[s0] : (d0 - s0 == 0)", contains the dims and symbols."""
    # The bindings have no access to the constraints of a set, so they are read as the results of a map.
    head, _, body = str(ir.Attribute.parse(f"affine_set<{text}>"))[11:-1].partition(" : ")
    constraints = re.findall(r"(.*?) ([=>]=) 0(?:, |$)", body[1:-1])
    results = ", ".join(expression for expression, _ in constraints)
    map_ = ir.AffineMapAttr(ir.Attribute.parse(f"affine_map<{head} -> ({results})>")).value
    holds = np.ones(len(dims[0]), bool)
    for expression, (_, relation) in zip(map_.results, constraints, strict=True):
        value = _evaluated(expression, dims, symbols)
        holds &= value == 0 if relation == "==" else value >= 0
    return holds


def _firsts(set_: str, rank: int) -> tuple[int, ...]:
    """Return the lowest coordinate of a box in each dim: ``d0 - 4 >= 0`` for 4; 0 if a dim has no lower bound."""
    lower = {int(dim): int(number) for dim, number in re.findall(r"\bd(\d+) - (\d+) >= 0", set_)}
    return tuple(lower.get(dim, 0) for dim in range(rank))


def _evaluated(expression: ir.AffineExpr, dims: Sequence[Any], symbols: Sequence[Any]) -> Any:
    if isinstance(expression, ir.AffineConstantExpr):
        return expression.value
    if isinstance(expression, ir.AffineDimExpr):
        return dims[expression.position]
    if isinstance(expression, ir.AffineSymbolExpr):
        return symbols[expression.position]
    lhs, rhs = (_evaluated(side, dims, symbols) for side in (expression.lhs, expression.rhs))  # type: ignore[attr-defined]
    if isinstance(expression, ir.AffineAddExpr):
        return lhs + rhs
    if isinstance(expression, ir.AffineMulExpr):
        return lhs * rhs
    if isinstance(expression, ir.AffineModExpr):
        return lhs % rhs
    return lhs // rhs if isinstance(expression, ir.AffineFloorDivExpr) else -(-lhs // rhs)


# The search for accesses without an order.


def _areas(accesses: Sequence[TileAccess]) -> Iterator[list[TileAccess]]:
    """Yield the accesses of each connected range of bytes that several cores access and some core writes."""
    areas, end = list[list[tuple[int, TileAccess]]](), 0
    for number, access in sorted(enumerate(accesses), key=lambda each: each[1].begin):
        if not areas or access.begin >= end:
            areas.append([])
        areas[-1].append((number, access))
        end = max(end, access.end)
    for area in areas:
        if len({each.core for _, each in area}) > 1 and any(each.writes for _, each in area):
            yield [each for _, each in sorted(area)]


def _unordered(accesses: Sequence[TileAccess]) -> Iterator[tuple[TileAccess, TileAccess, int]]:
    """Yield pairs of accesses without an order, and a byte of both; the accesses are in the order of a run.

    The state of a byte is its last write and the reads since, and states are numbered, so that an access costs one
    comparison per byte.
    """
    begin, end = min(each.begin for each in accesses), max(each.end for each in accesses)
    # The bytes of a state: all accesses begin at, and consist of, multiples.
    grain = 0
    for each in accesses:
        grain = math.gcd(grain, each.begin - begin, each.run_bytes, *(distance for distance, _ in each.steps))
    numbers = np.zeros((end - begin) // grain, np.int32)
    states: list[tuple[int, tuple[int, ...]]] = [(-1, ())]
    ids = {states[0]: 0}
    for index, access in enumerate(accesses):
        steps = [
            *((distance // grain, count) for distance, count in access.steps),
            (1, access.run_bytes // grain),
        ]
        view = np.lib.stride_tricks.as_strided(
            numbers[(access.begin - begin) // grain :],
            [count for _, count in steps],
            [distance * numbers.itemsize for distance, _ in steps],
        )
        table = np.arange(len(states))
        for id_ in np.unique(view).tolist():
            write, reads = states[id_]
            for other in (accesses[each] for each in (write, *(reads if access.writes else ())) if each >= 0):
                if not access.follows(other):
                    place = np.unravel_index(int(np.argmax(view == id_)), view.shape)
                    moved = sum(
                        int(index) * distance for index, (distance, _) in zip(place, steps, strict=True)
                    )
                    yield other, access, access.begin + moved * grain
            kept = (each for each in reads if accesses[each].core != access.core)
            state = (index, ()) if access.writes else (write, (*kept, index))
            if state not in ids:
                ids[state] = len(states)
                states.append(state)
            table[id_] = ids[state]
        view[...] = table[view]
