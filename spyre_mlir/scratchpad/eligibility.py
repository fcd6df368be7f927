# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ineligibility reasons: why a buffer cannot be in a scratchpad (docs/scratchpad.md).

Each reason has a class, in reporting order; reasons with the same title are of one kind. ``LostCompetition`` is the
planner's choice; all other reasons exclude a buffer.
"""

from __future__ import annotations

from collections.abc import Iterable

from spyre_mlir.records import Statement, dataclass


class Reason(Statement):
    """An ineligibility reason: its title, and a sentence that says where it applies."""


@dataclass(frozen=True)
class OperationExcluded(Reason):
    """The results of the operation may not be in LX."""

    title = "operation not eligible"
    sentence = "'{opcode}' is not among lx-ops"
    opcode: str


@dataclass(frozen=True)
class ReadByHost(Reason):
    """The buffer is a result of the program."""

    title = "graph input or output"
    sentence = "the host reads it"


@dataclass(frozen=True)
class ReadAcrossCores(Reason):
    """The elements of one stick go to sticks of several cores, but a core can access only its own LX."""

    title = "read by a restickify across cores"
    sentence = "{cores} cores exchange parts of it"
    cores: int


@dataclass(frozen=True)
class IndirectAccess(Reason):
    """An index tensor selects the elements that the operation reads."""

    title = "indirect access"
    sentence = "'{opcode}' reads it"
    opcode: str


class PartialAccess(Reason):
    """Operations access parts of the buffer that no address in LX describes."""

    title = "partial or offset access"


@dataclass(frozen=True)
class MovingPart(PartialAccess):
    """Each iteration of a loop accesses another part; ``access`` is ``reads`` or ``writes``."""

    sentence = "'{opcode}' {access} a part that moves with a loop"
    opcode: str
    access: str


@dataclass(frozen=True)
class NoHolder(PartialAccess):
    """The distribution of the buffer in LX is unknown."""

    sentence = "no operation touches all of it, which would tell how the cores hold it"


@dataclass(frozen=True)
class NoRegion(PartialAccess):
    """The part of a core is not a region of the buffer; ``error`` says why."""

    sentence = "{error}"
    error: str


@dataclass(frozen=True)
class DivisionMismatch(Reason):
    """The cores of an operation do not hold the data that they access; ``mismatch`` says why."""

    title = "core division mismatch"
    sentence = "'{opcode}' {access}: {mismatch.detail}"
    mismatch: Statement
    opcode: str
    access: str


@dataclass(frozen=True)
class MixedDistributions(Reason):
    """No shuffle can read the buffer: a design contains one distribution of the shuffle's source."""

    title = DivisionMismatch.title
    sentence = "the operations that write it leave it on the cores in different ways"


@dataclass(frozen=True)
class PinnedElsewhere(Reason):
    """The plan file determines the place of the buffer."""

    title = "pinned elsewhere"
    sentence = "the plan file says {placement}"
    placement: object


@dataclass(frozen=True)
class Evicted(Reason):
    """The buffer is the copy in device memory of a buffer that left LX."""

    title = "evicted"
    sentence = "it was written back to device memory"


@dataclass(frozen=True)
class CrossesBundles(Reason):
    """Operations of several bundles access the buffer."""

    title = "lives over the end of a bundle"
    sentence = "the next bundle finds nothing in LX"


@dataclass(frozen=True)
class NoReader(Reason):
    """The operations only write the buffer."""

    title = "no reader in LX"
    sentence = "no operation reads it"


@dataclass(frozen=True)
class TooLarge(Reason):
    """The share of a core, in bytes, is larger than LX."""

    title = "too large"
    sentence = "{size} bytes per core, LX has {capacity}"
    size: int
    capacity: int


@dataclass(frozen=True)
class LostCompetition(Reason):
    """The solver has placed other buffers; ``explanation`` is the solver's sentence about the buffer."""

    title = "lost the competition"
    sentence = "{explanation}"
    explanation: str


#: The title of each kind of reason, in reporting order.
TITLES = tuple(dict.fromkeys(kind.title for kind in Reason.__subclasses__()))


def ordered(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Return the first reason of each kind, in reporting order."""
    first: dict[str, Reason] = {}
    for reason in reasons:
        first.setdefault(reason.title, reason)
    return tuple(sorted(first.values(), key=lambda reason: TITLES.index(reason.title)))
