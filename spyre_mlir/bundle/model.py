# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The data model of a SuperDSC bundle: the contents of `bundle.mlir`, the `sdsc_<i>.json` files and `manifest.json`.

The writer prints these values, the reader returns them, the validator checks them, and the simulator runs
them. The model does not depend on MLIR.

Geometry of an operand. A design iterates over named dims with the sizes of ``Design.sizes`` (padded:
whole sticks wherever the dim is the stick dim of any operand); the last ``Design.padding[dim]`` positions of a
dim are padding. An operand lists its dims innermost first in ``dim_order``. In memory the position inside
the stick is innermost; the dims follow in this order, with the stick dim counted in sticks. The memory
extent of a dim is ``size + gap`` (elements) for scale 1, and 1 for scale -1 (broadcast or reduced) and
-2 (the same for the stick dim: one stick, in which only element slot 0 holds a value). So, with E the elements
per stick, the stride in elements of the first dim is E, and the stride of each next dim is the stride of the previous
dim times its memory extent (for the stick dim: its extent / E). A stick may hold elements of other dims in
addition to the stick dim. These dims are then counted in sticks too: with ``other_elements = {"in": 2}`` and 64
elements of the stick dim ``out``, each two elements of ``in`` are neighbours.

In LX an operand holds only this core's slice, so sizes there are per core. The operands of a ``shuffle`` have their
own slices (``Operand.held``), which state what each core has before and after: several cores may have the same slice,
and a core may have nothing. The slices of the design are the slices of its result. In other operations a dim that no
operand has counts cores that get the same data.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, field, replace
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

from spyre_mlir.records import dataclass
from spyre_mlir.target.sliding import Sliding
from spyre_mlir.target.target import Target, packaged_target

#: Metadata of a field that ``json_fields.py`` omits: attributes and manifest store the target once, elsewhere.
OMITTED = {"plain": False}

#: Metadata of a field that a manifest has only if it is not empty.
OPTIONAL = {"optional": True}

INPUT, OUTPUT, KERNEL, KERNEL_IDX = "INPUT", "OUTPUT", "KERNEL", "KERNEL_IDX"

K = TypeVar("K")
V = TypeVar("V")


class IdentityTable(Generic[K, V]):
    """A dictionary for each of some objects, by identity: equal objects have separate dictionaries.

    Values must not refer to the object, because the object would then never be freed.
    """

    def __init__(self) -> None:
        self._entries: dict[int, dict[K, V]] = {}

    def entries_of(self, owner: object) -> dict[K, V]:
        """Return the dictionary of an object, which is initially empty."""
        key = id(owner)
        if key not in self._entries:
            weakref.finalize(owner, self._entries.pop, key, None).atexit = False
        return self._entries.setdefault(key, {})


@dataclass(frozen=True)
class HeldSlices:
    """The distribution of an operand over the LX of the cores, if it differs from the slices of the design.

    ``slices`` has every dim that the operand varies along; ``core_slices[c][dim]`` is the slice that core ``c`` holds,
    or None if the core holds nothing.
    """

    slices: dict[str, int]
    core_slices: tuple[dict[str, int] | None, ...]


@dataclass(frozen=True)
class WindowDim(Sliding):
    """A window that slides along a dim of an operand; dim ``kernel`` counts the positions in the window."""

    kernel: str


@dataclass(frozen=True)
class Operand:
    """One tensor of a design: its start address on each core and its layout.

    ``start`` has one entry per core in use: a symbol id (negative) for HBM, a byte address for LX. ``stick_elements``
    is the number of elements of the stick dim in a stick of ``data_format``, ``other_elements`` the number of elements
    of other dims, innermost first. ``held`` is the distribution of an operand of a ``shuffle``.

    ``windows`` slide along dims of the first operand of a convolution or a pooling: in memory these dims have the
    positions that the windows slide over, and the operand also varies along the unlisted dims of the windows. Windows
    of the result of a ``shuffle`` are halos, which do not have a dim: the data that a core gets of neighbouring slices.
    """

    role: str
    data_format: str
    memory: str
    dim_order: tuple[str, ...]
    stick_dim: str
    stick_elements: int
    scale: dict[str, int]
    start: tuple[int, ...]
    gap: dict[str, int] = field(default_factory=dict)
    held: HeldSlices | None = None
    other_elements: dict[str, int] = field(default_factory=dict)
    windows: dict[str, WindowDim] = field(default_factory=dict)

    def per_stick(self, dim: str) -> int:
        """Return the positions of a dim in one stick; 1 for a dim that is not in the stick."""
        return self.stick_elements if dim == self.stick_dim else self.other_elements.get(dim, 1)

    @property
    def listed(self) -> list[str]:
        """The dims in memory along which the operand varies."""
        return [dim for dim in self.dim_order if self.scale.get(dim, 1) == 1]

    @property
    def varying(self) -> list[str]:
        """The dims along which the operand varies; the dims of windows come last."""
        return [*self.listed, *(window.kernel for window in self.windows.values() if window.kernel)]

    @property
    def elements_per_stick(self) -> int:
        """The number of elements of a stick, over all dims in the stick."""
        return self.stick_elements * math.prod(self.other_elements.values())


