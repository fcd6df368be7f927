# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Panel with the foldable table of modules; without the script all modules are open."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from spyre_mlir.report.modules import ModuleNode, module_tree
from spyre_mlir.report.program_facts import ProgramFacts

_HEADS = ("operations", "time (µs)", "share (%)", "bytes", "work")


def panel(facts: ProgramFacts) -> str:
    """Return a row for each module, with equal layers merged, and a selection of the order."""
    root = module_tree(facts.operations)
    rows = "" if root is None else "".join(_rows(root, root.work.picoseconds or 1, 0))
    heads = "".join(f'<th scope="col" class="number">{name}</th>' for name in _HEADS)
    return "\n".join(
        [
            "<p>Modules open here, in the graph and in the timeline together. Time, bytes of device memory and work"
            " (two operations per multiply-add, else one per element) are those of all equal modules of a row.</p>",
            '<p class="scripted" hidden="hidden"><label>Order <select><option value="program">of the program</option>'
            '<option value="time">by time</option></select></label></p>',
            '<div class="scroll" tabindex="0" role="region" aria-label="table of modules">',
            '<table id="modules-table" class="n2 n3 n4 n5 n6" style="min-width:760px"><colgroup>'
            '<col style="width:34%"/><col style="width:10%"/><col style="width:12%"/><col style="width:9%"/>'
            '<col style="width:13%"/><col style="width:14%"/><col style="width:8%"/></colgroup>',
            f'<thead><tr><th scope="col">module</th>{heads}<td></td></tr></thead><tbody>{rows}</tbody></table></div>',
        ]
    )


def _rows(node: ModuleNode, total_ps: int, depth: int) -> Iterator[str]:
    for child in node.children:
        work, times = child.work, f" x {child.times}" if child.times > 1 else ""
        cells = (
            f"{work.executes:,}", f"{work.picoseconds / 1e6:,.3f}", f"{100 * work.picoseconds / total_ps:.1f}",
            f"{work.bytes:,}", f"{work.operations:,}",
        )  # fmt: skip
        name = f'<th scope="row" style="padding-left:{8 + 18 * depth}px">{escape(child.label)}{times}</th>'
        yield f"<tr>{name}{''.join(f'<td>{cell}</td>' for cell in cells)}<td></td></tr>"
        yield from _rows(child, total_ps, depth + 1)
