"""How long a divided function takes once the rest of the pipeline has planned it, by the timeline of its bundle."""

from __future__ import annotations

from spyre_mlir.mlir import ir
from spyre_mlir.passes import find
from spyre_mlir.passes._prices import Price
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
    following = _PLANNING[_PLANNING.index(behind) + 1 :]
    with Remarks().collecting():
        for name in (*following, "place-in-hbm"):
            found = find(name)
            assert found is not None
            options = {"lx_frac_avail": lx_frac_avail} if name in following else {}
            if name == "hoist-loads":
                options["compare"] = False
            with scope(name):
                found(**options).run(module)
        with scope("bundle"):
            bundle = bundle_of(module)
    found = timeline(bundle, lx_frac_avail)
    moved = sum(each.read_bytes + each.written_bytes for each in found.executions)
    return Price(found.total_ns, moved)
