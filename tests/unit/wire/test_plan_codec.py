"""Everything that a plan stream carries survives the wire; malformed messages are refused by field."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from esd.protos import dispatcher_pb2
from esd.services.domain.claimants import new_claimant
from esd.services.domain.dense_roles import DenseRole
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import numbered_ids
from esd.services.domain.jobs import JobSpec, ModelSpec
from esd.services.domain.plans import (
    DirectRows,
    EndOfStream,
    FlushPlan,
    GradientTransfers,
    IterationPlan,
    Membership,
    PlanMessage,
    Transfers,
)
from esd.services.domain.tables import OptimizerSpec, TableSpec
from esd.services.domain.worker_set import WorkerSet
from esd.services.wire.attend import decode_response
from esd.services.wire.plans import decode_iteration_plans, decode_plan_messages, encode_plan_message, with_trace
from tests.support.plan_messages import message_of, pack

JOB = JobSpec(
    name="job",
    workers=2,
    features=numbered_ids(2),
    dense_features=1,
    batch_size=4,
    workloads=(2, 2),
    mechanism="esd",
    policy="emark",
    seed=7,
    window=1,
    tables=(TableSpec("t", 4, OptimizerSpec(), seed=7, init_scale=0.1),),
    model=ModelSpec("wdl", (8,), OptimizerSpec()),
    parameter_servers=("127.0.0.1:1",),
)

TRACE_PARENT = f"00-{7:032x}-{9:016x}-01"
MASKS = st.integers(1, 2**64 - 1)
COUNTER = st.integers(0, 2**64 - 1)


@st.composite
def transfers(draw: st.DrawFn) -> Transfers:
    r = draw(st.integers(0, 4))
    return Transfers(
        ids=draw(arrays(np.uint64, r)),
        slots=draw(arrays(np.uint32, r)),
        versions=draw(arrays(np.int64, r)),
        early=draw(st.integers(0, r)),
    )


@st.composite
def contributors(draw: st.DrawFn, rows: int, wide: bool) -> NDArray[np.uint64]:
    """A set of workers for each row, in one word or, in a job of more than 64 workers, in two."""
    if not rows or not wide:
        return draw(arrays(np.uint64, rows, elements=MASKS))
    words = draw(arrays(np.uint64, (rows, 2)))
    words[~words.any(axis=1), draw(st.integers(0, 1))] = draw(MASKS)
    return words


@st.composite
def gradients(draw: st.DrawFn) -> GradientTransfers:
    rows = draw(transfers())
    return GradientTransfers(
        rows=rows,
        contributors=draw(contributors(len(rows), draw(st.booleans()))),
        steps=draw(arrays(np.int64, len(rows))),
    )


@st.composite
def direct_rows(draw: st.DrawFn, rows: int) -> DirectRows:
    places = draw(st.sets(st.integers(0, rows - 1))) if rows else []
    peers = draw(arrays(np.uint32, len(places), elements=st.integers(0, 127)))
    return DirectRows(np.array(sorted(places), np.uint32), peers)


@st.composite
def plans(draw: st.DrawFn) -> IterationPlan:
    m, per_sample, features = draw(st.tuples(st.integers(0, 4), st.integers(1, 3), st.integers(0, 3)))
    k = m + draw(st.integers(0, 3))
    u = draw(st.integers(1, 5)) if m else 0
    lengths = draw(st.none() | arrays(np.uint32, (m, per_sample), elements=st.integers(0, 3))) if m else None
    ids = m * per_sample if lengths is None else int(lengths.sum())
    initial = draw(st.integers(0, 3)) if m else 0
    trainers = draw(contributors(u, draw(st.booleans())))
    replicated = np.array(sorted(draw(st.sets(st.integers(0, u - 1)))) if u else [], np.uint32)
    owners = np.uint64(1) << trainers.reshape(u, trainers.ndim)[:, 0] % np.uint64(64)
    if trainers.ndim > 1:
        trainers[replicated] = 0
    trainers[(replicated, -1) if trainers.ndim > 1 else replicated] = owners[replicated]
    update_rows, pulls = draw(transfers()), draw(transfers())
    references = draw(st.none() | arrays(np.uint64, m)) if m else None
    labels, features = (draw(st.integers(1, 3)), features) if references is None else (0, 0)
    return IterationPlan(
        epoch=draw(COUNTER),
        iteration=draw(COUNTER),
        batch_size=k,
        update_rows=update_rows,
        update_gradients=draw(gradients()),
        evict_rows=draw(transfers()),
        evict_gradients=draw(gradients()),
        drops=draw(transfers()),
        pulls=pulls,
        positions=draw(arrays(np.uint32, m, elements=st.integers(0, max(k - 1, 0)))),
        unique_ids=draw(arrays(np.uint64, u)),
        unique_slots=draw(arrays(np.uint32, u)),
        unique_versions=draw(arrays(np.int64, u)),
        unique_contributors=trainers,
        inverse=draw(arrays(np.uint32, ids, elements=st.integers(0, max(u + initial - 1, 0)))),
        dense=draw(arrays(np.float32, (m, features))),
        labels=draw(arrays(np.float32, (m, labels))),
        forgotten=draw(arrays(np.uint64, draw(st.integers(0, 3)))),
        forgotten_below=draw(st.integers(0, 2**53)),
        discards=draw(transfers()),
        lengths=lengths,
        weights=draw(st.none() | arrays(np.float32, m)) if m else None,
        groups=draw(st.none() | arrays(np.uint64, m)) if m else None,
        references=references,
        reduced=replicated,
        direct_pushes=draw(direct_rows(len(update_rows))),
        direct_pulls=draw(direct_rows(len(pulls))),
        initial_ids=draw(arrays(np.uint64, initial)),
        trace_parent=draw(st.sampled_from(["", TRACE_PARENT])),
        dense_role=draw(st.sampled_from(DenseRole)),
    )


MESSAGES = st.one_of(
    plans(),
    st.builds(FlushPlan, COUNTER, COUNTER, transfers(), gradients(), st.booleans(), st.booleans()),
    st.builds(
        Membership,
        epoch=COUNTER,
        slot=st.integers(0, 1),
        job=st.just(JOB),
        members=st.just(WorkerSet(0b11)),
        peers=st.sampled_from([(), ("", "10.0.0.2:7070")]),
    ),
    st.builds(EndOfStream, COUNTER),
)


def assert_same(before: Any, after: Any, path: str) -> None:
    """Equality of nested dataclasses with arrays, types and shapes included."""
    assert type(before) is type(after), path
    if isinstance(before, np.ndarray):
        assert (before.dtype, before.shape) == (after.dtype, after.shape), path
        np.testing.assert_array_equal(before, after, err_msg=path)
    elif isinstance(before, list):
        assert len(before) == len(after), path
        for each, other in zip(before, after, strict=True):
            assert_same(each, other, path)
    elif is_dataclass(before):
        for field in fields(before):
            assert_same(getattr(before, field.name), getattr(after, field.name), f"{path}.{field.name}")
    else:
        assert before == after, path


@given(MESSAGES)
def test_round_trip(message: PlanMessage) -> None:
    """Workers read plans natively; protobuf reads unusual ones and names their errors."""
    wire = message_of(message)
    (read,) = decode_response(wire).messages
    (decoded,) = decode_plan_messages(dispatcher_pb2.AttendResponse.FromString(wire))
    for again in (read, decoded):
        assert_same(message, again, type(message).__name__)
    if isinstance(message, IterationPlan):
        assert decode_iteration_plans(wire) is not None


@given(plans())
def test_a_trace_is_added_to_a_plan_and_changes_nothing_else(plan: IterationPlan) -> None:
    untraced = replace(plan, trace_parent="")
    message = message_of(untraced)
    assert TRACE_PARENT.encode() not in message
    (read,) = decode_response(with_trace(message, TRACE_PARENT)).messages
    assert_same(replace(plan, trace_parent=TRACE_PARENT), read, "plan")
    assert decode_iteration_plans(with_trace(message, TRACE_PARENT)) is not None


@given(st.data())
def test_what_is_read_natively_of_any_bytes_is_what_protobuf_reads(data: st.DataObject) -> None:
    """Nothing that it would refuse, and nothing else."""
    wire = bytearray(data.draw(st.sampled_from(SOME_PLANS)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(wire) - 1))
        wire[at : at + data.draw(st.integers(0, 1))] = data.draw(st.binary(max_size=2))
    told = decode_iteration_plans(bytes(wire))
    if told is None:
        return
    plans, rest = told
    message = dispatcher_pb2.AttendResponse.FromString(bytes(wire))
    decoded = decode_plan_messages(dispatcher_pb2.AttendResponse(plans=message.plans))
    assert_same(list(plans), decoded, "plans")
    message.ClearField("plans")
    assert dispatcher_pb2.AttendResponse.FromString(rest) == message


def parsed(message: PlanMessage) -> dispatcher_pb2.AttendResponse:
    return dispatcher_pb2.AttendResponse.FromString(message_of(message))


def some_transfers() -> Transfers:
    return Transfers(np.array([5, 6], np.uint64), np.array([0, 1], np.uint32), np.array([1, 1], np.int64), early=1)


def some_gradients() -> GradientTransfers:
    return GradientTransfers(some_transfers(), np.array([3, 3], np.uint64), np.array([1, 1], np.int64))


def good_plan() -> dispatcher_pb2.AttendResponse:
    """2 of 4 samples, 2 fields, 3 distinct rows, 1 dense feature."""
    rows, partial = some_transfers(), some_gradients()
    return parsed(
        IterationPlan(
            epoch=0,
            iteration=3,
            batch_size=4,
            update_rows=rows,
            update_gradients=partial,
            evict_rows=rows,
            evict_gradients=partial,
            drops=rows,
            pulls=rows,
            positions=np.array([0, 3], np.uint32),
            unique_ids=np.array([7, 8, 9], np.uint64),
            unique_slots=np.array([2, 3, 4], np.uint32),
            unique_versions=np.zeros(3, np.int64),
            unique_contributors=np.ones(3, np.uint64),
            inverse=np.array([0, 1, 2, 1], np.uint32),
            dense=np.zeros((2, 1), np.float32),
            labels=np.zeros((2, 1), np.float32),
            forgotten=np.array([1, 2], np.uint64),
            forgotten_below=2**30,
            discards=rows,
        )
    )


def full_plan() -> bytes:
    """Something of every field: lists of ids, weights, groups, rows that are trained, too, and direct ones."""
    (plan,) = decode_plan_messages(good_plan())
    assert isinstance(plan, IterationPlan)
    trained = Transfers(
        np.array([7, 5, 9], np.uint64), np.array([2, 0, 4], np.uint32), np.array([0, 1, 0], np.int64), early=2
    )
    more = replace(
        plan,
        pulls=trained,
        update_rows=trained,
        direct_pulls=DirectRows(np.array([0, 2], np.uint32), np.array([1, 63], np.uint32)),
        direct_pushes=DirectRows(np.array([1], np.uint32), np.array([0], np.uint32)),
        reduced=np.array([0, 2], np.uint32),
        lengths=np.array([[1, 0], [2, 1]], np.uint32),
        weights=np.array([0.5, 2], np.float32),
        groups=np.array([1, 2**63], np.uint64),
        dense_role=DenseRole.RETURNS,
    )
    return message_of(more) + message_of(EndOfStream(4))


SOME_PLANS = [good_plan().SerializeToString(), full_plan()]

Spoil = Callable[[dispatcher_pb2.IterationPlan], None]


def put(path: str, value: bytes | int) -> Spoil:
    """Sets a field, named by its path, to something wrong."""

    def spoil(plan: dispatcher_pb2.IterationPlan) -> None:
        *parents, name = path.split(".")
        target: Any = plan
        for parent in parents:
            target = getattr(target, parent)
        setattr(target, name, value)

    return spoil


EQUAL = b"\xff\xff\xff\xff\x7f\x00\x00"  # a column of 2**35 - 1 zeros


def many(samples: int, fields: int = 2, **columns: bytes) -> Spoil:
    """Says that there are more samples, whose places and labels are there if so many can be."""

    def spoil(plan: dispatcher_pb2.IterationPlan) -> None:
        plan.samples = min(samples, 2**32 - 1)
        plan.fields = fields
        if samples < 2**20:
            plan.batch_size = samples
            plan.positions, plan.labels = pack(np.arange(samples)), bytes(4 * samples)
        for name, column in columns.items():
            setattr(plan, name, column)

    return spoil


def direct(places: list[int], peers: list[int]) -> Spoil:
    """Says which of the pulls come from which workers."""

    def spoil(plan: dispatcher_pb2.IterationPlan) -> None:
        plan.direct_pulls, plan.direct_pull_peers = pack(np.array(places)), pack(np.array(peers))

    return spoil


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (put("dense_role", 6), r"dense_role is 6, it must be one of \[0, 1, 2, 3, 4, 5\]"),
        (put("update_rows.ids", b"\x02\x08\x05\x00"), "update_rows.ids has 1 bytes for 2 values of 8 bits"),
        (put("update_rows.ids", b"\x02\x41\x05" + bytes(17)), "update_rows.ids has 65 bits per value, 64 at most"),
        (put("update_rows.ids", b"\x80"), "update_rows.ids ends in its head"),
        (put("update_rows.ids", b"\xff" * 11), "update_rows.ids has a number of more than 64 bits"),
        (put("update_rows.ids", b"\xff\xff\xff\x7f\x00\x05"), "update_rows.ids has 268435455 values that are all"),
        (put("evict_rows.ids", pack(np.arange(3))), "evict_rows.slots has 2 values, there must be 3"),
        (put("drops.slots", pack(np.arange(1))), "drops.slots has 1 values, there must be 2"),
        (put("drops.slots", pack(np.array([0, 2**32]))), "drops.slots has a value of more than 32 bits"),
        (put("pulls.versions", b""), "pulls.versions has 0 values, there must be 2"),
        (put("pulls.early", 3), "pulls.early is 3, there are only 2 entries"),
        (put("pulls.trained", pack(np.array([4, 3]))), "pulls.trained contains 4, there are 3 unique_ids"),
        (put("pulls.trained", pack(np.array([0, 3]))), "pulls.trained leaves 1 rows to ids, which has 2"),
        (put("update_gradients.transfers.slots", b""), "update_gradients.transfers.slots has 0 values"),
        (put("update_gradients.contributors", pack(np.arange(1))), "update_gradients.contributors has 1 values"),
        (
            put("evict_gradients.contributors", pack(np.zeros(2, int))),
            "evict_gradients.contributors of entry 0 names n",
        ),
        (put("evict_gradients.steps", pack(np.arange(1))), "evict_gradients.steps has 1 values"),
        (put("positions", pack(np.arange(3))), "positions has 3 values, there must be 2"),
        (put("samples", 3), r"labels has 8 bytes, float32 \[3, 1\] needs 12"),
        # So many that to make room for them would end the worker, and in how few bytes.
        (many(2**40, positions=EQUAL), r"labels has 8 bytes"),
        (many(2, fields=4097), "fields is 4097, it must be at most 4096"),
        (many(2**15, fields=4096, inverse=EQUAL), "have 134217728 ids, there must be at most 67108864"),
        (many(2**11, fields=1, lengths=b"\x80\x10\x00\xff\xff\x03"), "have 134215680 ids, there must be at most"),
        (put("batch_size", 3), r"positions contains 3, it must be below batch_size \(3\)"),
        (put("fields", 3), "inverse has 4 values, there must be 6"),
        (put("unique_slots", pack(np.arange(2))), "unique_slots has 2 values, there must be 3"),
        (put("unique_versions", pack(np.arange(2))), "unique_versions has 2 values"),
        (put("unique_contributors", pack(np.zeros(3, int))), "unique_contributors of entry 0 names no worker"),
        (put("inverse", pack(np.array([0, 1, 3, 1]))), r"inverse contains 3, .* of unique_ids and initial_ids \(3\)"),
        (put("dense_features", 2), r"dense has 8 bytes, float32 \[2, 2\] needs 16"),
        (put("labels", bytes(9)), "labels has 9 bytes"),
        (put("labels_per_sample", 2), r"labels has 8 bytes, float32 \[2, 2\] needs 16"),
        (put("lengths", pack(np.arange(3))), "lengths has 3 values, there must be 4"),
        (put("lengths", pack(np.array([1, 2, 1, 1]))), "inverse has 4 values, there must be 5"),
        (put("lengths", pack(np.array([2**20 + 1, 0, 0, 0]))), "lengths contains 1048577"),
        (put("lists", 1), "lists is 1, of 2 samples, which then need lengths"),
        (put("lists", 3), "lists is 3, of 2 samples"),
        (put("weights", bytes(4)), "weights has 4 bytes"),
        (put("groups", bytes(8)), "groups has 8 bytes"),
        (put("direct_pushes", pack(np.arange(1))), "direct_push_peers has 0 values, there must be 1"),
        (put("direct_pull_peers", pack(np.arange(1))), "direct_pull_peers has 1 values, there must be 0"),
        (direct([0, 2], [1, 1]), r"direct_pulls contains 2, it must be below the number of rows \(2\)"),
        (direct([1, 0], [1, 1]), "direct_pulls must ascend"),
        (direct([0, 0], [1, 1]), "direct_pulls must ascend"),
        (direct([0, 1], [1, 128]), r"direct_pull_peers contains 128, it must be below the most workers \(128\)"),
    ],
)
def test_malformed_plans_are_refused_by_field(spoil: Spoil, text: str) -> None:
    message = good_plan()
    decode_plan_messages(message)
    spoil(message.plans[0])
    with pytest.raises(InvalidArgument, match=text):
        decode_response(message.SerializeToString())


def test_messages_that_follow_each_other_make_one() -> None:
    plan = message_of(decode_plan_messages(good_plan())[0])
    end = message_of(EndOfStream(4))
    decoded = decode_response(plan + plan + end).messages
    assert [type(each) for each in decoded] == [IterationPlan, IterationPlan, EndOfStream]
    assert b"".join(map(message_of, decoded)) == plan + plan + end


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"slot": 2}, r"slot is 2, it must be below workers \(2\)"),
        ({"workers": 3}, "workers is 3, the job in the same message has 2"),
        ({"members": 0b101}, "members is 0x5, it must name slots below 2, slot 0 too"),
        ({"members": 0b10}, "members is 0x2, it must name slots below 2, slot 0 too"),
    ],
)
def test_a_contradictory_membership_is_refused(changes: dict[str, int], text: str) -> None:
    message = parsed(Membership(1, 0, JOB, WorkerSet.all_of(2)))
    for name, value in changes.items():
        setattr(message.membership, name, value)
    with pytest.raises(InvalidArgument, match=text):
        decode_plan_messages(message)


def test_a_membership_names_the_job_by_16_bytes_or_not_at_all() -> None:
    membership = Membership(1, 0, JOB, WorkerSet.all_of(2), claimant=new_claimant())
    message = parsed(membership)
    assert decode_plan_messages(message)[0] == membership
    message.membership.claimant = b"short"
    with pytest.raises(InvalidArgument, match="claimant has 5 bytes"):
        decode_plan_messages(message)


def test_members_that_are_not_named_are_all_slots() -> None:
    message = parsed(Membership(1, 0, JOB, WorkerSet(0b1)))
    assert decode_plan_messages(message)[0].members == WorkerSet(0b1)
    message.membership.members = 0
    assert decode_plan_messages(message)[0].members == WorkerSet(0b11)


def test_peers_are_named_for_every_slot_or_for_none() -> None:
    message = parsed(Membership(1, 0, JOB, WorkerSet.all_of(2), peers=("", "10.0.0.2:7070")))
    message.membership.peers.append("10.0.0.3:7070")
    with pytest.raises(InvalidArgument, match="peers has 3 entries, the job has 2 workers"):
        decode_plan_messages(message)


def test_a_plan_with_columns_of_another_type_is_a_defect() -> None:
    flush = FlushPlan(0, 1, replace(some_transfers(), slots=np.array([0, 1])), some_gradients())
    with pytest.raises(TypeError, match=r"rows.slots is int64, the contract requires uint32"):
        encode_plan_message(flush)
