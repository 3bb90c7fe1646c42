"""Plans on the wire, encoded by the dispatcher and decoded by workers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.native import wire as native
from esd.protos import dispatcher_pb2
from esd.services.domain.claimants import check_claimant
from esd.services.domain.dense_roles import DenseRole
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import MAX_FEATURES, MAX_LENGTH
from esd.services.domain.negatives import without_lists
from esd.services.domain.plans import (
    NO_DIRECT_ROWS,
    NO_GRADIENTS,
    NO_TRANSFERS,
    DirectRows,
    EndOfStream,
    FlushPlan,
    GradientTransfers,
    IterationPlan,
    Membership,
    PlanMessage,
    Reload,
    Transfers,
)
from esd.services.domain.worker_set import MAX_WORKERS, WorkerSet, empty, several
from esd.services.wire.arrays import decode_array
from esd.services.wire.jobs import decode_job, encode_job

# The fields of an IterationPlan by form; each has the same name in its message.
_SINGLE = ("epoch", "iteration", "batch_size", "forgotten_below", "trace_parent")
_TRANSFERS = ("update_rows", "evict_rows", "drops", "pulls", "discards")
_GRADIENTS = ("update_gradients", "evict_gradients")
# For each field of direct rows: the field with all rows, to which its places refer, and the field with the peers.
_DIRECT = {"direct_pushes": ("update_rows", "direct_push_peers"), "direct_pulls": ("pulls", "direct_pull_peers")}

# The largest number of ids of a plan's samples, far above any iteration's. It bounds the memory for decoding, since a
# packed column can claim any number of equal values in a few bytes.
_MOST_IDS = 1 << 26


def encode_plan_message(message: FlushPlan | Membership | Reload | EndOfStream) -> bytes:
    """Encodes a message to a worker, as an AttendResponse without other fields.

    The engine encodes the plans of iterations itself (`IterationColumns.messages`).
    """
    match message:
        case FlushPlan():
            response = dispatcher_pb2.AttendResponse(flush=_encode_flush(message))
        case Membership():
            response = dispatcher_pb2.AttendResponse(membership=_encode_membership(message))
        case Reload():
            response = dispatcher_pb2.AttendResponse(reload=_encode_reload(message))
        case EndOfStream():
            response = dispatcher_pb2.AttendResponse(end=dispatcher_pb2.EndOfStream(iterations=message.iterations))
    return response.SerializeToString(deterministic=True)


def with_trace(message: bytes, trace_parent: str) -> bytes:
    """Returns the message of one plan with the span of its decision, as W3C's traceparent."""
    response = dispatcher_pb2.AttendResponse.FromString(message)
    (plan,) = response.plans
    plan.trace_parent = trace_parent
    return response.SerializeToString(deterministic=True)


def digest_of(messages: Iterable[bytes]) -> str:
    """Returns a hash of plan messages, byte for byte: BLAKE2b of 128 bits, in hexadecimal digits."""
    hashed = hashlib.blake2b(digest_size=16)
    for message in messages:
        hashed.update(message)
    return hashed.hexdigest()


def decode_iteration_plans(data: bytes) -> tuple[list[IterationPlan], bytes] | None:
    """Decodes the plans of iterations in a message, in one native call.

    Returns:
        The plans, and the message without them. None if a plan is unusual: the caller then uses `decode_plan_messages`,
        which decodes every valid plan and raises the error of an invalid one.
    """
    read = native.read_plans(data, MAX_FEATURES, MAX_LENGTH, _MOST_IDS, MAX_WORKERS)
    if read is None:
        return None
    plans, rest = read
    return [_plan_of(columns) for columns in plans], rest


def _plan_of(columns: dict[str, Any]) -> IterationPlan:
    for name in _TRANSFERS:
        columns[name] = _rows_of(columns[name])
    for name in _GRADIENTS:
        gradients = columns[name]
        columns[name] = (
            NO_GRADIENTS if gradients is None else GradientTransfers(_rows_of(gradients[0]), gradients[1], gradients[2])
        )
    for name in _DIRECT:
        direct = columns[name]
        columns[name] = NO_DIRECT_ROWS if direct is None else DirectRows(*direct)
    columns["dense_role"] = DenseRole(columns.get("dense_role", DenseRole.TRAINS))
    return IterationPlan(**without_lists(columns, columns.pop("lists")))