@dataclass(frozen=True)
class SymbolicSize:
    """The size of a dim that the execute passes as the value of ``symbol``, a multiple of ``granularity``.

    ``tag`` is the name of the run-time size that determines it, with a factor, such as "4*S"; it is empty in designs
    without names.
    """

    symbol: int
    granularity: int
    tag: str = ""


@dataclass(frozen=True)
class Constant:
    """A named constant of an operation, as the bits of its format."""

    name: str
    data_format: str
    bits: int


@dataclass(frozen=True)
class DebugHandle:
    """The origin of a design: the user's source line, the ATen op, the chain of rewrites."""

    id: str
    file: str | None = None
    line: int = 0
    column: int = 0
    aten_op: str | None = None
    ir_chain: tuple[str, ...] = ()
    transforms: tuple[tuple[str, str, str], ...] = ()  # (kind, pass, reason)


@dataclass(frozen=True)
class Origin:
    """The origin of an execute in the user's program: source line, ATen op, path of the module.

    The path, such as ``layers.3.attn``, is empty for the model itself, and for a program without modules.
    """

    file: str = field(default="", metadata=OPTIONAL)
    line: int = field(default=0, metadata=OPTIONAL)
    column: int = field(default=0, metadata=OPTIONAL)
    aten_op: str = field(default="", metadata=OPTIONAL)
    module: str = field(default="", metadata=OPTIONAL)

    @property
    def source(self) -> str:
        """``file:line:column``, or ``file:line`` without a column; empty if the line is not known."""
        place = f"{self.file}:{self.line}" if self.file else ""
        return f"{place}:{self.column}" if place and self.column else place


@dataclass(frozen=True)
class Design:
    """One `sdsc_<i>.json`: one device operation on all its cores.

    ``sizes``/``padding``/``slices`` are keyed by dim label; ``core_slices[c][dim]`` is the slice of core
    ``c``; slice ``s`` of a dim covers ``[s * share, min((s + 1) * share, size))`` with
    ``share = shares[dim]`` (elements). ``masks[dim] = (start, length)`` are coordinates that read as
    ``constants[mask_constant]``. The last operand is the output. ``target`` is the target of the bundle.

    ``symbolic`` dims have any size up to their entry in ``sizes``, for which memory is laid out; slices grow with the
    size (``bundle/instances.py``).
    """

    index: int
    opcode: str
    unit: str
    data_format: str
    sizes: dict[str, int]
    slices: dict[str, int]
    shares: dict[str, int]
    core_slices: tuple[dict[str, int], ...]
    operands: tuple[Operand, ...]
    padding: dict[str, int] = field(default_factory=dict)
    masks: dict[str, tuple[int, int]] = field(default_factory=dict)
    mask_constant: int = -1
    constants: tuple[Constant, ...] = ()
    debug: DebugHandle | None = None
    symbolic: dict[str, SymbolicSize] = field(default_factory=dict)
    target: Target = field(default_factory=packaged_target, repr=False, metadata=OMITTED)

    @property
    def cores(self) -> int:
        return len(self.core_slices)

    @property
    def filename(self) -> str:
        return f"sdsc_{self.index}.json"

    @property
    def source(self) -> str:
        """``file:line:column`` of the origin, taken from the first execute of the design; empty if it is not known."""
        return self.origin.source

    @property
    def origin(self) -> Origin:
        """The origin from the debug handle, which is the origin of the first execute of the design."""
        if self.debug is None:
            return Origin()
        file = self.debug.file or ""
        return Origin(file, self.debug.line, self.debug.column, self.debug.aten_op or "")


