# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An SVG page that grows with its elements: texts and boxes. No dependencies."""

from __future__ import annotations

from dataclasses import field
from html import escape

from spyre_mlir.records import dataclass

#: Pixels: margin of the page, and width of a character (a little more than a digit).
MARGIN, CHARACTER = 32, 7.3

_STYLE = """
text { font: 12px 'DejaVu Sans', Verdana, Arial, sans-serif; fill: #1a1a1a; }
.heading { font-size: 17px; font-weight: bold; }
.name { font-weight: bold; }
.label { font-size: 11px; fill: #404040; }
.id { text-anchor: middle; }
.partly .id { paint-order: stroke; stroke: #ffffff; stroke-width: 3.5px; stroke-opacity: 0.9; }
.elsewhere .id { fill: #595959; }
.box { stroke: none; }
.outline { fill: none; stroke: #595959; stroke-width: 0.8; }
.lane { stroke: #595959; stroke-width: 0.4; }
.padding { fill: url(#hatch); }
.dot { fill: #767676; }
""".strip()

_HATCH = (
    '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" fill="#ffffff" fill-opacity="0.6"/>'
    '<path d="M 0 0 V 6" stroke="#4d4d4d" stroke-width="1.4"/></pattern>'
)


@dataclass
class Page:
    """Collects elements and their extent in pixels; ``style`` are CSS rules in addition to the rules of all pages."""

    style: str = ""
    elements: list[str] = field(default_factory=list)
    right: float = 0
    bottom: float = 0

    def add(self, element: str, right: float = 0, bottom: float = 0) -> None:
        """Append an element of SVG."""
        self.elements.append(element)
        self.right, self.bottom = max(self.right, right), max(self.bottom, bottom)

    def text(self, x: float, y: float, text: str, kind: str = "label", anchor: str = "start") -> None:
        """Append a text."""
        width = len(text) * (10.5 if kind == "heading" else CHARACTER)
        reach = {"start": x + width, "middle": x + width / 2, "end": x}[anchor]
        placed = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.add(f'<text class="{kind}" x="{x:g}" y="{y:g}"{placed}>{escape(text)}</text>', reach, y)

    def rectangle(self, kind: str, x: float, y: float, width: float, height: float, fill: str = "") -> None:
        """Append a rectangle."""
        filled = f' fill="{fill}"' if fill else ""
        size = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self.add(f'<rect class="{kind}" {size}{filled}/>', x + width, y + height)

    def dots(self, x: float, y: float, across: bool) -> None:
        """Append three dots, for omitted positions."""
        for step in (-5, 0, 5):
            position = (x + step, y) if across else (x, y + step)
            self.add(f'<circle class="dot" cx="{position[0]:g}" cy="{position[1]:g}" r="1.4"/>')

    def svg(self, title: str, description: str) -> str:
        """Return the page as an SVG document."""
        width, height = round(self.right + MARGIN), round(self.bottom + MARGIN)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" aria-labelledby="title description">'
        )
        meta = [
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="description">{escape(description)}</desc>',
        ]
        base = [f"<style>{_STYLE}{self.style}</style>", f"<defs>{_HATCH}</defs>"]
        ground = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
        return "\n".join([head, *meta, *base, ground, *self.elements, "</svg>"]) + "\n"
