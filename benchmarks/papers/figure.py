"""What an experiment brings: rows to tabulate and points to plot."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: what was measured, on which workload, under which setting; NaN when it does not fit."""

    workload: str
    setting: str
    value: float


@dataclass(slots=True)
class Figure:
    """One figure or table of a paper.

    Attributes:
        key: file name.
        title: what it shows, with paper and number.
        unit: of the values.
        paper: what the paper reports.
        comment: where and why our figures differ.
        groups: how `Row.setting` is laid out: "bars", one group per workload, or "lines" over a numeric x.
        x: name of the x axis of lines.
        floor: where the plot's y axis ends, if some bars are much longer than the others.
        rows: our measurements; for lines the setting is `series @ x`.
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

    def add(self, workload: str, setting: str, value: float) -> None:
        """Adds one measurement."""
        self.rows.append(Row(workload, setting, float(value)))
