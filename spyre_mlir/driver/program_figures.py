# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Figures of a compiled program that need no run: its display in a notebook, and its lower bound."""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.analysis.aliasing import argument_attributes, functions
from spyre_mlir.analysis.needed_elements import Box, NeededPart, Needs, bits_of, inserted_box, whole
from spyre_mlir.bundle.model import KernelArgument
from spyre_mlir.bundle.sequence import LX
from spyre_mlir.cost.work import ProgramBound
from spyre_mlir.dialects.sdsc import SOURCE_BYTES
from spyre_mlir.dialects.structured import defining_op, shape_of
from spyre_mlir.driver.collectives import CollectiveStep
from spyre_mlir.driver.steps import BundleStep, HostStep, Step, Transfers
from spyre_mlir.errors import LONGEST, counted
from spyre_mlir.mlir import indexing_maps, ir
from spyre_mlir.pipelines import run_pipeline
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import HOST, Remark, Remarks
from spyre_mlir.report.figures import names_of
from spyre_mlir.report.findings import ProgramFinding, finding_rows
from spyre_mlir.report.summary import Row, overlap_text, summarize, table
from spyre_mlir.rewriting.outlining import unroll_loops
from spyre_mlir.target.element_types import DATA_FORMATS
from spyre_mlir.target.target import Target, default_target
from spyre_mlir.timeline import Execution, Timeline
from spyre_mlir.timeline.events import Shares
from spyre_mlir.timeline.roofline import of_execution

# The summary of a program of several steps: the place of each step and the reasons, and the transfers.

#: The largest fraction of floating-point operations, 0 to 1, that the host may run without a warning.
MOST_HOST_WORK = 0.01
_MOST_REASONS = 3
#: Remedies by a part of the reasons to which they apply.
_REMEDIES = {
    "f32 x f32": "; for matmuls of float32 give compile autocast=torch.float16 (spyre-compile --autocast fp16)",
    "element type f64": "; cast the model and its inputs with .half()",
}


def summarize_steps(
    steps: Sequence[Step],
    moved: Sequence[Transfers],
    timelines: Sequence[Timeline],
    remarks: Sequence[Remark],
    compile_seconds: float,
    findings: Sequence[ProgramFinding] = (),
    untried: str = "",
) -> str:
    """Return a table of steps, transfers and reasons for host steps, followed by the summary of each bundle."""
    rows = [*finding_rows(findings)]
    bundles = sum(isinstance(step, BundleStep) for step in steps)
    links = sum(isinstance(step, CollectiveStep) for step in steps)
    on_link = f", {counted(links, 'collective')} on the link" if links else ""
    rows.append(("steps", f"{bundles} on the device, {len(steps) - bundles - links} on the host{on_link}"))
    for step, transfers in zip(steps, moved, strict=True):
        if isinstance(step, CollectiveStep):
            text = f"{step.call_text}, {step.bytes:,} bytes of each rank"
        elif isinstance(step, HostStep):
            text = f"{counted(step.operations, 'operation')}, {step.float_operations:,} on floats"
        else:
            brought, stay, taken = (
                sum(argument.bytes for argument in arguments)
                for arguments in (transfers.to_device, transfers.resident, transfers.to_host)
            )
            text = f"{counted(len(step.facts().operations), 'operation')}; each call brings {brought:,} bytes"
            text += f", {stay:,} bytes stay from earlier steps" if transfers.resident else ""
            text += f", and takes {taken:,}"
            left = {entry.buffer for entry in step.bundle.manifest.leaves}
            buffers = step.bundle.manifest.buffers
            sizes = [buffer.bytes for buffer in buffers if buffer.name in left and buffer.base == LX]
            text += f"; {sum(sizes):,} bytes per core stay in LX" if sizes else ""
        rows.append((f"  {step.name}", text))
    rows.append(("on the host", f"{host_share(steps):.2%} of the floating-point operations"))
    if any(isinstance(step, HostStep) for step in steps):
        rows.append(("predicted time", predicted_time(steps, moved, timelines)))
        rows.append(("overlap", overlap_text(timelines)))
    rows += host_reasons(remarks)
    if untried:
        rows.append(("findings", untried))
    rows.append(("compile time", f"{compile_seconds:.2f} s"))
    parts = [table(rows)]
    for step in steps:
        if isinstance(step, BundleStep):
            seconds = sum(time for _, time in step.passes)
            summary = summarize(step.facts(), seconds, step.last_run and step.last_run.statistics)
            parts.append(f"{step.name}\n{'-' * len(step.name)}\n{summary}")
    return "\n\n".join(parts)


