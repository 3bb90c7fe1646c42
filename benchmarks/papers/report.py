"""Figures as JSON, as a Markdown page and as plots."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from benchmarks.papers.figure import Figure, Row

mpl.use("Agg")
_DPI = 90
_NONE = "n/a"
_STYLES = ("-", "--", ":", "-.")


@dataclass(frozen=True, slots=True)
class Page:
    """One page: the name of its files, its heading, and lines of Markdown above its figures."""

    name: str
    title: str
    above: Sequence[str]


def write(page: Page, figures: Sequence[Figure], out: Path) -> None:
    """Writes a page, its figures as JSON and one plot per figure into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{page.name}.json").write_text(json.dumps([_plain(figure) for figure in figures], indent=1) + "\n")
    for figure in figures:
        plot(figure, out / f"{figure.key}.png")
    (out / f"{page.name}.md").write_text(_text(page, figures))


def _plain(figure: Figure) -> dict[str, object]:
    values = [
        {
            "workload": row.workload,
            "setting": row.setting,
            "values": [value if math.isfinite(value) else None for value in row.values],
        }
        for row in figure.rows
    ]
    texts = {name: getattr(figure, name) for name in ("key", "title", "unit", "paper", "comment")}
    return {**texts, "values": values}


def _text(page: Page, figures: Sequence[Figure]) -> str:
    lines = [f"# {page.title}", "", *page.above]
    for figure in figures:
        lines += ["", f"## {figure.title}", "", f"**Paper:** {figure.paper}.", "", f"**Here** ({figure.unit}):", ""]
        lines += _table(figure)
        if figure.comment:
            lines += ["", figure.comment]
        lines += ["", f"![{figure.title}]({figure.key}.png)"]
    return "\n".join(lines) + "\n"


def _table(figure: Figure) -> list[str]:
    """Bars: a line per setting and a column per workload. Lines: a line per series and a column per x."""
    cells = {(row.workload, row.setting): _cell(row) for row in figure.rows}
    workloads, settings = _unique([w for w, _ in cells]), _unique([s for _, s in cells])
    if figure.groups == "bars":
        head = ["", *workloads]
        body = [[setting, *(cells.get((w, setting), _NONE) for w in workloads)] for setting in settings]
    else:
        xs = sorted({float(setting.split(" @ ")[1]) for setting in settings})
        names = _unique([setting.split(" @ ")[0] for setting in settings])
        head = [figure.x, *(f"{x:g}" for x in xs)]
        body = [
            [f"{workload}, {name}", *(cells.get((workload, f"{name} @ {x:g}"), "") for x in xs)]
            for workload in workloads
            for name in names
        ]
    lines = [" | ".join(line) for line in ([head, ["---"] * len(head), *body])]
    return [f"| {line} |" for line in lines]


def _cell(row: Row) -> str:
    """Mean over the seeds, and the least and the largest where the page would show them as different numbers."""
    least, most = _number(min(row.values)), _number(max(row.values))
    return _number(row.value) if least == most else f"{_number(row.value)} ({least} to {most})"


def _number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else _NONE


def _unique(values: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(values))


def plot(figure: Figure, path: Path) -> None:
    """Draws a figure."""
    canvas, axes = plt.subplots(figsize=(8, 4.2))
    (_bars if figure.groups == "bars" else _lines)(figure, axes)
    axes.set_title(figure.title, fontsize=10)
    axes.set_ylabel(figure.unit, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    canvas.tight_layout()
    canvas.savefig(path, dpi=_DPI)
    plt.close(canvas)


def _bars(figure: Figure, axes: Axes) -> None:
    workloads, settings = _unique([r.workload for r in figure.rows]), _unique([r.setting for r in figure.rows])
    width = 0.8 / len(workloads)
    for index, workload in enumerate(workloads):
        measured = {row.setting: row for row in figure.rows if row.workload == workload}
        rows = [measured.get(setting, Row(workload, setting, (np.nan,))) for setting in settings]
        places = np.arange(len(settings)) + index * width - 0.4 + width / 2
        axes.bar(places, [row.value for row in rows], width, label=workload)
        least, most = ([end(row.values) for row in rows] for end in (min, max))
        axes.vlines(places, least, most, color="black", linewidth=1.0)
    axes.set_xticks(range(len(settings)), settings, rotation=30, ha="right")
    axes.axhline(0, color="black", linewidth=0.6)
    if figure.floor is not None:
        axes.set_ylim(bottom=figure.floor)


def _lines(figure: Figure, axes: Axes) -> None:
    names = _unique([row.setting.split(" @ ")[0] for row in figure.rows])
    for index, workload in enumerate(_unique([row.workload for row in figure.rows])):
        for color, name in enumerate(names):
            points = sorted(
                (float(row.setting.split(" @ ")[1]), row.value, min(row.values), max(row.values))
                for row in figure.rows
                if row.workload == workload and row.setting.split(" @ ")[0] == name
            )
            style: dict[str, Any] = {
                "color": f"C{color}",
                "linestyle": _STYLES[index % len(_STYLES)],
                "marker": ".",
                "linewidth": 1.3,
            }
            xs, means, least, most = np.array(points).reshape(-1, 4).T
            axes.plot(xs, means, label=f"{workload}, {name}", **style)
            axes.fill_between(xs, least, most, color=f"C{color}", alpha=0.15, linewidth=0)
    axes.set_xlabel(figure.x, fontsize=9)
