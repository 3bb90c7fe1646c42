"""The state of a job on the wire, for the call DescribeJob."""

from __future__ import annotations

from dataclasses import asdict, fields

from esd.protos import dispatcher_pb2 as pb
from esd.services.domain.state import (
    Evaluation,
    JobPhase,
    JobState,
    Quality,
    Ranking,
    Recovery,
    ShadowCost,
    WorkerState,
)
from esd.services.domain.sync import Figures, FlushedAhead, Staleness
from esd.services.wire.enums import EnumCodec
from esd.services.wire.jobs import decode_job, encode_job
from esd.services.wire.reports import decode_phases, decode_transfers, encode_phases, encode_transfers

_PHASES = EnumCodec(JobPhase, pb.JobState.Phase, "PHASE_", "job.phase")

_FIGURES = (  # same name and unit on both sides
    "failure",
    "standstill",
    "samples_submitted",
    "iterations_planned",
    "iterations_confirmed",
    "cost_seconds",
    "makespan_seconds",
    "expected_cost_seconds",
    "lookups",
    "hits",
    "decision_median_seconds",
    "decision_p99_seconds",
    "training_seconds",
    "epoch",
    "resumed_from",
    "checkpoint",
    "forgotten_rows",
    "expired_rows",
    "admitted_rows",
    "initial_reads",
    "dense_drift",
)
_QUALITY = ("loss", "auc", "normalised_entropy", "calibration", "gauc")
_STALENESS = ("reads", "missing_updates", "most_missing")
_RECOVERY = ("cause", "epoch", "iterations_redone", "seconds")


def encode_state(state: JobState) -> pb.JobState:
    """Encodes a job with its figures so far."""
    return pb.JobState(
        job=encode_job(state.job),
        phase=_PHASES.encode(state.phase),
        workers=[_encode_worker(worker) for worker in state.workers],
        shadow_costs=[
            pb.ShadowCost(mechanism=each.mechanism, iterations=each.iterations, cost_seconds=each.cost_seconds)
            for each in state.shadow_costs
        ],
        shadows_left_out=state.shadows_left_out,
        quality=_encode_quality(state.quality),
        recent=_encode_quality(state.recent),
        labels=map(_encode_quality, state.labels),
        recent_labels=map(_encode_quality, state.recent_labels),
        evaluations=[encode_evaluation(each) for each in state.evaluations],
        staleness=_encode_staleness(state.sync_figures),
        flushed_ahead=_encode_flushed(state.sync_figures),
        recoveries=[pb.Recovery(**{name: getattr(each, name) for name in _RECOVERY}) for each in state.recoveries],
        **{name: getattr(state, name) for name in _FIGURES},
    )


def decode_state(message: pb.JobState) -> JobState:
    """Decodes a job with its figures so far."""
    job = decode_job(message.job)
    return JobState(
        job=job,
        phase=_PHASES.decode(message.phase),
        workers=tuple(_decode_worker(worker) for worker in message.workers),
        shadow_costs=tuple(
            ShadowCost(each.mechanism, each.iterations, each.cost_seconds) for each in message.shadow_costs
        ),
        shadows_left_out=tuple(message.shadows_left_out),
        quality=_decode_quality(message.quality),
        recent=_decode_quality(message.recent),
        labels=tuple(map(_decode_quality, message.labels)),
        recent_labels=tuple(map(_decode_quality, message.recent_labels)),
        evaluations=tuple(map(decode_evaluation, message.evaluations)),
        sync_figures=_decode_figures(message, job.sync.figures),
        recoveries=tuple(Recovery(*(getattr(each, name) for name in _RECOVERY)) for each in message.recoveries),
        **{name: getattr(message, name) for name in _FIGURES},
    )


def encode_evaluation(evaluation: Evaluation) -> pb.Evaluation:
    """Encodes an evaluation on held-out samples."""
    labels = map(_encode_quality, evaluation.labels)
    ranking = None if evaluation.ranking is None else pb.Ranking(**asdict(evaluation.ranking))
    return pb.Evaluation(iteration=evaluation.iteration, labels=labels, samples=evaluation.samples, ranking=ranking)


def decode_evaluation(message: pb.Evaluation) -> Evaluation:
    """Decodes an evaluation. Raises InvalidArgument if it has no label, or too long a name of its samples."""
    found = message.ranking
    ranking = Ranking(*(getattr(found, each.name) for each in fields(Ranking))) if message.HasField("ranking") else None
    return Evaluation(message.iteration, tuple(map(_decode_quality, message.labels)), message.samples, ranking)


def _encode_quality(quality: Quality) -> pb.Quality:
    return pb.Quality(**{name: getattr(quality, name) for name in _QUALITY})


def _decode_quality(message: pb.Quality) -> Quality:
    return Quality(*(getattr(message, name) for name in _QUALITY))


def _encode_staleness(figures: Figures) -> pb.Staleness | None:
    if not isinstance(figures, Staleness):
        return None
    return pb.Staleness(**{name: getattr(figures, name) for name in _STALENESS})


def _encode_flushed(figures: Figures) -> int:
    return figures.rows if isinstance(figures, FlushedAhead) else 0


def _decode_figures(message: pb.JobState, kind: type[Figures]) -> Figures:
    if issubclass(kind, FlushedAhead):
        return kind(message.flushed_ahead)
    if issubclass(kind, Staleness):
        reads = tuple(message.staleness.reads) or kind().reads
        return kind(reads, message.staleness.missing_updates, message.staleness.most_missing)
    return kind()


def _encode_worker(worker: WorkerState) -> pb.WorkerState:
    return pb.WorkerState(
        worker=worker.worker,
        slot=worker.slot,
        bandwidth_bytes_per_second=worker.bandwidth,
        cache_rows=worker.cache_rows,
        iterations=worker.iterations,
        transfers=encode_transfers(worker.transfers),
        phases=encode_phases(worker.phases),
        seconds_since_heartbeat=worker.seconds_since_heartbeat,
        address=worker.address,
        measured_bandwidth_bytes_per_second=worker.measured_bandwidth,
        workload=worker.workload,
        late_iterations=worker.late_iterations,
        held_back=worker.held_back,
        rests=worker.rests,
    )


def _decode_worker(message: pb.WorkerState) -> WorkerState:
    return WorkerState(
        worker=message.worker,
        slot=message.slot,
        bandwidth=message.bandwidth_bytes_per_second,
        cache_rows=message.cache_rows,
        iterations=message.iterations,
        transfers=decode_transfers(message.transfers),
        phases=decode_phases(message.phases),
        seconds_since_heartbeat=message.seconds_since_heartbeat,
        address=message.address,
        measured_bandwidth=message.measured_bandwidth_bytes_per_second,
        workload=message.workload,
        late_iterations=message.late_iterations,
        held_back=message.held_back,
        rests=message.rests,
    )
