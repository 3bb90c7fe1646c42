"""The output of a finished run: one JSON object for programs, or a table for people."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rich.table import Table

from esd.cli.tables import print_figures
from esd.run.results import Result, finite
from esd.services.domain.reports import LINK_DIRECTIONS, LINK_KINDS


def _missing_updates(staleness: Mapping[str, Any]) -> str:
    reads = max(1, sum(staleness["reads"]))
    return f"{staleness['missing_updates'] / reads:.2f} / {staleness['most_missing']:,}"


def _known(figure: float) -> str:
    """Shows a figure that most runs lack. Raises KeyError if this one does."""
    if math.isnan(figure):
        raise KeyError("gauc")
    return f"{figure:.4f}"


def _hits(most: int, result: Mapping[str, Any]) -> str:
    """Shows the share of links with a rank up to `most`. Raises KeyError if the run ranked none."""
    return f"{result['held_out'][f'hits_at_{most}']:.4f}"


def _direct(result: Mapping[str, Any]) -> str:
    """Shows how many rows went straight to the worker that trains them next. Raises KeyError if none did."""
    rows = sum(result["direct"]["rows"])
    if not rows:
        raise KeyError("direct")
    return f"{rows:,}"


def _count(name: str) -> Callable[[Mapping[str, Any]], str]:
    """Returns a function that shows a number of rows, and raises KeyError for a run in which it is 0."""

    def show(result: Mapping[str, Any]) -> str:
        if not result[name]:
            raise KeyError(name)
        return f"{result[name]:,}"

    return show


def _reduced(result: Mapping[str, Any]) -> str:
    """Shows the gradients that a worker sends. Raises KeyError if no row is replicated, or no worker is there yet."""
    reduced = max(result["bytes"]["reduced"], default=0)
    if not reduced:
        raise KeyError("reduced")
    return f"{reduced / 1e3 / result['iterations']:,.1f}"


def _on_link(kind: str) -> Callable[[Mapping[str, Any]], str]:
    """Returns a function that shows the bytes of a kind on a worker's link in an iteration, on average.

    KeyError: there were none.
    """

    def show(result: Mapping[str, Any]) -> str:
        sent, received = (result["link_bytes"][kind][direction] for direction in LINK_DIRECTIONS)
        if not any(sent) and not any(received):
            raise KeyError(kind)
        per_iteration = 1e3 * len(sent) * max(1, result["iterations"])
        return f"{sum(sent) / per_iteration:,.1f} / {sum(received) / per_iteration:,.1f}"

    return show


_ROWS: tuple[tuple[str, Callable[[Mapping[str, Any]], str]], ...] = (
    ("iterations", lambda r: f"{r['iterations']:,}"),
    ("iterations per second", lambda r: f"{r['iterations_per_second']:.2f}"),
    ("cost, seconds of transfer", lambda r: f"{r['cost_seconds']:.2f}"),
    ("makespan, seconds", lambda r: f"{r['makespan_seconds']:.2f}"),
    ("makespan of all bytes on the links, seconds", lambda r: f"{r['link_makespan_seconds']:.2f}"),
    ("miss pulls", lambda r: f"{sum(r['operations']['miss_pull']):,}"),
    ("of these made by the workers, since never trained", lambda r: f"{sum(r['initial_pulls']):,}"),
    ("update pushes", lambda r: f"{sum(r['operations']['update_push']):,}"),
    ("of these straight to workers", _direct),
    ("evict pushes", lambda r: f"{sum(r['operations']['evict_push']):,}"),
    ("flush pushes, beside the cost", lambda r: f"{sum(r['operations']['flush_push']):,}"),
    ("plans, seconds of transfer, beside the cost", lambda r: f"{r['plan_seconds']:.2f}"),
    ("gradients of replicated rows, kB per worker and iteration", _reduced),
    ("plans, kB per iteration", lambda r: f"{r['plan_bytes'] / 1e3 / max(1, r['iterations']):,.1f}"),
    *((f"link, {kind}, kB up / down", _on_link(kind)) for kind in LINK_KINDS),
    ("dense gradients are summed by", lambda r: r["dense_sum"]),
    ("drift of dense parameters, which are not one machine's", lambda r: f"{r['dense_drift']:.2%}"),
    ("round trips of an iteration, at least", lambda r: f"{r['round_trips']:d}"),
    ("worker-to-worker rows", lambda r: f"{sum(r['operations']['peer']):,.0f}"),
    ("forgotten rows", _count("forgotten_rows")),
    ("expired rows", _count("expired_rows")),
    ("admitted ids", _count("admitted_rows")),
    ("initial rows read of ids not yet admitted", _count("initial_reads")),
    ("hit ratio", lambda r: f"{r['hit_ratio']:.3f}"),
    ("stale reads", lambda r: f"{1 - r['staleness']['reads'][0] / max(1, sum(r['staleness']['reads'])):.1%}"),
    ("update pushes that no worker needed yet", lambda r: f"{r['flushed_ahead']:,}"),
    ("updates that a read lacks (mean / most)", lambda r: _missing_updates(r["staleness"])),
    ("decision, ms (median / p99)", lambda r: f"{r['decision_ms']['median']:.2f} / {r['decision_ms']['p99']:.2f}"),
    ("loss", lambda r: f"{r['loss']:.4f}"),
    ("AUC", lambda r: f"{r['auc']:.4f}"),
    ("normalised entropy", lambda r: f"{r['normalised_entropy']:.4f}"),
    ("calibration", lambda r: f"{r['calibration']:.4f}"),
    ("GAUC", lambda r: _known(r["gauc"])),
    ("held out: loss", lambda r: f"{r['held_out']['loss']:.4f}"),
    ("held out: AUC", lambda r: f"{r['held_out']['auc']:.4f}"),
    ("held out: normalised entropy", lambda r: f"{r['held_out']['normalised_entropy']:.4f}"),
    ("held out: calibration", lambda r: f"{r['held_out']['calibration']:.4f}"),
    ("held out: GAUC", lambda r: _known(r["held_out"]["gauc"])),
    ("held out: MRR", lambda r: f"{r['held_out']['mrr']:.4f}"),
    *((f"held out: Hits@{most}", partial(_hits, most)) for most in (1, 3, 10)),
)


def comparison(results: Mapping[str, Mapping[str, Any]]) -> Table:
    """Makes a table with one column per run. Figures that the runs lack are left out: a simulation has no loss."""
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("")
    for name in results:
        table.add_column(name, justify="right")
    for label, show in _ROWS:
        try:
            table.add_row(label, *(show(result) for result in results.values()))
        except (KeyError, TypeError):
            continue
    for name in next(iter(results.values()), {}).get("figures", {}):
        table.add_row(name.replace("_", " "), *(f"{result['figures'][name]:,.6g}" for result in results.values()))
    return table


def print_result(name: str, result: Result, *, as_json: bool) -> None:
    """Prints one run's result on standard output."""
    if as_json:
        print_json(result)
    else:
        print_figures(comparison({name: result}))


def print_json(value: Any) -> None:
    """Prints one JSON value on standard output, on a line of its own."""
    print(json.dumps(finite(value), allow_nan=False), flush=True)