def _rows_of(columns: tuple[Any, ...] | None) -> Transfers:
    return NO_TRANSFERS if columns is None else Transfers(*columns)


def decode_plan_messages(message: dispatcher_pb2.AttendResponse) -> list[PlanMessage]:
    """Decodes the messages to a worker, and checks the lengths of columns and the ranges of indexes.

    Raises:
        InvalidArgument: a column has a wrong length, or a number is out of range.
    """
    decoded: list[PlanMessage] = [_decode_plan(plan) for plan in message.plans]
    match message.WhichOneof("body"):
        case "flush":
            decoded.append(_decode_flush(message.flush))
        case "membership":
            decoded.append(_decode_membership(message.membership))
        case "reload":
            decoded.append(_decode_reload(message.reload))
        case "end":
            decoded.append(EndOfStream(message.end.iterations))
    return decoded


def _pack(column: NDArray[Any], dtype: type[np.generic], field: str) -> bytes:
    """Packs a column, without converting it to `dtype`: a silent conversion could change ids or versions."""
    if column.dtype != dtype:
        raise TypeError(f"{field} is {column.dtype}, the contract requires {np.dtype(dtype)}")
    return native.pack(np.ascontiguousarray(column))


def _unpack(data: bytes, dtype: type[np.generic], field: str, count: int | None = None) -> NDArray[Any]:
    """Unpacks a column. Raises InvalidArgument if it does not have `count` values, unless that is None."""
    try:
        if dtype is np.uint64:
            return native.unpack_uint64(data, count)
        return native.unpack_uint32(data, count) if dtype is np.uint32 else native.unpack_int64(data, count)
    except ValueError as error:
        raise InvalidArgument(f"{field} {error}") from None


def _encode_transfers(rows: Transfers, field: str) -> dispatcher_pb2.Transfers:
    return dispatcher_pb2.Transfers(
        ids=_pack(rows.ids, np.uint64, f"{field}.ids"),
        slots=_pack(rows.slots, np.uint32, f"{field}.slots"),
        versions=_pack(rows.versions, np.int64, f"{field}.versions"),
        early=rows.early,
    )


def _decode_transfers(message: dispatcher_pb2.Transfers, field: str, trained: Transfers | None = None) -> Transfers:
    """Decodes rows to move. A row that the plan also trains is given as its place among `trained`."""
    ids = _unpack(message.ids, np.uint64, f"{field}.ids")
    slots = _unpack(message.slots, np.uint32, f"{field}.slots", len(ids))
    versions = _unpack(message.versions, np.int64, f"{field}.versions", len(ids))
    if message.trained:
        places = _unpack(message.trained, np.uint32, f"{field}.trained")
        here = trained or NO_TRANSFERS
        try:
            ids, slots, versions = native.place(places, (here.ids, here.slots, here.versions), (ids, slots, versions))
        except ValueError as error:
            raise InvalidArgument(f"{field}.trained {error}") from None
    if message.early > len(ids):
        raise InvalidArgument(f"{field}.early is {message.early}, there are only {len(ids)} entries")
    return Transfers(ids, slots, versions, message.early)


def _encode_gradients(gradients: GradientTransfers, field: str) -> dispatcher_pb2.GradientTransfers:
    return dispatcher_pb2.GradientTransfers(
        transfers=_encode_transfers(gradients.rows, f"{field}.transfers"),
        contributors=_pack(gradients.contributors.ravel(), np.uint64, f"{field}.contributors"),
        steps=_pack(gradients.steps, np.int64, f"{field}.steps"),
    )


def _decode_gradients(
    message: dispatcher_pb2.GradientTransfers, field: str, trained: Transfers | None = None
) -> GradientTransfers:
    rows = _decode_transfers(message.transfers, f"{field}.transfers", trained)
    contributors = _decode_contributors(message.contributors, len(rows), f"{field}.contributors")
    return GradientTransfers(rows, contributors, _unpack(message.steps, np.int64, f"{field}.steps", len(rows)))