# The statements of bundle.mlir. A value is named by a string without the leading percent sign.


@dataclass(frozen=True)
class Parameter:
    """A run-time parameter, `!sdscbundle.input_arg<index[, granularity=N][, max_value=N]>`.

    A parameter with a largest value is a number of the program, such as an index; other parameters are addresses.
    """

    name: str
    granularity: int | None = None
    max_value: int | None = None

    @property
    def is_address(self) -> bool:
        """Return whether the value is the start address of an argument or of the pool."""
        return self.max_value is None


@dataclass(frozen=True)
class Extract:
    """`%result = sdscbundle.input_arg_extract <what> from %parameter`."""

    result: str
    parameter: str
    what: str = "value"


@dataclass(frozen=True)
class Allocate:
    """`%result = sdscbundle.device_mem_allocate <bytes> bytes : index`."""

    result: str
    bytes: int


@dataclass(frozen=True)
class IndexConstant:
    result: str
    value: int


@dataclass(frozen=True)
class Add:
    result: str
    lhs: str
    rhs: str


@dataclass(frozen=True)
class Apply:
    """`%result = affine.apply #map(%dims)[%symbols]`: offset + sum of coefficient * value.

    ``coefficients`` has one entry per dim and then one per symbol.
    """

    result: str
    dims: tuple[str, ...]
    symbols: tuple[str, ...]
    coefficients: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True)
class Execute:
    """`sdscbundle.sdsc_execute (%operands) {sdsc_filename=..., symbol_ids=[...]}`."""

    filename: str
    operands: tuple[str, ...]
    symbol_ids: tuple[int, ...]


@dataclass(frozen=True)
class Loop:
    """`scf.for %iv = %lower to %upper step %step`, without iter_args."""

    induction: str
    lower: str
    upper: str
    step: str
    body: tuple[Statement, ...]


Statement = Extract | Allocate | IndexConstant | Add | Apply | Execute | Loop


def statements_in_order(statements: Iterable[Statement]) -> Iterator[Statement]:
    """Yield all statements, each loop before the statements of its body."""
    for statement in statements:
        yield statement
        if isinstance(statement, Loop):
            yield from statements_in_order(statement.body)


def operands_of(statement: Statement) -> tuple[str, ...]:
    """Return the values that a statement uses, without the body of a loop."""
    match statement:
        case Add(_, lhs, rhs):
            return lhs, rhs
        case Apply(_, dims, symbols):
            return (*dims, *symbols)
        case Execute(_, operands):
            return operands
        case Loop(_, lower, upper, step):
            return lower, upper, step
    return ()


def rewritten(
    statements: Iterable[Statement], rewrite: Callable[[Statement], Iterable[Statement]]
) -> tuple[Statement, ...]:
    """Return statements in which ``rewrite`` replaces each statement that is not a loop, also inside of loops."""
    result: list[Statement] = []
    for statement in statements:
        if isinstance(statement, Loop):
            result.append(replace(statement, body=rewritten(statement.body, rewrite)))
        else:
            result += rewrite(statement)
    return tuple(result)


def executes_of(statements: Iterable[Statement]) -> list[Execute]:
    """Return the executes in program order; an execute in a loop counts once."""
    return [statement for statement in statements_in_order(statements) if isinstance(statement, Execute)]


@dataclass(frozen=True)
class Transfer:
    """The copy of a tensor between host and device: the loop nest of RFC 0047, in elements.

    Device position ``sum(i_k * device_strides[k])`` holds host element ``host_offset + sum(i_k *
    host_strides[k])`` for all ``0 <= i_k < ranges[k]``. A host dim fed by several loops is bounded: with
    ``bounds`` a list of ``(loops, weights, size)``, the position is padding unless ``sum(i_loop * weight) <
    size`` for each.
    """

    ranges: tuple[int, ...]
    host_strides: tuple[int, ...]
    device_strides: tuple[int, ...]
    bounds: tuple[tuple[tuple[int, ...], tuple[int, ...], int], ...] = ()
    host_offset: int = 0


