# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Partitions a program into functions for the device and functions for the host."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from enum import Enum
from typing import ClassVar, Literal

from spyre_mlir.analysis.aliasing import argument_attributes, functions
from spyre_mlir.analysis.quantized_matmuls import is_integer_product, is_narrowed_for_others
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.hint_attributes import HINTS, hints_in, hints_of
from spyre_mlir.dialects.structured import defining_op, shape_of
from spyre_mlir.dialects.torch_call import is_collective
from spyre_mlir.errors import ALWAYS_FAILS, CompileError, FailedAssertionError
from spyre_mlir.mlir import indexing_maps, ir, location_of
from spyre_mlir.passes.base import EvaluatingPass, Evaluator, Refusal
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import HOST, TOO_SMALL
from spyre_mlir.rewriting import outlining
from spyre_mlir.target.element_types import ELEMENT_TYPES

#: Ops that name or move data. They run on the side of their neighbours, because alone they are not worth a bundle.
_VIEWS = {
    "tensor.expand_shape", "tensor.collapse_shape", "tensor.extract_slice", "tensor.cast", "linalg.transpose",
    "linalg.broadcast",
}  # fmt: skip
#: The attribute of an argument that distinguishes inputs, parameters and constants.
_KIND = "spyre.kind"
#: Operations that are moved to the host for a reader there compute at most this part of the points of the program.
_WORK_RATIO = 100
#: Element types that the device does not support, and element types that it can read but not write.
_FOREIGN, _READ_ONLY = {"i16", "ui16", "f64"}, {"i8", "ui8"}


@dataclass(frozen=True)
class OutlineHostFunctions(EvaluatingPass):
    """Outline operations that the device cannot run to functions for the host, as few as possible.

        func.func @main(%x) {                  func.func @device_0(%x) {exp} .. func.func @host_0(%0) {sin}
          %0 = linalg.generic {exp}            func.func @main(%x) {
          %1 = linalg.generic {sin}     ->       %0 = call @device_0(%x)
          return %1                              %1 = call @host_0(%0)
        }                                        return %1
                                               }

    An op runs on the host if the device's passes refuse it alone, or if it operates only on integers, which are used as
    indices there. Views and logic on booleans run on the side of their neighbours. Assertions, and ops that only they
    read, run on the host, which has the program's exact types; an assertion that is never true is an error. Device and
    host alternate as rarely as possible. A program that the device can run completely is not changed.

    Each collective (a call of ``_c10d_functional``) is a function of its own, in the order of the program.

    Before: linalg, one function. After: functions without a call, and ``@main`` of calls.
    """

    name: ClassVar[str] = "outline-host-functions"
    precision: Literal["device", "strict"] = "device"

    def decide(self, module: ir.Operation, evaluator: Evaluator) -> None:
        """Rewrite ``module`` in place."""
        funcs = functions(module)
        if len(funcs) != 1:
            where = location_of(module.location)
            count = f"this module has {len(funcs)}; compile one public func.func per file"
            raise CompileError(f"a program is one function with a body, but {count}", where)
        _Partition(self, funcs[0], evaluator).run()


