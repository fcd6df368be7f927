# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The interface of all memory planners."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.algorithms import REGISTRIES, Algorithm, Registry, is_integer
from spyre_mlir.optimization.bipartite import Child
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace, PlanError
from spyre_mlir.scratchpad.instance import Instance, shared_bytes

# Results of memory planners: addresses, reasons of buffers without an address, and a bound of the traffic.


class Bounded:
    """A plan with its ``traffic`` and a lower ``bound`` of the traffic of any plan, in bytes of device memory."""

    traffic: int
    bound: int

    @property
    def gap(self) -> int:
        """Maximum bytes of traffic that a better plan could save."""
        return self.traffic - self.bound

    @property
    def proven(self) -> bool:
        """Return whether no plan moves less."""
        return self.gap == 0


@dataclass(frozen=True)
class MemoryPlan(Bounded):
    """The plan of some buffers in one memory.

    Attributes:
        solver: The name of the solver.
        addresses: The addresses in bytes of the placed buffers, by name.
        spilled: The reasons of all other buffers, by name.
        traffic: Bytes of device memory that all buffers move under this plan.
        bound: No plan with one address per buffer moves fewer bytes.
        peak: The end of the highest buffer, in bytes.
        load: The largest sum of the sizes of placed buffers that are live together: no plan of them has a lower peak.
        work: The number of search steps, which is equal on every machine, unlike a time.
    """

    solver: str
    addresses: Mapping[str, int]
    spilled: Mapping[str, str]
    traffic: int
    bound: int
    peak: int
    load: int
    work: int = 0


@dataclass(frozen=True)
class Residency:
    """A buffer at one address from one of its uses to another.

    Attributes:
        buffer: The name of the buffer.
        first: The position of the first of these uses.
        last: The position of the last of these uses.
        address: The address in bytes.
    """

    buffer: str
    first: int
    last: int
    address: int


@dataclass(frozen=True)
class SpillAndReloadPlan(Bounded):
    """A plan of some buffers in one memory that may spill and reload them.

    ``traffic`` is the sum over all uses, except uses that end a gap inside of a residency. If a buffer has a single
    residency from the first use to the last, the first use moves ``traffic_if_placed``, if this is less.

    Attributes:
        residencies: Buffers at addresses, in order of time; residencies of one buffer do not touch.
        traffic: Bytes of device memory that all buffers move.
        bound: No plan, with or without reloads, moves fewer bytes.
        peak: The end of the highest residency, in bytes.
        work: The steps of searches.
    """

    residencies: tuple[Residency, ...]
    traffic: int
    bound: int
    peak: int
    work: int = 0

    def of(self, buffer: str) -> list[Residency]:
        """Return the residencies of a ``buffer``, by its name, in order of time."""
        return [residency for residency in self.residencies if residency.buffer == buffer]


REGISTRIES["layout_solver"].error = PlanError

#: Reasons for a buffer without an address, other than reasons that made it ineligible for planning.
TOO_LARGE = "it is larger than the memory"
SAVES_NOTHING = "an address would save no traffic"
LOST = "it lost the competition for the memory"


