"""What a finished run prints: one JSON object for programs, or a table for people."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from esd.cli.tables import print_figures
from esd.data import Dataset
from esd.data.hot_batches import HotBatches
from esd.dispatcher.simulator.alternatives import AlternativeTotals
from esd.dispatcher.simulator.totals import Totals
from esd.services.domain.jobs import JobSpec
from esd.services.domain.reports import PHASES
from esd.services.domain.state import Evaluation, JobState, Quality
from esd.services.domain.sync import Bounded, Figures, Staleness
from esd.services.domain.sync.bounded import MOST_UPDATES

# Progress and messages go to standard error, so that standard output holds the result only.
messages = Console(stderr=True)

Result = dict[str, Any]


def training_result(state: JobState, evaluations: Sequence[Evaluation] = ()) -> Result:
    """Makes the result of `esd train` from the dispatcher's final state and the evaluations of held-out samples.

    Lists have one entry per worker slot.
    """
    workers = sorted(state.workers, key=lambda worker: worker.slot)
    first = state.job.first_iteration
    return {
        "iterations": state.iterations_confirmed - first,
        "samples": state.samples_submitted,
        "seconds": state.training_seconds,
        "iterations_per_second": (state.iterations_confirmed - first) / state.training_seconds
        if state.training_seconds
        else 0.0,
        **asdict(state.quality),
        "recent": asdict(state.recent),
        **_by_label(state.job.labels, state.labels),
        # None without held-out samples; `evaluations` has what came before.
        "held_out": _held_out(evaluations[-1], state.job.labels) if evaluations else None,
        "evaluations": [{"iteration": each.iteration, **_held_out(each, state.job.labels)} for each in evaluations],
        "operations": {
            "miss_pull": [worker.transfers.miss_pull for worker in workers],
            "update_push": [worker.transfers.update_push for worker in workers],
            "evict_push": [worker.transfers.evict_push for worker in workers],
            "flush_push": [worker.transfers.flush_push for worker in workers],
        },
        # Of the update pushes, and of the bytes pushed: what went straight to the worker that trains it next.
        "direct": {
            "rows": [worker.transfers.direct_push for worker in workers],
            "bytes": [worker.transfers.bytes_direct for worker in workers],
        },
        "bytes": {
            "pulled": [worker.transfers.bytes_pulled for worker in workers],
            "pushed": [worker.transfers.bytes_pushed for worker in workers],
            "reduced": [worker.transfers.bytes_reduced for worker in workers],
        },
        "recoveries": [
            {
                "cause": each.cause,
                "iterations_redone": each.iterations_redone,
                "seconds": each.seconds,
            }
            for each in state.recoveries
        ],
        "forgotten_rows": state.forgotten_rows,
        "staleness": _staleness(state.job, state.sync_figures),
        "cost_seconds": state.cost_seconds,
        # Of the same stream under other mechanisms, which may be some iterations behind.
        "shadow_costs": {
            cost.mechanism: {"iterations": cost.iterations, "cost_seconds": cost.cost_seconds}
            for cost in state.shadow_costs
        },
        "makespan_seconds": state.makespan_seconds,
        "expected_cost_seconds": state.expected_cost_seconds,
        "hit_ratio": state.hits / state.lookups if state.lookups else 0.0,
        "decision_ms": {
            "median": 1e3 * state.decision_median_seconds,
            "p99": 1e3 * state.decision_p99_seconds,
        },
        # What one worker spent on average.
        "phase_seconds": {
            phase: sum(getattr(worker.phases, phase) for worker in workers) / max(1, len(workers)) for phase in PHASES
        },
    }


def _held_out(evaluation: Evaluation, labels: Sequence[str]) -> Result:
    """The figures of the first label, with the loss that is trained; those of each label, where there are several."""
    return asdict(evaluation.quality) | _by_label(labels, evaluation.labels)


def _by_label(labels: Sequence[str], qualities: Sequence[Quality]) -> Result:
    """The figures of each label, where there are several."""
    if len(labels) == 1:
        return {}
    return {"labels": {label: asdict(quality) for label, quality in zip(labels, qualities, strict=True)}}


def simulation_result(job: JobSpec, totals: Totals) -> Result:
    """Makes the result of `esd simulate`: those keys of a training result that need no network and no tensors."""
    return {
        "iterations": totals.iterations,
        "samples": totals.samples,
        "operations": {
            "miss_pull": totals.operations.miss_pull.tolist(),
            "update_push": totals.operations.update_push.tolist(),
            "evict_push": totals.operations.evict_push.tolist(),
            "flush_push": totals.flush_push.tolist(),
        },
        "bytes": {  # without flushes, and without what messages add
            "pulled": totals.moved_bytes.miss_pull.tolist(),
            "pushed": (totals.moved_bytes.update_push + totals.moved_bytes.evict_push).tolist(),
            "reduced": totals.reduced_bytes.tolist(),
        },
        "direct": {"rows": totals.direct_rows.tolist(), "bytes": totals.direct_bytes.tolist()},
        "forgotten_rows": totals.forgotten_rows,
        "staleness": _staleness(job, totals.sync_figures),
        "plan_bytes": totals.plan_bytes,  # of all workers
        "plan_seconds": totals.plan_seconds,  # beside the cost
        "reduced_seconds": totals.reduced_seconds,  # likewise
        "cost_seconds": totals.cost_seconds,
        "makespan_seconds": totals.makespan_seconds,
        "workloads": totals.workloads.tolist(),
        "expected_cost_seconds": totals.expected_cost_seconds,
        "hit_ratio": totals.hit_ratio,
        "decision_ms": {
            "median": 1e3 * totals.decision_median_seconds,
            "p99": 1e3 * totals.decision_p99_seconds,
        },
    }


def alternative_result(totals: AlternativeTotals) -> Result:
    """Makes the result of `esd simulate --alternative`."""
    return {
        "iterations": totals.iterations,
        "samples": totals.samples,
        "operations": {
            "miss_pull": totals.operations.miss_pull.tolist(),
            "update_push": totals.operations.update_push.tolist(),
            "evict_push": totals.operations.evict_push.tolist(),
            "peer": totals.peer_rows.tolist(),
        },
        "cost_seconds": totals.cost_seconds,
        "makespan_seconds": totals.makespan_seconds,
        "hit_ratio": totals.hits / totals.lookups if totals.lookups else 0.0,
        "figures": totals.figures,
    }


def _staleness(job: JobSpec, figures: Figures) -> Result | None:
    """Returns how stale the reads were, and how far they may be; None where all are of the latest version."""
    if not isinstance(job.sync, Bounded):
        return None
    staleness = Staleness() + figures
    return {
        "pull_bound": job.sync.pull,
        "push_bound": job.sync.push,
        "most_updates": list(MOST_UPDATES),  # of each bucket of `reads` but the last
        "reads": list(staleness.reads),
        "missing_updates": staleness.missing_updates,
        "most_missing": staleness.most_missing,
    }


def _missing_updates(staleness: Mapping[str, Any]) -> str:
    reads = max(1, sum(staleness["reads"]))
    return f"{staleness['missing_updates'] / reads:.2f} / {staleness['most_missing']:,}"


def _known(figure: float) -> str:
    """Shows a figure that most runs lack. Raises KeyError if this one does."""
    if math.isnan(figure):
        raise KeyError("gauc")
    return f"{figure:.4f}"


def _direct(result: Mapping[str, Any]) -> str:
    """Shows how many rows went straight to the worker that trains them next. Raises KeyError if none did."""
    rows = sum(result["direct"]["rows"])
    if not rows:
        raise KeyError("direct")
    return f"{rows:,}"


def _reduced(result: Mapping[str, Any]) -> str:
    """Shows what a worker sends of them. Raises KeyError if no row is replicated, or no worker is there yet."""
    reduced = max(result["bytes"]["reduced"], default=0)
    if not reduced:
        raise KeyError("reduced")
    return f"{reduced / 1e3 / result['iterations']:,.1f}"


_ROWS: tuple[tuple[str, Callable[[Mapping[str, Any]], str]], ...] = (
    ("iterations", lambda r: f"{r['iterations']:,}"),
    ("iterations per second", lambda r: f"{r['iterations_per_second']:.2f}"),
    ("cost, seconds of transfer", lambda r: f"{r['cost_seconds']:.2f}"),
    ("makespan, seconds", lambda r: f"{r['makespan_seconds']:.2f}"),
    ("miss pulls", lambda r: f"{sum(r['operations']['miss_pull']):,}"),
    ("update pushes", lambda r: f"{sum(r['operations']['update_push']):,}"),
    ("of these straight to workers", _direct),
    ("evict pushes", lambda r: f"{sum(r['operations']['evict_push']):,}"),
    ("flush pushes, beside the cost", lambda r: f"{sum(r['operations']['flush_push']):,}"),
    ("plans, seconds of transfer, beside the cost", lambda r: f"{r['plan_seconds']:.2f}"),
    ("gradients of replicated rows, kB per worker and iteration", _reduced),
    ("plans, kB per iteration", lambda r: f"{r['plan_bytes'] / 1e3 / max(1, r['iterations']):,.1f}"),
    ("worker-to-worker rows", lambda r: f"{sum(r['operations']['peer']):,.0f}"),
    ("hit ratio", lambda r: f"{r['hit_ratio']:.3f}"),
    ("stale reads", lambda r: f"{1 - r['staleness']['reads'][0] / max(1, sum(r['staleness']['reads'])):.1%}"),
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
)


def report_reading(dataset: Dataset) -> None:
    """Says, when a run is over, what became of its samples on their way."""
    if dataset.skipped:
        messages.print(f"skipped {dataset.skipped} malformed records (--skip-bad)")
    if isinstance(dataset, HotBatches):
        messages.print(f"{dataset.hot_batches} mini-batches were hot (--hot-batches)")


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
    print(json.dumps(_without_nan(value)), flush=True)


def _without_nan(value: Any) -> Any:
    """Replaces NaN by None: JSON has no NaN, and what could not be measured is null."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, float) and math.isnan(value):
        return None
    return value
