# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The summary of a program of several steps: the place of each step and the reasons, and the transfers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from spyre_mlir.bundle.sequence import LX
from spyre_mlir.driver.steps import BundleStep, HostStep, Step, Transfers
from spyre_mlir.errors import counted
from spyre_mlir.remarks import HOST, Remark, Remarks
from spyre_mlir.report.findings import ProgramFinding, finding_rows
from spyre_mlir.report.summary import Row, summarize, table

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
    remarks: Sequence[Remark],
    compile_seconds: float,
    findings: Sequence[ProgramFinding] = (),
) -> str:
    """Return a table of steps, transfers and reasons for host steps, followed by the summary of each bundle."""
    rows = [*finding_rows(findings)]
    bundles = sum(isinstance(step, BundleStep) for step in steps)
    rows.append(("steps", f"{bundles} on the device, {len(steps) - bundles} on the host"))
    for step, transfers in zip(steps, moved, strict=True):
        if isinstance(step, HostStep):
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
    rows += [*host_reasons(remarks), ("compile time", f"{compile_seconds:.2f} s")]
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
    """Return a warning about the host's share, with reasons and advice; empty if at most ``MOST_HOST_WORK``."""
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
    left = len(reasons) - len(named)
    more = f", and {left} more reasons" if left > 1 else ", and 1 more reason" if left else ""
    sentence = f"{share:.2%} of the floating-point operations run on the host: {', '.join(named)}{more}"
    remedies = (text for part, text in _REMEDIES.items() if any(part in reason for _, reason in reasons))
    return sentence + next(remedies, "") + "."


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
