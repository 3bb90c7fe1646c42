"""What an experiment brings: rows to tabulate and points to plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean

KNOBS = {  # what axes call the fields of a setting
    "batch": "m, samples per worker",
    "cache_ratio": "cache ratio",
    "dim": "values per row",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: what was measured, on which workload, under which setting.

    Attributes:
        workload: by name.
        setting: by name; for lines `series @ x`.
        values: one of each seed, or a single one that no seed changes; NaN when the setting does not fit.
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
        title: what it shows, with paper and number.
        unit: of the values.
        paper: what the paper reports.
        comment: where and why our figures differ.
        groups: how `Row.setting` is laid out: "bars", one of each workload, or "lines" over a numeric x.
        x: name of the x axis of lines.
        floor: where the plot's axis of values begins if not at 0, since some bars are much longer than the others, or
            since a lower value would mean nothing.
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