def host_share(steps: Sequence[Step]) -> float:
    """Return the fraction of floating-point operations that the host runs, 0 to 1."""
    whole = sum(step.float_operations for step in steps)
    on_host = sum(step.float_operations for step in steps if isinstance(step, HostStep))
    return on_host / whole if whole else 0.0


def host_work_warning(steps: Sequence[Step], remarks: Sequence[Remark]) -> str:
    """Return a warning about the host's share, with as many reasons as fit, and advice.

    The warning is empty if the share is at most ``MOST_HOST_WORK``.
    """
    share = host_share(steps)
    if share <= MOST_HOST_WORK:
        return ""
    reasons = Counter((remark.op_name, remark.reason) for remark in Remarks(remarks).of_kind(HOST))
    products_first = sorted(reasons, key=lambda key: (not _is_product(key[0]), -reasons[key]))
    named = []
    for op_name, reason in products_first[:_MOST_REASONS]:
        short = reason.partition(";")[0]
        shown = f"{op_name} ({short})" if _is_product(op_name) else short
        named.append(f"{reasons[op_name, reason]:,} x {shown}")
    remedies = (text for part, text in _REMEDIES.items() if any(part in reason for _, reason in reasons))
    remedy = next(remedies, "") + "."
    sentence = ""
    for count in range(len(named), 0, -1):
        left = len(reasons) - count
        more = f", and {left} more reasons" if left > 1 else ", and 1 more reason" if left else ""
        sentence = (
            f"{share:.2%} of the floating-point operations run on the host: {', '.join(named[:count])}{more}"
        )
        if len(sentence + remedy) <= LONGEST:
            break
    return sentence + remedy


def _is_product(op_name: str) -> bool:
    return "matmul" in op_name or "conv" in op_name


def host_reasons(remarks: Sequence[Remark]) -> Iterator[Row]:
    """Yield rows with the reasons why operations run on the host, the most frequent first."""
    host_remarks = Remarks(remarks).of_kind(HOST)
    counts = Counter(remark.reason for remark in host_remarks)
    places: dict[str, str] = {}
    for remark in host_remarks:
        module = f" in {remark.module}" if remark.module else ""
        places.setdefault(remark.reason, (remark.op_location.rpartition("/")[2] + module).lstrip())
    name = "because"
    for reason, count in counts.most_common():
        where = f" ({places[reason]}{', ..' if count > 1 else ''})" if places[reason] else ""
        yield name, f"{count:,} x {reason}{where}"
        name = ""


# The display of a program in a notebook: HTML among other cells, without page styles or element ids.


def notebook_html(title: str, summary: str, picture: str = "") -> str:
    """Return HTML with a title, the summary text in a collapsible block, and the SVG ``picture`` as an image."""
    parts = [
        f"<div><b>spyre_mlir.Program</b>: {escape(title)}",
        '<details open="open"><summary>summary</summary>'
        f'<pre style="max-height: 30em; overflow: auto">{escape(summary)}</pre></details>',
    ]
    if picture:
        data = base64.b64encode(picture.encode("utf-8")).decode("ascii")
        parts.append(
            f'<img style="max-width: 100%" alt="Timeline of the program" src="data:image/svg+xml;base64,{data}"/>'
        )
    return "\n".join([*parts, "</div>"])


