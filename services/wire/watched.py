"""The plans of all workers on the wire, for observers (protos/dispatcher.proto, WatchPlans)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from esd.protos import dispatcher_pb2 as pb
from esd.services.domain.watched import MoveReason, Moves, PlanStage, WatchedPlans, WorkerMoves
from esd.services.wire.arrays import decode_array
from esd.services.wire.enums import EnumCodec

_STAGES = EnumCodec(PlanStage, pb.WatchPlansResponse.Stage, "STAGE_", "stage")
_REASONS = EnumCodec(MoveReason, pb.Moves.Reason, "REASON_", "moves.reason")


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """The wish of an observer.

    Attributes:
        job: the name of the job.
        from_iteration: the first iteration; None: the next that is planned.
        epoch: the epoch of that iteration; None: the present epoch.
        ids: whether the moves have the ids of their rows.
    """

    job: str
    from_iteration: int | None = None
    epoch: int | None = None
    ids: bool = False


def encode_watch_request(request: WatchRequest) -> pb.WatchPlansRequest:
    """Encodes an observer's wish."""
    return pb.WatchPlansRequest(
        job=request.job, from_iteration=request.from_iteration, epoch=request.epoch, ids=request.ids
    )


def decode_watch_request(message: pb.WatchPlansRequest) -> WatchRequest:
    """Decodes an observer's wish."""
    return WatchRequest(
        message.job,
        message.from_iteration if message.HasField("from_iteration") else None,
        message.epoch if message.HasField("epoch") else None,
        message.ids,
    )


def encode_watched(plans: WatchedPlans) -> pb.WatchPlansResponse:
    """Encodes plans that belong together."""
    return pb.WatchPlansResponse(
        epoch=plans.epoch,
        iteration=plans.iteration,
        stage=_STAGES.encode(plans.stage),
        workers=[
            pb.WorkerMoves(
                worker=each.worker,
                slot=each.slot,
                samples=each.samples,
                plan_bytes=each.plan_bytes,
                moves=map(_encode_moves, each.moves),
            )
            for each in plans.workers
        ],
    )


def _encode_moves(moves: Moves) -> pb.Moves:
    return pb.Moves(
        reason=_REASONS.encode(moves.reason),
        gradients=moves.gradients,
        rows=moves.rows,
        by_worker=moves.by_worker.tolist(),
        ids=None if moves.ids is None else np.ascontiguousarray(moves.ids).tobytes(),
    )


def decode_watched(message: pb.WatchPlansResponse) -> WatchedPlans:
    """Decodes plans that belong together. Raises InvalidArgument if they are malformed."""
    workers = tuple(
        WorkerMoves(each.worker, each.slot, each.samples, each.plan_bytes, tuple(map(_decode_moves, each.moves)))
        for each in message.workers
    )
    return WatchedPlans(message.epoch, message.iteration, _STAGES.decode(message.stage), workers)


def _decode_moves(message: pb.Moves) -> Moves:
    ids = decode_array(message.ids, np.uint64, (message.rows,), "moves.ids") if message.HasField("ids") else None
    by_worker = np.array(message.by_worker, np.int64)
    return Moves(_REASONS.decode(message.reason), message.gradients, message.rows, by_worker, ids)