def _decode_plan(message: dispatcher_pb2.IterationPlan) -> IterationPlan:
    m, fields, features = message.samples, message.fields, message.dense_features
    # These are not packed, so their bytes prove the number of samples before a packed column is expanded to it.
    references = decode_array(message.references, np.uint64, (m,), "references") if message.references else None
    width = message.labels_per_sample if message.references else message.labels_per_sample or 1
    labels = decode_array(message.labels, np.float32, (m, width), "labels")
    if fields > MAX_FEATURES:
        raise InvalidArgument(f"fields is {fields}, it must be at most {MAX_FEATURES}")
    differences = _unpack(message.unique_ids, np.uint64, "unique_ids")
    u = len(differences)
    trained = Transfers(
        ids=np.cumsum(differences, dtype=np.uint64) + np.uint64(message.first_id),
        slots=_unpack(message.unique_slots, np.uint32, "unique_slots", u),
        versions=_unpack(message.unique_versions, np.int64, "unique_versions", u),
        early=0,
    )
    contributors = _decode_contributors(message.unique_contributors, u, "unique_contributors")
    positions = _unpack(message.positions, np.uint32, "positions", m)
    _check_below(positions, message.batch_size, "positions", "batch_size")
    lengths: NDArray[np.uint32] | None = None
    ids = _check_ids(m * fields)
    if message.lengths:
        lengths = _decode_lengths(message.lengths, m, fields)
        ids = _check_ids(int(lengths.sum(dtype=np.int64)))
    initial = _unpack(message.initial_ids, np.uint64, "initial_ids")
    inverse = _unpack(message.inverse, np.uint32, "inverse", ids)
    _check_below(inverse, u + len(initial), "inverse", "the number of unique_ids and initial_ids")
    transfers: dict[str, Any] = {name: _decode_transfers(getattr(message, name), name, trained) for name in _TRANSFERS}
    transfers |= {name: _decode_gradients(getattr(message, name), name, trained) for name in _GRADIENTS}
    for name, (rows, with_whom) in _DIRECT.items():
        transfers[name] = _decode_direct(message, name, with_whom, len(transfers[rows]))
    _check_lists(message.lists, m, lengths)
    columns = transfers | {
        "positions": positions,
        "unique_ids": trained.ids,
        "unique_slots": trained.slots,
        "unique_versions": trained.versions,
        "unique_contributors": contributors,
        "inverse": inverse,
        "dense": decode_array(message.dense, np.float32, (m, features), "dense"),
        "labels": labels,
        "forgotten": _unpack(message.forgotten, np.uint64, "forgotten"),
        "reduced": _decode_reduced(message.reduced, contributors),
        "initial_ids": np.cumsum(initial, dtype=np.uint64) + np.uint64(message.first_initial_id),
        "lengths": lengths,
        "weights": decode_array(message.weights, np.float32, (m,), "weights") if message.weights else None,
        "groups": decode_array(message.groups, np.uint64, (m,), "groups") if message.groups else None,
        "references": references,
        "dense_role": _decode_role(message.dense_role),
    }
    return IterationPlan(**{name: getattr(message, name) for name in _SINGLE}, **without_lists(columns, message.lists))


def _decode_role(number: int) -> DenseRole:
    try:
        return DenseRole(number)
    except ValueError:
        raise InvalidArgument(f"dense_role is {number}, it must be one of {[*map(int, DenseRole)]}") from None


def _check_lists(lists: int, samples: int, lengths: NDArray[np.uint32] | None) -> None:
    """Raises InvalidArgument unless the last samples of a plan can be lists of negatives."""
    if lists > samples or (lists and lengths is None):
        raise InvalidArgument(f"lists is {lists}, of {samples} samples, which then need lengths")


def _check_ids(ids: int) -> int:
    """Returns the number of ids of a plan's samples. Raises InvalidArgument if it exceeds the limit."""
    if ids > _MOST_IDS:
        raise InvalidArgument(f"the samples of a plan have {ids} ids, there must be at most {_MOST_IDS}")
    return ids