class _Partition:
    """Partition of one function: the side of each op, the phases, and their functions."""

    def __init__(self, pass_: OutlineHostFunctions, func: ir.Operation, evaluator: Evaluator) -> None:
        self.pass_ = pass_
        self.func = func
        self.block = func.regions[0].blocks[0]
        *body, self.end = [op.operation for op in self.block.operations]
        returned = {maker for value in self.end.operands if (maker := defining_op(value)) is not None}
        self.ops = [op for op in body if not outlining.is_free(op) or op in returned]
        #: The assertions, and the operations whose only readers are assertions.
        self.asserted: set[ir.Operation] = set()
        for op in reversed([op.operation for op in self.block.operations]):
            if op.name == ASSERT:
                check_assertion(op)
            users = {outlining.user_in_block(use, op) for value in op.results for use in value.uses}
            if op.name == ASSERT or (users and users <= self.asserted):
                self.asserted.add(op)
        self.evaluator = evaluator
        # Keyed by the text of a group, so that equal groups are evaluated once.
        self.refusals: dict[str, Refusal | None] = {}
        self.reasons: dict[int, Refusal] = {}
        self.untiled: set[int] = set()
        #: The new values of arguments that the program changes.
        self.updates: dict[ir.Value, ir.Value] = {}

    def run(self) -> None:
        if not all(op.results or op.name == ASSERT for op in self.ops):
            # Ops on memory: the device's passes refuse them and report the reason.
            return
        sides = [self._side(index) for index in range(len(self.ops))]
        program_phases = self._settled(sides)
        if all(phase.side is ExecutionSide.DEVICE for phase in program_phases):
            return
        counts = dict.fromkeys(ExecutionSide, 0)
        attributes = {}
        for number, (value, attrs) in enumerate(
            zip(self.block.arguments, argument_attributes(self.func), strict=True)
        ):
            attrs.setdefault("spyre.name", ir.StringAttr.get(f"arg{number}"))
            # The attribute is the index of a result of the whole program.
            updated = attrs.pop(sdsc.UPDATED, None)
            if updated is not None:
                self.updates[value] = self.end.operands[ir.IntegerAttr(updated).value]
            attributes[value] = ir.DictAttr.get(attrs)
        self.func.attributes["arg_attrs"] = ir.ArrayAttr.get(list(attributes.values()))
        calls = []
        for phase in program_phases:
            name = f"{phase.side.value}_{counts[phase.side]}"
            counts[phase.side] += 1
            outlined = outlining.Outlined([self.ops[index] for index in phase.nodes])
            on_device = phase.side is ExecutionSide.DEVICE
            attrs = []
            for value in outlined.arguments:
                entry, new = attributes[value], self.updates.get(value)
                if on_device and new is not None and new in outlined.results:
                    number = outlined.results.index(new)
                    index = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
                    entry = ir.DictAttr.get({**{old.name: old.attr for old in entry}, sdsc.UPDATED: index})
                attrs.append(entry)
            with self.func.location, ir.InsertionPoint(self.func):
                func = outlined.build(name, attrs, layouts=on_device)
            # Hints tile only on the device, so only device functions need the sizes of named dims.
            if on_device:
                for key, value in outlining.dim_sizes_of(self.func).items():
                    func.attributes[key] = value
            kind = ir.StringAttr.get("input")
            for number, value in enumerate(outlined.results):
                label = ir.StringAttr.get(f"{name}.{number}")
                attributes[value] = ir.DictAttr.get({"spyre.name": label, "spyre.kind": kind})
            calls.append((name, outlined))
            for index in phase.nodes if not on_device else ():
                self._report(index)
        self.func.attributes["sym_name"] = ir.StringAttr.get("main")
        self._call(calls)

    # -- sides ----------------------------------------------------------------------------------------

    def _side(self, index: int) -> ExecutionSide:
        """Return the side that runs an op: host, device or either; record why the device does not support it."""
        op = self.ops[index]
        if outlining.is_free(op) and op.name not in _VIEWS:  # a result that no operation computes
            return ExecutionSide.HOST
        if is_collective(op):
            return ExecutionSide.COLLECTIVE
        elements = {_element(value) for value in (*op.operands, *op.results) if _element(value)}
        foreign = sorted(elements & _FOREIGN)
        integers = elements and all(element.startswith(("i", "ui")) for element in elements)
        reason = None
        if op in self.asserted:
            reason = "assertions run on the host"
        elif op.name in _VIEWS:
            # Unsupported elements, or 8-bit elements that are not only for matmuls.
            element = _element(op.results[0])
            is_host = element in _FOREIGN or (element in _READ_ONLY and not _is_for_a_product(op))
            return ExecutionSide.HOST if is_host else ExecutionSide.EITHER
        elif foreign:
            reason = f"element type {foreign[0]} is not supported by the device"
        elif integers and elements != {"i1"} and not is_integer_product(op):
            reason = "integer arithmetic runs on the host"
        elif is_narrowed_for_others(op):
            reason = "int8 arithmetic runs on the host"
        if reason is not None:
            self.reasons[index] = Refusal(reason, location_of(op.location))
            return ExecutionSide.HOST
        refusal = self._refusal([op])
        if refusal is not None:
            self.reasons[index] = refusal  # also kept for a part, which may still have to go to the host
        # Both sides support booleans, so such operations run on the side of their neighbours.
        elif elements == {"i1"}:
            return ExecutionSide.EITHER
        return ExecutionSide.DEVICE if refusal is None or refusal.is_part else ExecutionSide.HOST

    def _refusal(self, ops: Sequence[ir.Operation]) -> Refusal | None:
        """Return why ops cannot be one device program; None if they can."""
        module = outlining.program_of(ops, arguments=True)
        (func,) = functions(module.operation)
        # Of the attributes only the kind decides; names would distinguish equal groups.
        kinds = [
            {key: value for key, value in each.items() if key == _KIND} for each in argument_attributes(func)
        ]
        with func.location:
            func.attributes["arg_attrs"] = ir.ArrayAttr.get(list(map(ir.DictAttr.get, kinds)))
        text = str(module)
        if text not in self.refusals:
            self.refusals[text] = self.evaluator.refusal(module)
        return self.refusals[text]

    def _settled(self, sides: list[ExecutionSide]) -> list[Phase]:
        """Return the phases. Parts of operations that are not fused go to the host, and phases are computed again."""
        where = {op: index for index, op in enumerate(self.ops)}
        reads = [frozenset(where[maker] for maker in outlining.producers(op)) for op in self.ops]
        # All ranks must call their collectives in the same order, the order of the program.
        collectives = [index for index, side in enumerate(sides) if side is ExecutionSide.COLLECTIVE]
        for before, after in itertools.pairwise(collectives):
            reads[after] |= {before}
        bytes_ = [0] * len(self.ops)
        for index, value in ((index, value) for index, op in enumerate(self.ops) for value in op.results):
            element = ELEMENT_TYPES.get(_element(value).removeprefix("u"))
            width = 8 if element is None or element.storage is None else element.storage.itemsize
            bytes_[index] += math.prod(shape_of(value)) * width
        while True:
            nodes = [PhaseOp(*facts) for facts in zip(sides, reads, bytes_, strict=True)]
            program_phases = phases(nodes)
            lost = {
                index
                for phase in program_phases
                if phase.side is ExecutionSide.DEVICE
                for index in self._unfused(phase, sides)
            }
            for index in () if lost else self._small_before_host(nodes, program_phases):
                self.reasons[index] = Refusal(TOO_SMALL, location_of(self.ops[index].location))
                lost.add(index)
            # Each round moves at least one operation to the host, so the loop terminates.
            if not lost:
                return program_phases
            for index in lost:
                sides[index] = ExecutionSide.HOST

    def _small_before_host(self, nodes: Sequence[PhaseOp], program_phases: Sequence[Phase]) -> list[int]:
        """Return the operations of a device phase that the host runs with fewer phases, if their work is negligible.

        An example is the product of positions and frequencies, of which the host computes the cosine.
        """
        total = sum(_points(op) for op in self.ops)
        on_host = sum(
            _points(self.ops[index]) for index, reason in self.reasons.items() if reason.reason == TOO_SMALL
        )
        number_of = {index: number for number, phase in enumerate(program_phases) for index in phase.nodes}
        later_readers: dict[int, set[int]] = {index: set() for index in number_of}
        for index, node in enumerate(nodes):
            for source in node.reads:
                later_readers[source].add(index)
        for phase in program_phases:
            if phase.side is not ExecutionSide.DEVICE:
                continue
            # The operations of the phase on which a host operation depends, directly or through others of the phase.
            chosen = set[int]()
            for index in reversed(phase.nodes):
                readers = later_readers[index]
                sides = {program_phases[number_of[reader]].side for reader in readers}
                if ExecutionSide.HOST in sides or readers & chosen:
                    chosen.add(index)
            work = sum(
                _points(self.ops[index]) for index in chosen if nodes[index].side is ExecutionSide.DEVICE
            )
            crossing = sum(nodes[index].bytes for index in chosen if later_readers[index] - chosen)
            if not chosen or work > crossing or (work + on_host) * _WORK_RATIO > total:
                continue
            changed = [
                PhaseOp(ExecutionSide.HOST, node.reads, node.bytes) if index in chosen else node
                for index, node in enumerate(nodes)
            ]
            if len(phases(changed)) < len(program_phases):
                return [index for index in chosen if nodes[index].side is ExecutionSide.DEVICE]
        return []

    def _unfused(self, phase: Phase, sides: Sequence[ExecutionSide]) -> list[int]:
        """Return the parts that make the device refuse a phase: parts with the same refusal if any, else all parts."""
        parts = [
            index for index in phase.nodes if index in self.reasons and sides[index] is ExecutionSide.DEVICE
        ]
        if not parts:
            return []
        refusal = self._refusal([self.ops[index] for index in phase.nodes])
        if refusal is None:
            return []
        same = [index for index in parts if self.reasons[index].reason == refusal.reason]
        there = [index for index in same if self.reasons[index].location == refusal.location]
        return there or same or parts

    # -- functions ------------------------------------------------------------------------------------

    def _report(self, index: int) -> None:
        """Report why an operation runs on the host, and each hint on it, because nothing is tiled there."""
        op = self.ops[index]
        if index in self.reasons:
            self.pass_.remark(op, HOST, self.reasons[index].reason)
        attr = op.attributes[HINTS] if HINTS in op.attributes else hints_in(op.location)
        if attr is None or op.name in _VIEWS:
            return
        for hint in hints_of(attr, op.location):
            if hint.id not in self.untiled and hint.tiles:
                self.untiled.add(hint.id)
                tiles = ", ".join(f"'{name}' into {count} tiles" for name, count in hint.tiles)
                text = f"hint {hint.id} cuts {tiles}, but this runs on the host, which has no tiles"
                self.pass_.warn(op, text)

    def _call(self, calls: Sequence[tuple[str, outlining.Outlined]]) -> None:
        values: dict[ir.Value, ir.Value] = {}
        with self.func.location, ir.InsertionPoint(self.end):
            for name, outlined in calls:
                operands = [values.get(value, value) for value in outlined.arguments]
                for number, value in enumerate(operands):
                    plain = stick.without_layout(value.type)
                    # A function for the host expects values without layouts.
                    if not name.startswith(ExecutionSide.DEVICE.value) and plain != value.type:
                        operands[number] = ir.Operation.create("tensor.cast", [plain], [value]).result
                call = outlined.call(name, operands)
                values.update(zip(outlined.results, call.results, strict=True))
        for number, value in enumerate(self.end.operands):
            if value in values:
                self.end.operands[number] = values[value]
        # Readers are erased first, so that a whole chain of moved operations becomes dead.
        for op in reversed([op.operation for op in self.block.operations]):
            is_kept = op.name in ("func.call", "func.return", "tensor.cast")
            if not is_kept and not any(list(value.uses) for value in op.results):
                op.erase()


