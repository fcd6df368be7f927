# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``--mlir-pass-statistics``: the number of decisions of each pass, by kind, counted from its remarks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from spyre_mlir.remarks import Remark

_RULE = f"===-{'-' * 73}-==="


def pass_statistics(names: Iterable[str], remarks: Iterable[Remark], display: str = "pipeline") -> str:
    """Format the table: all passes in execution order for ``pipeline``, passes with decisions by name for ``list``."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    for remark in remarks:
        counts.setdefault(remark.pass_name, Counter())[remark.kind] += 1
    if display == "list":
        counts = {name: counts[name] for name in sorted(counts) if counts[name]}
    width = max((len(str(count)) for kinds in counts.values() for count in kinds.values()), default=1)
    lines = [_RULE, "... Pass statistics report ...".center(len(_RULE)).rstrip(), _RULE]
    for name, kinds in counts.items():
        lines.append(name)
        lines += [f"  (S) {kinds[kind]:{width}} {kind}" for kind in sorted(kinds)]
    total = sum(kinds.total() for kinds in counts.values())
    return "\n".join([*lines, f"Total: {total} decisions"]) + "\n"