def _decode_lengths(data: bytes, samples: int, fields: int) -> NDArray[np.uint32]:
    lengths = _unpack(data, np.uint32, "lengths", samples * fields)
    _check_below(lengths, MAX_LENGTH + 1, "lengths", "the limit of a feature plus 1")
    return lengths.reshape(samples, fields)


def _decode_reduced(data: bytes, contributors: NDArray[np.uint64]) -> NDArray[np.uint32]:
    places = _unpack(data, np.uint32, "reduced")
    _check_below(places, len(contributors), "reduced", "the number of unique_ids")
    _check_ascending(places, "reduced")
    if several(contributors[places]).any():
        raise InvalidArgument("unique_contributors of a replicated row must name one worker")
    return places


def _decode_direct(message: dispatcher_pb2.IterationPlan, name: str, with_whom: str, rows: int) -> DirectRows:
    """Decodes the places, below `rows`, and the peers of direct rows, from the fields `name` and `with_whom`."""
    places = _unpack(getattr(message, name), np.uint32, name)
    peers = _unpack(getattr(message, with_whom), np.uint32, with_whom, len(places))
    _check_below(places, rows, name, "the number of rows")
    _check_ascending(places, name)
    _check_below(peers, MAX_WORKERS, with_whom, "the most workers")
    return DirectRows(places, peers)


def _check_ascending(places: NDArray[np.uint32], field: str) -> None:
    if (places[1:] <= places[:-1]).any():
        raise InvalidArgument(f"{field} must ascend")


def _decode_contributors(data: bytes, rows: int, field: str) -> NDArray[np.uint64]:
    """Decodes a set of workers for each row: uint64 [rows], or [rows, 2] in a job of more than 64 workers."""
    words = 2 if rows and native.claims(data, 2 * rows) else 1
    contributors = _unpack(data, np.uint64, field, words * rows)
    if words > 1:
        contributors = contributors.reshape(rows, words)
    absent = empty(contributors)
    if absent.any():
        raise InvalidArgument(f"{field} of entry {int(np.argmax(absent))} names no worker")
    return contributors


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
        stores_dense=plan.stores_dense,
    )


def _decode_flush(message: dispatcher_pb2.FlushPlan) -> FlushPlan:
    return FlushPlan(
        epoch=message.epoch,
        iteration=message.iteration,
        rows=_decode_transfers(message.rows, "rows"),
        gradients=_decode_gradients(message.gradients, "gradients"),
        checkpoint=message.checkpoint,
        stores_dense=message.stores_dense,
    )


def _encode_membership(membership: Membership) -> dispatcher_pb2.Membership:
    return dispatcher_pb2.Membership(
        epoch=membership.epoch,
        slot=membership.slot,
        workers=membership.job.workers,
        job=encode_job(membership.job),
        members=membership.members.words[0],
        more_members=membership.members.words[1],
        iteration=membership.iteration,
        peers=membership.peers,
        claimant=membership.claimant,
    )


def _decode_membership(message: dispatcher_pb2.Membership) -> Membership:
    job = decode_job(message.job)
    if message.workers != job.workers:
        raise InvalidArgument(f"workers is {message.workers}, the job in the same message has {job.workers}")
    if message.slot >= job.workers:
        raise InvalidArgument(f"slot is {message.slot}, it must be below workers ({job.workers})")
    everyone = WorkerSet.all_of(job.workers)
    members = WorkerSet.of_words((message.members, message.more_members)) or everyone
    if not members <= everyone or message.slot not in members:
        raise InvalidArgument(f"members is {members}, it must name slots below {job.workers}, slot {message.slot} too")
    peers = tuple(message.peers)
    if len(peers) not in (0, job.workers):
        raise InvalidArgument(f"peers has {len(peers)} entries, the job has {job.workers} workers")
    claimant = check_claimant(message.claimant) if message.claimant else b""
    return Membership(message.epoch, message.slot, job, members, message.iteration, peers, claimant)


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