def _points(op: ir.Operation) -> int:
    """Return the number of points that an operation computes."""
    sizes = [math.prod(shape_of(value)) for value in (*op.operands, *op.results) if _element(value)]
    if "matmul" in op.name:
        return sizes[-1] * shape_of(op.operands[0])[-1]
    if op.name != "linalg.generic":
        return math.prod(sizes) if "conv" in op.name else max(sizes, default=0)
    extents: dict[str, int] = {}
    for value, map_ in zip(op.operands, indexing_maps(op), strict=True):
        extents |= dict(zip(map(str, map_.results), shape_of(value), strict=True))
    return math.prod(size for name, size in extents.items() if name.startswith("d"))


def _is_for_a_product(view: ir.Operation) -> bool:
    """Return whether only integer matmuls read a view and the views of that view."""
    users = [use.owner.operation for use in view.results[0].uses]
    return all(
        is_integer_product(user) or (user.name in _VIEWS and _is_for_a_product(user)) for user in users
    )


def _element(value: ir.Value) -> str:
    if isinstance(value.type, ir.RankedTensorType):
        return str(ir.RankedTensorType(value.type).element_type)
    return ""


# Partitioning of a program into the fewest phases that alternate between device and host.
#
# A phase runs all operations that are ready, in program order. The number of phases is therefore minimal for the side
# that begins, because running more operations earlier can only make an operation ready sooner. Both sides are tried.


