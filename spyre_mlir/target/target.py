# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The target of a compilation: sizes, limits and rates of one device, read from a device file.

This is the only place with sizes, limits or rates of the hardware. ``spyre.toml`` is the packaged device file; its
comments state the source of each number. A field of ``Target`` is a key of the file; for instance, ``lx_bytes`` is
``bytes`` of ``[lx]``.
"""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import os
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Self

from spyre_mlir.compile_lock import assigned
from spyre_mlir.errors import CompileError, with_suggestion
from spyre_mlir.files import read_text
from spyre_mlir.records import dataclass, hash_once

_MAX_FILE_BYTES = 1 << 20
#: Limits of the bytes of LX and the number of cores: the validator and the simulator keep tables of both.
_MAX_LX_BYTES, _MAX_CORES = 1 << 28, 1024
#: Limit of exponents: powers stay in the range of floats.
_MAX_EXPONENT = 8

#: The cost model of a device file that does not name one.
ANALYTIC = "analytic"


@dataclass(frozen=True)
class ArrayRates:
    """Rates of a core's array of multiply-adds; ``spyre_mlir.cost.cost_model`` has the formula."""

    multiply_adds_per_ns: float  #: multiply-adds of fp16 per core, sustained
    full_rate_rows: int  #: rows per core up to which the rate is sustained
    row_slowdown: float  #: times as long at most with more rows
    split_sum_slowdown: float  #: times as long, if the contracted dim is split
    scattered_sum_multiply_adds_per_ns: float  #: at most, if the cores of a split sum are not neighbours
    intake_bytes_per_ns: float  #: bytes of operands in device memory that a core takes in
    stream_lx_bytes: int  #: bytes of the back end's LX with which loads of one core each do not wait
    stream_exponent: float  #: of (these bytes / bytes there are), the slowdown of loads that wait
    tile_rows: int  #: rows of a matrix of a batch that the back end works on at a time
    batch_lx_fraction: float  #: part of the back end's LX for the matrices of a batch that it loads together
    speedup: tuple[tuple[str, float], ...]  #: format of the operands and factor over the rate of fp16

    def speedup_of(self, data_format: str) -> float:
        """Return the factor over the rate of fp16; 1 for a format that the device file does not name."""
        return dict(self.speedup).get(data_format, 1)


@dataclass(frozen=True)
class SharingRates:
    """Slowdown of loads that many cores share; ``spyre_mlir.cost.cost_model`` has the formula."""

    uncontended_cores: int  #: cores that read one operand without waiting for each other
    contention_exponent: float  #: of (cores / uncontended_cores), the slowdown


@dataclass(frozen=True)
class RowReductionRates:
    """Bandwidth of a reduction over the stick by its number of rows: the minimum, and an addition for few rows."""

    least_bytes_per_ns: float  #: for many rows
    more_bytes_per_ns: float  #: added for no rows
    decay_rows: float  #: rows after which the addition has fallen to 1 / e


@dataclass(frozen=True)
class RingRates:
    """Rates of the ring: a hop of a partial sum, a link in one direction, the fit of ``cost.ring_traffic``."""

    partial_sum_ns: float  #: per element of the output and hop
    link_bytes_per_ns: float  #: of each link in one direction
    relayout_run_ns: float  #: per run of a core, added to the part of the split; may be negative
    relayout_run_split_ns: float  #: per run of a core, times log2(split)
    relayout_bytes_per_ns: float  #: of a core's part, divided by the split
    relayout_splits: tuple[int, int]  #: least and largest split of the fit; others are clamped


@dataclass(frozen=True)
class HostRates:
    """Assumed rates of the host and of its link to the device, each the least and the most.

    ``spyre_mlir.driver.program_figures`` has the formula.
    """

    operations_per_ns: tuple[float, float]  #: floating-point operations
    bytes_per_ns: tuple[float, float]  #: bytes that the operations of a function read and write
    call_ns: tuple[float, float]  #: the start of a function
    link_bytes_per_ns: tuple[float, float]  #: bytes that a copy moves to or from the device
    link_ns: tuple[float, float]  #: the start of a copy


@dataclass(frozen=True)
class LinkRates:
    """Rates of the link between cards, given by the user; 0 means unknown.

    ``spyre_mlir.cost.link`` has the formulas.
    """

    message_ns: float  #: the start of a message
    sent_bytes_per_ns: float  #: bytes that a card sends


