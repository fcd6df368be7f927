"""How long a divided function takes once the rest of the pipeline has planned it, by the timeline of its bundle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spyre_mlir.mlir import ir
from spyre_mlir.passes import find
from spyre_mlir.passes._prices import Price
from spyre_mlir.passes.base import Pass
from spyre_mlir.passes.convert_sdsc_to_sdscbundle import bundle_of
from spyre_mlir.remarks import Remarks
from spyre_mlir.timeline import timeline
from spyre_mlir.timing import scope

#: What follows the division of work, each with how much of LX the backend keeps.
_PLANNING = (
    "joint-planning", "sink-restickify", "hoist-loads", "clone-outputs", "clone-inputs", "scratchpad-planning",
)  # fmt: skip


@scope("prediction")
def predicted(module: ir.Operation, lx_frac_avail: float, behind: str) -> Price:
    """The predicted time and traffic of a module with one function that a pass has left, which becomes a bundle."""
    following = []
    for name in _PLANNING[_PLANNING.index(behind) + 1 :]:
        found = find(name)
        assert found is not None
        options: dict[str, Any] = {"lx_frac_avail": lx_frac_avail}
        following.append(found(**options, **({"compare": False} if name == "hoist-loads" else {})))
    return predicted_by(module, lx_frac_avail, following)


def predicted_by(module: ir.Operation, lx_frac_avail: float, following: Sequence[Pass] = ()) -> Price:
    """The predicted time and traffic of a module that passes plan, before it becomes a bundle."""
    place_in_hbm = find("place-in-hbm")
    assert place_in_hbm is not None
    with Remarks().collecting():
        for each in (*following, place_in_hbm()):
            with scope(each.name):
                each.run(module)
        with scope("bundle"):
            bundle = bundle_of(module)
    found = timeline(bundle, lx_frac_avail)
    moved = sum(each.read_bytes + each.written_bytes for each in found.executions)
    return Price(found.total_ns, moved)