class ExecutionSide(Enum):
    """The side on which an operation may run; ``EITHER`` means the side of its neighbours.

    A collective runs on the link between devices, one at a time.
    """

    DEVICE = "device"
    HOST = "host"
    COLLECTIVE = "collective"
    EITHER = "either"


@dataclass(frozen=True)
class PhaseOp:
    """One operation: its side, the indices of the earlier operations that it reads, and the bytes of its results."""

    side: ExecutionSide
    reads: frozenset[int]
    bytes: int = 0


@dataclass(frozen=True)
class Phase:
    """Operations that run together on one side, as indices in program order."""

    side: ExecutionSide
    nodes: tuple[int, ...]


#: The sides that compute, in the order in which they are tried first.
_COMPUTING = (ExecutionSide.DEVICE, ExecutionSide.HOST)


def phases(nodes: Sequence[PhaseOp]) -> list[Phase]:
    """Return the phases of the program; if beginning on either side gives equally many, the device begins.

    Each operation is then moved to the latest phase of its side before or with its readers, if fewer bytes then cross
    phases: its operands cross instead of its results. Operands from outside the program cost nothing.
    """
    options = [_phases(nodes, first) for first in _COMPUTING]
    # ``min`` takes the first of equals, so a tie lets the device begin.
    fewest = min(options, key=len)
    phase_of = {index: number for number, phase in enumerate(fewest) for index in phase.nodes}
    readers: dict[int, list[int]] = {index: [] for index in phase_of}
    for index, node in enumerate(nodes):
        for source in node.reads:
            readers[source].append(index)
    # Readers come later in program order, so in reverse order the phases of readers are already final.
    for index in reversed(range(len(nodes))):
        if not readers[index]:
            continue
        earliest = min(phase_of[reader] for reader in readers[index])
        side = fewest[phase_of[index]].side
        if side is ExecutionSide.COLLECTIVE:
            continue
        sides = {side} if nodes[index].side is not ExecutionSide.EITHER else set(_COMPUTING)
        later = max(n for n in range(phase_of[index], earliest + 1) if fewest[n].side in sides)
        read_bytes = sum(nodes[source].bytes for source in nodes[index].reads)
        if later > phase_of[index] and read_bytes < nodes[index].bytes:
            phase_of[index] = later
    moved = [
        Phase(phase.side, tuple(index for index in range(len(nodes)) if phase_of[index] == number))
        for number, phase in enumerate(fewest)
    ]
    return [phase for phase in moved if phase.nodes]


