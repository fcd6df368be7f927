# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pipeline from linalg to a bundle, level by level: the order of all passes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from spyre_mlir import passes
from spyre_mlir.algorithms import REGISTRIES
from spyre_mlir.errors import CompileError
from spyre_mlir.passes.attach_target import AttachTarget
from spyre_mlir.pipelines.pipeline_options import PipelineOptions, by_level, no_level
from spyre_mlir.pipelines.text import Pipeline, PipelineStep
from spyre_mlir.records import dataclass

#: Upstream's cleanup passes. They run between our passes, so that no pass sees duplicate or dead values.
_CLEAN = ("canonicalize", "cse")

#: Upstream's passes that put ``linalg`` operations into the form of ``linalg.generic``, without dims of size 1.
_GENERALIZE = (
    PipelineStep("linalg-fold-unit-extent-dims", anchors=("func.func",)),
    PipelineStep("linalg-generalize-named-ops", anchors=("func.func",)),
)

#: Passes that prepare the input: hints, dead results, indices that the host reads.
_ENTRY = ("attach-hints", "drop-dead-results", "declare-index-arguments")

#: Loop-invariant operations are hoisted out of loops; loop bodies are outlined to functions up to the level *tiled*.
_OUTLINING = ("loop-invariant-code-motion", "outline-loop-bodies")

#: The passes between which repeated layers are folded.
_FOLDING = frozenset({"fold-repeated-layers", "unfold-repeated-layers"})


#: A pass with its options, or the name of a pass with default options.
Entry: TypeAlias = PipelineStep | str


def _if(is_enabled: bool, *entries: Entry) -> tuple[Entry, ...]:
    return entries if is_enabled else ()


def _pass(name: str, **options: Any) -> PipelineStep:
    """Return the step of one of our passes with options."""
    pass_class = passes.find(name)
    assert pass_class is not None, f"unknown pass {name}"
    return PipelineStep.of(pass_class(**options))


def _pipeline_of(entries: Iterable[Entry], stage: str) -> Pipeline:
    """Return the passes as parts of a stage."""
    steps = []
    for entry in entries:
        if isinstance(entry, str):
            entry = PipelineStep(entry) if passes.find(entry) is None else _pass(entry)
        steps.append(replace(entry, stage=stage))
    return Pipeline(tuple(steps))


