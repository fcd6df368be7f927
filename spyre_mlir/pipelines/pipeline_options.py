# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Options of the pipeline from linalg to a bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from spyre_mlir.errors import CompileError, kind_of, with_suggestion
from spyre_mlir.options import Options, from_environment, option
from spyre_mlir.passes.attach_target import AttachTarget
from spyre_mlir.passes.base import PASSES, Pass
from spyre_mlir.pipelines.text import Pipeline
from spyre_mlir.records import dataclass
from spyre_mlir.target.target import Target

# User-defined passes at the end of a level, as ``compile`` accepts them and as the pipeline option ``passes``.
#
# {"laid-out": [MyPass(limit=3), "canonicalize"]}   ->   ("laid-out=my-pass{limit=3}", "laid-out=canonicalize")

#: Passes of one level: instances, or texts of a pipeline.
LevelChoice: TypeAlias = str | Pass | Sequence[str | Pass]


def entries(choices: Mapping[str, LevelChoice] | Sequence[str]) -> tuple[str, ...]:
    """Return the option ``passes`` for a mapping of levels to passes; texts of the option are returned unchanged."""
    if not isinstance(choices, Mapping):
        if (
            isinstance(choices, str)
            or not isinstance(choices, Sequence)
            or not all(isinstance(choice, str) for choice in choices)
        ):
            raise CompileError(
                "The option 'passes' takes passes by level, such as {'laid-out': [MyPass()]}, or texts such as "
                "'laid-out=my-pass'."
            )
        return tuple(choices)
    texts = []
    for level, choice in choices.items():
        for pass_ in choice if isinstance(choice, Sequence) and not isinstance(choice, str) else [choice]:
            if isinstance(pass_, str):
                texts += [f"{level}={step}" for step in Pipeline.parse(pass_, "").steps]
            else:
                _require_text(pass_)
                texts.append(f"{level}={pass_}")
    return tuple(texts)


def _require_text(pass_: Pass) -> None:
    """Raise ``CompileError`` for a pass that its text does not describe, or that is not a pass."""
    if not isinstance(pass_, Pass):
        shown = f"the class {pass_.__name__}" if isinstance(pass_, type) else kind_of(pass_)
        raise CompileError(f"A pass is an instance of a class of passes, or a text, not {shown}.")
    if PASSES.get(pass_.name) is not type(pass_):
        raise CompileError(f"The class of the pass '{pass_.name}' was defined again; make a new instance.")
    if Pipeline.parse(str(pass_), "").steps[0].ours != pass_:
        raise CompileError(f"The pass '{pass_.name}' has options that cannot be written as text: {pass_!r}.")


def by_level(option: Sequence[str], levels: Sequence[str]) -> dict[str, Pipeline]:
    """Return the passes by level, from the option ``passes``; ``CompileError`` for an unknown level."""
    pipelines: dict[str, Pipeline] = {}
    for entry in option:
        level, equals, text = entry.partition("=")
        if not equals or not text.strip():
            raise CompileError(
                f"passes is '{entry}'; it takes LEVEL=PASS, with a level of {', '.join(levels)}."
            )
        if level not in levels:
            raise no_level(level, levels)
        pipelines[level] = pipelines.get(level, Pipeline()) + Pipeline.parse(text, "")
    return pipelines


def no_level(level: str, levels: Sequence[str]) -> CompileError:
    """Return the error for a level that does not exist."""
    sentence = f"There is no level '{level}'; the levels are {', '.join(levels)}."
    return CompileError(with_suggestion(sentence, level, levels))


#: Values of options by the name of a preset. ``seed`` makes the choices of torch-spyre's documents: their greedy
#: solver and their rule for matmuls, arguments in default layouts, and none of the passes that they lack.
PRESETS: dict[str, dict[str, Any]] = {
    "": {},
    "seed": {
        "matmul": "specified",
        "argument_layouts": "default",
        "layout_solver": "greedy",
        "co_optimizing_lx_planning": False,
        "uneven_splits": False,
        "clone_outputs": False,
        "reorder": False,
        "moves": False,
        "double_buffer": False,
        "tile_attention": False,
        "tile_for_lx": False,
    },
}


