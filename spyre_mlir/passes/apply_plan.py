# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Applies a plan file: its entries become pins that later passes obey, and are checked after all decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NoReturn

from spyre_mlir.analysis.aliasing import AliasAnalysis, all_ops, argument_attributes, functions, is_compute
from spyre_mlir.analysis.core_ownership import SHUFFLE
from spyre_mlir.analysis.plan_pins import Pins, current_plan, planned_function, refused, set_pins
from spyre_mlir.analysis.tile_nests import check_loops
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.hint_attributes import TILING, tiling_attr
from spyre_mlir.dialects.structured import Known, element_of, shape_of, structured
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.errors import CompileError, listed
from spyre_mlir.files import read_text
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.requests import LayoutRequest, same_order, why_not_a_layout
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.passes.name_operations import NAMELESS
from spyre_mlir.plans import PlanFile, PlannedArgument, PlannedOperation, read_plan
from spyre_mlir.plans.plan_file import MAX_BYTES, json_text
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.divider import Divider, pinned_division
from spyre_mlir.tiling import TiledLoop


@dataclass(frozen=True)
class ApplyPlan(Pass):
    """Pin the choices after ``level`` to the entries of a plan file, and check the choices before ``level``.

    ``file`` is the plan file; without it the plan is the module's attribute ``sdsc.plan``. After *device-ops*, when
    hints are lowered, operations get the loops of the plan as ``sdsc.tiling``; an empty list also prevents automatic
    tiling. After *tiled*, names, shapes and types are compared with the program, and layouts are pinned for
    ``choose-layouts``. After *laid-out*, slices are pinned for ``work-distribution`` and ``joint-planning``. After
    *divided*, when clones exist, placements are pinned for ``scratchpad-planning`` and ``place-in-hbm``. After *placed*
    no pin remains, and the program agrees with every entry of the plan. An entry that cannot be satisfied is an error
    that names operation, pin and reason.

    Before: ``name-operations``.

        sdsc.pins = {placement = #sdsc.lx<0>, slices = array<i64: 1, 16>}
    """

    name: ClassVar[str] = "apply-plan"
    is_evaluated: ClassVar[bool] = False
    level: Literal["device-ops", "tiled", "laid-out", "divided", "placed"] = "tiled"
    file: str = ""

    def run(self, module: ir.Operation) -> None:
        func = planned_function(module)
        applied = _Applied(func, self._read(module))
        with module.context, func.location:
            if self.level == "device-ops":
                applied.tile()
            elif self.level == "tiled":
                applied.start()
            elif self.level == "laid-out":
                applied.after_layouts()
            elif self.level == "divided":
                applied.after_divisions()
            else:
                applied.finish()
                if sdsc.PLAN in module.attributes:
                    del module.attributes[sdsc.PLAN]

    def _read(self, module: ir.Operation) -> PlanFile:
        # Each apply-plan of the pipeline reads the file again, because passes share no state except the module.
        if self.file == "-":
            raise CompileError("A plan file is read several times, so it cannot be stdin.")
        if self.file:
            return read_plan(read_text(self.file, MAX_BYTES), self.file)
        if sdsc.PLAN not in module.attributes:
            raise CompileError(f"apply-plan needs a file, or a module with the attribute '{sdsc.PLAN}'")
        return read_plan(ir.StringAttr(module.attributes[sdsc.PLAN]).value, "plan")


