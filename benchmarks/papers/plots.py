"""Figures as plots: bars lie, so that their names can be read, and axes begin at 0, so that lengths can be compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from benchmarks.papers.figure import Figure, Row, unique

mpl.use("Agg")
_DPI = 90
_WIDTH = 8.9
_HEIGHT_OF_LINES = 3.8
_HEIGHT_OF_A_BAR = 0.17
_MARGIN = 0.06
_MARKERS = "os^Dvp"
_MOST_TICKS = 6
_FAR_APART = 16  # times: x values that differ by more stand on a logarithmic axis


def plot(figure: Figure, path: Path) -> None:
    """Draws a figure."""
    (_bars if figure.groups == "bars" else _lines)(figure, path)


def _bars(figure: Figure, path: Path) -> None:
    workloads, settings = (unique([getattr(r, name) for r in figure.rows]) for name in ("workload", "setting"))
    height = 1.1 + len(settings) * (0.12 + _HEIGHT_OF_A_BAR * len(workloads))
    canvas, axes = plt.subplots(figsize=(_WIDTH, height), layout="constrained")
    width = 0.8 / len(workloads)
    for index, workload in enumerate(workloads):
        measured = {row.setting: row for row in figure.rows if row.workload == workload}
        rows = [measured.get(setting, Row(workload, setting, (math.nan,))) for setting in settings]
        places = np.arange(len(settings)) + index * width - 0.4 + width / 2
        axes.barh(places, [row.value for row in rows], width, label=workload)
        least, most = ([end(row.values) for row in rows] for end in (min, max))
        axes.hlines(places, least, most, color="black", linewidth=1.0)
        for place, row in zip(places, rows, strict=True):
            if figure.floor is not None and row.value < figure.floor:
                text = f" {row.value:.0f}, beyond this axis"
                axes.text(figure.floor, place, text, fontsize=7, color="white", verticalalignment="center")
    axes.set_yticks(range(len(settings)), settings)
    axes.margins(y=0.02)
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set_xlim(left=figure.floor)
    axes.set_xlabel(figure.unit, fontsize=9)
    axes.set_title(figure.title, fontsize=10)
    _finish(axes, "x")
    _legend(axes)
    canvas.savefig(path, dpi=_DPI)
    plt.close(canvas)


def _lines(figure: Figure, path: Path) -> None:
    """Draws several series beside each other by workload, a single one with all its workloads in one panel."""
    workloads = unique([row.workload for row in figure.rows])
    names = unique([row.series for row in figure.rows])
    panels = [workloads] if len(names) == 1 else [[workload] for workload in workloads]
    canvas, grid = plt.subplots(
        ncols=len(panels), figsize=(_WIDTH, _HEIGHT_OF_LINES), layout="constrained", sharey=True, squeeze=False
    )
    for axes, shown in zip(grid[0], panels, strict=True):
        lines = [(workload, name) for workload in shown for name in names]
        for index, (workload, name) in enumerate(lines):
            rows = [row for row in figure.rows if (row.workload, row.series) == (workload, name)]
            _line(axes, index, rows, name if len(shown) == 1 else workload)
        _ticks(axes, [row.x for row in figure.rows])
        axes.set_xlabel(figure.x, fontsize=9)
        if len(shown) == 1:
            axes.set_title(shown[0], fontsize=9)
        _finish(axes, "y")
    first, last = grid[0][0], grid[0][-1]
    first.set_ylim(_ends([value for row in figure.rows for value in row.values], figure.floor))
    first.set_ylabel(figure.unit, fontsize=9)
    canvas.suptitle(figure.title, fontsize=10)
    if len(last.lines) > 1:
        _legend(last)
    canvas.savefig(path, dpi=_DPI)
    plt.close(canvas)


def _line(axes: Axes, index: int, rows: Sequence[Row], label: str) -> None:
    """Draws the means of a series, and a band from the least to the largest value of its seeds."""
    points = sorted((row.x, row.value, min(row.values), max(row.values)) for row in rows)
    xs, means, least, most = np.array(points).reshape(-1, 4).T
    color, marker = f"C{index}", _MARKERS[index % len(_MARKERS)]
    axes.plot(xs, means, label=label, color=color, marker=marker, markersize=4, linewidth=1.3)
    axes.fill_between(xs, least, most, color=color, alpha=0.15, linewidth=0)


def _ticks(axes: Axes, values: Sequence[float]) -> None:
    """Marks the values that were measured, unless they are too many to be read."""
    xs = sorted(set(values))
    if xs[0] > 0 and xs[-1] > _FAR_APART * xs[0] and len(xs) <= _MOST_TICKS:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    if len(xs) <= _MOST_TICKS:
        axes.set_xticks(xs, [f"{x:,g}" for x in xs])


def _ends(values: Sequence[float], floor: float | None) -> tuple[float, float]:
    """Returns the ends of an axis that contains 0 or begins at the floor, with a margin where it ends at a value."""
    known = [value for value in values if math.isfinite(value)]
    bottom, top = min(0, *known) if floor is None else floor, max(0, *known)
    margin = _MARGIN * (top - bottom)
    return bottom - margin * (bottom < 0), top + margin * (top > 0)


def _finish(axes: Axes, values: Literal["x", "y"]) -> None:
    axes.tick_params(labelsize=8)
    axes.grid(axis=values, alpha=0.3)
    axes.set_axisbelow(True)


def _legend(axes: Axes) -> None:
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
