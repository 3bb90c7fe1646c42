"""Teams of the machines by ways to sum dense gradients, as a table."""

from __future__ import annotations

from rich.table import Table

from esd.advice.teams import RANKS, Teams


def teams_table(teams: Teams) -> Table:
    """Returns the time of a sample of each team and way."""
    ways = list(teams.all[0].seconds)
    headers = [f"{way}\n(other model)" if way in RANKS else way for way in ways]
    table = Table("machines", *headers, title="µs of a sample by machines and --dense", title_justify="left",
                  show_edge=False, pad_edge=False)  # fmt: skip
    for column in table.columns[1:]:
        column.justify = "right"
    for team in teams.all:
        numbers = "all" if team is teams.all[0] else ", ".join(map(str, team.machines))
        table.add_row(numbers, *(f"{1e6 * team.seconds[way]:,.1f}" for way in ways))
    alone = f"{1e6 * teams.alone_seconds:,.1f}"
    table.add_row("one with all rows in its memory", *[alone] * len(ways))
    return table


def no_gain(teams: Teams) -> str:
    """Returns a sentence for links over which no team is surely faster than a machine that needs no services."""
    if teams.may_pay:
        return (
            f"perhaps no gain: the fastest team takes {1e6 * teams.least_seconds:,.1f} to {1e6 * teams.seconds:,.1f} "
            "µs of a sample, by the rows that move while it computes, and one machine that has all rows in its own "
            f"memory {1e6 * teams.alone_seconds:,.1f}; try both"
        )
    return (
        "no gain: no team is faster than one machine that has all rows in its own memory and needs no services, which "
        f"takes {1e6 * teams.alone_seconds:,.1f} µs of a sample; train over these links only if the rows need it"
    )