class _Applied:
    """Application of a plan file to its function. It requires a current context."""

    def __init__(self, func: ir.Operation, plan: PlanFile) -> None:
        self.func, self.plan, self.target = func, plan, target_of(func)
        #: The device operations of the function and of outlined loop bodies in its module, by name.
        self.ops: dict[str, ir.Operation] = {}
        for op in (op for body in functions(func.parent.operation) for op in all_ops(body)):
            if is_compute(op):
                name = sdsc.name_of(op)
                if name is None:
                    raise error_at(op, "this operation has no sdsc.name; run name-operations first")
                if self.ops.setdefault(name, op) != op:
                    raise error_at(op, f"this operation has the name '{name}' of another operation")
        self.arguments = list(func.regions[0].blocks[0].arguments)
        hosts = [attributes[sdsc.HOST] for attributes in argument_attributes(func)]
        self.labels = {ir.StringAttr(host.label).value: number for number, host in enumerate(hosts)}

    def tile(self) -> None:
        """Attach the loops of the plan to the operations that the plan names."""
        known: Known = {}
        for entry in self.plan.operations:
            op = self.ops.get(entry.name)
            if op is None:
                self._check_source(entry)
                if entry.tiling:
                    self.fail(f"{entry.path}.tiling", f"is of '{entry.name}', which is inserted after tiling")
            elif (loops := entry.tiling) is not None:
                generic = structured(op, known)
                assert generic is not None, "an operation with a name is a device operation"
                try:
                    check_loops(generic, loops)
                except CompileError as error:
                    raise refused(op, f"the tiling {_tiling_text(loops)}", error.message) from None
                op.attributes[TILING] = tiling_attr(loops)

    def start(self) -> None:
        """Check that the plan belongs to this program, and pin its layouts."""
        layouts: dict[int, list[StickLayout]] = {}
        for entry in self.plan.arguments:
            if entry.name in self.labels:
                number = self.labels[entry.name]
            else:
                # A plan names each view of a weight as "w@1", which is not an argument before hoist-weight-views.
                source = entry.source or entry.name.rpartition("@")[0]
                if source not in self.labels:
                    known = listed(self.labels)
                    self.fail(
                        f"{entry.path}.name",
                        f"is '{entry.name}', which is not an argument of this program ({known})",
                    )
                number = self.labels[source]
            self.check_type(entry, f"argument '{entry.name}'", self.arguments[number], entry.path)
            if entry.layout is not None:
                value = self.layout(entry, self.arguments[number], f"{entry.path}.layout")
                layouts.setdefault(number, []).append(value)
        self._pin_arguments(layouts)
        for entry in self.plan.operations:
            op = self.ops.get(entry.name)
            # A missing operation is not an error yet: later passes insert clones and conversions.
            if op is None:
                self._check_source(entry)
                continue
            self.check_type(entry, f"operation '{entry.name}'", op.results[0], f"{entry.path}.result")
            set_pins(op, Pins(layout=self.result_layout(entry, op)))

    def after_layouts(self) -> None:
        """Check the chosen layouts, and pin slices and placements."""
        # Layouts are decided, so their pins are removed; otherwise they would look like pins of a later level.
        self._pin_arguments({})
        for entry in self.plan.arguments:
            number = self.labels.get(entry.name)
            if number is None:
                self.fail(f"{entry.path}.name", f"is '{entry.name}', which is not needed: remove the entry")
            if entry.layout is not None:
                path = f"{entry.path}.layout"
                value = self.arguments[number]
                self.check_layout(f"argument '{entry.name}'", value, self.layout(entry, value, path), path)
        for entry, op in self._planned_ops():
            self.check_result_layout(entry, op)
            pins = Pins(
                slices=entry.slices,
                core_order=entry.core_order,
                placement=entry.placement,
                relayout=self._relayout_pin(entry),
            )
            self._pin(op, pins)

    def _relayout_pin(self, entry: PlannedOperation) -> bool | None:
        """Return whether a shuffle moves a result to other cores; None leaves the choice to the compiler.

        None is returned without a core order, and if the plan has a shuffle whose source is unnamed.
        """
        if entry.core_order is None:
            return None
        sources = {shuffle.name.rpartition("/")[0] for shuffle in self._shuffles()}
        if entry.name in sources:
            return True
        # A shuffle with an unnamed source may be the shuffle of this result, so the plan leaves it open.
        return None if sources.intersection(NAMELESS) else False

    def _shuffles(self) -> list[PlannedOperation]:
        """Return the entries of shuffles, which are named after their source."""
        return [entry for entry in self.plan.operations if f"/{SHUFFLE}." in entry.name]

    def after_divisions(self) -> None:
        """Divide the new clones according to the plan, and pin all placements."""
        memory, divider = AliasAnalysis(self.func), Divider()
        # Checked first: without a planned shuffle, the error would be about readers that need data of other cores.
        self._require_inserted(self._shuffles())
        for entry, op in self._planned_ops():
            # Only clones were inserted since the last level, so only clones are unchecked and undivided.
            if sdsc.OPTIONAL in op.attributes:
                self.check_result_layout(entry, op)
                if entry.slices is not None:
                    self._pin(op, Pins(slices=entry.slices, core_order=entry.core_order))
                    opcode, space, _ = memory.space(op)
                    splits, order = pinned_division(op, opcode, space, self.target.cores)
                    divider.divide(op, opcode, space, splits, order)
            self._pin(op, Pins(placement=entry.placement))

    def finish(self) -> None:
        """Check all entries of the plan against the placed program, and remove the pins."""
        actual = {operation.name: operation for operation in current_plan(self.func).operations}
        self._require_inserted(self.plan.operations)
        for entry, op in self._planned_ops():
            result = actual[entry.name]
            for what in ("slices", "core_order", "cores"):
                expected, got = getattr(entry, what), getattr(result, what)
                if expected is not None and expected != got:
                    raise refused(
                        op, f"{what} {_shown(expected)}", f"it is divided with {what} {_shown(got)}"
                    )
            if entry.tiling is not None and _loops(entry.tiling) != _loops(result.tiling):
                text = f"it has the tiling {_tiling_text(result.tiling)}"
                raise refused(op, f"the tiling {_tiling_text(entry.tiling)}", text)
            pinned, placement = entry.placement, result.placement
            if pinned is not None:
                is_placed = pinned == placement
                # A plan's "hbm" leaves the offset open; results and arguments are in device memory as well.
                if pinned.memory == "hbm":
                    is_placed = placement is not None and placement.memory != "lx"
                if not is_placed:
                    raise refused(op, f"the placement {pinned}", f"its buffer is at {placement}")
            if sdsc.PINS in op.attributes:
                del op.attributes[sdsc.PINS]

    def _require_inserted(self, entries: Iterable[PlannedOperation]) -> None:
        missing = [f"'{entry.name}'" for entry in entries if entry.name not in self.ops]
        if missing:
            these = f"The compiler does not insert {listed(missing)} with these pins"
            text = f"{these}: remove the plan entries."
            raise CompileError(text, self.plan.filename)

    # -- the program and the plan ---------------------------------------------------------------------

    def _planned_ops(self) -> list[tuple[PlannedOperation, ir.Operation]]:
        """Return the entries whose operations already exist, each with its operation."""
        return [(entry, self.ops[entry.name]) for entry in self.plan.operations if entry.name in self.ops]

    def _check_source(self, entry: PlannedOperation) -> None:
        """Raise an error for a missing operation unless the compiler may insert an operation of that name later."""
        source, _, inserted = entry.name.partition("/")
        known = source in self.ops or source.partition("@")[0] in self.labels or source in NAMELESS
        if not inserted or not known:
            path = f"{entry.path}.name"
            self.fail(path, f"is '{entry.name}', which is not an operation of this program")

    # -- checks: errors name the file and the field -----------------------------------------------------

    def fail(self, path: str, problem: str) -> NoReturn:
        raise CompileError(f"The field {path} {problem}.", self.plan.filename)

    def check_type(
        self, entry: PlannedArgument | PlannedOperation, what: str, value: ir.Value, path: str
    ) -> None:
        shape, dtype = shape_of(value), element_of(value)
        if entry.shape not in (None, shape):
            self.fail(
                f"{path}.shape", f"is {list(entry.shape or ())}, but {what} has the shape {list(shape)}"
            )
        if entry.dtype not in (None, dtype):
            self.fail(f"{path}.dtype", f"is {entry.dtype}, but {what} has the type {dtype}")

    def result_layout(self, entry: PlannedOperation, op: ir.Operation) -> StickLayout | None:
        if entry.layout is None:
            return None
        return self.layout(entry, op.results[0], f"{entry.path}.result.layout")

    def layout(self, entry: PlannedArgument | PlannedOperation, value: ir.Value, path: str) -> StickLayout:
        """Return the layout that an entry names for a value."""
        if isinstance(entry.layout, str):
            try:
                attr: Any = ir.Attribute.parse(f"#stick.layout<affine_map<{entry.layout}>>")
                if ir.AffineMapAttr(attr.map).value.n_dims != len(shape_of(value)):
                    self.fail(
                        path, f"has another number of dims than the tensor, which has {len(shape_of(value))}"
                    )
                layout = stick.layout_from(attr, value.type, self.target)
            except (ir.MLIRError, ValueError):
                self.fail(
                    path,
                    f"is '{entry.layout}', which is not a map such as '(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)'",
                )
            problem = why_not_a_layout(layout)
            if problem is not None:
                self.fail(path, f"is not a layout: {problem}")
            return layout
        try:
            request = LayoutRequest.of_mapping(entry.layout, f"'{entry.name}'")
            return request.layout(self.target, shape_of(value), element_of(value), f"'{entry.name}'")
        except CompileError as error:
            self.fail(path, f"is invalid: {error.message.rstrip('.')}")

    def check_result_layout(self, entry: PlannedOperation, op: ir.Operation) -> None:
        expected = self.result_layout(entry, op)
        if expected is not None:
            self.check_layout(f"'{entry.name}'", op.results[0], expected, f"{entry.path}.result.layout")

    def check_layout(self, what: str, value: ir.Value, expected: StickLayout, path: str) -> None:
        layout = stick.layout_of(value.type, self.target)
        if layout is None or not same_order(layout, expected):
            got = "no layout" if layout is None else f"the layout {stick.affine_map(layout)}"
            self.fail(path, f"is not possible: {what} has {got}, which its readers require")

    # -- pins -----------------------------------------------------------------------------------------

    def _pin(self, op: ir.Operation, pins: Pins) -> None:
        # Pins are replaced, not merged: a satisfied pin of an earlier level must not constrain a later pass.
        if sdsc.PINS in op.attributes:
            del op.attributes[sdsc.PINS]
        set_pins(op, pins)

    def _pin_arguments(self, layouts: Mapping[int, Sequence[StickLayout]]) -> None:
        """Pin the layouts of the arguments in ``layouts``, and remove the pins of all others."""
        attributes = argument_attributes(self.func)
        for number, attrs in enumerate(attributes):
            attrs.pop(sdsc.PINS, None)
            if number in layouts:
                values = ir.ArrayAttr.get([stick.layout_attr(layout) for layout in layouts[number]])
                attrs[sdsc.PINS] = ir.DictAttr.get({"layouts": values})
        if attributes:
            self.func.attributes["arg_attrs"] = ir.ArrayAttr.get(
                [ir.DictAttr.get(attrs) for attrs in attributes]
            )


def _shown(value: Any) -> str:
    return str(list(value) if isinstance(value, tuple) else value)


def _tiling_text(loops: Sequence[TiledLoop] | None) -> str:
    return json_text([loop.settled().plain() for loop in loops or ()])


def _loops(loops: Sequence[TiledLoop] | None) -> list[TiledLoop]:
    """Return a tiling without loops of a single tile, because no operation records such loops."""
    return [loop.settled() for loop in loops or () if loop.tiles > 1]
