"""Push plans on the wire."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from protos import dispatcher_pb2
from services.domain.errors import InvalidArgument
from services.domain.plans import (
    EndOfStream,
    FlushPlan,
    GradientTransfers,
    IterationPlan,
    Membership,
    PlanMessage,
    Reload,
    Transfers,
)
from services.domain.worker_set import WorkerSet
from services.wire.arrays import decode_array, decode_column, encode_array
from services.wire.jobs import decode_job, encode_job


def encode_plan_message(message: PlanMessage) -> dispatcher_pb2.PlanMessage:
    """The message of anything that a plan stream carries."""
    match message:
        case IterationPlan():
            return dispatcher_pb2.PlanMessage(plan=_encode_plan(message))
        case FlushPlan():
            return dispatcher_pb2.PlanMessage(flush=_encode_flush(message))
        case Membership():
            return dispatcher_pb2.PlanMessage(membership=_encode_membership(message))
        case Reload():
            return dispatcher_pb2.PlanMessage(reload=_encode_reload(message))
        case EndOfStream():
            return dispatcher_pb2.PlanMessage(end=dispatcher_pb2.EndOfStream(iterations=message.iterations))


def digest_of(messages: Iterable[dispatcher_pb2.PlanMessage]) -> str:
    """A hash of plan messages, byte for byte: BLAKE2b of 128 bits, in hexadecimal digits."""
    hashed = hashlib.blake2b(digest_size=16)
    for message in messages:
        hashed.update(message.SerializeToString(deterministic=True))
    return hashed.hexdigest()


def decode_plan_message(message: dispatcher_pb2.PlanMessage) -> PlanMessage:
    """What a plan stream's message carries; columns agree in length and point into each other's range."""
    match message.WhichOneof("body"):
        case "plan":
            return _decode_plan(message.plan)
        case "flush":
            return _decode_flush(message.flush)
        case "membership":
            return _decode_membership(message.membership)
        case "reload":
            return _decode_reload(message.reload)
        case "end":
            return EndOfStream(message.end.iterations)
        case _:
            raise InvalidArgument("body is not set, or of a kind that this version does not know")


def _encode_transfers(rows: Transfers, field: str) -> dispatcher_pb2.Transfers:
    return dispatcher_pb2.Transfers(
        ids=encode_array(rows.ids, np.uint64, f"{field}.ids"),
        slots=encode_array(rows.slots, np.uint32, f"{field}.slots"),
        versions=encode_array(rows.versions, np.int64, f"{field}.versions"),
        early=rows.early,
    )


def _decode_transfers(message: dispatcher_pb2.Transfers, field: str) -> Transfers:
    ids = decode_column(message.ids, np.uint64, f"{field}.ids")
    r = len(ids)
    if message.early > r:
        raise InvalidArgument(f"{field}.early is {message.early}, there are only {r} entries")
    return Transfers(
        ids=ids,
        slots=decode_array(message.slots, np.uint32, (r,), f"{field}.slots"),
        versions=decode_array(message.versions, np.int64, (r,), f"{field}.versions"),
        early=message.early,
    )


def _encode_gradients(gradients: GradientTransfers, field: str) -> dispatcher_pb2.GradientTransfers:
    return dispatcher_pb2.GradientTransfers(
        transfers=_encode_transfers(gradients.rows, f"{field}.transfers"),
        contributors=encode_array(gradients.contributors, np.uint64, f"{field}.contributors"),
        steps=encode_array(gradients.steps, np.int64, f"{field}.steps"),
    )


def _decode_gradients(message: dispatcher_pb2.GradientTransfers, field: str) -> GradientTransfers:
    rows = _decode_transfers(message.transfers, f"{field}.transfers")
    contributors = decode_array(message.contributors, np.uint64, (len(rows),), f"{field}.contributors")
    if not contributors.all():
        raise InvalidArgument(f"{field}.contributors of entry {int(np.argmin(contributors))} names no worker")
    return GradientTransfers(
        rows=rows,
        contributors=contributors,
        steps=decode_array(message.steps, np.int64, (len(rows),), f"{field}.steps"),
    )


def _encode_plan(plan: IterationPlan) -> dispatcher_pb2.IterationPlan:
    return dispatcher_pb2.IterationPlan(
        epoch=plan.epoch,
        iteration=plan.iteration,
        batch_size=plan.batch_size,
        update_rows=_encode_transfers(plan.update_rows, "update_rows"),
        update_gradients=_encode_gradients(plan.update_gradients, "update_gradients"),
        evict_rows=_encode_transfers(plan.evict_rows, "evict_rows"),
        evict_gradients=_encode_gradients(plan.evict_gradients, "evict_gradients"),
        drops=_encode_transfers(plan.drops, "drops"),
        pulls=_encode_transfers(plan.pulls, "pulls"),
        samples=plan.inverse.shape[0],
        fields=plan.inverse.shape[1],
        dense_features=plan.dense.shape[1],
        positions=encode_array(plan.positions, np.uint32, "positions"),
        unique_ids=encode_array(plan.unique_ids, np.uint64, "unique_ids"),
        unique_slots=encode_array(plan.unique_slots, np.uint32, "unique_slots"),
        unique_versions=encode_array(plan.unique_versions, np.int64, "unique_versions"),
        unique_contributors=encode_array(plan.unique_contributors, np.uint64, "unique_contributors"),
        inverse=encode_array(plan.inverse, np.uint32, "inverse"),
        dense=encode_array(plan.dense, np.float32, "dense"),
        labels=encode_array(plan.labels, np.float32, "labels"),
        forgotten=encode_array(plan.forgotten, np.uint64, "forgotten"),
        forgotten_below=plan.forgotten_below,
        discards=_encode_transfers(plan.discards, "discards"),
    )


def _decode_plan(message: dispatcher_pb2.IterationPlan) -> IterationPlan:
    m, fields, k = message.samples, message.fields, message.batch_size
    positions = decode_array(message.positions, np.uint32, (m,), "positions")
    _check_below(positions, k, "positions", "batch_size")
    unique_ids = decode_column(message.unique_ids, np.uint64, "unique_ids")
    u = len(unique_ids)
    inverse = decode_array(message.inverse, np.uint32, (m, fields), "inverse")
    _check_below(inverse, u, "inverse", "the number of unique_ids")
    unique_contributors = decode_array(message.unique_contributors, np.uint64, (u,), "unique_contributors")
    if not unique_contributors.all():
        raise InvalidArgument(f"unique_contributors of entry {int(np.argmin(unique_contributors))} names no worker")
    return IterationPlan(
        epoch=message.epoch,
        iteration=message.iteration,
        batch_size=k,
        update_rows=_decode_transfers(message.update_rows, "update_rows"),
        update_gradients=_decode_gradients(message.update_gradients, "update_gradients"),
        evict_rows=_decode_transfers(message.evict_rows, "evict_rows"),
        evict_gradients=_decode_gradients(message.evict_gradients, "evict_gradients"),
        drops=_decode_transfers(message.drops, "drops"),
        pulls=_decode_transfers(message.pulls, "pulls"),
        positions=positions,
        unique_ids=unique_ids,
        unique_slots=decode_array(message.unique_slots, np.uint32, (u,), "unique_slots"),
        unique_versions=decode_array(message.unique_versions, np.int64, (u,), "unique_versions"),
        unique_contributors=unique_contributors,
        inverse=inverse,
        dense=decode_array(message.dense, np.float32, (m, message.dense_features), "dense"),
        labels=decode_array(message.labels, np.float32, (m,), "labels"),
        forgotten=decode_column(message.forgotten, np.uint64, "forgotten"),
        forgotten_below=message.forgotten_below,
        discards=_decode_transfers(message.discards, "discards"),
    )


def _check_below(values: NDArray[np.uint32], limit: int, field: str, what: str) -> None:
    if values.size and int(values.max()) >= limit:
        raise InvalidArgument(f"{field} contains {int(values.max())}, it must be below {what} ({limit})")


def _encode_flush(plan: FlushPlan) -> dispatcher_pb2.FlushPlan:
    return dispatcher_pb2.FlushPlan(
        epoch=plan.epoch,
        iteration=plan.iteration,
        rows=_encode_transfers(plan.rows, "rows"),
        gradients=_encode_gradients(plan.gradients, "gradients"),
        checkpoint=plan.checkpoint,
    )


def _decode_flush(message: dispatcher_pb2.FlushPlan) -> FlushPlan:
    return FlushPlan(
        epoch=message.epoch,
        iteration=message.iteration,
        rows=_decode_transfers(message.rows, "rows"),
        gradients=_decode_gradients(message.gradients, "gradients"),
        checkpoint=message.checkpoint,
    )


def _encode_membership(membership: Membership) -> dispatcher_pb2.Membership:
    return dispatcher_pb2.Membership(
        epoch=membership.epoch,
        slot=membership.slot,
        workers=membership.job.workers,
        rendezvous=membership.rendezvous,
        job=encode_job(membership.job),
        members=membership.members.mask,
        iteration=membership.iteration,
    )


def _decode_membership(message: dispatcher_pb2.Membership) -> Membership:
    job = decode_job(message.job)
    if message.workers != job.workers:
        raise InvalidArgument(f"workers is {message.workers}, the job in the same message has {job.workers}")
    if message.slot >= job.workers:
        raise InvalidArgument(f"slot is {message.slot}, it must be below workers ({job.workers})")
    everyone = WorkerSet.all_of(job.workers)
    members = WorkerSet(message.members) if message.members else everyone
    if not members <= everyone or message.slot not in members:
        raise InvalidArgument(f"members is {members}, it must name slots below {job.workers}, slot {message.slot} too")
    return Membership(message.epoch, message.slot, message.rendezvous, job, members, message.iteration)


def _encode_reload(reload: Reload) -> dispatcher_pb2.Reload:
    return dispatcher_pb2.Reload(
        checkpoint=reload.checkpoint,
        rows=_encode_transfers(reload.rows, "rows"),
        outdated=_encode_transfers(reload.outdated, "outdated"),
        dense_checksum=reload.dense_checksum,
    )


def _decode_reload(message: dispatcher_pb2.Reload) -> Reload:
    return Reload(
        checkpoint=message.checkpoint,
        rows=_decode_transfers(message.rows, "rows"),
        outdated=_decode_transfers(message.outdated, "outdated"),
        dense_checksum=message.dense_checksum,
    )
