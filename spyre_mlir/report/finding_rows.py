# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The findings of a program as rows of its summary."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from spyre_mlir.report.findings import ProgramFinding

#: Maximum number of characters of a line.
_WIDTH = 96


def finding_rows(findings: Sequence[ProgramFinding]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each line about the findings, the largest saving first."""
    for number, finding in enumerate(findings, 1):
        yield from _lines(f"finding {number}", finding.problem)
        yield from _lines("  cause", finding.cause)
        places = (f"in {finding.module}" if finding.module else "", finding.location.rpartition("/")[2])
        if where := ", ".join(filter(None, places)):
            yield "  where", where
        yield from _lines("  change", finding.change)
        share = finding.saved_us / finding.before_us
        yield "  saves", f"{finding.before_us:,.1f} -> {finding.after_us:,.1f} us, {share:.1%}, by a trial"


def _lines(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the text in lines that fit, without breaking words, so that a change can be copied."""
    lines = textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
    yield from zip((name, *[""] * len(lines)), lines, strict=False)
