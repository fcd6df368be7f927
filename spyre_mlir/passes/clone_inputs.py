"""Copies what is read more than once into the scratchpads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.division import CoreView, same_owners
from spyre_mlir.division.matching import Mapping, matching_division
from spyre_mlir.division.ownership import local_bytes
from spyre_mlir.layout import BufferView
from spyre_mlir.layout.space import refined
from spyre_mlir.layout.view import ViewError
from spyre_mlir.mlir import ir
from spyre_mlir.options import from_environment
from spyre_mlir.passes._dividing import core_map
from spyre_mlir.passes._lx_candidates import usable_bytes
from spyre_mlir.passes._memory import functions
from spyre_mlir.passes._usage import Access, Touched, Usage
from spyre_mlir.passes._view_ops import VIEWS
from spyre_mlir.passes.base import Pass
from spyre_mlir.target.device import device


@dataclass(frozen=True)
class CloneInputs(Pass):
    """Give an input that is read more than once a clone, which scratchpad planning may place in LX.

    The clone reads device memory once; its readers are those whose cores own equal parts of the input, and it
    is divided as they are. ``scratchpad-planning`` removes a clone again that it does not place: in device
    memory it would only cost. ``lx_frac_avail`` is the part of LX that the backend keeps.

    Before, level *divided*:
        %0 = max(%x); %1 = sub(%x, %0)
    After:
        %c = "sdsc.clone"(%x) {sdsc.optional}; %0 = max(%c); %1 = sub(%c, %0)
    """

    name: ClassVar[str] = "clone-inputs"
    lx_frac_avail: float = from_environment("DXP_LX_FRAC_AVAIL", device().lx_backend_fraction)

    def run(self, module: ir.Operation) -> None:
        room = usable_bytes(self.lx_frac_avail)
        for func in functions(module):
            for touched in list(Usage(func).buffers.values()):
                if touched.given and len(touched.reads) > 1:
                    self._clone(touched, room)

    def _clone(self, touched: Touched, room: int) -> None:
        for view, readers in _agreeing(touched.reads):
            if len(readers) < 2:
                continue
            name = f"{len(readers)} of {len(touched.reads)} readers of one input"
            division = _division(touched.root, view)
            if division is None:
                self.remark(readers[0].user.op, "no clone", f"{name}: their cores share parts of it")
                continue
            size = max(
                local_bytes(access.user.space, access.operand, access.user.division) for access in readers
            )
            if size > room:
                text = f"{name}: {size} bytes per core, LX has {room}"
                self.remark(readers[0].user.op, "no clone", text)
                continue
            self._insert(touched.root, readers, division)
            self.remark(readers[0].user.op, "clone", f"{name} take a clone of {size} bytes per core")

    def _insert(self, root: ir.Value, readers: Sequence[Access], division: Mapping) -> None:
        """The clone stands before its first reader; each reader gets the views of it that it had of the input."""
        first = min(readers, key=lambda access: access.position).user.op
        with ir.InsertionPoint(first):
            made = sdsc.clone(root, first.location)
            made.set_type(root.type)
            op = made.owner.operation if isinstance(made.owner, ir.OpView) else made.owner
            op.attributes[sdsc.DIVISION] = sdsc.division_attr(division[0], core_map(*division))
            op.attributes[sdsc.OPTIONAL] = ir.UnitAttr.get()
            sdsc.record(op, "clone", self.name, f"{len(readers)} reads of one input")
        for access in readers:
            user = access.user.op
            for number, value in enumerate(user.operands):
                if value == access.user.values[access.operand]:
                    user.operands[number] = _viewed(made, value, root, user)


def _agreeing(reads: Sequence[Access]) -> list[tuple[CoreView, list[Access]]]:
    """The reads by what their cores own, the first of each first; those of no region of the buffer are left out."""
    found: list[tuple[CoreView, list[Access]]] = []
    for access in reads:
        try:
            own = access.core_view
        except ViewError:
            continue
        known = next((readers for view, readers in found if same_owners(view, own)), None)
        if known is None:
            found.append((own, [access]))
        else:
            known.append(access)
    return found


def _division(root: ir.Value, view: CoreView) -> Mapping | None:
    """Slices and core order of a copy of a buffer."""
    layout = stick.layout_of(root.type)
    assert layout is not None
    whole = BufferView.of(layout)
    return matching_division(refined([whole, whole]), 0, view)


def _viewed(clone: ir.Value, value: ir.Value, root: ir.Value, user: ir.Operation) -> ir.Value:
    """The clone seen as ``value`` sees the root: its views once more, before the user."""
    if value == root:
        return clone
    op = defining_op(value)
    assert op is not None and op.name in VIEWS, "a read of an input goes through views alone"
    source = _viewed(clone, op.operands[0], root, user)
    with ir.InsertionPoint(user):
        made = op.clone()
    made.operands[0] = source
    return made.results[0]
