# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Panel of the origin of operations, in three panes: source, IR at a level, device operation with its files."""

from __future__ import annotations

from html import escape

from spyre_mlir.report.program_facts import ProgramFacts

#: Identifiers and names of the panes.
_PANES = (("source-lines", "Source"), ("level-lines", "IR"), ("device-lines", "Device operations"))

#: The level of the program text, which every bundle has.
_TEXT = "bundle.mlir"


def panel(facts: ProgramFacts) -> str:
    """Return three lists that the script fills, and below them the bundle's data about the chosen operation."""
    levels = "".join(f"<option>{escape(level)}</option>" for level in (*facts.levels, _TEXT))
    unknown = (
        ""
        if facts.levels
        else " The other levels are known where a program is reported after its compilation."
    )
    return "\n".join(
        [
            "<p>Choose a line in a list, with a click or the arrow keys: the others show what it became and what it"
            f" came from. Of equal layers the IR is that of the first.{unknown}</p>",
            f'<p class="scripted" hidden="hidden"><label>File <select id="source-file"></select></label>'
            f' <label>Level <select id="level">{levels}</select></label></p>',
            "<noscript><p>Without its script the page does not fill these lists.</p></noscript>",
            '<div class="panes scripted" hidden="hidden">',
            *(
                f'<div><h3 id="{identifier}-name">{name}</h3><div class="lines" id="{identifier}" role="listbox"'
                f' tabindex="0" aria-labelledby="{identifier}-name"></div></div>'
                for identifier, name in _PANES
            ),
            '</div><div id="chosen" class="chosen" role="status"></div>',
        ]
    )