# The remark on a program whose time is far from its lower bound.

#: A program that takes at most this many times its bound gets no remark.
FAR = 3.0

#: The kind of the remark.
FAR_FROM_BOUND = "far from bound"

#: The number of opcodes, those with the most time, that the remark names.
_NAMED = 3


def bound_remark(timelines: Sequence[Timeline], bound: ProgramBound) -> Remark | None:
    """Return the remark on a program with these timelines: the opcodes with the most time, and what bounds each.

    Return None for a program that takes at most ``FAR`` times its bound, or that has no bound.
    """
    if not timelines:
        return None
    needed_ns, total_ns = bound.ns(timelines[0].target), math.fsum(line.total_ns for line in timelines)
    if not needed_ns or total_ns <= FAR * needed_ns:
        return None
    bytes_ = sum(line.read_bytes + line.written_bytes for line in timelines)
    reason = (
        f"{total_ns / 1000:,.1f} us are {total_ns / needed_ns:.1f} times the lower bound of {needed_ns / 1000:,.1f} us "
        f"for {bound.bytes:,} bytes and {bound.multiply_adds:,} multiply-adds; the program moves {bytes_:,} bytes; "
        f"the most time: {', '.join(_largest(timelines))}"
    )
    return Remark("program-bound", "", "", FAR_FROM_BOUND, reason)


def _largest(timelines: Sequence[Timeline]) -> list[str]:
    """Return texts about the opcodes with the most time: the time, and what bounds it."""
    by_opcode: dict[str, list[Execution]] = {}
    for line in timelines:
        for execution in line.executions:
            by_opcode.setdefault(execution.opcode, []).append(execution)
    # The sort is stable, so opcodes of equal time stay in program order.
    groups = sorted(by_opcode.values(), key=lambda group: -math.fsum(one.total_ns for one in group))
    return [_text(group) for group in groups[:_NAMED]]


def _text(executions: Sequence[Execution]) -> str:
    shares = Shares()
    for execution in executions:
        shares = shares.plus(execution.shares)
    return f"{executions[0].opcode} {shares.total / 1e6:,.1f} us ({_cause(executions, shares)})"


def _cause(executions: Sequence[Execution], shares: Shares) -> str:
    """Return what bounds the executions, with the rate that they attain without contention."""
    part = shares.bound_by
    if part == "overhead":
        return f"overhead of {shares.runs:,} runs"
    alone_ns = math.fsum(execution.alone_ps for execution in executions) / 1000
    if part == "memory" and alone_ns:
        return f"memory at {sum(execution.moved_bytes for execution in executions) / alone_ns:.0f} GB/s"
    if part == "compute" and alone_ns:
        cores = math.fsum(one.work.cores * one.alone_ps for one in executions) / (1000 * alone_ns)
        lines = [of_execution(execution) for execution in executions]
        peak = math.fsum(line.peak_per_ns * line.nanoseconds for line in lines)
        attained = sum(line.operations for line in lines) / peak if peak else 0.0
        return f"compute on {cores:.0f} cores at {attained:.0%} of their peak"
    return part


# The lower bound of a program: the least bytes and multiply-adds, computed from the linalg before planning.

#: Passes to a normal form: matmuls on types that the device multiplies, all structured ops generic, and values that
#: do not depend on arguments folded to constants.
_NORMAL_FORM = "narrow-matmuls,linalg-generalize-named-ops,canonicalize,cse,fold-constants"

#: The maximum number of operations of an unrolled loop.
_MOST_UNROLLED = 1 << 14

#: The maximum number of elements of model data, such as positions, whose values are used in the computation.
_LARGEST_TABLE = 1 << 20


