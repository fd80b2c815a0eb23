"""Pictures as SVG text: no browser is needed to make them, and a change shows in a diff."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

FONT: Final = "system-ui, -apple-system, Segoe UI, DejaVu Sans, sans-serif"
INK, QUIET, GRID = "#1f2933", "#66758a", "#e6eaf0"
COLOURS: Final = ("#3b6fd4", "#e8a317", "#2f9e62", "#d9483b", "#8b5cc7")
"""One per broker, as in the demo's report."""


class Picture:
    """Shapes on a white ground; coordinates in pixels from the upper left corner."""

    def __init__(self, width: float, height: float) -> None:
        self._size = (width, height)
        self._shapes: list[str] = []

    def rect(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        """A filled rectangle."""
        self._shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'fill="{fill}"/>'
        )

    def line(
        self, points: Sequence[tuple[float, float]], colour: str, width: float, dash: str = ""
    ) -> None:
        """A line through points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self._shapes.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" '
            f'stroke-linejoin="round"{dashed}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        anchor: str = "start",
        size: float = 12,
        colour: str = INK,
        bold: bool = False,
        turned: bool = False,
    ) -> None:
        """Words on a base line; ``turned``: rising to the right, for the heads of columns."""
        turn = f' transform="rotate(-38 {x:.1f} {y:.1f})"' if turned else ""
        weight = ' font-weight="600"' if bold else ""
        self._shapes.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
            f'fill="{colour}"{weight}{turn}>{escape(words)}</text>'
        )

    def render(self) -> str:
        """The picture as a file's text."""
        width, height = self._size
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
                f'width="{width:.0f}" height="{height:.0f}" font-family="{FONT}">',
                f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
                *self._shapes,
                "</svg>",
                "",
            ]
        )


def shade(badness: float) -> str:
    """Green for 0, by way of yellow, to red for 1 and above.

    >>> shade(0.0), shade(5.0)
    ('#d3efdf', '#e2674f')
    """
    stops = ((211, 239, 223), (251, 227, 181), (242, 166, 90), (226, 103, 79))
    place = min(max(badness, 0.0), 1.0) * (len(stops) - 1)
    low = min(int(place), len(stops) - 2)
    mix = (
        round(a + (b - a) * (place - low)) for a, b in zip(stops[low], stops[low + 1], strict=True)
    )
    return "#" + "".join(f"{part:02x}" for part in mix)
