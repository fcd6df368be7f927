"""Makes neighbouring operations slice the buffers between them alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.division.agreement import Shared, Variant, agree
from spyre_mlir.mlir import ir
from spyre_mlir.options import from_environment
from spyre_mlir.passes._clones import whole_of
from spyre_mlir.passes._dividing import Divider, work_of
from spyre_mlir.passes._loops import ancestor_in, block_of, executions
from spyre_mlir.passes._memory import functions, usable_lx_bytes
from spyre_mlir.passes._usage import Access, Touched, Usage
from spyre_mlir.passes.base import Pass
from spyre_mlir.target.device import device


@dataclass(frozen=True)
class AlignDivisions(Pass):
    """Change divisions where a buffer can then stay in LX, and that saves more time than it costs.

    ``work-distribution`` divides each operation for itself. A buffer that its readers slice in another way than
    its writer goes through device memory (core division mismatch); here both take one of the two divisions, or
    one of their neighbours', if compute and memory time together shrink (``division/agreement.py``). What a plan
    file pins stays.
    ``variants`` is the largest number of divisions to try per operation. ``lx_frac_avail`` is the part of LX that
    the backend keeps.

    Before, and after, level *divided*:
        %0 = max .. division<[2, 16]>    ->  %0 = max .. division<[1, 16]>
        %1 = sub .. division<[32, 1]>    ->  %1 = sub .. division<[1, 16]>
    """

    name: ClassVar[str] = "align-divisions"
    variants: int = 8
    lx_frac_avail: float = from_environment("DXP_LX_FRAC_AVAIL", device().lx_backend_fraction)

    def run(self, module: ir.Operation) -> None:
        capacity, divider = usable_lx_bytes(self.lx_frac_avail), Divider()
        for func in functions(module):
            self._align(Usage(func), capacity, divider)

    def _align(self, usage: Usage, capacity: int, divider: Divider) -> None:
        works = [work_of(each) for each in usage.ops]
        buffers = [shared for each in usage.buffers.values() for shared in _shared(each, usage)]
        found = agree(works, buffers, capacity, self.variants)
        for each, variant in zip(usage.ops, found.variants, strict=True):
            if variant.division.owners == each.division.owners:
                continue
            _record(divider, each, variant)
            text = f"slices {list(each.division.splits)} become {list(variant.division.splits)} to agree with others"
            self.remark(each.op, "division", text)
        if found.after < found.before:
            text = "nanoseconds of compute and memory, not overlapped"
            self.remark(usage.func, "divisions", text, before=round(found.before), after=round(found.after))


def _record(divider: Divider, each, variant: Variant) -> None:
    splits, order = variant.mapping or (variant.division.splits, None)
    divider.divide(each.op, each.opcode, each.space, splits, order)


def _shared(touched: Touched, usage: Usage) -> Iterator[Shared]:
    """A buffer that could be in LX if divisions allow it; of one that the host fills, each value to clone."""
    if touched.given:
        read: dict[ir.Value, list[Access]] = {}
        for access in touched.reads:
            whole = whole_of(usage.memory, access.user.values[access.operand])
            read.setdefault(whole, []).append(access)
        for whole, accesses in read.items():
            first = min(accesses, key=lambda access: access.position).user.op
            copies = executions(ancestor_in(block_of(whole), first))
            if sum(access.user.executions for access in accesses) >= 2 * copies:
                yield Shared(_numbers(accesses), given=True, copies=copies)
    elif touched.whole and touched.reads and not any(access.moving for access in touched.accesses):
        copies = touched.accesses[0].user.executions
        yield Shared(_numbers(touched.accesses), False, touched.root in usage.results, copies)


def _numbers(accesses: Sequence[Access]) -> tuple[tuple[int, int], ...]:
    return tuple((access.position, access.operand) for access in accesses)