@dataclass(frozen=True)
class PipelineOptions(Options):
    """Options of the pipeline from linalg to a bundle, each with description and default.

    The options are keywords of ``compile``, which documents them with these texts, and of ``spyre-compile --pipeline``.
    """

    preset: Literal["", "seed"] = option(
        "", "seed: the choices of torch-spyre's documents (docs/specification.md); other options override it"
    )
    device: str = option("", "device file (docs/devices.md; default: SPYRE_DEVICE, or the packaged file)")
    sencores: int | None = option(None, "cores that the program may use (default: SENCORES, or all)")
    precision: Literal["device", "strict"] = option(
        "device", "device: computes islands of fp16 in fp16; strict: keeps the types of the linalg operations"
    )
    verify_each: bool = option(
        False,
        "verifies the invariants of every level; default: only device operations, spans and the memory plan",
    )
    uneven_splits: bool = option(
        False,
        "allows slices of unequal size in every division; default: only where joint-planning finds them faster",
    )
    matmul: Literal["cost", "specified"] = option(
        "cost", 'cost: divides matmuls by their cost; specified: by the rule of "Work Division Planning"'
    )
    stick_outermost: bool = option(
        False, "makes the stick count the outermost device dim of a default layout, as in RFC 0047"
    )
    argument_layouts: Literal["price", "default"] = option(
        "price", "price: large arguments have the layout of least cost; default: all have the default layout"
    )
    host_padding: Literal["undefined", "zero"] = option(
        "undefined", "contents of the padding of arguments on entry"
    )
    lx_planning: bool = from_environment(
        "LX_PLANNING", True, documentation="places buffers that are read again in the scratchpads (LX)"
    )
    co_optimizing_lx_planning: bool = from_environment(
        "CO_OPTIMIZING_LX_PLANNING",
        True,
        documentation="changes work divisions for the scratchpads where the program becomes faster",
    )
    co_optimizer: Literal["joint", "strategy-b"] = from_environment(
        "CO_OPTIMIZER",
        "joint",
        Literal["joint", "strategy-b"],
        'joint: changes divisions by joint planning; strategy-b: as in "Scratchpad (LX) optimization", as a baseline',
    )
    layout_solver: str = from_environment(
        "LAYOUT_SOLVER", "portfolio", documentation="solver of scratchpad-planning (docs/writing-a-solver.md)"
    )
    division: str = option("priority", "algorithm that divides each operation (docs/writing-an-algorithm.md)")
    joint_division: str | None = option(
        None,
        "algorithm of joint-planning (default: lagrangian; or no joint-planning if 'division' names another algorithm)",
    )
    layout_choice: str = option("elimination", "algorithm for layouts (docs/writing-an-algorithm.md)")
    tiling: str = option("least-time", "algorithm that chooses tiles (docs/writing-an-algorithm.md)")
    cost_model: str | None = option(
        None, "cost model (docs/writing-an-algorithm.md; default: the analytic model of the device file)"
    )
    lx_frac_avail: float | None = option(
        None, "fraction of LX that the back end reserves (default: the value of the device file)"
    )
    clone_inputs: bool = option(True, "copies arguments that are read several times to LX")
    clone_outputs: bool = option(
        True, "copies results to device memory for the host or some readers, so that others use LX"
    )
    reorder: bool = option(True, "reorders operations so that more operands stay in LX")
    moves: bool = option(True, "spills buffers from LX and reloads them where the program becomes faster")
    double_buffer: bool = option(
        True, "loads the next tile of a loop during the computation of the current tile"
    )
    native_windows: bool = option(
        True, "compiles convolutions and poolings to the device's window operations (docs/convolutions.md)"
    )
    in_place: bool = option(True, "lets a result overwrite an operand in LX")
    lx_ops: tuple[str, ...] = option((), "device operations whose results may be in LX (default: all)")
    order_by_size: bool = option(False, "places the largest buffers first, in all memories")
    bundle_operations: int = option(
        0, "maximum number of operations in a bundle; 0: the program is one bundle"
    )
    bundle_tensors: int = option(
        0, "maximum number of tensors in device memory that a bundle accesses; 0: no limit"
    )
    non_terminal: bool = option(True, "keeps the contents of LX between such bundles")
    tile_attention: bool = option(True, "tiles attention with an online softmax")
    skip_masked_tiles: bool = option(True, "omits tiles of attention that a constant mask hides")
    tile_for_lx: bool = option(True, "tiles chains of operations whose buffers do not fit into LX")
    tile_for_span: bool = option(True, "tiles operations whose data exceeds the address span of a core")
    from_level: str = option(
        "", "level of the input: passes up to the level are skipped, and the verifiers of the level run first"
    )
    insert: tuple[str, ...] = option(
        (), "user-defined passes, each NAME@OTHER or NAME{options}@OTHER, after the last pass OTHER"
    )
    passes: tuple[str, ...] = option(
        (),
        "user-defined passes, each LEVEL=PASS: runs after the passes of LEVEL and before the verifiers of LEVEL",
    )
    reuse: bool = option(
        True, "compiles one of several equal consecutive layers and copies it; the result is the same"
    )
    use_plan: str | None = option(
        None, "plan file to apply (docs/plans.md); an empty name: the attribute sdsc.plan of the module"
    )
    target: Literal["bundle", "ktir"] = option(
        "bundle", "bundle: a SuperDSC bundle; ktir: a KTIR tile program (docs/ktir.md)"
    )
    ktir_addresses: bool = option(
        False, "lowers buffers in LX to KTIR memory views at the planned addresses; default: to tensors"
    )
    save_plan: str | None = option(None, "output file of the plan; an empty name: the attribute sdsc.plan")

    @classmethod
    def title(cls) -> str:
        return "spyre pipeline"

    @classmethod
    def _completed(cls, given: dict[str, Any]) -> dict[str, Any]:
        return PRESETS[given.get("preset", "")] | given

    def target_from(self, base: Target) -> Target:
        """Return the target of the device file, or else ``base``, modified by the other options."""
        return self.attach_target.target_from(base)

    @property
    def attach_target(self) -> AttachTarget:
        """The pass that attaches the target of the options."""
        return AttachTarget(self.device, self.sencores, self.lx_frac_avail, self.cost_model)
