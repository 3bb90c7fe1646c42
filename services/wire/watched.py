"""The plans of all workers on the wire, for observers (protos/dispatcher.proto, WatchPlans)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from esd.protos import dispatcher_pb2 as pb
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.watched import MoveReason, Moves, PlanStage, WatchedPlans, WorkerMoves
from esd.services.wire.arrays import decode_array
from esd.services.wire.enums import EnumCodec
from esd.services.wire.messages import parse
from esd.services.wire.pieces import PieceBuffer, pieces_of

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


def watched_in_pieces(plans: WatchedPlans, longest: int) -> Sequence[pb.WatchPlansResponse]:
    """Returns the message of plans, or the messages with the pieces of a long one.

    Args:
        plans: plans that belong together.
        longest: the most bytes of a message that the observer accepts.
    """
    whole = encode_watched(plans)
    pieces = [pb.WatchPlansResponse(piece=piece) for piece in pieces_of(whole.SerializeToString(), longest)]
    return pieces or [whole]


class JoinedPlans:
    """The pieces of long plans on one stream, until they are complete."""

    def __init__(self) -> None:
        self._pieces = PieceBuffer()

    def add(self, message: pb.WatchPlansResponse) -> WatchedPlans | None:
        """Returns the plans that are complete with this message; None if more pieces follow.

        Raises:
            InvalidArgument: the plans are malformed, or the message is not the next piece of plans that are not whole.
        """
        if message.HasField("piece"):
            whole = self._pieces.add(message.piece)
            return None if whole is None else decode_watched(parse(pb.WatchPlansResponse, whole))
        if self._pieces:
            raise InvalidArgument(f"plans follow {len(self._pieces)} pieces of others that are not complete")
        return decode_watched(message)


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
