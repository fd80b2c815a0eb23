"""The plots of the demo's report."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from quotaplane.demo.record import DemoRecord
from quotaplane.demo.scenarios import Story
from quotaplane.model import BoolArray, FloatArray
from quotaplane.sim.figures import CLOSE

COLOURS: Final = ("#3b6fd4", "#e8a317", "#2f9e62", "#d9483b", "#8b5cc7", "#12a5b5", "#d66ba0")
"""One per broker, the same in every plot."""

QUOTA: Final = {"color": "#1f2933", "width": 2.0, "dash": "dash", "shape": "hv"}
DEMAND: Final = {"color": "#66758a", "width": 1.5, "dash": "dot", "shape": "hv"}

_INK, _QUIET, _GRID = "#1f2933", "#8895a7", "#e6eaf0"
_FONT: Final = {"family": "system-ui, -apple-system, Segoe UI, sans-serif", "size": 12}
_HIGH_PX = 400


def colour(broker: int) -> str:
    """The colour of the broker with this index."""
    return COLOURS[broker % len(COLOURS)]


def as_html(figure: go.Figure) -> str:
    """The figure as a div, without plotly.js, which the page has once."""
    html: str = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        config={"displayModeBar": False, "responsive": True},
    )
    return html


def story_figure(record: DemoRecord, story: Story) -> go.Figure:
    """Plot a story: above, all brokers together and the quota; below, each broker and its limit."""
    count = len(story.shows)
    figure = make_subplots(
        rows=2,
        cols=count,
        shared_xaxes=True,
        row_heights=[0.5, 0.5],
        vertical_spacing=0.09,
        horizontal_spacing=0.055,
        column_titles=[name.replace("_", " ") for name in story.shows] if count > 1 else None,
    )
    times = record.times()
    for column, dimension in enumerate(story.shows, start=1):
        _total(figure, record, story, dimension, times, column)
        _brokers(figure, record, story, dimension, times, column)
    _mark_events(figure, record, story, times)
    _style(figure, _HIGH_PX)
    figure.for_each_annotation(  # move the titles up to make room for the marks
        lambda note: note.update(yshift=10, font={"size": 12, "color": _QUIET}),
        selector={"yref": "paper"},
    )
    figure.update_yaxes(rangemode="tozero", nticks=5, tickformat="~s")
    figure.update_yaxes(title_text="all brokers", row=1, col=1)
    figure.update_yaxes(title_text="each broker", row=2, col=1)
    figure.update_xaxes(range=[times[0], times[-1]])
    figure.update_xaxes(title_text="seconds", title_standoff=4, row=2)
    return figure


def _exists(story: Story, times: FloatArray) -> BoolArray:
    """Whether the group exists, (intervals,)."""
    return (times >= story.from_s if story.from_s > 0 else times <= np.inf) & (
        times < story.until_s
    )


def _total(
    figure: go.Figure,
    record: DemoRecord,
    story: Story,
    dimension: str,
    times: FloatArray,
    column: int,
) -> None:
    exists = _exists(story, times)
    usage = record.series("usage", story, dimension)
    for place in _taking_part(record, story):
        figure.add_trace(
            go.Scatter(
                x=times,
                y=np.where(exists, usage[:, place], 0.0).tolist(),
                name=record.scenario.brokers[place].name,
                mode="lines",
                line={"color": colour(place), "width": 0.5, "shape": "hv"},
                stackgroup="used",
                hovertemplate="%{y:.3~s}",
            ),
            row=1,
            col=column,
        )
    demand = record.series("demand", story, dimension).sum(axis=1)
    _line(figure, (1, column), times, "demand", np.where(exists, demand, np.nan), DEMAND)
    quota = np.where(exists, record.quota(story, dimension), np.nan)
    _line(figure, (1, column), times, "quota", quota, QUOTA)


def _brokers(
    figure: go.Figure,
    record: DemoRecord,
    story: Story,
    dimension: str,
    times: FloatArray,
    column: int,
) -> None:
    usage = record.series("usage", story, dimension)
    limit = record.series("limit", story, dimension)
    alive = np.array([interval.alive for interval in record.intervals])
    for place in _taking_part(record, story):
        seen = alive[:, place] & _exists(story, times)
        name = record.scenario.brokers[place].name
        thick = {"color": colour(place), "width": 3.0, "shape": "hv"}
        thin = {"color": colour(place), "width": 1.3, "shape": "hv"}
        used, allowed = (np.where(seen, series[:, place], np.nan) for series in (usage, limit))
        _line(figure, (2, column), times, name, used, thick)
        _line(figure, (2, column), times, f"{name} limit", allowed, thin)


def _line(
    figure: go.Figure,
    cell: tuple[int, int],
    times: FloatArray,
    name: str,
    values: FloatArray,
    line: dict[str, Any],
) -> None:
    """Draw a line with a gap where a value is unlimited or unknown."""
    finite = np.isfinite(values).tolist()
    figure.add_trace(
        go.Scatter(
            x=times,
            y=[v if ok else None for v, ok in zip(values.tolist(), finite, strict=True)],
            name=name,
            mode="lines",
            line=line,
            hovertemplate="%{y:.3~s}",
        ),
        row=cell[0],
        col=cell[1],
    )


def _taking_part(record: DemoRecord, story: Story) -> list[int]:
    names = {change.broker for change in story.demand}
    return [place for place, spec in enumerate(record.scenario.brokers) if spec.name in names]


def _mark_events(figure: go.Figure, record: DemoRecord, story: Story, times: FloatArray) -> None:
    if times[0] < 0:
        figure.add_vrect(
            x0=times[0], x1=0, fillcolor=_GRID, opacity=0.8, line_width=0, layer="below"
        )
    for mark, event in record.marks(story):
        figure.add_vline(x=event.at_s, line={"color": _QUIET, "width": 1, "dash": "dot"})
        for axis in range(1, len(story.shows) + 1):
            figure.add_annotation(
                x=event.at_s,
                y=1.0,
                xref=f"x{axis if axis > 1 else ''}",
                yref=f"y{axis if axis > 1 else ''} domain",
                text=f"<b>{mark}</b>",
                showarrow=False,
                font={"color": "white", "size": 11},
                bgcolor=_QUIET,
                borderpad=2,
                yanchor="middle",
            )


def convergence(record: DemoRecord) -> go.Figure:
    """Plot how far each group's worst-off broker is from its fair share, by second."""
    times = record.times()
    stories = record.scenario.stories
    distance = np.array([100.0 * np.minimum(record.distance(story), 1.0) for story in stories])
    for place, story in enumerate(stories):
        distance[place, ~_exists(story, times)] = np.nan
    names = [story.group for story in stories]
    near = CLOSE  # green up to here: the tolerance that PIP-82 itself allows
    figure = go.Figure(
        go.Heatmap(
            x=times,
            y=names,
            z=distance,
            zmin=0,
            zmax=100,
            xgap=1,
            ygap=3,
            hoverongaps=False,
            colorscale=[
                [0.0, "#d3efdf"],
                [near, "#d3efdf"],
                [near + 0.001, "#fbe3b5"],
                [0.4, "#f2a65a"],
                [1.0, "#c8372d"],
            ],
            colorbar={
                "title": {"text": "from fair", "side": "right"},
                "ticksuffix": " %",
                "thickness": 12,
                "outlinewidth": 0,
                "tickvals": [0, 10, 50, 100],
            },
            hovertemplate="%{y}, %{x:.0f} s: %{z:.0f} % from fair<extra></extra>",
        )
    )
    marks: list[tuple[float, str, str]] = [
        (event.at_s, story.group, event.text)
        for story in stories
        for _, event in record.marks(story)
    ]
    figure.add_trace(
        go.Scatter(
            x=[at_s for at_s, _, _ in marks],
            y=[group for _, group, _ in marks],
            text=[text for _, _, text in marks],
            mode="markers",
            marker={"symbol": "diamond", "size": 10, "color": _INK, "line": {"color": "white"}},
            hovertemplate="%{x:.0f} s: %{text}<extra></extra>",
        )
    )
    _style(figure, 90 + 27 * len(stories))
    figure.update_xaxes(title_text="seconds", showgrid=False)
    figure.update_xaxes(range=[times[0] - 0.5, times[-1] + 0.5])
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_layout(margin={"l": 140, "r": 10, "t": 10, "b": 40}, hovermode="closest")
    return figure


def _style(figure: go.Figure, height: int) -> None:
    layout: dict[str, Any] = {
        "height": height,
        "showlegend": False,
        "font": {**_FONT, "color": _INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 58, "r": 12, "t": 30, "b": 36},
        "hovermode": "x unified",
    }
    figure.update_layout(**layout)
    figure.update_xaxes(gridcolor=_GRID, zeroline=False, linecolor=_GRID)
    figure.update_yaxes(gridcolor=_GRID, zeroline=False)
