# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Options of the pipeline from linalg to a bundle."""

from __future__ import annotations

from typing import Literal

from spyre_mlir.options import Options, from_environment, option
from spyre_mlir.passes.attach_target import AttachTarget
from spyre_mlir.records import dataclass
from spyre_mlir.target.target import Target


@dataclass(frozen=True)
class PipelineOptions(Options):
    """Options of the pipeline from linalg to a bundle, each with its description and default.

    The options are keywords of ``compile``, whose documentation has these texts, and of ``spyre-compile --pipeline``.
    """

    device: str = option("", "the device file (docs/devices.md; default: SPYRE_DEVICE, or the packaged one)")
    sencores: int | None = option(None, "cores that the program may use (default: SENCORES, or all)")
    precision: Literal["device", "strict"] = option(
        "device", "islands of fp16 stay fp16 (device), or all types are those of the linalg (strict)"
    )
    verify_each: bool = option(
        False,
        "checks the invariant of every level, and not only device operations, spans and the plan of memory",
    )
    uneven_splits: bool = option(
        False,
        "lets slices of work differ from the start, and not only where joint-planning finds that to take less time",
    )
    matmul: Literal["cost", "specified"] = option(
        "cost",
        'divides matmuls by their cost, or by the rule of "Work Division Planning" as all other operations',
    )
    stick_outermost: bool = option(
        False,
        "makes the stick count the outermost device dim of a default layout, as in RFC 0047",
    )
    argument_layouts: Literal["price", "default"] = option(
        "price", "large inputs come in the layout that costs least, or all in the default one"
    )
    host_padding: Literal["undefined", "zero"] = option(
        "undefined", "what the host leaves in the padding of arguments"
    )
    lx_planning: bool = from_environment(
        "LX_PLANNING", True, documentation="keeps what is read again in the scratchpads"
    )
    co_optimizing_lx_planning: bool = from_environment(
        "CO_OPTIMIZING_LX_PLANNING",
        True,
        documentation="changes divisions of work for the scratchpads where it pays",
    )
    co_optimizer: Literal["joint", "strategy-b"] = from_environment(
        "CO_OPTIMIZER",
        "joint",
        Literal["joint", "strategy-b"],
        'changes them by joint planning, or in the way of "Scratchpad (LX) optimization", to compare with',
    )
    layout_solver: str = from_environment(
        "LAYOUT_SOLVER",
        "portfolio",
        documentation="the solver of scratchpad-planning (docs/writing-a-solver.md)",
    )
    division: str = option(
        "priority", "the division of each operation by itself (docs/writing-an-algorithm.md)"
    )
    joint_division: str = option("lagrangian", "the search of joint planning (docs/writing-an-algorithm.md)")
    layout_choice: str = option("elimination", "the search for layouts (docs/writing-an-algorithm.md)")
    tiling: str = option("least-time", "the choice of tiles (docs/writing-an-algorithm.md)")
    cost_model: str | None = option(
        None, "the model of times (docs/writing-an-algorithm.md; default: that of the device, analytic)"
    )
    lx_frac_avail: float | None = option(
        None, "part of LX that the back end keeps (default: that of the device)"
    )
    clone_inputs: bool = option(True, "copies arguments that are read again to LX")
    clone_outputs: bool = option(
        True, "copies what the host or some readers need to device memory, so that the others find it in LX"
    )
    reorder: bool = option(True, "reorders operations so that more of what they read stays in LX")
    moves: bool = option(True, "evicts buffers from LX and reloads them where that takes less time")
    double_buffer: bool = option(True, "loads the next tile of a loop while the last one is computed")
    native_windows: bool = option(
        True, "lets the device slide the windows of convolutions and poolings itself (docs/convolutions.md)"
    )
    in_place: bool = option(True, "lets a result take the place of an operand in LX")
    lx_ops: tuple[str, ...] = option(
        (), "the only device operations whose results may be in LX; none named: all"
    )
    order_by_size: bool = option(False, "plans all memories with the largest buffers first")
    bundle_operations: int = option(
        0, "cuts the program into bundles of at most so many operations; 0: it is one"
    )
    non_terminal: bool = option(
        True, "such bundles keep LX from one to the next; else nothing stays in LX over a cut"
    )
    tile_attention: bool = option(True, "tiles attention with an online softmax")
    skip_masked_tiles: bool = option(True, "leaves out tiles of attention that a known mask hides")
    tile_for_lx: bool = option(True, "tiles chains of operations whose buffers do not fit into LX")
    tile_for_span: bool = option(True, "tiles operations of which a core would address more than it can span")
    from_level: str = option(
        "",
        "level of the input, if it is one of ours already: passes up to it are left out, its verifiers run first",
    )
    insert: tuple[str, ...] = option(
        (), "passes of the user, each NAME@OTHER or NAME{options}@OTHER, right behind the last pass OTHER"
    )
    passes: tuple[str, ...] = option(
        (),
        "passes of the user, each LEVEL=PASS, behind the passes of a level; the verifiers of the level run behind them",
    )
    reuse: bool = option(
        True, "plans equal layers in a row once and copies them; else each by itself, with the same result"
    )
    use_plan: str | None = option(
        None,
        "plan file that has to hold (docs/plans.md); an empty name is the attribute sdsc.plan of the module",
    )
    target: Literal["bundle", "ktir"] = option(
        "bundle", "ends with a SuperDSC bundle, or with the tile program of KTIR (docs/ktir.md)"
    )
    ktir_addresses: bool = option(
        False, "makes buffers in LX memory of KTIR at the addresses of the plan, and not tensors"
    )
    save_plan: str | None = option(None, "file that the plan is written to; an empty name is that attribute")

    @classmethod
    def title(cls) -> str:
        return "spyre pipeline"

    def target_from(self, base: Target) -> Target:
        """Return the target of the device file, or else ``base``, modified by the other options."""
        return self.attach_target.target_from(base)

    @property
    def attach_target(self) -> AttachTarget:
        """The pass that attaches the target of the options."""
        return AttachTarget(self.device, self.sencores, self.lx_frac_avail, self.cost_model)
