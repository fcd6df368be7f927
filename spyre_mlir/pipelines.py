"""Pipelines: their text, the named one as a value, and the run.

``Pipeline.parse`` reads upstream's syntax, ``builtin.module(a,func.func(b{x=1 y=2}),c)``. Names of ours are
``Pass`` classes, all others are upstream passes. ``SpyrePipeline`` is the way from linalg to a bundle, level
by level. ``run_pipeline`` gives each pass a pass manager of its own, so that an error, a printout, a time and
a remark belong to one pass.
"""

from __future__ import annotations

import contextlib
import difflib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NoReturn

from spyre_mlir import passes
from spyre_mlir.diagnostics import compile_error
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import PassManager, ir
from spyre_mlir.options import Options, from_environment
from spyre_mlir.passes.base import Pass
from spyre_mlir.remarks import Remarks
from spyre_mlir.target.device import device

_CLEAN = ("canonicalize", "cse")


@dataclass(frozen=True)
class SpyrePipeline(Options):
    """From linalg to a bundle.

    ``verify_each`` checks the invariant of every level. Without it those are checked that a user's program
    can break: that each op has a device operation, that no core addresses more than it can span, and that
    the plan of the memory holds. ``stick_outermost`` makes the stick count the outermost device dim of a
    default layout, as in the tiled-tensor RFC. ``host_padding`` is what the host leaves in the padding of
    arguments.

    ``lx_planning`` keeps what is read again in the scratchpads; ``co_optimizing_lx_planning`` changes divisions for
    that where it pays; ``layout_solver``, ``lx_frac_avail``, ``in_place``
    and ``lx_ops`` are options of ``scratchpad-planning``, ``clone_inputs`` adds that pass. ``order_by_size`` plans
    all memories with the largest buffers first.
    """

    sencores: int = from_environment("SENCORES", device().cores)
    precision: str = "device"
    verify_each: bool = False
    uneven_splits: bool = False
    stick_outermost: bool = False
    host_padding: Literal["undefined", "zero"] = "undefined"
    lx_planning: bool = from_environment("LX_PLANNING", True)
    co_optimizing_lx_planning: bool = from_environment("CO_OPTIMIZING_LX_PLANNING", True)
    layout_solver: str = from_environment("LAYOUT_SOLVER", "portfolio")
    lx_frac_avail: float = from_environment("DXP_LX_FRAC_AVAIL", device().lx_backend_fraction)
    clone_inputs: bool = True
    in_place: bool = True
    lx_ops: tuple[str, ...] = ()
    order_by_size: bool = False

    @classmethod
    def title(cls) -> str:
        return "spyre pipeline"

    def stages(self) -> list[tuple[str, tuple[str, ...]]]:
        """The levels in order, each with the passes that make it."""
        return [
            (
                "device-ops",
                (
                    "drop-dead-results",
                    *_CLEAN,
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
                ),
            ),
            (
                "laid-out",
                (
                    self._choose_layouts(),
                    self._resolve_padding(),
                    *self._checks("verify-laid-out", "verify-padding"),
                ),
            ),
            (
                "divided",
                (
                    f"span-reduction{{sencores={self.sencores}}}",
                    f"work-distribution{{{self._distribution()}}}",
                    *self._alignment(),
                    "verify-divided",
                ),
            ),
            ("placed", (*self._scratchpad(), self._pool(), *self._placed())),
            ("bundle", ("convert-sdsc-to-sdscbundle", *self._checks(self._bundle()))),
        ]

    def pipeline(self, to_level: str | None = None) -> Pipeline:
        """The passes up to and including a level; all of them without one."""
        texts: list[str] = []
        for level, stage in self.stages():
            texts += stage
            if level == to_level:
                break
        else:
            if to_level is not None:
                levels = ", ".join(level for level, _ in self.stages())
                raise CompileError(f"There is no level '{to_level}'; the levels are {levels}.")
        return Pipeline.parse(",".join(texts), "spyre-pipeline")

    def _distribution(self) -> str:
        uneven = " uneven=true" if self.uneven_splits else ""
        return f"sencores={self.sencores}{uneven}"

    def _choose_layouts(self) -> str:
        return "choose-layouts{stick-outermost=true}" if self.stick_outermost else "choose-layouts"

    def _resolve_padding(self) -> str:
        zero = self.host_padding == "zero"
        return "resolve-padding{host-padding=zero}" if zero else "resolve-padding"

    def _alignment(self) -> tuple[str, ...]:
        wanted = self.lx_planning and self.co_optimizing_lx_planning
        return (_text("align-divisions", lx_frac_avail=self.lx_frac_avail),) if wanted else ()

    def _scratchpad(self) -> tuple[str, ...]:
        if not self.lx_planning:
            return ()
        planning = _text(
            "scratchpad-planning",
            layout_solver=self.layout_solver,
            order_by_size=self.order_by_size,
            lx_frac_avail=self.lx_frac_avail,
            in_place=self.in_place,
            lx_ops=self.lx_ops,
        )
        cloning = _text("clone-inputs", lx_frac_avail=self.lx_frac_avail)
        return (*((cloning,) if self.clone_inputs else ()), planning)

    def _pool(self) -> str:
        return _text("place-in-hbm", order_by_size=self.order_by_size)

    def _placed(self) -> tuple[str, ...]:
        scratchpad = (_text("verify-scratchpad", lx_frac_avail=self.lx_frac_avail),) if self.lx_planning else ()
        return ("verify-placed", *scratchpad, "verify-ownership")

    def _bundle(self) -> str:
        return _text("verify-bundle", lx_frac_avail=self.lx_frac_avail)

    def _checks(self, *names: str) -> tuple[str, ...]:
        return names if self.verify_each else ()


