"""The result of an experiment: rows of a table and points of a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean

KNOBS = {  # names of a setting's fields on axes
    "batch": "m, samples per worker",
    "cache_ratio": "cache ratio",
    "dim": "values per row",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement of a workload under a setting.

    Attributes:
        workload: by name.
        setting: by name; for lines `series @ x`.
        values: one value per seed, or a single one that no seed changes; NaN if the setting does not fit.
    """

    workload: str
    setting: str
    values: tuple[float, ...]

    @property
    def value(self) -> float:
        """Mean over the seeds."""
        return mean(self.values)

    @property
    def series(self) -> str:
        """Which line of a figure of lines has this point."""
        return self.setting.split(" @ ")[0]

    @property
    def x(self) -> float:
        """Where on its line the point is."""
        return float(self.setting.split(" @ ")[1])


@dataclass(slots=True)
class Figure:
    """One figure or table of a paper.

    Attributes:
        key: file name.
        title: its contents, with paper and number.
        unit: the unit of the values.
        paper: the paper's numbers.
        comment: the places where our figures differ, with reasons.
        groups: layout of `Row.setting`: "bars", one per workload, or "lines" over a numeric x.
        x: name of the x axis of lines.
        floor: start of the plot's axis of values if not 0, because some bars are much longer than the others, or
            because a lower value would mean nothing.
        rows: our measurements.
    """

    key: str
    title: str
    unit: str
    paper: str
    comment: str
    groups: str = "bars"
    x: str = ""
    floor: float | None = None
    rows: list[Row] = field(default_factory=list)

    def add(self, workload: str, setting: str, *values: float) -> None:
        """Adds one measurement: a value, or one of each seed."""
        self.rows.append(Row(workload, setting, tuple(map(float, values))))


def unique(names: Sequence[str]) -> list[str]:
    """Returns each name once, in the order in which they come first."""
    return list(dict.fromkeys(names))
