"""Plans as they travel, in plain Python: the specification of the engine's encoding, and good plans for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.protos import dispatcher_pb2 as pb
from esd.services.domain.plans import GradientTransfers, IterationPlan, PlanMessage, Transfers
from esd.services.wire.plans import encode_plan_message


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def pack(values: NDArray[Any]) -> bytes:
    """A column: how many, how wide, the least, and each less the least, from the lowest bit on."""
    numbers = [int(value) for value in values]
    if not numbers:
        return b""
    least = min(numbers)
    bits = (max(numbers) - least).bit_length()
    stream = sum((number - least) << i * bits for i, number in enumerate(numbers))
    head = varint(len(numbers)) + bytes([bits]) + varint(least % 2**64)
    return head + stream.to_bytes((len(numbers) * bits + 7) // 8, "little")


def message_of(message: PlanMessage, fields: int | None = None) -> bytes:
    """Encodes anything that a worker is told; a plan without samples does not tell its number of fields."""
    if isinstance(message, IterationPlan):
        return pb.AttendResponse(plans=[_plan(message, fields)]).SerializeToString(deterministic=True)
    return encode_plan_message(message)


def _plan(plan: IterationPlan, fields: int | None) -> pb.IterationPlan:
    m, labels = plan.labels.shape
    if fields is None:
        fields = len(plan.inverse) // max(m, 1) if plan.lengths is None else plan.lengths.shape[1]
    u = len(plan.unique_ids)
    return pb.IterationPlan(
        trace_parent=plan.trace_parent,
        dense_role=pb.DenseRole.Name(plan.dense_role),
        epoch=plan.epoch,
        iteration=plan.iteration,
        batch_size=plan.batch_size,
        reduced=pack(plan.reduced),
        update_rows=_rows(plan.update_rows, plan),
        update_gradients=_gradients(plan.update_gradients, plan),
        evict_rows=_rows(plan.evict_rows, plan),
        evict_gradients=_gradients(plan.evict_gradients, plan),
        drops=_rows(plan.drops, plan),
        pulls=_rows(plan.pulls, plan),
        samples=m,
        fields=fields,
        dense_features=plan.dense.shape[1],
        positions=pack(plan.positions),
        first_id=int(plan.unique_ids[0]) if u else 0,
        unique_ids=pack(_differences(plan.unique_ids)),
        unique_slots=pack(plan.unique_slots),
        unique_versions=pack(plan.unique_versions),
        unique_contributors=pack(plan.unique_contributors.ravel()),
        inverse=pack(plan.inverse),
        dense=plan.dense.tobytes(),
        labels=plan.labels.tobytes(),
        forgotten=pack(plan.forgotten),
        forgotten_below=plan.forgotten_below,
        discards=_rows(plan.discards, plan),
        labels_per_sample=0 if labels == 1 else labels,
        lengths=b"" if plan.lengths is None else pack(plan.lengths.ravel()),
        weights=b"" if plan.weights is None else plan.weights.tobytes(),
        groups=b"" if plan.groups is None else plan.groups.tobytes(),
        references=b"" if plan.references is None else plan.references.tobytes(),
        direct_pushes=pack(plan.direct_pushes.places),
        direct_push_peers=pack(plan.direct_pushes.peers),
        direct_pulls=pack(plan.direct_pulls.places),
        direct_pull_peers=pack(plan.direct_pulls.peers),
        first_initial_id=int(plan.initial_ids[0]) if len(plan.initial_ids) else 0,
        initial_ids=pack(_differences(plan.initial_ids)),
    )


def _differences(ids: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns 0 for the first id, and the difference of each other one from the id before it."""
    differences = np.zeros(len(ids), np.uint64)
    differences[1:] = np.diff(ids)
    return differences


def _rows(rows: Transfers, plan: IterationPlan) -> pb.Transfers:
    trained = {
        row: place
        for place, row in enumerate(
            zip(plan.unique_ids.tolist(), plan.unique_slots.tolist(), plan.unique_versions.tolist(), strict=True)
        )
    }
    u = len(plan.unique_ids)
    moved = list(zip(rows.ids.tolist(), rows.slots.tolist(), rows.versions.tolist(), strict=True))
    places = np.array([trained.get(row, u) for row in moved], np.uint32)
    others = places == u
    return pb.Transfers(
        trained=b"" if others.all() else pack(places),
        ids=pack(rows.ids[others]),
        slots=pack(rows.slots[others]),
        versions=pack(rows.versions[others]),
        early=rows.early,
    )


def _gradients(gradients: GradientTransfers, plan: IterationPlan) -> pb.GradientTransfers:
    return pb.GradientTransfers(
        transfers=_rows(gradients.rows, plan),
        contributors=pack(gradients.contributors.ravel()),
        steps=pack(gradients.steps),
    )