def _phases(nodes: Sequence[PhaseOp], first: ExecutionSide) -> list[Phase]:
    computing = _COMPUTING if first is _COMPUTING[0] else _COMPUTING[::-1]
    sides = itertools.cycle((*computing, ExecutionSide.COLLECTIVE))
    scheduled: set[int] = set()
    waiting = list(range(len(nodes)))
    phases: list[Phase] = []
    while waiting:
        side = next(sides)
        accepted = {side, ExecutionSide.EITHER} if side in _COMPUTING else {side}
        ready = []
        for index in waiting:
            # ``scheduled`` grows during the loop, so a chain of operations on one side runs in a single phase.
            if nodes[index].side in accepted and nodes[index].reads <= scheduled:
                scheduled.add(index)
                ready.append(index)
                if side is ExecutionSide.COLLECTIVE:
                    break
        if ready:
            phases.append(Phase(side, tuple(ready)))
        waiting = [index for index in waiting if index not in scheduled]
    return phases


# Assertions of a program (``cf.assert``), which the host checks before a call returns or changes anything.


ASSERT = "cf.assert"


def check_assertion(op: ir.Operation) -> None:
    """Raise ``FailedAssertionError`` with the text of an assertion if its condition is the constant false."""
    condition = defining_op(op.operands[0])
    if condition is None or condition.name != "arith.constant":
        return
    if not ir.IntegerAttr(condition.attributes["value"]).value:
        text = ir.StringAttr(op.attributes["msg"]).value
        raise FailedAssertionError(f"{ALWAYS_FAILS}: {text.rstrip('.')}.", location_of(op.location))