@dataclass(frozen=True)
class IndexBounds:
    """The range of the indices that ``operation`` accepts, upper end excluded."""

    lower: int
    upper: int
    operation: str

    def out_of_range(self, index: int) -> str:
        """Describe an index that is out of the range."""
        range_ = f"which takes {self.lower} to {self.upper - 1}"
        return f"its element {index} is out of range: it is an index of {self.operation}, {range_}."


@dataclass(frozen=True)
class SymbolicExtent:
    """Dim ``dim`` of a host array, whose size is ``factor`` times the run-time size ``size``."""

    dim: int
    size: str
    factor: int = 1


@dataclass(frozen=True)
class KernelArgument:
    """One kernel argument as the host sees it. ``kind``: input, parameter, constant or result.

    ``host_dtype`` is a numpy name, "bfloat16" or "float8_e4m3fn"; ``fill`` is the value that the host writes into
    padding, None if the host leaves the padding unchanged. ``source`` names the argument whose host array this argument
    also takes, in its own layout. The numbers of an argument with ``index_bounds`` are indices in this range.
    ``symbolic`` are the dims that follow a run-time size; shape and transfer are for its largest value.
    """

    name: str
    kind: str
    parameter: str
    host_dtype: str
    host_shape: tuple[int, ...]
    data_format: str
    device_size: tuple[int, ...]
    bytes: int
    transfer: Transfer
    fill: float | None = None
    source: str | None = None
    index_bounds: IndexBounds | None = None
    symbolic: tuple[SymbolicExtent, ...] = field(default=(), metadata=OPTIONAL)

    @property
    def array_name(self) -> str:
        """The name of the argument for which the host array is given."""
        return self.source or self.name


@dataclass(frozen=True)
class RuntimeIndex:
    """The value of a parameter that the host reads in an array: element ``element`` of the array of ``argument``.

    Elements are counted row by row. A negative index counts from the end, that is from ``bounds.upper``.
    """

    parameter: str
    argument: str
    element: int
    bounds: IndexBounds

    def value(self, array: NDArray[Any]) -> int:
        """Return the index that the device gets from an array; ``IndexError`` for an index out of range."""
        index = int(array.flat[self.element])
        if not self.bounds.lower <= index < self.bounds.upper:
            raise IndexError(self.bounds.out_of_range(index))
        return index + self.bounds.upper if index < 0 else index


@dataclass(frozen=True)
class RuntimeSize:
    """The run-time size ``name``, the value of ``parameter``: a multiple of ``granularity`` up to ``max_value``."""

    parameter: str
    name: str
    granularity: int
    max_value: int


@dataclass(frozen=True)
class Buffer:
    """An allocation that operands refer to: ``base`` is a parameter's or allocation's value name, or "lx".

    ``reasons`` state in order why the buffer is not in LX; arguments do not have reasons.
    """

    name: str
    base: str
    offset: int
    bytes: int
    reasons: tuple[str, ...] = field(default=(), metadata=OPTIONAL)

    def overlaps(self, other: Buffer) -> bool:
        """Return whether the buffers have a byte in common; in LX, on one core."""
        is_apart = self.offset + self.bytes <= other.offset or other.offset + other.bytes <= self.offset
        return self.base == other.base and not is_apart


@dataclass(frozen=True)
class Resident:
    """A buffer whose contents pass from one bundle of a sequence to the next, by the name that both bundles use.

    A buffer in LX stays at its address on ``cores``, and ``layout`` has a line for each layout in which it was written.
    A buffer in device memory has neither: all bundles of the sequence get the same address for its parameter.
    """

    buffer: str
    cores: tuple[int, ...] = field(default=(), metadata=OPTIONAL)
    layout: tuple[str, ...] = field(default=(), metadata=OPTIONAL)