@dataclass(frozen=True)
class Target:
    """Sizes, limits and rates of one device, and the part of it that a program may use: cores, and a part of LX.

    The type of a field names its section and key in the device file; a field without key is a section.
    """

    device_cores: Annotated[int, "cores.count"]
    """Cores of the device, the nodes of its ring."""
    cores: Annotated[int, "cores.usable"]
    """Cores that a program may use, 1 to ``device_cores``."""
    emitted_corelets: Annotated[int, "cores.emitted_corelets"]
    """Corelets that the bundle names per core."""
    stick_bytes: Annotated[int, "stick.bytes"]
    """Bytes of a stick, the unit of SIMD and of every transfer."""
    lx_bytes: Annotated[int, "lx.bytes"]
    """Bytes of LX per core."""
    lx_reserved_bytes: Annotated[int, "lx.reserved_bytes"]
    """Bytes of LX per core that are reserved."""
    lx_backend_fraction: Annotated[float, "lx.backend_fraction"]
    """Fraction of LX, without the reserved bytes, that the back end keeps: 0 to 1."""
    lx_alignment_bytes: Annotated[int, "lx.alignment_bytes"]
    """Alignment of addresses in LX, in bytes."""
    hbm_bytes: Annotated[int, "hbm.bytes"]
    """Bytes of device memory."""
    pool_bytes: Annotated[int, "hbm.pool_bytes"]
    """Bytes of device memory for all allocations of a program."""
    span_bytes: Annotated[int, "hbm.span_bytes"]
    """Largest distance in bytes between elements of a tensor that a core can address."""
    hbm_alignment_bytes: Annotated[int, "hbm.alignment_bytes"]
    """Alignment of addresses in device memory, in bytes."""
    peak_bytes_per_ns: Annotated[float, "hbm.peak_bytes_per_ns"]
    """Bytes per ns that no program exceeds."""
    one_way_bytes_per_ns: Annotated[float, "hbm.one_way_bytes_per_ns"]
    """Bytes per ns of reads alone, or of writes alone."""
    turnaround_ns_per_byte: Annotated[float, "hbm.turnaround_ns_per_byte"]
    """Nanoseconds per byte of min(read, written)."""
    restickify_bytes_per_ns: Annotated[float, "hbm.restickify_bytes_per_ns"]
    """Bytes per ns of a restickify."""
    broadcast_bytes_per_ns: Annotated[float, "hbm.broadcast_bytes_per_ns"]
    """Bytes per ns of an operation that repeats an operand."""
    burst_bytes: Annotated[int, "hbm.burst_bytes"]
    """Bytes of the longest burst."""
    burst_overhead_bytes: Annotated[int, "hbm.burst_overhead_bytes"]
    """Overhead of each burst, as bytes that take the same time."""
    hbm_access_ns: Annotated[float, "hbm.access_ns"]
    """Nanoseconds until the first byte of an access."""
    saturation_cores: Annotated[tuple[int, ...], "hbm.saturation_cores"]
    """Smallest numbers of cores, rising from 1, that attain the fractions of ``saturation``."""
    saturation: Annotated[tuple[float, ...], "hbm.saturation"]
    """Fractions of the peak, 0 to 1, one for each of ``saturation_cores``."""
    row_reduction: Annotated[RowReductionRates, "row_reduction"]
    """Rates of reductions over rows."""
    vector_sticks_per_ns: Annotated[float, "vector.sticks_per_ns"]
    """Sticks per ns of the vector units of a core."""
    ring: Annotated[RingRates, "ring"]
    """Rates of the ring."""
    array: Annotated[ArrayRates, "array"]
    """Rates of the array of multiply-adds."""
    sharing: Annotated[SharingRates, "sharing"]
    """Slowdown of cores that read one operand."""
    host: Annotated[HostRates, "host"]
    """Assumed rates of the host, for times in total."""
    link: Annotated[LinkRates, "link"]
    """Assumed rates of the link between cards; unknown in the packaged file."""
    loop_iterations: Annotated[int, "program.loop_iterations"]
    """Largest number of iterations of a loop."""
    operand_layouts: Annotated[int, "program.operand_layouts"]
    """Largest number of operands of an operation with different layouts."""
    loads_begin_early: Annotated[bool, "program.loads_begin_early"]
    """True if loads begin while the previous operation computes."""
    cost_model: Annotated[str, "program.cost_model"]
    """Name of the cost model (docs/writing-an-algorithm.md)."""

    __hash__ = hash_once

    @classmethod
    def read(cls, path: str) -> Self:
        """Read a device file (docs/devices.md).

        Args:
            path: The file.

        Raises:
            CompileError: The file does not describe a device; the message names the file and the field.
        """
        try:
            text = read_text(path, _MAX_FILE_BYTES)
        except CompileError as error:
            remedy = "a device is the path of a TOML file (docs/devices.md)"
            raise CompileError(f"{error.message.removesuffix('.')}; {remedy}.", error.location) from None
        return cls.of_text(text, path)

    @classmethod
    def of_text(cls, text: str, source: str) -> Self:
        """Create the target that the text of a device file describes; ``CompileError`` names ``source`` and field."""
        try:
            sections = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise CompileError(f"The device file is not TOML: {error}.", source) from None
        return cls.of_sections(sections, source)

    @classmethod
    def of_sections(cls, sections: Sections, source: str) -> Self:
        """Create the target that the tables of a device file describe; ``CompileError`` names ``source`` and field."""
        target = cls(**_fields_of(_with_defaults(sections), source))
        problem = _problem(target)
        if problem is not None:
            raise CompileError(f"The device {problem}.", source)
        return target

    def overlaid(self, sections: Sections, source: str) -> Target:
        """Return the target with the fields in ``sections`` replaced, in the form of ``differences``."""
        if not sections:
            return self
        tables: dict[str, Any] = self.sections()
        for section, table in sections.items():
            is_part = isinstance(tables.get(section), Mapping) and isinstance(table, Mapping)
            tables[section] = {**tables[section], **table} if is_part else table
        return Target.of_sections(tables, source)

    def with_numbers(self, numbers: Mapping[str, float]) -> Target:
        """Return the target with other numbers by section and key, for instance ``hbm.access_ns``, unchecked.

        A fit also tries fractions for integer fields.
        """
        changes: dict[str, Any] = {}
        for name, path in _paths().items():
            if path in numbers:
                changes[name] = numbers[path]
            elif "." not in path:
                parts = {
                    key.rpartition(".")[2]: value
                    for key, value in numbers.items()
                    if key.startswith(f"{path}.")
                }
                changes |= {name: replace(getattr(self, name), **parts)} if parts else {}
        return replace(self, **changes)

    def sections(self) -> dict[str, Any]:
        """Return all fields as the tables of a device file."""
        tables: dict[str, Any] = {}
        for name, path in _paths().items():
            section, _, key = path.partition(".")
            table = tables.setdefault(section, {})
            table |= {key: getattr(self, name)} if key else _parts(getattr(self, name))
        for table in tables.values():
            table |= {key: list(value) for key, value in table.items() if isinstance(value, tuple)}
        tables["array"]["speedup"] = dict(self.array.speedup)
        return tables

    def differences(self) -> dict[str, Any]:
        """Return the fields that differ from the packaged device, as tables of a device file."""
        packaged = packaged_target().sections()
        return {
            section: changed
            for section, table in self.sections().items()
            if (
                changed := {key: value for key, value in table.items() if value != packaged[section].get(key)}
            )
        }

    def with_options(
        self, cores: int | None, backend_fraction: float | None, cost_model: str | None = None
    ) -> Target:
        """Return the target with ``cores``, the back end's fraction of LX and a cost model, each if it is not None."""
        target = self if cores is None else self.with_cores(cores)
        if cost_model not in (None, target.cost_model):
            target = _replaced(target, "cost_model", cost_model)
        return target if backend_fraction is None else target.with_backend_fraction(backend_fraction)

    def with_cores(self, cores: int) -> Target:
        """Return the target of programs that use ``cores`` cores.

        Raises:
            CompileError: The device has fewer cores.
        """
        if not 1 <= cores <= self.device_cores:
            raise CompileError(f"sencores is {cores}; the device has 1 to {self.device_cores} cores.")
        return self if cores == self.cores else _replaced(self, "cores", cores)

    def with_backend_fraction(self, fraction: float) -> Target:
        """Return the target whose back end keeps a ``fraction`` of LX.

        Raises:
            CompileError: The fraction is not in [0, 1].
        """
        if not 0 <= fraction <= 1:
            raise CompileError(f"lx-frac-avail is {fraction}; it is a part of LX, 0 to 1.")
        return (
            self if fraction == self.lx_backend_fraction else _replaced(self, "lx_backend_fraction", fraction)
        )

    @property
    def backend_lx_bytes(self) -> float:
        """Bytes of LX per core that the back end keeps."""
        return (self.lx_bytes - self.lx_reserved_bytes) * self.lx_backend_fraction

    @functools.cached_property
    def usable_lx_bytes(self) -> int:
        """Bytes of LX per core that the compiler may use, a multiple of the alignment."""
        usable = int((self.lx_bytes - self.lx_reserved_bytes) * (1 - self.lx_backend_fraction))
        return -(-usable // self.lx_alignment_bytes) * self.lx_alignment_bytes


@functools.lru_cache(maxsize=64)
def _replaced(target: Target, name: str, value: float | str) -> Target:
    """Return one object for equal changes: caches with the target in their keys compare it by identity."""
    return replace(target, **{name: value})


@functools.cache
def packaged_target() -> Target:
    """Return the target of the packaged device file."""
    return Target.of_text(packaged_text(), "spyre.toml")


_CURRENT: contextvars.ContextVar[Target | None] = contextvars.ContextVar("target", default=None)


def set_default_target(target: Target) -> None:
    """Make ``target`` the default target in this context (``contextvars``)."""
    _CURRENT.set(target)


def compiling_for(target: Target) -> AbstractContextManager[Any]:
    """Make ``target`` the default target while the block runs."""
    return assigned(_CURRENT, target)


def default_target() -> Target:
    """Return the target of ``compiling_for``, or outside of it the target of the environment.

    The environment gives the packaged device file or the file SPYRE_DEVICE; SENCORES and DXP_LX_FRAC_AVAIL override it.
    """
    current = _CURRENT.get()
    if current is not None:
        return current
    names = ("SPYRE_DEVICE", "SENCORES", "DXP_LX_FRAC_AVAIL")
    return _target_of_environment(*(os.environ.get(name) or None for name in names))


@functools.lru_cache(maxsize=16)
def _target_of_environment(file: str | None, cores: str | None, fraction: str | None) -> Target:
    target = Target.read(file) if file else packaged_target()
    if cores is not None:
        target = target.with_cores(_number(int, cores, "SENCORES", "an integer"))
    if fraction is not None:
        target = target.with_backend_fraction(_number(float, fraction, "DXP_LX_FRAC_AVAIL", "a number"))
    return target


def _number(kind: type, text: str, variable: str, noun: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise CompileError(f"The environment variable {variable} must be {noun}, not '{text}'.") from None


def packaged_text() -> str:
    """Return the packaged device file."""
    return Path(__file__).with_name("spyre.toml").read_text(encoding="utf-8")


def check_fields(sections: Sections, source: str) -> None:
    """Raise ``CompileError`` for tables with an unknown or a missing field, or a field of another type."""
    _fields_of(_with_defaults(sections), source)


def _with_defaults(sections: Sections) -> Sections:
    """Return the packaged tables with the given fields, by default with all cores usable and the analytic model."""
    merged: dict[str, Any] = dict(sections)
    for section, table in _packaged_sections().items():
        given = sections.get(section, {})
        merged[section] = {**table, **given} if isinstance(given, Mapping) else given
    if isinstance(cores := merged["cores"], Mapping):
        merged["cores"] = {"usable": cores["count"], **cores}
    if isinstance(program := merged["program"], Mapping):
        merged["program"] = {"cost_model": ANALYTIC, **program}
    return merged


@functools.cache
def _packaged_sections() -> dict[str, Any]:
    """Return the tables of the packaged device file."""
    return tomllib.loads(packaged_text())


def is_integer(path: str) -> bool:
    """Return whether a field, by section and key, is an integer; ``KeyError`` if it is not a single number."""
    kinds: dict[str, Any] = {}
    hints = typing.get_type_hints(Target)
    for name, where in _paths().items():
        parts = {} if "." in where else typing.get_type_hints(hints[name])
        kinds |= {f"{where}.{part}": kind for part, kind in parts.items()} or {where: hints[name]}
    return {int: True, float: False}[kinds[path]]


# -- tables of a device file ----------------------------------------------------------------------------


def _parts(section: Any) -> dict[str, Any]:
    """Return the fields of a section and their values."""
    return {part.name: getattr(section, part.name) for part in dataclasses.fields(section)}


@functools.cache
def _paths() -> dict[str, str]:
    """Return section and key in a device file by the field of ``Target``."""
    hints = typing.get_type_hints(Target, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


def _fields_of(sections: Sections, source: str) -> dict[str, Any]:
    """Return the fields of ``Target`` from the tables of a device file; ``CompileError`` for unknown keys."""
    hints = typing.get_type_hints(Target)
    known: dict[str, list[str]] = {}
    for name, path in _paths().items():
        section, _, key = path.partition(".")
        known.setdefault(section, []).extend([key] if key else typing.get_type_hints(hints[name]))
    # Unknown keys first: a misspelt key is also a missing one.
    refuse_unknown(sections, list(known), "", source)
    for section, keys in known.items():
        if not isinstance(sections.get(section), Mapping):
            raise CompileError(f"The device has no section [{section}]: '{section}' must be a table.", source)
        refuse_unknown(sections[section], keys, f"{section}.", source)
    values = {}
    for name, path in _paths().items():
        section, _, key = path.partition(".")
        table = sections[section]
        if key:
            values[name] = value_of(hints[name], table, key, path, source)
        else:
            parts = typing.get_type_hints(hints[name])
            values[name] = hints[name](
                **{
                    part: value_of(kind, table, part, f"{section}.{part}", source)
                    for part, kind in parts.items()
                }
            )
    return values


# -- consistency of a device -----------------------------------------------------------------------------

#: Fields that may be 0 or negative.
_UNBOUNDED = ("lx_reserved_bytes", "lx_backend_fraction", "burst_overhead_bytes", "turnaround_ns_per_byte")
_UNBOUNDED_RATES = ("relayout_run_ns", "relayout_run_split_ns", "more_bytes_per_ns", "contention_exponent")

#: Rates that 0 declares unknown.
_UNKNOWN_RATES = ("message_ns", "sent_bytes_per_ns")

#: Pairs of a field and a field that divides it.
_MULTIPLES = (
    ("lx_bytes", "lx_alignment_bytes"),
    ("lx_reserved_bytes", "lx_alignment_bytes"),
    ("hbm_bytes", "hbm_alignment_bytes"),
    ("pool_bytes", "hbm_alignment_bytes"),
    ("span_bytes", "stick_bytes"),
    ("burst_bytes", "stick_bytes"),
)


def _problem(target: Target) -> str | None:
    """Describe an inconsistency between the fields of a target; None if there is none."""
    paths = _paths()
    for name, path, value in _numbers(target):
        if name in _UNKNOWN_RATES and value < 0:
            return f"has {value} for {path}; it must be 0, for unknown, or above"
        if name not in (*_UNBOUNDED, *_UNBOUNDED_RATES, *_UNKNOWN_RATES) and value <= 0:
            return f"has {value} for {path}; it must be above 0"
    if target.lx_reserved_bytes < 0 or target.burst_overhead_bytes < 0 or target.turnaround_ns_per_byte < 0:
        return f"has less than 0 for {paths['lx_reserved_bytes']}, or for an overhead of its memory"
    if target.stick_bytes & (target.stick_bytes - 1) or target.stick_bytes < 16:
        return f"has {target.stick_bytes} for stick.bytes; it must be a power of two, at least 16"
    for name in ("lx_alignment_bytes", "hbm_alignment_bytes"):
        if getattr(target, name) != target.stick_bytes:  # slices of a tensor begin at any stick
            return (
                f"has {getattr(target, name)} for {paths[name]}; it must be stick.bytes, {target.stick_bytes}"
            )
    for path, exponent in (
        ("array.stream_exponent", target.array.stream_exponent),
        ("sharing.contention_exponent", target.sharing.contention_exponent),
    ):
        if abs(exponent) > _MAX_EXPONENT:
            return f"has {exponent} for {path}; it must be in {-_MAX_EXPONENT} to {_MAX_EXPONENT}"
    for larger, unit in _MULTIPLES:
        if getattr(target, larger) % getattr(target, unit):
            return (
                f"has {getattr(target, larger)} for {paths[larger]}; it must be a multiple of {paths[unit]}, "
                f"{getattr(target, unit)}"
            )
    for name, bound in (
        ("device_cores", _MAX_CORES),
        ("lx_bytes", _MAX_LX_BYTES),
        ("cores", target.device_cores),
    ):
        if getattr(target, name) > bound:
            return f"has {getattr(target, name)} for {paths[name]}; at most {bound} are possible"
    if target.lx_reserved_bytes >= target.lx_bytes:
        return "reserves all of LX: lx.reserved_bytes must be less than lx.bytes"
    if not 0 <= target.lx_backend_fraction <= 1:
        return f"has {target.lx_backend_fraction} for lx.backend_fraction; it must be in 0 to 1"
    cores, parts = target.saturation_cores, target.saturation
    if cores[0] != 1 or list(cores) != sorted(set(cores)):
        return f"has {list(cores)} for hbm.saturation_cores; they must rise from 1"
    if len(parts) != len(cores) or not all(0 < part <= 1 for part in parts):
        return f"has {list(parts)} for hbm.saturation; it must have a part, above 0 to 1, for each number of cores"
    least, most = target.ring.relayout_splits
    if not 1 <= least <= most:
        return f"has {[least, most]} for ring.relayout_splits; they must rise from 1 or more"
    for path, (least, most) in _parts(target.host).items():
        if not 0 < least <= most:
            return f"has {[least, most]} for host.{path}; it must be a least above 0 and a most"
    if any(rate <= 0 for _, rate in target.array.speedup):
        return "has a rate of 0 or less in array.speedup"
    return None


def _numbers(target: Target) -> Iterator[tuple[str, str, float]]:
    """Yield the name, path and value of each field that is a single number."""
    for name, path in _paths().items():
        value = getattr(target, name)
        fields = [(name, path, value)]
        if "." not in path:
            fields = [(part, f"{path}.{part}", number) for part, number in _parts(value).items()]
        yield from (field for field in fields if not isinstance(field[2], tuple | bool | str))


# Conversion of the tables of a device file to the types of the fields; an error names the file and the field.

#: A device as tables of a device file: the keys and values of each section.
Sections = Mapping[str, Any]

#: Bounds of every number but 0: counts of bytes are the largest; rates and their inverses stay in the range of floats.
_MIN_NUMBER, _MAX_NUMBER = 1e-9, 1 << 48


def refuse_unknown(table: Sections, known: list[str], prefix: str, source: str) -> None:
    """Raise ``CompileError`` for a key that is not ``known``."""
    unknown = next((key for key in table if key not in known), None)
    if unknown is not None:
        sentence = f"The device has an unknown field {prefix}{unknown}; known are {', '.join(known)}."
        raise CompileError(with_suggestion(sentence, unknown, known), source)


def value_of(kind: Any, table: Sections, key: str, path: str, source: str) -> Any:
    """Return a value of a table as the type of its field; ``CompileError`` if it is missing or of another type."""
    if key not in table:
        raise CompileError(f"The device lacks the field {path}.", source)
    value = _converted(kind, table[key])
    if value is None:
        nouns = {
            bool: "true or false",
            int: f"an integer of at most {_MAX_NUMBER}",
            float: f"a number, 0 or of {_MIN_NUMBER:g} to {_MAX_NUMBER:.3g}",
            str: "a text",
        }
        noun, entries = nouns.get(kind), typing.get_args(kind)
        if noun is None and isinstance(entries[0], types.GenericAlias):
            noun = "a table of numbers"
        elif noun is None:
            count = "" if entries[-1] is ... else f"{len(entries)} "
            noun = f"a list of {count}{'integers' if entries[0] is int else 'numbers'}"
        raise CompileError(f"The field {path} of the device must be {noun}, not {table[key]!r:.80}.", source)
    return value


def _converted(kind: Any, value: Any) -> Any:
    """Return a TOML value as ``kind``: bool, int, float, str, a tuple or the pairs of a table; None for others."""
    if kind is bool:
        return value if isinstance(value, bool) else None
    if kind is str:
        return value if isinstance(value, str) and value else None
    if isinstance(value, bool):
        return None
    if kind is int:
        return value if isinstance(value, int) and abs(value) <= _MAX_NUMBER else None
    if kind is float:
        # NaN is outside of every range, and an integer may be too large for a float.
        is_number = isinstance(value, int | float) and (
            value == 0 or _MIN_NUMBER <= abs(value) <= _MAX_NUMBER
        )
        return value if is_number else None
    entries = typing.get_args(kind)
    if isinstance(value, Mapping):
        rates = {name: _converted(float, rate) for name, rate in value.items()}
        is_table = isinstance(entries[0], types.GenericAlias) and None not in rates.values()
        return tuple(rates.items()) if is_table else None
    if not isinstance(value, list | tuple) or (entries[-1] is not ... and len(value) != len(entries)):
        return None
    members = tuple(_converted(entries[0], entry) for entry in value)
    return None if None in members or not members else members
