"""The way from linalg to a bundle, level by level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from spyre_mlir import passes
from spyre_mlir.errors import CompileError
from spyre_mlir.options import from_environment
from spyre_mlir.passes.attach_target import AttachTarget
from spyre_mlir.pipelines.text import Pipeline, PipelineStep
from spyre_mlir.target.limits import DeviceOptions
from spyre_mlir.target.target import Target

_CLEAN = ("canonicalize", "cse")


@dataclass(frozen=True)
class SpyrePipeline(DeviceOptions):
    """From linalg to a bundle.

    ``device`` is a device file (docs/devices.md), ``sencores`` the number of cores that the program may use and
    ``lx_frac_avail`` the part of LX that the back end keeps; all three are by default those of the module.

    ``verify_each`` checks the invariant of every level. Without it those are checked that a user's program
    can break: that each op has a device operation, that no core addresses more than it can span, and that
    the plan of the memory holds. ``stick_outermost`` makes the stick count the outermost device dim of a
    default layout, as in the tiled-tensor RFC. ``host_padding`` is what the host leaves in the padding of
    arguments. ``matmul=specified`` divides matmuls by the rule of "Work Division Planning", as all other operations,
    and not by their cost; ``uneven_splits`` lets slices differ.

    ``lx_planning`` keeps what is read again in the scratchpads; ``co_optimizing_lx_planning`` changes divisions
    for that where it pays (``co_optimizer=strategy-b`` in the way of the specification, to compare with);
    ``layout_solver``, ``in_place`` and ``lx_ops`` are options of ``scratchpad-planning``;
    ``clone_inputs`` and ``clone_outputs`` add those passes, ``reorder`` adds ``reorder-operations``, ``moves``
    ``evict-and-reload`` and ``double_buffer`` the pass of that name. ``order_by_size`` plans all memories with the
    largest buffers first.

    ``bundle_operations`` cuts the program into bundles of at most so many operations (0: it is one), which keep LX
    from one to the next by the hint that they are ``non_terminal``; without the hint nothing stays in LX over a cut.

    ``from_level`` is the
    level of the input, if it is one of ours already: the passes that make it are left out, and the verifiers of that
    level and of those above run first.

    ``insert`` adds passes of the user: ``NAME@OTHER`` or ``NAME{options}@OTHER`` right behind the last pass OTHER.
    What a choice costs is known behind the passes that follow it, these among them.

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
    in_place: bool = True
    lx_ops: tuple[str, ...] = ()
    order_by_size: bool = False
    bundle_operations: int = 0
    non_terminal: bool = True
    tile_attention: bool = True
    tile_for_lx: bool = True
    tile_for_span: bool = True
    from_level: str = ""
    insert: tuple[str, ...] = ()
    use_plan: str | None = None
    save_plan: str | None = None

    @classmethod
    def title(cls) -> str:
        return "spyre pipeline"

    def stages(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return the levels in order, each with the passes that produce it."""
        stages = self._stages()
        for text in self.insert:
            _insert(stages, text)
        return stages

    def _stages(self) -> list[tuple[str, tuple[str, ...]]]:
        return [
            ("device-ops", self._device_ops()),
            (
                "tiled",
                (
                    *self._expansion(),
                    "propagate-named-dims",
                    "split-named-dims",
                    "lower-hints",
                    *self._plan("device-ops"),
                    *self._tiling(),
                    "coarse-tiling",
                    *self._checks("verify-device-ops"),
                    *self._plan("tiled"),
                ),
            ),
            (
                "laid-out",
                (
                    self._choose_layouts(),
                    self._resolve_padding(),
                    *self._checks("verify-laid-out", "verify-padding"),
                    *self._plan("laid-out"),
                ),
            ),
            (
                "divided",
                (
                    "span-reduction",
                    self._distribution(),
                    *self._alignment(),
                    *self._sinking(),
                    "verify-divided",
                ),
            ),
            (
                "placed",
                (
                    *self._cut(before_planning=True),
                    *self._scratchpad(),
                    self._pool(),
                    *self._placed(),
                    *self._cut(before_planning=False),
                    *self._plan("placed"),
                ),
            ),
            ("bundle", ("convert-sdsc-to-sdscbundle", *self._checked_bundle())),
        ]

    def _device_ops(self) -> tuple[str, ...]:
        return (
            "attach-hints",
            "drop-dead-results",
            "decompose-softmax",
            *_CLEAN,
            "narrow-matmuls",
            "unroll-windows",
            "func.func(linalg-fold-unit-extent-dims)",
            "func.func(linalg-generalize-named-ops)",
            *_CLEAN,
            "fold-constants",
            "decompose-to-device-ops",
            *_CLEAN,
            "fuse-device-ops",
            f"apply-precision{{policy={self.precision}}}",
            *_CLEAN,
            "fuse-device-ops",
            "hoist-weight-views",
            "verify-device-ops",
        )

    def partition(self) -> Pipeline:
        """Return the passes that cut a program into functions for the device and for the host.

        They ask whether the device can run an operation: ``pipeline`` is beyond them.
        """
        text = _text("outline-host-functions", precision=self.precision)
        steps = ("attach-hints", "drop-dead-results", "decompose-softmax", "narrow-matmuls", *_CLEAN, text)
        return replace(self._parsed(steps, ""), beyond=replace(self, from_level="").pipeline().steps)

    def pipeline(self, to_level: str | None = None) -> Pipeline:
        """Return the passes from ``from_level`` up to and including a level; without one all that follow.

        What enters at a level of ours is checked first, by the verifiers of that level and of those above it.
        """
        stages = self.stages()
        levels = [level for level, _ in stages]
        begin = self._number(self.from_level, levels) if self.from_level else 0
        entry = self._parsed(self._entry(begin), "entry")
        end = self._number(to_level, levels) if to_level is not None else len(levels)
        chosen, beyond = (
            sum((self._parsed(texts, level) for level, texts in part), Pipeline())
            for part in (stages[begin:end], stages[max(begin, end) :])
        )
        return replace(self._parsed(self._target(), "entry") + entry + chosen, beyond=beyond.steps)

    @property
    def target(self) -> Target:
        """Target of the options."""
        return AttachTarget(self.device, self.sencores, self.lx_frac_avail).target

    def _target(self) -> tuple[str, ...]:
        """Return the pass that attaches the target of the options; none without such options."""
        options = {"device": self.device, "sencores": self.sencores, "lx_frac_avail": self.lx_frac_avail}
        named = {name: value for name, value in options.items() if value not in ("", None)}
        return (_text("attach-target", **named),) if named else ()

    def _entry(self, begin: int) -> tuple[str, ...]:
        """Return the checks of a module that enters at level number ``begin``."""
        if begin == len(self.stages()):
            return (self._bundle(),)
        checks = (
            ("verify-device-ops{meaning=true}",),
            (),
            ("verify-laid-out", "verify-padding"),
            ("verify-divided",),
            (
                "verify-placed",
                _text("verify-scratchpad", lx_frac_avail=self.lx_frac_avail),
                "verify-ownership",
            ),
        )
        return tuple(name for level in checks[:begin] for name in level)

    def with_checks(self, pipeline: Pipeline) -> Pipeline:
        """Put before each of a user's passes the checks of the level that it takes, unless they hold already.

        They hold behind the passes of this pipeline that make the level; any other pass may have changed all. What the
        body of an operation means is not checked: nothing behind *device-ops* reads it.
        """
        stages = self.stages()
        takes = {
            text.partition("{")[0]: count
            for count, (_, texts) in enumerate(stages)
            for text in texts
            if count
        }
        steps: list[PipelineStep] = []
        checked, configured = 0, self
        for step in pipeline.steps:
            if (fraction := getattr(step.ours, "lx_frac_avail", None)) is not None:
                configured = replace(self, lx_frac_avail=fraction)
            if step.stage:
                checked = next(
                    (count for count, (level, _) in enumerate(stages, 1) if level == step.stage), 0
                )
            elif not step.name.startswith("verify-"):
                texts = configured._entry(takes.get(step.name, 0))[len(configured._entry(checked)) :]
                steps += self._parsed([text for text in texts if "meaning" not in text], "entry").steps
                checked = max(checked, takes[step.name]) if step.name in takes else 0
            steps.append(step)
        return Pipeline(tuple(steps))

    def _parsed(self, texts: Sequence[str], stage: str) -> Pipeline:
        return Pipeline.parse(",".join(texts), "spyre-pipeline").of_stage(stage)

    def _number(self, level: str, levels: list[str]) -> int:
        """Return the number of levels up to and including one."""
        if level not in levels:
            raise CompileError(f"There is no level '{level}'; the levels are {', '.join(levels)}.")
        return levels.index(level) + 1

    def _distribution(self) -> str:
        return _text("work-distribution", matmul=self.matmul, uneven=self.uneven_splits)

    def _expansion(self) -> tuple[str, ...]:
        if not (self.tile_attention and self.lx_planning):
            return ()
        return ("expand-attention",)

    def _tiling(self) -> tuple[str, ...]:
        """Return the passes that tile by themselves; tiling for LX needs planning of LX."""
        spills = self.tile_for_lx and self.lx_planning
        passes = (
            ("online-softmax", self.tile_attention and self.lx_planning),
            (
                _text("auto-tiling", spans=self.tile_for_span, spills=spills),
                spills or self.tile_for_span,
            ),
            ("unroll-tiles", spills),
        )
        return tuple(text for text, is_enabled in passes if is_enabled)

    def _choose_layouts(self) -> str:
        return "choose-layouts{stick-outermost=true}" if self.stick_outermost else "choose-layouts"

    def _resolve_padding(self) -> str:
        zero = self.host_padding == "zero"
        return "resolve-padding{host-padding=zero}" if zero else "resolve-padding"

    def _alignment(self) -> tuple[str, ...]:
        if not (self.lx_planning and self.co_optimizing_lx_planning):
            return ()
        if self.co_optimizer == "strategy-b":
            solver = "largest-first" if self.order_by_size else self.layout_solver
            options = {"in_place": self.in_place, "lx_ops": self.lx_ops}
            return (_text("co-optimize-strategy-b", layout_solver=solver, **options),)
        return (_text("joint-planning", matmul=self.matmul),)

    def _sinking(self) -> tuple[str, ...]:
        return ("sink-restickify", "hoist-loads") if self.lx_planning else ()

    def _scratchpad(self) -> tuple[str, ...]:
        if not self.lx_planning:
            return self._plan("divided")
        options = {
            "layout_solver": self.layout_solver,
            "order_by_size": self.order_by_size,
            "in_place": self.in_place,
            "lx_ops": self.lx_ops,
        }
        clones = {"clone-outputs": self.clone_outputs, "clone-inputs": self.clone_inputs}
        cloning = [name for name, is_enabled in clones.items() if is_enabled]
        is_numbered = self.bundle_operations > 0 and not self.non_terminal
        changes = {
            "reorder-operations": self.reorder,
            "evict-and-reload": self.moves,
            "double-buffer": self.double_buffer,
        }
        changing = [name for name, is_enabled in changes.items() if is_enabled and not is_numbered]
        planning = _text("scratchpad-planning", **options)
        return (*cloning, *changing, *self._plan("divided"), planning)

    def _cut(self, before_planning: bool) -> tuple[str, ...]:
        """Return the pass that cuts bundles: what LX may not keep over their ends is known before it is planned."""
        if not self.bundle_operations or before_planning == self.non_terminal:
            return ()
        return (_text("cut-bundles", operations=self.bundle_operations),)

    def _plan(self, level: str) -> tuple[str, ...]:
        """Return the passes that name new operations, apply a plan file to the next choices, and save the plan."""
        if self.use_plan is None and self.save_plan is None:
            return ()
        steps = [] if level == "placed" else [_text("name-operations", inserted=level != "device-ops")]
        if self.use_plan is not None:
            steps.append(_text("apply-plan", level=level, file=self.use_plan, uneven=self.uneven_splits))
        if self.save_plan is not None and level == "placed":
            steps.append(_text("save-plan", file=self.save_plan))
        return tuple(steps)

    def _pool(self) -> str:
        return _text("place-in-hbm", order_by_size=self.order_by_size)

    def _placed(self) -> tuple[str, ...]:
        scratchpad = ("verify-scratchpad",) if self.lx_planning else ()
        return ("verify-placed", *scratchpad, "verify-ownership")

    def _checked_bundle(self) -> tuple[str, ...]:
        """Return the check of the bundle, which always runs where IR from elsewhere came in."""
        return (self._bundle(),) if self.verify_each or self.from_level else ()

    def _bundle(self) -> str:
        return "verify-bundle"

    def _checks(self, *names: str) -> tuple[str, ...]:
        return names if self.verify_each else ()


def _insert(stages: list[tuple[str, tuple[str, ...]]], text: str) -> None:
    """Put ``NAME@OTHER`` right behind the last pass OTHER."""
    added, _, other = text.rpartition("@")
    for index, (level, texts) in reversed(list(enumerate(stages))):
        positions = [
            position for position, pass_text in enumerate(texts) if pass_text.partition("{")[0] == other
        ]
        if added and positions:
            behind = positions[-1] + 1
            stages[index] = level, (*texts[:behind], added, *texts[behind:])
            return
    names = ", ".join(
        dict.fromkeys(pass_text.partition("{")[0] for _, texts in stages for pass_text in texts)
    )
    raise CompileError(
        f"insert is '{text}'; it takes NAME@OTHER, where OTHER is a pass of the pipeline: {names}."
    )


def _text(name: str, **options: object) -> str:
    """Return the text of one of our passes with options."""
    pass_class = passes.find(name)
    assert pass_class is not None, f"there is no pass {name}"
    return str(pass_class(**options))
