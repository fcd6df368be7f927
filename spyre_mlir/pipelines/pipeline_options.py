"""Options of the pipeline from linalg to a bundle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spyre_mlir.options import Options, from_environment
from spyre_mlir.passes.attach_target import AttachTarget
from spyre_mlir.target.target import Target


@dataclass(frozen=True)
class PipelineOptions(Options):
    """Options of the pipeline from linalg to a bundle.

    ``device`` is a device file (docs/devices.md), ``sencores`` the number of cores that the program may use and
    ``lx_frac_avail`` the part of LX that the back end keeps; all three are by default those of the module.

    ``verify_each`` checks the invariant of every level. Without it those are checked that a user's program
    can break: that each op has a device operation, that no core addresses more than it can span, and that
    the plan of the memory holds. ``stick_outermost`` makes the stick count the outermost device dim of a
    default layout, as in the tiled-tensor RFC; ``argument_layouts=default`` takes all inputs in that, where else large
    ones come as costs least. ``host_padding`` is what the host leaves in the padding of
    arguments. ``matmul=specified`` divides matmuls by the rule of "Work Division Planning", as all other operations,
    and not by their cost; ``uneven_splits`` lets slices differ from the
    start, and not only where ``joint-planning`` finds that to take less time.

    ``lx_planning`` keeps what is read again in the scratchpads; ``co_optimizing_lx_planning`` changes divisions
    for that where it pays (``co_optimizer=strategy-b`` in the way of the specification, to compare with);
    ``layout_solver``, ``in_place`` and ``lx_ops`` are options of ``scratchpad-planning``;
    ``clone_inputs`` and ``clone_outputs`` add those passes, ``reorder`` adds ``reorder-operations``, ``moves``
    ``evict-and-reload`` and ``double_buffer`` the pass of that name. ``order_by_size`` plans all memories with the
    largest buffers first.

    ``skip_masked_tiles`` leaves out tiles of attention that a known mask hides.

    ``bundle_operations`` cuts the program into bundles of at most so many operations (0: it is one), which keep LX
    from one to the next by the hint that they are ``non_terminal``; without the hint nothing stays in LX over a cut.

    ``native_windows`` lets the device slide the windows of convolutions and poolings itself (docs/convolutions.md).

    ``from_level`` is the level of the input, if it is one of ours already: the passes that make it are left out, and
    the verifiers of that level and of those above run first.

    ``insert`` adds passes of the user: ``NAME@OTHER`` or ``NAME{options}@OTHER`` right behind the last pass OTHER.
    What a choice costs is known behind the passes that follow it, these among them.

    Of equal layers in a row only a few are planned, the others are copies of one of them; ``reuse=false`` plans each
    of them by itself, with the same result.

    ``use_plan`` is a plan file that has to hold; ``save_plan`` is where to write that of the program. An empty name
    is the attribute ``sdsc.plan`` of the module.
    """

    device: str = ""
    sencores: int | None = None
    precision: Literal["device", "strict"] = "device"
    verify_each: bool = False
    uneven_splits: bool = False
    matmul: Literal["cost", "specified"] = "cost"
    stick_outermost: bool = False
    argument_layouts: Literal["price", "default"] = "price"
    host_padding: Literal["undefined", "zero"] = "undefined"
    lx_planning: bool = from_environment("LX_PLANNING", True)
    co_optimizing_lx_planning: bool = from_environment("CO_OPTIMIZING_LX_PLANNING", True)
    co_optimizer: Literal["joint", "strategy-b"] = from_environment(
        "CO_OPTIMIZER", "joint", Literal["joint", "strategy-b"]
    )
    layout_solver: str = from_environment("LAYOUT_SOLVER", "portfolio")
    lx_frac_avail: float | None = None
    clone_inputs: bool = True
    clone_outputs: bool = True
    reorder: bool = True
    moves: bool = True
    double_buffer: bool = True
    native_windows: bool = True
    in_place: bool = True
    lx_ops: tuple[str, ...] = ()
    order_by_size: bool = False
    bundle_operations: int = 0
    non_terminal: bool = True
    tile_attention: bool = True
    skip_masked_tiles: bool = True
    tile_for_lx: bool = True
    tile_for_span: bool = True
    from_level: str = ""
    insert: tuple[str, ...] = ()
    reuse: bool = True
    use_plan: str | None = None
    save_plan: str | None = None

    @classmethod
    def title(cls) -> str:
        return "spyre pipeline"

    def target_from(self, base: Target) -> Target:
        """Return the target of the device file, or else ``base``, as the other options change it."""
        return self.attach_target.target_from(base)

    @property
    def attach_target(self) -> AttachTarget:
        """Pass that attaches the target of the options."""
        return AttachTarget(self.device, self.sencores, self.lx_frac_avail)
