"""Makes neighbouring operations slice the buffers between them alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.division.agreement import Shared, Variant, Work, agree
from spyre_mlir.mlir import ir
from spyre_mlir.options import from_environment
from spyre_mlir.passes._dividing import Divider, blocked_dims
from spyre_mlir.passes._memory import functions, usable_lx_bytes
from spyre_mlir.passes._usage import Touched, Usage
from spyre_mlir.passes.base import Pass
from spyre_mlir.target.device import device


@dataclass(frozen=True)
class AlignDivisions(Pass):
    """Change divisions where a buffer can then stay in LX, and that saves more time than it costs.

    ``work-distribution`` divides each operation for itself. A buffer that its readers slice in another way than
    its writer goes through device memory (core division mismatch); here both take one of the two divisions, or
    one of their neighbours', if compute and memory time together shrink (``division/agreement.py``).
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
        works = [Work(each.opcode, each.space, each.division, blocked_dims(each.op)) for each in usage.ops]
        buffers = [_shared(each, usage) for each in usage.buffers.values() if _can_stay(each)]
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


def _can_stay(touched: Touched) -> bool:
    """Whether a buffer, or a clone of it, could be in LX if divisions allow it."""
    return len(touched.reads) > 1 if touched.given else touched.whole and bool(touched.reads)


def _shared(touched: Touched, usage: Usage) -> Shared:
    accesses = tuple((access.position, access.operand) for access in touched.accesses)
    return Shared(accesses, touched.given, touched.root in usage.results)