@dataclass(frozen=True)
class SpyrePipeline(PipelineOptions):
    """The pipeline from linalg to a bundle, or a part of it, with the options of ``PipelineOptions``.

    Only this class determines the order of passes.
    """

    def stages(self) -> list[tuple[str, Pipeline]]:
        """Return the levels in order, each with the passes that produce it, including user-defined passes."""
        stages = [(level, _pipeline_of(entries, level)) for level, entries in self._entries()]
        for text in self.insert:
            _insert(stages, text)
        levels = [level for level, _ in stages]
        for level, own in by_level(self.passes, levels).items():
            index = levels.index(level)
            # IR after user-defined passes is checked in the same way as IR that enters at the level.
            stages[index] = level, (stages[index][1] + own + self._checks(index + 1)).of_stage(level)
        return stages

    def _entries(self) -> list[tuple[str, tuple[Entry, ...]]]:
        """Return the levels in order, with the passes and the checks that produce each: the one list of passes."""
        # A user-defined pass, a plan file and a cut depend on every operation, so no layer is folded.
        is_whole = self.insert or self.passes or self._cuts or self.use_plan is not None
        tiles_attention = self.tile_attention and self.lx_planning
        return [
            (
                "device-ops",
                (
                    *_ENTRY,
                    *_if(not is_whole, "fold-repeated-layers"),
                    *_OUTLINING,
                    "decompose-softmax",
                    *_CLEAN,
                    "narrow-matmuls",
                    _pass("unroll-windows", native=self.native_windows and self.precision == "device"),
                    *_GENERALIZE,
                    *_CLEAN,
                    "distribute-concatenations",
                    *_CLEAN,
                    "fold-constants",
                    "decompose-to-device-ops",
                    *_CLEAN,
                    "fuse-device-ops",
                    _pass("apply-precision", policy=self.precision),
                    *_CLEAN,
                    # Again: apply-precision may have removed casts that separated the operations of a pattern.
                    "fuse-device-ops",
                    "expand-scalar-functions",
                    "hoist-weight-views",
                    "update-in-place",
                    # Always: only at this point can a user's program fail for lack of a device operation.
                    "verify-device-ops",
                ),
            ),
            (
                "tiled",
                (
                    *_if(tiles_attention, "factor-softmax", "expand-attention"),
                    "propagate-named-dims",
                    "split-named-dims",
                    "lower-hints",
                    *self._plan("device-ops"),
                    *_if(tiles_attention, _pass("online-softmax", skip_masked_tiles=self.skip_masked_tiles)),
                    *_if(tiles_attention, "compute-masks"),
                    *self._auto_tiling(),
                    "coarse-tiling",
                    "inline-loop-bodies",
                    *_if(self.verify_each, "verify-device-ops"),
                    *self._plan("tiled"),
                ),
            ),
            (
                "laid-out",
                (
                    _pass(
                        "choose-layouts",
                        stick_outermost=self.stick_outermost,
                        argument_layouts=self.argument_layouts,
                        layout_choice=self.layout_choice,
                    ),
                    _pass("resolve-padding", host_padding=self.host_padding),
                    *_if(self.verify_each, "verify-laid-out", "verify-padding"),
                    *self._plan("laid-out"),
                ),
            ),
            (
                "divided",
                (
                    "span-reduction",
                    _pass(
                        "work-distribution",
                        matmul=self.matmul,
                        uneven=self.uneven_splits,
                        division=self.division,
                    ),
                    *self._alignment(),
                    *_if(self.lx_planning, "sink-restickify", "hoist-loads"),
                    "verify-divided",
                ),
            ),
            (
                "placed",
                (
                    *self._cut(before_planning=True),
                    *self._scratchpad(),
                    *_if(not is_whole, _pass("unfold-repeated-layers", reuse=self.reuse)),
                    _pass("place-in-hbm", order_by_size=self.order_by_size),
                    "verify-placed",
                    *_if(self.lx_planning, "verify-scratchpad"),
                    "verify-ownership",
                    *self._cut(before_planning=False),
                    *self._plan("placed"),
                ),
            ),
            ("ktir", (_pass("convert-sdsc-to-ktir", addresses=self.ktir_addresses),))
            if self.target == "ktir"
            else (
                "bundle",
                (
                    "convert-sdsc-to-sdscbundle",
                    # A module that enters at a later level is always checked.
                    *_if(self.verify_each or bool(self.from_level), "verify-bundle"),
                ),
            ),
        ]

    def _checks(self, begin: int, *, meaning: bool = True) -> Pipeline:
        """Return the checks of a module that enters at level number ``begin``.

        With ``meaning``, the bodies of operations are checked as well.
        """
        # A bundle does not contain any operations of our dialects to check.
        levels = [level for level, _ in self._entries()]
        if begin == len(levels):
            return _pipeline_of(_if(levels[-1] == "bundle", "verify-bundle"), "entry")
        relayouts = levels.index("divided") < begin
        checks: tuple[tuple[Entry, ...], ...] = (
            _if(meaning, _pass("verify-device-ops", meaning=True, relayouts=relayouts)),
            (),
            ("verify-laid-out", "verify-padding"),
            ("verify-divided",),
            ("verify-placed", "verify-scratchpad", "verify-ownership"),
        )
        return _pipeline_of([check for level in checks[:begin] for check in level], "entry")

    def _auto_tiling(self) -> tuple[Entry, ...]:
        """Return the passes that tile for spans and for LX; tiling for LX requires LX planning."""
        spills = self.tile_for_lx and self.lx_planning
        if not (spills or self.tile_for_span):
            return ()
        tiling = _pass(
            "auto-tiling",
            spans=self.tile_for_span,
            spills=spills,
            bundle_operations=self.bundle_operations,
            tiling=self.tiling,
        )
        return (tiling, *_if(spills, "unroll-tiles"))

    def _alignment(self) -> tuple[Entry, ...]:
        if not (self.lx_planning and self.co_optimizing_lx_planning):
            return ()
        # Strategy B plans memory itself, with the options of scratchpad-planning.
        if self.co_optimizer == "strategy-b":
            solver = "largest-first" if self.order_by_size else self.layout_solver
            options = {"layout_solver": solver, "in_place": self.in_place, "lx_ops": self.lx_ops}
            return (_pass("co-optimize-strategy-b", **options),)
        named = {} if self.joint_division is None else {"joint_division": self.joint_division}
        # The divisions of an algorithm that the user chose stay, unless the user asks for a joint division as well.
        if not named and self.division != REGISTRIES["division"].default:
            return ()
        return (_pass("joint-planning", matmul=self.matmul, **named),)

    def _scratchpad(self) -> tuple[Entry, ...]:
        if not self.lx_planning:
            return self._plan("divided")
        is_numbered = self._cuts and not self.non_terminal
        return (
            *_if(self.clone_outputs, "clone-outputs"),
            *_if(self.clone_inputs, "clone-inputs"),
            *_if(self.reorder and not is_numbered, "reorder-operations"),
            *_if(self.moves and not is_numbered, "evict-and-reload"),
            *_if(self.double_buffer and not is_numbered, "double-buffer"),
            *self._plan("divided"),
            _pass(
                "scratchpad-planning",
                layout_solver=self.layout_solver,
                order_by_size=self.order_by_size,
                in_place=self.in_place,
                lx_ops=self.lx_ops,
            ),
        )

    def _cut(self, before_planning: bool) -> tuple[Entry, ...]:
        """Return the pass that cuts bundles. It runs before planning if LX is not kept across a cut."""
        if not self._cuts or before_planning == self.non_terminal:
            return ()
        return (_pass("cut-bundles", operations=self.bundle_operations, tensors=self.bundle_tensors),)

    @property
    def _cuts(self) -> bool:
        return self.bundle_operations != 0 or self.bundle_tensors != 0

    def _plan(self, level: str) -> tuple[Entry, ...]:
        """Return the passes that name new operations, apply a plan file to the next choices, and save the plan."""
        if self.use_plan is None and self.save_plan is None:
            return ()
        steps: list[Entry] = (
            [] if level == "placed" else [_pass("name-operations", inserted=level != "device-ops")]
        )
        if self.use_plan is not None:
            steps.append(_pass("apply-plan", level=level, file=self.use_plan))
        if self.save_plan is not None and level == "placed":
            steps.append(_pass("save-plan", file=self.save_plan))
        return tuple(steps)

    def changed(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        defaults = SpyrePipeline()
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if value != getattr(defaults, name)}

    def partition(self) -> Pipeline:
        """Return the passes that partition a program into functions for the device and for the host.

        These passes evaluate the steps of ``pipeline`` to decide whether the device can run an operation.
        """
        outline = _pass("outline-host-functions", precision=self.precision)
        before = ("attach-hints", "drop-dead-results", "decompose-softmax", "narrow-matmuls", *_CLEAN)
        before = (*before, "unroll-host-loops", *_CLEAN)
        steps = _pipeline_of((*self._target(), *before, outline), "")
        return replace(steps, beyond=replace(self, from_level="").pipeline().steps)

    def pipeline(self, to_level: str | None = None) -> Pipeline:
        """Return the passes from ``from_level`` up to a level.

        A module that enters at one of our levels is first checked by the verifiers of that level and all levels before.

        Args:
            to_level: The level whose passes are the last ones; None for all remaining levels.

        Raises:
            CompileError: An option names a level or an algorithm that does not exist.
        """
        self.require_algorithms()
        stages = self.stages()
        levels = [level for level, _ in stages]
        begin = self._number(self.from_level, levels) if self.from_level else 0
        for level in by_level(self.passes, levels):
            if self._number(level, levels) <= begin:
                raise CompileError(
                    f"The passes given for the level '{level}' would not run: the program enters at the level "
                    f"'{self.from_level}'; give them for a later level."
                )
        entry = self._checks(begin)
        end = self._number(to_level, levels) if to_level is not None else len(levels)
        chosen, beyond = (
            sum((passes_of_level for _, passes_of_level in part), Pipeline())
            for part in (stages[begin:end], stages[max(begin, end) :])
        )
        # A program is folded only if the same pipeline unfolds it.
        steps = chosen.steps
        if not _FOLDING.issubset(step.name for step in steps):
            steps = tuple(step for step in steps if step.name not in _FOLDING)
        whole = _pipeline_of(self._target(), "entry") + entry + replace(chosen, steps=steps)
        return replace(whole, beyond=beyond.steps)

    def require_algorithms(self) -> None:
        """Raise ``CompileError`` for an option that names an algorithm that does not exist."""
        for option, registry in REGISTRIES.items():
            # scratchpad-planning reports an unknown solver itself, with the function.
            if option != "layout_solver":
                name = getattr(self, option)
                registry.require(registry.default if name is None else name)

    def _target(self) -> tuple[Entry, ...]:
        """Return the pass that attaches the target of the options; none if no option changes the target."""
        return _if(self.attach_target != AttachTarget(), PipelineStep.of(self.attach_target))

    def with_checks(self, pipeline: Pipeline) -> Pipeline:
        """Insert before each pass the checks of the level that the pass accepts, unless they are known to hold.

        The checks hold after the named stage that produces the level; any other pass may have broken them. The meaning
        of an operation's body is not checked because no pass after *device-ops* reads it.
        """
        stages = self.stages()
        takes = {
            step.name: count
            for count, (_, pipeline_of_level) in enumerate(stages)
            for step in pipeline_of_level.steps
            if count
        }
        steps: list[PipelineStep] = []
        checked = 0
        for step in pipeline.steps:
            # A named stage keeps the invariants of its level, so the invariants hold after it.
            if step.stage:
                checked = next(
                    (count for count, (level, _) in enumerate(stages, 1) if level == step.stage), 0
                )
            elif not step.name.startswith("verify-"):
                known, needed = (
                    self._checks(count, meaning=False).steps for count in (checked, takes.get(step.name, 0))
                )
                steps += needed[len(known) :]
                checked = max(checked, takes[step.name]) if step.name in takes else 0
            steps.append(step)
        return Pipeline(tuple(steps))

    def _number(self, level: str, levels: list[str]) -> int:
        """Return the number of levels up to and including one."""
        if level not in levels:
            raise no_level(level, levels)
        return levels.index(level) + 1


def _insert(stages: list[tuple[str, Pipeline]], text: str) -> None:
    """Insert ``NAME@OTHER`` directly after the last pass OTHER."""
    added, _, other = text.rpartition("@")
    for index, (level, pipeline) in reversed(list(enumerate(stages))):
        ends = [end for end, step in enumerate(pipeline.steps, 1) if step.nested_name == other]
        if added and ends:
            # Without a source: users cannot look up a location in this text.
            before, after = (
                Pipeline(steps) for steps in (pipeline.steps[: ends[-1]], pipeline.steps[ends[-1] :])
            )
            stages[index] = level, (before + Pipeline.parse(added, "") + after).of_stage(level)
            return
    names = dict.fromkeys(step.nested_name for _, pipeline in stages for step in pipeline.steps)
    raise CompileError(
        f"insert is '{text}'; it takes NAME@OTHER, where OTHER is a pass of the pipeline: {', '.join(names)}."
    )