def _text(name: str, **options: object) -> str:
    """One of our passes with options, as the text of a pipeline."""
    found = passes.find(name)
    assert found is not None, f"there is no pass {name}"
    return str(found(**options))


@dataclass(frozen=True)
class Step:
    """One pass to run: its name, the text that upstream reads, and the pass itself where it is ours."""

    name: str
    text: str
    ours: Pass | None = None
    location: str = field(default="", compare=False)

    def __str__(self) -> str:
        return str(self.ours) if self.ours else self.text


@dataclass(frozen=True)
class Pipeline:
    """Passes in the order in which they run on a module."""

    steps: tuple[Step, ...] = ()

    @classmethod
    def parse(cls, text: str, source: str = "pass-pipeline") -> Pipeline:
        """Read a pipeline; errors are at ``source:line:col`` of its text, if there is a source."""
        return cls(tuple(_Parser(text, source).parse()))

    def __add__(self, other: Pipeline) -> Pipeline:
        return Pipeline(self.steps + other.steps)

    def __str__(self) -> str:
        return f"builtin.module({','.join(map(str, self.steps))})"


@dataclass(frozen=True)
class Printing:
    """Which passes print the module to stderr, before or after they run; names are those of the passes."""

    before: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()
    before_all: bool = False
    after_all: bool = False
    only_on_change: bool = False
    debug_info: bool = False
    elide_larger_than: int | None = None

    def apply(self, manager: PassManager, name: str) -> None:
        before = self.before_all or name in self.before
        after = self.after_all or name in self.after
        if not before and not after:
            return
        manager.enable_ir_printing(
            print_before_all=before,
            print_after_all=after,
            print_module_scope=True,
            print_after_change=self.only_on_change,
            large_elements_limit=self.elide_larger_than,
            enable_debug_info=self.debug_info,
        )


