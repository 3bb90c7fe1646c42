"""LAIA by both of its readings: the savings of ESD and joint against each, and the costs of the readings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

from benchmarks.papers.esd_figures import ESD, JOINT, LAIA, add_reductions
from benchmarks.papers.figure import Figure
from benchmarks.papers.runs import EQUAL_LINKS, ESD_LINKS, FAST, SLOW, Runs, Setting
from esd.services.domain.mechanisms import LaiaReading

# Of each setting the links, in Gbit/s, and m.
SETTINGS: dict[str, tuple[tuple[str, ...], int]] = {
    "4 x 5 and 4 x 0.5, m = 64": (ESD_LINKS, 64),
    "4 x 5 and 4 x 0.5, m = 128": (ESD_LINKS, 128),
    "4 x 5 and 4 x 0.5, m = 256": (ESD_LINKS, 256),
    "8 x 5, m = 128": (EQUAL_LINKS, 128),
    "2 x 5 and 2 x 0.5, m = 128": ((FAST, FAST, SLOW, SLOW), 128),
    "4 x 5, m = 128": (EQUAL_LINKS[:4], 128),
}


def figures(runs: Sequence[Runs]) -> Iterator[Figure]:
    """Yields the costs of ESD and joint against both readings, and the readings against each other."""
    yield reductions(
        runs, "laia-esd", "ESD α = 1", ESD["ESD α=1"],
        "ESD α = 1 costs up to 36.76% less than LAIA with eight workers, and up to 42.15% less with four; which reading"
        " its authors ran, they do not write",
    )  # fmt: skip
    yield reductions(runs, "laia-joint", "joint", JOINT["joint"], "no numbers: `joint` is of this project")
    yield readings(runs)


def reductions(runs: Sequence[Runs], key: str, name: str, setting: Setting, paper: str) -> Figure:
    """Makes the figure of the savings of one mechanism against both readings."""
    figure = Figure(
        key, f"The cost of {name} below LAIA's", "% against LAIA by Herald's text and by its code", paper,
        "Ties are random under both readings, as in Herald's text.",
    )  # fmt: skip
    for run in runs:
        for label, (links, batch) in SETTINGS.items():
            add_reductions(figure, run, label, setting, links=links, batch=batch)
    return figure


def readings(runs: Sequence[Runs]) -> Figure:
    """Makes the figure of both readings against each other."""
    figure = Figure(
        "laia-readings", "The cost of LAIA by Herald's text over its cost by the code", "times",
        "no numbers: the paper describes one score and its repository has the other",
        "Above 1 the code's reading costs less.",
    )  # fmt: skip
    text = replace(LAIA, reading=LaiaReading.TEXT)
    for run in runs:
        for label, (links, batch) in SETTINGS.items():
            by_text, by_code = (replace(each, links=links, batch=batch) for each in (text, LAIA))
            figure.add(run.workload.name, label, *run.ratios(by_text, by_code, attrgetter("cost_seconds")))
    return figure
