"""Results of runs and simulations as JSON values, for programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from esd.services.domain.dense_sums import AUTO, Every
from esd.services.domain.jobs import JobSpec
from esd.services.domain.reports import LINK_DIRECTIONS, LINK_KINDS, PHASES
from esd.services.domain.state import Evaluation, JobState, Quality
from esd.services.domain.sync import Bounded, Figures, FlushedAhead, Proactive, Staleness
from esd.services.domain.sync.bounded import MOST_UPDATES

if TYPE_CHECKING:  # a client, whose installation may lack the engine, has results of training alone
    from esd.dispatcher.simulator.alternatives import AlternativeTotals
    from esd.dispatcher.simulator.link_bytes import LinkBytes
    from esd.dispatcher.simulator.totals import Totals

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
        # Of the miss pulls: rows that were never trained, which the workers made.
        "initial_pulls": [worker.transfers.initial_pull for worker in workers],
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
        # Everything on the links.
        "link_bytes": {
            kind: {
                direction: [worker.transfers.on_link(kind, direction) for worker in workers]
                for direction in LINK_DIRECTIONS
            }
            for kind in LINK_KINDS
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
        "expired_rows": state.expired_rows,
        "admitted_rows": state.admitted_rows,
        "initial_reads": state.initial_reads,
        "staleness": _staleness(state.job, state.sync_figures),
        "flushed_ahead": _flushed_ahead(state.job, state.sync_figures),
        "cost_seconds": state.cost_seconds,
        # Of the same stream under other mechanisms, which may be some iterations behind.
        "shadow_costs": {
            cost.mechanism: {"iterations": cost.iterations, "cost_seconds": cost.cost_seconds}
            for cost in state.shadow_costs
        },
        "shadows_left_out": list(state.shadows_left_out),  # their mirrors of the caches would take too much memory
        "makespan_seconds": state.makespan_seconds,
        **_dense_sum(state.job),
        "dense_drift": state.dense_drift if isinstance(state.job.dense_sum, Every) else None,
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
    """The figures of the first label, with the loss that is trained; where there are several labels, also by label."""
    ranking = {} if evaluation.ranking is None else asdict(evaluation.ranking)
    return asdict(evaluation.quality) | ranking | _by_label(labels, evaluation.labels)


def _by_label(labels: Sequence[str], qualities: Sequence[Quality]) -> Result:
    """The figures of each label, where there are several."""
    if len(labels) == 1:
        return {}
    return {"labels": {label: asdict(quality) for label, quality in zip(labels, qualities, strict=True)}}


def simulation_result(job: JobSpec, totals: Totals, link: LinkBytes | None = None) -> Result:
    """Makes the result of `esd simulate`: those keys of a training result that need no network and no tensors."""
    return {
        **({} if link is None else _on_links(link)),
        "iterations": totals.iterations,
        "samples": totals.samples,
        "operations": {
            "miss_pull": totals.operations.miss_pull.tolist(),
            "update_push": totals.operations.update_push.tolist(),
            "evict_push": totals.operations.evict_push.tolist(),
            "flush_push": totals.flush_push.tolist(),
        },
        "initial_pulls": totals.initial_pulls.tolist(),
        "bytes": {  # without flushes, and without what messages add
            "pulled": (totals.moved_bytes.miss_pull - totals.unsent_bytes).tolist(),
            "pushed": (totals.moved_bytes.update_push + totals.moved_bytes.evict_push).tolist(),
            "reduced": totals.reduced_bytes.tolist(),
        },
        "direct": {"rows": totals.direct_rows.tolist(), "bytes": totals.direct_bytes.tolist()},
        "forgotten_rows": totals.forgotten_rows,
        "expired_rows": totals.expired_rows,
        "admitted_rows": totals.admitted_rows,
        "initial_reads": totals.initial_reads,
        "staleness": _staleness(job, totals.sync_figures),
        "flushed_ahead": _flushed_ahead(job, totals.sync_figures),
        "plan_bytes": totals.plan_bytes,  # of all workers
        "plan_seconds": totals.plan_seconds,  # beside the cost
        "reduced_seconds": totals.reduced_seconds,  # likewise
        "cost_seconds": totals.cost_seconds,
        "makespan_seconds": totals.makespan_seconds,
        **_dense_sum(job),
        "workloads": totals.workloads.tolist(),
        "expected_cost_seconds": totals.expected_cost_seconds,
        "hit_ratio": totals.hit_ratio,
        "decision_ms": {
            "median": 1e3 * totals.decision_median_seconds,
            "p99": 1e3 * totals.decision_p99_seconds,
        },
    }


def _on_links(link: LinkBytes) -> Result:
    """Returns all bytes on the links, and the makespan with all of them."""
    counted: Result = {}
    for (kind, direction), sizes in link.counted.items():
        counted.setdefault(kind, {})[direction] = sizes.tolist()
    return {"link_bytes": counted, "link_makespan_seconds": link.makespan_seconds}


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


def _dense_sum(job: JobSpec) -> Result:
    """Returns the way to sum dense gradients, and the round trips that an iteration takes at least.

    A job that has not begun may have neither.
    """
    way = job.dense_sum
    return {
        "dense_sum": str(way),
        "round_trips": None if way == AUTO else way.iteration_round_trips(job.workers),
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


def _flushed_ahead(job: JobSpec, figures: Figures) -> int | None:
    """Returns how many of the update pushes no worker needed yet; None where every push waits for its need."""
    return (FlushedAhead() + figures).rows if isinstance(job.sync, Proactive) else None


def finite(value: Any) -> Any:
    """Replaces NaN and infinity by None: JSON has neither, and a figure that could not be measured is null."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
