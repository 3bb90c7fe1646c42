"""Figures as JSON, as a Markdown page and as plots."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.papers.figure import Figure, Row, unique
from benchmarks.papers.plots import plot

_NONE = "n/a"


@dataclass(frozen=True, slots=True)
class Page:
    """One page: the name of its files, its heading, and lines of Markdown above its figures."""

    name: str
    title: str
    above: Sequence[str]


def write(page: Page, figures: Sequence[Figure], out: Path, results: Path) -> None:
    """Writes a page and one plot per figure into the folder `out`, and the figures' values as JSON into `results`."""
    for folder in (out, results):
        folder.mkdir(parents=True, exist_ok=True)
    (results / f"{page.name}.json").write_text(json.dumps([_plain(figure) for figure in figures], indent=1) + "\n")
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
    workloads, settings = unique([w for w, _ in cells]), unique([s for _, s in cells])
    if figure.groups == "bars":
        head = ["", *workloads]
        body = [[setting, *(cells.get((w, setting), _NONE) for w in workloads)] for setting in settings]
    else:
        xs = sorted({row.x for row in figure.rows})
        names = unique([row.series for row in figure.rows])
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
