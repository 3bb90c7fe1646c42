"""Push plans on the wire, encoded by the dispatcher and decoded by workers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

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

# The fields of an IterationPlan by form; each has the same name in its message.
_NUMBERS = ("epoch", "iteration", "batch_size", "forgotten_below")
_TRANSFERS = ("update_rows", "evict_rows", "drops", "pulls", "discards")
_GRADIENTS = ("update_gradients", "evict_gradients")
# The arrays, with dtype and shape in the letters of the contract: m samples, F fields, d dense features, u distinct
# rows, f forgotten rows. The message tells m, F and d; u and f are the lengths of the first columns that have them.
_COLUMNS: dict[str, tuple[DTypeLike, str]] = {
    "positions": (np.uint32, "m"),
    "unique_ids": (np.uint64, "u"),
    "inverse": (np.uint32, "mF"),
    "unique_slots": (np.uint32, "u"),
    "unique_versions": (np.int64, "u"),
    "unique_contributors": (np.uint64, "u"),
    "dense": (np.float32, "md"),
    "labels": (np.float32, "m"),
    "forgotten": (np.uint64, "f"),
}
# The columns that point into something, and its size.
_INDEXES = {"positions": ("k", "batch_size"), "inverse": ("u", "the number of unique_ids")}


def encode_plan_message(message: PlanMessage) -> bytes:
    """Encodes what a worker is told, as an AttendResponse that says nothing else."""
    match message:
        case IterationPlan():
            response = dispatcher_pb2.AttendResponse(plan=_encode_plan(message))
        case FlushPlan():
            response = dispatcher_pb2.AttendResponse(flush=_encode_flush(message))
        case Membership():
            response = dispatcher_pb2.AttendResponse(membership=_encode_membership(message))
        case Reload():
            response = dispatcher_pb2.AttendResponse(reload=_encode_reload(message))
        case EndOfStream():
            response = dispatcher_pb2.AttendResponse(end=dispatcher_pb2.EndOfStream(iterations=message.iterations))
    return response.SerializeToString(deterministic=True)


def digest_of(messages: Iterable[bytes]) -> str:
    """Returns a hash of plan messages, byte for byte: BLAKE2b of 128 bits, in hexadecimal digits."""
    hashed = hashlib.blake2b(digest_size=16)
    for message in messages:
        hashed.update(message)
    return hashed.hexdigest()


def decode_plan_message(message: dispatcher_pb2.AttendResponse) -> PlanMessage:
    """Returns what a message tells a worker to do, checked: columns agree in length, indexes are in range.

    Raises:
        InvalidArgument: a column has another length, a number is out of range, or the kind of message is unknown.
    """
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
    samples, fields = plan.inverse.shape
    columns: dict[str, Any] = {name: getattr(plan, name) for name in _NUMBERS}
    columns |= {name: _encode_transfers(getattr(plan, name), name) for name in _TRANSFERS}
    columns |= {name: _encode_gradients(getattr(plan, name), name) for name in _GRADIENTS}
    columns |= {name: encode_array(getattr(plan, name), dtype, name) for name, (dtype, _) in _COLUMNS.items()}
    return dispatcher_pb2.IterationPlan(samples=samples, fields=fields, dense_features=plan.dense.shape[1], **columns)


def _decode_plan(message: dispatcher_pb2.IterationPlan) -> IterationPlan:
    sizes = {"k": message.batch_size, "m": message.samples, "F": message.fields, "d": message.dense_features}
    columns: dict[str, Any] = {}
    for name, (dtype, shape) in _COLUMNS.items():
        data = getattr(message, name)
        if shape in sizes or len(shape) > 1:
            columns[name] = decode_array(data, dtype, tuple(sizes[letter] for letter in shape), name)
        else:
            columns[name] = decode_column(data, dtype, name)
            sizes[shape] = len(columns[name])
        if name in _INDEXES:
            size, what = _INDEXES[name]
            _check_below(columns[name], sizes[size], name, what)
    if not columns["unique_contributors"].all():
        nobody = int(np.argmin(columns["unique_contributors"]))
        raise InvalidArgument(f"unique_contributors of entry {nobody} names no worker")
    columns |= {name: getattr(message, name) for name in _NUMBERS}
    columns |= {name: _decode_transfers(getattr(message, name), name) for name in _TRANSFERS}
    columns |= {name: _decode_gradients(getattr(message, name), name) for name in _GRADIENTS}
    return IterationPlan(**columns)


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
    return Membership(message.epoch, message.slot, job, members, message.iteration)


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
