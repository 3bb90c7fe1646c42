"""The papers' figures that have a speed in them, measured on real services: `python -m benchmarks.papers --live`."""

from collections.abc import Callable, Iterator

from benchmarks.papers.figure import Figure
from benchmarks.papers.live import esd_figures, frugal_figures, herald_figures, scars_figures
from benchmarks.papers.live.runs import LiveRuns, LiveSetting, Speed

FIGURES: dict[str, Callable[[LiveRuns], Iterator[Figure]]] = {
    "esd": esd_figures.figures,
    "herald": herald_figures.figures,
    "scars": scars_figures.figures,
    "frugal": frugal_figures.figures,
}

__all__ = ["FIGURES", "LiveRuns", "LiveSetting", "Speed"]
