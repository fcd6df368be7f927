# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ineligibility reasons: why a buffer cannot be in a scratchpad (docs/scratchpad.md).

Each reason has a class, in reporting order; reasons with the same title are of one kind. ``LostCompetition`` is the
planner's choice; all other reasons exclude a buffer.
"""

from __future__ import annotations

from collections.abc import Iterable

from spyre_mlir.records import Statement


class Reason(Statement):
    """An ineligibility reason: its title, and a sentence that says where it applies."""


class OperationExcluded(Reason, title="operation not eligible", sentence="'{opcode}' is not among lx-ops"):
    """The results of the operation may not be in LX."""

    opcode: str


class ReadByHost(Reason, title="graph input or output", sentence="the host reads it"):
    """The buffer is a result of the program."""


class ReadAcrossCores(
    Reason, title="read by a restickify across cores", sentence="{cores} cores exchange parts of it"
):
    """The elements of one stick go to sticks of several cores, but a core can access only its own LX."""

    cores: int


class IndirectAccess(Reason, title="indirect access", sentence="'{opcode}' reads it"):
    """An index tensor selects the elements that the operation reads."""

    opcode: str


class PartialAccess(Reason, title="partial or offset access"):
    """Operations access parts of the buffer that no address in LX describes."""


class MovingPart(PartialAccess, sentence="'{opcode}' {access} a part that moves with a loop"):
    """Each iteration of a loop accesses another part; ``access`` is ``reads`` or ``writes``."""

    opcode: str
    access: str


class NoHolder(
    PartialAccess,
    sentence="no operation accesses the whole buffer, so its distribution is unknown",
):
    """The distribution of the buffer in LX is unknown."""


class NoRegion(PartialAccess, sentence="{error}"):
    """The part of a core is not a region of the buffer; ``error`` says why."""

    error: str


class DivisionMismatch(
    Reason, title="core division mismatch", sentence="'{opcode}' {access}: {mismatch.detail}"
):
    """The cores of an operation do not hold the data that they access; ``mismatch`` says why."""

    mismatch: Statement
    opcode: str
    access: str


class MixedDistributions(
    Reason,
    title=DivisionMismatch.title,
    sentence="the operations that write it distribute it differently over the cores",
):
    """No shuffle can read the buffer: a design contains one distribution of the shuffle's source."""


class PinnedElsewhere(Reason, title="pinned elsewhere", sentence="the plan file says {placement}"):
    """The plan file determines the place of the buffer."""

    placement: object


class Evicted(Reason, title="evicted", sentence="it was written back to device memory"):
    """The buffer is the copy in device memory of a buffer that left LX."""


class CrossesBundles(
    Reason,
    title="is live across the end of a bundle",
    sentence="the contents of LX do not reach the next bundle",
):
    """Operations of several bundles access the buffer."""


class NoReader(Reason, title="no reader in LX", sentence="no operation reads it"):
    """The operations only write the buffer."""


class CopyInMemory(
    Reason, title="copy in device memory", sentence="readers that cannot read the buffer in LX read this copy"
):
    """An optional clone of a buffer in LX made the buffer, so a second place in LX would save no traffic."""


class TooLarge(Reason, title="too large", sentence="{size} bytes per core, LX has {capacity}"):
    """The share of a core, in bytes, is larger than LX."""

    size: int
    capacity: int


class LostCompetition(Reason, title="lost the competition", sentence="{explanation}"):
    """The solver has placed other buffers; ``explanation`` is the solver's sentence about the buffer."""

    explanation: str


#: The title of each kind of reason, in reporting order.
TITLES = tuple(dict.fromkeys(kind.title for kind in Reason.__subclasses__()))


def ordered(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Return the first reason of each kind, in reporting order."""
    first: dict[str, Reason] = {}
    for reason in reasons:
        first.setdefault(reason.title, reason)
    return tuple(sorted(first.values(), key=lambda reason: TITLES.index(reason.title)))