def program_bound(
    source: ir.Operation, arrays: Mapping[str, NDArray[Any]], updates: Mapping[int, str] | None = None
) -> ProgramBound:
    """Return the lower bound of a linalg module; ``arrays`` has the values of its constant arguments.

    ``updates`` maps result indices to the names of the arguments that they update in place; for such a result, only
    the changed part counts as written. Work that depends on run-time values counts as 0.
    """
    module = source.clone().operation
    # After unrolling, slices have known offsets, which limit the needed elements. Larger loops count as 0.
    unroll_loops(functions(module)[0], _MOST_UNROLLED)
    run_pipeline(module, _NORMAL_FORM)
    block = functions(module)[0].regions[0].blocks[0]
    arguments = dict(zip(block.arguments, argument_attributes(functions(module)[0]), strict=True))
    by_name = {_name(attributes): value for value, attributes in arguments.items()}
    # The values that are known: dense constants, and arguments of kind constant.
    values: dict[ir.Value, NDArray[Any]] = {}
    for value, attributes in arguments.items():
        # Large data of the model are assumed to be weights, not masks.
        is_small = SOURCE_BYTES in attributes or math.prod(shape_of(value)) <= _LARGEST_TABLE
        is_known = _attribute_text(attributes, "spyre.kind") == "constant" and _name(attributes) in arrays
        if is_known and is_small and _is_readable(value):
            values[value] = np.asarray(arrays[_name(attributes)])
    for op in (view.operation for view in block.operations):
        if op.name != "arith.constant" or not isinstance(op.results[0].type, ir.RankedTensorType):
            continue
        attribute = op.attributes["value"]
        if isinstance(attribute, ir.DenseElementsAttr) and _is_readable(op.results[0]):
            if not attribute.is_splat:
                values[op.results[0]] = np.array(attribute)
            else:
                splat: Any = attribute.get_splat_value()
                values[op.results[0]] = np.full([1] * len(shape_of(op.results[0])), splat.value)
    needs = Needs(values)
    needed: dict[ir.Value, NeededPart] = {}
    for index, value in enumerate(list(block.operations)[-1].operation.operands):
        needed[value] = _written(value, by_name.get((updates or {}).get(index, "")))
    needs.of_block(block, needed)
    read = sum(
        _read_bytes(value, needs.needs[value], attributes)
        for value, attributes in arguments.items()
        if value in needs.needs
    )
    written = sum(need.count() * _element_bytes(value) for value, need in needed.items())
    by_format: Counter[str] = Counter()
    for element, number in needs.multiply_adds.items():
        by_format[DATA_FORMATS.get(element, DATA_FORMATS["f16"])] += number
    return ProgramBound(read, written, by_format)


def _written(value: ir.Value, argument: ir.Value | None) -> NeededPart:
    """Return the part of a result that is written: for an in-place update of ``argument``, only the changed boxes."""
    boxes = []
    target = value
    while argument is not None and target != argument:
        replaced = _replaced_part(defining_op(target))
        if replaced is None:
            break
        boxes.append(replaced[0])
        target = replaced[1]
    is_update = argument is not None and target == argument
    return NeededPart(tuple(boxes)) if is_update else NeededPart((whole(shape_of(value)),))


def _replaced_part(op: ir.Operation | None) -> tuple[Box, ir.Value] | None:
    """Return the box of its result that an op changes, and the operand with the rest; None for any other op."""
    if op is None:
        return None
    if op.name == "tensor.insert_slice":
        box = inserted_box(op)
        return None if box is None else (box, op.operands[1])
    # For an update at a run-time position, a select inserts the new rows; the box has the size of these rows.
    body = (
        [view.operation for view in op.regions[0].blocks[0].operations] if op.name == "linalg.generic" else []
    )
    if [inner.name for inner in body] != ["arith.select", "linalg.yield"]:
        return None
    arguments = list(op.regions[0].blocks[0].arguments)
    _, new, old = (arguments.index(value) if value in arguments else None for value in body[0].operands)
    if new is None or old is None or op.operands[old].type != op.results[0].type:
        return None
    sizes = zip(indexing_maps(op)[new].results, shape_of(op.results[0]), strict=False)
    return tuple(range(size if isinstance(e, ir.AffineDimExpr) else 1) for e, size in sizes), op.operands[old]