class Timing(list[tuple[str, float]]):
    """The seconds that each pass took, in order."""

    @contextlib.contextmanager
    def measuring(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.append((name, time.perf_counter() - start))

    def report(self) -> str:
        """A table with one row per pass and the total."""
        total = sum(seconds for _, seconds in self)
        rows = [*self, ("Total", total)]
        table = [f"  {s:8.4f} ({100 * s / (total or 1):5.1f}%)  {name}" for name, s in rows]
        head = ["... Execution time report ...", "  ----Wall Time----  ----Name----"]
        return "\n".join([*head, *table]) + "\n"


def run_pipeline(
    module: ir.Module | ir.Operation | ir.OpView,
    pipeline: Pipeline | str,
    *,
    printing: Printing | None = None,
    verify_each: bool = True,
    timing: Timing | None = None,
    remarks: Remarks | None = None,
) -> None:
    """Run the passes on ``module`` in place; every failure is a CompileError.

    ``verify_each`` is upstream's check of the IR after each pass. ``timing`` and ``remarks`` are filled.
    """
    operation = module.operation
    if isinstance(pipeline, str):
        pipeline = Pipeline.parse(pipeline)
    # Verifiers and passes in Python need the interpreter lock, which a pool of MLIR threads would wait for.
    operation.context.enable_multithreading(False)
    collecting = remarks.collecting() if remarks is not None else contextlib.nullcontext()
    with operation.context, operation.location, collecting:
        managers = [(step, _manager(step, verify_each, printing)) for step in pipeline.steps]
        for step, manager in managers:
            with timing.measuring(str(step)) if timing is not None else contextlib.nullcontext():
                _run(step, manager, operation)


def check(pipeline: Pipeline, context: ir.Context) -> None:
    """Raise for a pass that does not exist or options that it does not take, without running anything."""
    with context:
        for step in pipeline.steps:
            _manager(step, True, None)


def _manager(step: Step, verify_each: bool, printing: Printing | None) -> PassManager:
    manager = PassManager("builtin.module")
    manager.enable_verifier(verify_each)
    if step.ours:
        manager.add(_callable(step.ours), name=type(step.ours).__name__, argument=str(step.ours))
    else:
        _add_upstream(manager, step)
    if printing is not None:
        printing.apply(manager, step.name)
    return manager


def _callable(pass_: Pass) -> Callable[[ir.Operation, object], None]:
    return lambda operation, _: pass_.run(operation)


def _add_upstream(manager: PassManager, step: Step) -> None:
    try:
        manager.add(step.text)
    except ValueError as error:
        raise CompileError(_upstream_reason(step, str(error)), step.location) from None


def _upstream_reason(step: Step, error: str) -> str:
    if "does not refer to a registered pass" in error:
        close = difflib.get_close_matches(step.name, passes.load_all(), n=1)
        hint = f"did you mean '{close[0]}'?" if close else "'spyre-opt --list-passes' lists ours."
        return f"There is no pass named '{step.name}'; {hint}"
    option = re.search(r"no such option (\S+)", error)
    if option:
        return f"The upstream pass '{step.name}' has no option '{option[1]}'."
    return f"The upstream pass '{step.text}' is refused: {' '.join(error.split())}."


def _run(step: Step, manager: PassManager, operation: ir.Operation) -> None:
    try:
        manager.run(operation)
    except ir.MLIRError as error:
        raise compile_error(error, f"The pass '{step}' failed without a diagnostic.") from error
    except Exception as error:
        error.add_note(f"while running the pass '{step}'")
        raise


_NAME = re.compile(r"[A-Za-z_][\w.-]*")


class _Parser:
    """Recursive descent over a list of elements, each ``name{options}`` or ``anchor(element, ..)``."""

    def __init__(self, text: str, source: str) -> None:
        self.text, self.source, self.at = text, source, 0

    def parse(self) -> Iterator[Step]:
        steps = list(self._elements(()))
        if self.at < len(self.text):
            self._fail(f"A ',' or the end was expected here, not '{self.text[self.at]}'.")
        return iter(steps)

    def _elements(self, anchors: tuple[str, ...]) -> Iterator[Step]:
        if self._next() in ("", ")"):
            return
        yield from self._element(anchors)
        while self._accept(","):
            yield from self._element(anchors)

    def _element(self, anchors: tuple[str, ...]) -> Iterator[Step]:
        self._next()
        start = self.at
        match = _NAME.match(self.text, start)
        if match is None:
            self._fail("The name of a pass was expected here.")
        self.at = match.end()
        if not self._accept("("):
            yield self._step(match[0], self._options(), anchors, start)
            return
        yield from self._elements((*anchors, match[0]))
        if not self._accept(")"):
            self._fail(f"A ')' that closes '{match[0]}(' was expected here.")

    def _options(self) -> str:
        """The text between braces; braces inside nest, and those in quotes do not count."""
        if not self._accept("{"):
            return ""
        start, depth, quote = self.at, 1, ""
        for position in range(start, len(self.text)):
            character = self.text[position]
            if quote or character in "\"'":
                quote = "" if character == quote else quote or character
                continue
            depth += (character == "{") - (character == "}")
            if depth == 0:
                self.at = position + 1
                return self.text[start:position]
        self.at = start
        self._fail("The '{' before this has no '}'.")

    def _step(self, name: str, options: str, anchors: tuple[str, ...], start: int) -> Step:
        location = self._location(start)
        nested = anchors[1:] if anchors[:1] == ("builtin.module",) else anchors
        ours = passes.find(name)
        if ours is None:
            text = f"{name}{{{options}}}" if options else name
            return Step(name, "".join(f"{a}(" for a in nested) + text + ")" * len(nested), None, location)
        if nested:
            self.at = start
            self._fail(f"The pass '{name}' runs on the whole module, not inside '{nested[-1]}(..)'.")
        try:
            return Step(name, name, ours.parse(options), location)
        except CompileError as error:
            raise CompileError(error.message, location) from None

    def _next(self) -> str:
        """The next character after blanks; empty at the end."""
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        return self.text[self.at : self.at + 1]

    def _accept(self, character: str) -> bool:
        found = self._next() == character
        self.at += found
        return found

    def _location(self, at: int) -> str:
        if not self.source:
            return ""
        line = self.text.count("\n", 0, at) + 1
        return f"{self.source}:{line}:{at - self.text.rfind(chr(10), 0, at)}"

    def _fail(self, message: str) -> NoReturn:
        raise CompileError(message, self._location(self.at))