@dataclass(frozen=True)
class Placement:
    """Result of a solver for an instance.

    Attributes:
        addresses: The addresses in bytes, by buffer index; omitted buffers have no address.
        bound: Lower bound, known to the solver, of the bytes of savings that every plan loses.
        work: The number of search steps.
        reasons: Better reasons than ``LOST`` for omitted buffers, by index.
    """

    addresses: Mapping[int, int]
    bound: int = 0
    work: int = 0
    reasons: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MemoryPlanSolver(Algorithm):
    """Base class of solvers, which assign addresses to buffers so that little traffic is left; options are fields.

    A solver gets only buffers that fit alone and save traffic. It is deterministic: the same buffers give the same
    plan on every machine, so searches are limited by steps and not by time.

    Attributes:
        most_buffers: Maximum number of buffers in ``spyre-plan``: some 20 s if most of them are live together.
    """

    registry: ClassVar[Registry[MemoryPlanSolver]] = REGISTRIES["layout_solver"]
    most_buffers: ClassVar[int] = 5_000

    def plan(self, buffers: Sequence[LifetimeBoundBuffer], space: MemorySpace) -> MemoryPlan:
        """Plan ``buffers`` (names are unique; any order) that share ``space``: ``place`` them, and count the traffic.

        Raises:
            PlanError: The buffers are invalid, or a user-defined solver returns an invalid result.
        """
        instance = Instance.of(buffers, space)
        eligible = instance.subset(self.eligible(instance))
        placement = self._placement(eligible)
        # In the order of the buffers, not of the search, so that equal plans have equal texts.
        placed = np.zeros(len(eligible), bool)
        placed[list(placement.addresses)] = True
        addresses = {
            eligible.buffers[index].name: int(placement.addresses[index])
            for index in np.flatnonzero(placed).tolist()
        }
        better_reasons = {eligible.buffers[index].name: reason for index, reason in placement.reasons.items()}
        spilled, least = {}, 0
        for buffer, fits in zip(instance.buffers, instance.fits, strict=True):
            # The least traffic is the traffic of a plan that places every buffer that fits alone and saves traffic.
            least += _traffic(buffer, bool(fits) and buffer.saving > 0)
            if buffer.name not in addresses:
                lost = better_reasons.get(buffer.name, LOST) if buffer.saving > 0 else SAVES_NOTHING
                spilled[buffer.name] = lost if fits else TOO_LARGE
        traffic = sum(_traffic(buffer, buffer.name in addresses) for buffer in instance.buffers)
        ends = (int(address + eligible.sizes[index]) for index, address in placement.addresses.items())
        return MemoryPlan(
            solver=self.name,
            addresses=addresses,
            spilled=spilled,
            traffic=traffic,
            bound=min(least + placement.bound, traffic),
            peak=max(ends, default=0),
            load=int(eligible.load_of(placed).max(initial=0)),
            work=placement.work,
        )

    def _placement(self, eligible: Instance) -> Placement:
        """Return the result of ``place`` after a check of its types; ``check_plan`` checks the addresses."""
        if not self.is_foreign():
            return self.place(eligible)
        problem = f"{len(eligible)} buffers in {eligible.space.capacity} bytes"
        with self.guarded(problem):
            placement = self.place(eligible)
        if not isinstance(placement, Placement) or not isinstance(placement.addresses, Mapping):
            self.reject(
                f"it must be a 'Placement' with a mapping of addresses, not {placement!r:.60}", problem
            )
        for index, address in placement.addresses.items():
            if not is_integer(index) or not 0 <= index < len(eligible):
                self.reject(f"{index!r:.60} is not the index of a buffer", problem)
            if not is_integer(address) or address < 0:
                self.reject(f"the address of buffer {index} is {address!r:.60}", problem)
        for noun in ("bound", "work"):
            self.checked_number(getattr(placement, noun), f"the {noun}", problem)
        return placement

    def eligible(self, instance: Instance) -> list[int]:
        """Return the buffers of an ``instance`` that ``place`` gets, by rising index."""
        return np.flatnonzero(instance.fits & (instance.savings > 0)).tolist()

    @abc.abstractmethod
    def place(self, instance: Instance) -> Placement:
        """Return addresses for an ``instance``, in which each buffer fits on its own and saves traffic."""


def _traffic(buffer: LifetimeBoundBuffer, placed: bool) -> int:
    return buffer.traffic_if_placed if placed else buffer.traffic_if_spilled


# Reasons for buffers without an address: the buffers that compete with them.

#: Maximum number of buffers that a reason names.
_MOST_NAMED = 4


def competition(instance: Instance, selected: NDArray[np.bool_]) -> dict[int, str]:
    """Return the reason of each buffer that is not kept: the operation at which it exceeds the capacity most."""
    loads, reasons = instance.load_of(selected), {}
    for spilled in np.flatnonzero(~selected).tolist():
        with_it = selected.copy()
        with_it[spilled] = True
        bounds = (instance.starts[spilled], instance.ends[spilled] + 1)
        begin, end = np.searchsorted(instance.times, bounds).tolist()
        together = loads[begin:end] + instance.sizes[spilled]
        for index in {
            begin,
            end - 1,
        }:  # only at these times the buffer could share bytes with parents or children
            live = instance.live_at(int(instance.times[index]), with_it)
            children = [
                Child(child, int(instance.sizes[child]), instance.parents[child])
                for child in live.tolist()
                if instance.starts[child] == instance.times[index]
            ]
            together[index - begin] = int(instance.sizes[live].sum()) - shared_bytes(children, with_it)
        worst = int(np.argmax(together))
        needed, time = int(together[worst]), int(instance.times[begin + worst])
        if needed <= instance.space.capacity:
            reasons[spilled] = (
                f"{LOST}: no address is free over its whole live range, although enough bytes are free"
            )
            continue
        others = instance.live_at(time, selected)
        # Stable, so that buffers of equal size are named in the order of their first use.
        ranked = others[np.argsort(-instance.sizes[others], kind="stable")]
        listed = ["it", *(f"'{instance.buffers[index].name}'" for index in ranked[:_MOST_NAMED])]
        if len(ranked) > _MOST_NAMED:
            listed.append(f"{len(ranked) - _MOST_NAMED} more")
        competitors = f"{', '.join(listed[:-1])} and {listed[-1]}"
        text = f"{competitors} need {needed} bytes together, but the memory has {instance.space.capacity}"
        reasons[spilled] = f"{LOST}: at op {time} {text}"
    return reasons