def _read_bytes(value: ir.Value, need: NeededPart, attributes: Mapping[str, ir.Attribute]) -> int:
    """Return the needed logical bytes of an argument; for one computed by the frontend, in proportion to its source."""
    size = need.count() * _element_bytes(value)
    if SOURCE_BYTES not in attributes:
        return size
    whole_size = NeededPart((whole(shape_of(value)),)).count() * _element_bytes(value)
    source = int(ir.IntegerAttr(attributes[SOURCE_BYTES]).value)
    return min(size, size * source // max(whole_size, 1))


def _element_bytes(value: ir.Value) -> int:
    return bits_of(ir.RankedTensorType(value.type).element_type) // 8


def _is_readable(value: ir.Value) -> bool:
    """Return whether the element type, such as the type of a mask, exists in numpy."""
    return str(ir.RankedTensorType(value.type).element_type) in (
        "i1", "i8", "i32", "i64", "f16", "f32", "f64",
    )  # fmt: skip


def _name(attributes: Mapping[str, ir.Attribute]) -> str:
    return _attribute_text(attributes, "spyre.name")


def _attribute_text(attributes: Mapping[str, ir.Attribute], name: str) -> str:
    return ir.StringAttr(attributes[name]).value if name in attributes else ""


# The time of the host: an estimate by assumed rates, because no host was measured.


@dataclass(frozen=True)
class HostTime:
    """Microseconds of a call that the host takes, the least and the most that the assumed rates allow.

    ``functions`` are the host steps; ``copies`` are the copies of values that one step writes and another step reads.
    """

    functions: tuple[float, float] = (0.0, 0.0)
    copies: tuple[float, float] = (0.0, 0.0)

    @property
    def estimates(self) -> tuple[float, float]:
        """The estimates of the functions and of the copies: the geometric means of the least and the most."""
        (least, most), (least_copied, most_copied) = self.functions, self.copies
        return math.sqrt(least * most), math.sqrt(least_copied * most_copied)

    @property
    def least(self) -> float:
        """The least time of functions and copies."""
        return self.functions[0] + self.copies[0]

    @property
    def most(self) -> float:
        """The most time of functions and copies."""
        return self.functions[1] + self.copies[1]


def host_time(steps: Sequence[Step], moved: Sequence[Transfers]) -> HostTime:
    """Return the host's time in a call by the rates ``[host]`` of the device file.

    A function takes its start, and the longer of its floating-point operations and its bytes. A copy takes its start
    and its bytes. Copies of the program's own inputs and results do not count: they may be in device memory.
    """
    rates = _target_of(steps).host
    functions = [step for step in steps if isinstance(step, HostStep)]
    copied = [argument.bytes for argument in _copied_between(steps, moved)]
    times = []
    # Low rates give the most time, and high rates the least.
    for end, other in ((0, 1), (1, 0)):
        work = (
            max(
                step.float_operations / rates.operations_per_ns[other],
                step.function.bytes / rates.bytes_per_ns[other],
            )
            for step in functions
        )
        times.append(
            (
                (len(functions) * rates.call_ns[end] + math.fsum(work)) / 1000,
                (len(copied) * rates.link_ns[end] + sum(copied) / rates.link_bytes_per_ns[other]) / 1000,
            )
        )
    (least, least_copied), (most, most_copied) = times
    return HostTime((least, most), (least_copied, most_copied))


def predicted_time(steps: Sequence[Step], moved: Sequence[Transfers], timelines: Sequence[Timeline]) -> str:
    """Return the time of a call in words: the device's time, and with host steps the host's time and the total."""
    device_us = math.fsum(line.total_ns for line in timelines) / 1000
    if not any(isinstance(step, HostStep) for step in steps):
        return f"{device_us:,.1f} us predicted"
    host = host_time(steps, moved)
    functions_us, copies_us = host.estimates
    return (
        f"{device_us:,.1f} us on the device, about {device_us + functions_us + copies_us:,.0f} us in total "
        f"({device_us + host.least:,.0f} to {device_us + host.most:,.0f} by assumed rates of the host)"
    )


def _copied_between(steps: Sequence[Step], moved: Sequence[Transfers]) -> Iterator[KernelArgument]:
    """Yield the arguments that are copied to or from the device because another step wrote or reads the value."""
    written = {name for step in steps for name in step.outputs}
    read = {name for step in steps if isinstance(step, HostStep) for name in step.inputs}
    to_device = {argument.array_name for transfers in moved for argument in transfers.to_device}
    for step, transfers in zip(steps, moved, strict=True):
        yield from (argument for argument in transfers.to_device if argument.array_name in written)
        if isinstance(step, BundleStep):
            names = {argument.name: name for name, argument in step.written}
            yield from (each for each in transfers.to_host if names[each.name] in read | to_device)


def _target_of(steps: Sequence[Step]) -> Target:
    return next((step.bundle.target for step in steps if isinstance(step, BundleStep)), default_target())


# The figures of a program as plain numbers, to be stored and compared; no run is needed.

#: The value of figures that are unknown for a program read from a folder: its bound and its compile times.
UNKNOWN = -1.0

#: The names of the figures, in order.
METRICS = names_of("metrics")


def program_metrics(
    steps: Sequence[Step],
    moved: Sequence[Transfers],
    timelines: Sequence[Timeline],
    bound: ProgramBound | None,
    seconds: tuple[float, float],
) -> dict[str, float]:
    """Return the figures by name; ``timelines`` cover all bundles, ``seconds`` are (pipeline, import).

    Times and traffic are for one call, summed over all steps. ``predicted_us`` is the time on the device if operations
    overlap, ``sequential_us`` if they do not, and ``total_us`` adds the estimates of host functions and copies to the
    first. ``mean_cores`` is weighted by time, and
    ``lx_peak_bytes`` is the maximum over cores and bundles.
    """
    bundles = [step for step in steps if isinstance(step, BundleStep)]
    facts = [step.facts() for step in bundles]
    operations = [operation for each in facts for operation in each.operations]
    device_ns = math.fsum(each.execution.total_ns for each in operations)
    core_ns = math.fsum(each.cores * each.execution.total_ns for each in operations)
    device_us = math.fsum(each.total_ns for each in timelines) / 1000
    host = host_time(steps, moved)
    host_us, transfer_us = host.estimates
    return {
        "predicted_us": device_us,
        "sequential_us": math.fsum(each.sequential_ns for each in timelines) / 1000,
        "host_us": host_us,
        "transfer_us": transfer_us,
        "total_us": device_us + host_us + transfer_us,
        "total_least_us": math.fsum(each.lower_ns for each in timelines) / 1000 + host.least,
        "total_most_us": math.fsum(each.upper_ns for each in timelines) / 1000 + host.most,
        "bound_us": UNKNOWN if bound is None else bound.ns(_target_of(steps)) / 1000,
        "bound_bytes": UNKNOWN if bound is None else bound.bytes,
        "hbm_read_bytes": sum(each.read_bytes for each in timelines),
        "hbm_written_bytes": sum(each.written_bytes for each in timelines),
        "mean_cores": core_ns / device_ns if device_ns else 0.0,
        "device_operations": len(operations),
        "host_operations": sum(step.operations for step in steps if isinstance(step, HostStep)),
        "host_flop_share": host_share(steps),
        "bundles": len(bundles),
        "lx_peak_bytes": max((each.map.peak for each in facts), default=0),
        "compile_s": seconds[0],
        "import_s": seconds[1],
    }