@dataclass(frozen=True)
class Manifest:
    """Facts that a SuperDSC bundle leaves to the runtime: host arguments, allocations, the buffers of each operand.

    ``uses[k]`` lists, for the k-th ``Execute`` in program order, the buffer name of each operand. ``demoted`` are the
    ``Execute`` whose 16-bit result is float32 in the program, ``amplified`` the ones whose rounding error an
    exponential turns into a relative error. ``wide_sums`` are the ones that store sums of 8-bit products as 16-bit
    numbers, which are DL16 for any numerics, because IEEE fp16 cannot represent their range. ``numerics`` is what the
    program needs if it has 16-bit numbers that IEEE fp16 cannot represent ("dl16" for bfloat16); a program that was
    compiled for other numerics is saved with them. ``executes_from[k]`` is the origin of the k-th ``Execute``, an index
    into ``origins``, which has each origin once; both are empty if the origins are not known.

    A bundle of a sequence ``expects`` the buffers that the previous bundle ``leaves``. A ``non_terminal`` bundle leaves
    data in LX: the runtime must not give the cores to another program before the next bundle. ``target`` is the device.
    ``unsigned`` are the results whose int8 numbers are uint8 in the model; the signs of others are not known.
    ``indices`` are the parameters that are indices, ``sizes`` the parameters that are sizes; all others are addresses.
    """

    arguments: tuple[KernelArgument, ...]
    buffers: tuple[Buffer, ...]
    uses: tuple[tuple[str, ...], ...]
    version: int = 1
    demoted: tuple[int, ...] = field(default=(), metadata=OPTIONAL)
    amplified: tuple[int, ...] = field(default=(), metadata=OPTIONAL)
    wide_sums: tuple[int, ...] = field(default=(), metadata=OPTIONAL)
    unsigned: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    numerics: str | None = None
    non_terminal: bool = field(default=False, metadata=OPTIONAL)
    expects: tuple[Resident, ...] = field(default=(), metadata=OPTIONAL)
    leaves: tuple[Resident, ...] = field(default=(), metadata=OPTIONAL)
    origins: tuple[Origin, ...] = field(default=(), metadata=OPTIONAL)
    executes_from: tuple[int, ...] = field(default=(), metadata=OPTIONAL)
    indices: tuple[RuntimeIndex, ...] = field(default=(), metadata=OPTIONAL)
    sizes: tuple[RuntimeSize, ...] = field(default=(), metadata=OPTIONAL)
    target: Target = field(default_factory=packaged_target, repr=False, metadata=OMITTED)
    #: The compiler's version and the options that differ from their defaults; equal plans may have other options.
    made: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False, metadata=OMITTED)

    def with_origins(self, origins: Iterable[Origin]) -> Manifest:
        """Return the manifest with the origins of its executes, one for each in program order, or none."""
        table: dict[Origin, int] = {}
        indices = tuple(table.setdefault(origin, len(table)) for origin in origins)
        return replace(self, origins=tuple(table), executes_from=indices)

    def execute_origins(self) -> list[Origin]:
        """Return the origin of each execute in program order; empty if the origins are not known."""
        return [self.origins[index] for index in self.executes_from]


@dataclass(frozen=True)
class Bundle:
    """A whole bundle folder."""

    parameters: tuple[Parameter, ...]
    statements: tuple[Statement, ...]
    designs: dict[str, Design]
    manifest: Manifest

    @property
    def target(self) -> Target:
        """The device that the bundle is for."""
        return self.manifest.target

    def for_target(self, target: Target) -> Bundle:
        """Return the bundle with another device as its target."""
        designs = {name: replace(design, target=target) for name, design in self.designs.items()}
        return replace(self, designs=designs, manifest=replace(self.manifest, target=target))


@dataclass(frozen=True)
class LevelLine:
    """An operation as shortened text, and its origin."""

    origin: Origin
    text: str


#: The lines of each level in program order; the levels are in compilation order.
Levels = Mapping[str, Sequence[LevelLine]]


def levels_to_json(levels: Levels) -> dict[str, Any]:
    """Return the levels as JSON values: a table of origins, and for each line its index in it and the text."""
    table: dict[Origin, int] = {}
    lines = {
        level: [[table.setdefault(line.origin, len(table)), line.text] for line in lines]
        for level, lines in levels.items()
    }
    return {"origins": [list(astuple(origin)) for origin in table], "lines": lines}


def levels_from_json(plain: Mapping[str, Any]) -> Levels:
    """Read the output of ``levels_to_json``; anything else raises some exception."""
    origins = [Origin(*fields) for fields in plain["origins"]]
    return {
        level: tuple(LevelLine(origins[index], text) for index, text in lines)
        for level, lines in plain["lines"].items()
    }
