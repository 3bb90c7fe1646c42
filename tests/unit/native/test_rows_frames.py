"""Frames in one native call against the table's own way: the same frames are taken, and do the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError

from esd.native.rows import ExactPulls, HeldFrame, WaitingRows
from esd.protos import ps_pb2
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.table import Table
from esd.ps_server.core.tables import Tables
from esd.ps_server.stores.memory import MemoryStore
from esd.ps_server.stores.row_streams import scan
from esd.services.domain.errors import EsdError, FailedPrecondition, InvalidArgument
from esd.services.domain.ids import shard_of
from esd.services.domain.rows import GradientBlock, RowBlock
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
from esd.services.wire.rows import decode_gradients, decode_rows, encode_gradients, encode_rows
from tests.support.exchange import answered_rows
from tests.support.stores import as_dict, blocks_as_dict, sets_of

LIFE = 2**30  # of these, odd ones continue
SHARD = Shard(1, 2)
IDS = np.flatnonzero(shard_of(np.arange(40, dtype=np.uint64), 2) == 1).astype(np.uint64)
LIMIT = 7  # rows of an answer


def new_table(spec: TableSpec) -> Table:
    tables = Tables(MemoryStore(), SHARD)
    tables.create(spec)
    return tables.get(spec.name)


def random_workers(rng: np.random.Generator) -> tuple[int, int]:
    """A sender and the contributors, mostly with it: some of the slots 0 to 2, or sometimes of 70 to 72."""
    worker, contributors = int(rng.integers(3)), int(rng.choice([0b11, 0b111, 0b111, 1]))
    contributors |= 1 << worker if rng.random() < 0.95 else 0
    return (worker + 70, contributors << 70) if rng.random() < 0.2 else (worker, contributors)


def random_frame(rng: np.random.Generator, spec: TableSpec, have: dict[int, int]) -> ps_pb2.ExchangeRequest:
    """A frame that makes sense more often than not, for rows that are at these versions."""
    parent = str(rng.choice(["", f"00-{7:032x}-{9:016x}-01"]))
    frame = ps_pb2.ExchangeRequest(
        sequence=int(rng.integers(1, 99)), table="t", epoch=0, wait_ms=5, trace_parent=parent
    )

    def some() -> tuple[np.ndarray, np.ndarray]:
        ids = rng.choice(IDS, rng.integers(0, 9), replace=False)
        if rng.random() < 0.05:
            ids = rng.choice(np.arange(40, dtype=np.uint64), 3)  # perhaps foreign, perhaps twice
        return ids, np.array([have.get(int(i), 0) for i in ids], np.int64)

    if rng.random() < 0.7:
        ids, versions = some()
        values = rng.standard_normal((len(ids), spec.row_width)).astype(np.float32)
        if rng.random() < 0.03 and values.size:
            values.flat[rng.integers(values.size)] = rng.choice([np.nan, np.inf, -np.inf])
        if rng.random() < 0.1:
            versions += LIFE * int(rng.integers(1, 3))
        encode_rows(RowBlock(ids, versions + rng.integers(0, 3, len(ids)), values), frame.rows)
    if rng.random() < 0.7:
        ids, versions = some()
        worker, contributors = random_workers(rng)
        if rng.random() < 0.1:
            versions += LIFE * int(rng.integers(1, 3))
        block = GradientBlock(
            ids,
            versions + rng.choice([0, 1, 1, 1, 1, 2], len(ids)),
            sets_of(contributors, len(ids)),
            np.full(len(ids), rng.choice([4, 4, 4, 4, 0]), np.uint32),
            np.full(len(ids), rng.choice([0.1, 0.1, 0.2, 0.3, 0.4, -0.1 if rng.random() < 0.1 else 0.5]), np.float32),
            rng.standard_normal((len(ids), spec.dimension)).astype(np.float32),
            worker if rng.random() < 0.97 else 128,
        )
        encode_gradients(block, frame.gradients)
    if rng.random() < 0.7:
        ids, versions = some()
        born = rng.random(len(ids)) < 0.1
        versions[born] = (versions[born] // LIFE + rng.integers(1, 3, born.sum())) * LIFE
        frame.pulls.ids = ids.tobytes()
        frame.pulls.versions = (versions + rng.choice([0, 0, 0, 1], len(ids))).tobytes()
        frame.pulls.stateless = int(rng.integers(0, len(ids) + (1 if rng.random() < 0.97 else 2)))
    if rng.random() < 0.03:
        frame.rows.ids += b"1"
    return frame


class Reference:
    """A table that frames are applied to piece by piece."""

    def __init__(self, spec: TableSpec) -> None:
        self.table = new_table(spec)
        self.announced: list[tuple[int, int]] = []

    def apply(self, frame: ps_pb2.ExchangeRequest) -> tuple[int, int] | None:
        spec, pushed = self.table.spec, []
        rows = decode_rows(frame.rows, spec)
        gradients = decode_gradients(frame.gradients, spec)
        ids, versions = pulls_of(frame)
        if not any(frame.HasField(part) for part in ("rows", "gradients", "pulls")):
            raise InvalidArgument("nothing")
        rows.validate(spec)
        gradients.validate(spec)
        SHARD.check(np.concatenate([rows.ids, gradients.ids]))
        self.table.check_pull(ids, versions)
        if frame.pulls.stateless > len(ids):
            raise InvalidArgument("more than all")
        if frame.HasField("rows"):
            pushed.append(self.table.push_rows(rows))
        if frame.HasField("gradients"):
            pushed.append(self.table.push_gradients(gradients))
        self.announced = [
            pair for each in pushed for pair in zip(each.ids.tolist(), each.versions.tolist(), strict=True)
        ]
        return (sum(each.stored for each in pushed), sum(each.already_known for each in pushed)) if pushed else None

    def answers(self, frame: ps_pb2.ExchangeRequest) -> dict[int, bytes]:
        """The rows that a frame gets at once, by position; nothing of initial ones.

        Raises FailedPrecondition if one is too new.
        """
        ids, versions = pulls_of(frame)
        block, initial = self.table.read_exact(ids, versions)
        if (block.versions > versions).any():
            raise FailedPrecondition("stale")
        floats = np.where(np.arange(len(ids)) < len(ids) - frame.pulls.stateless, None, self.table.spec.dimension)
        floats[initial] = 0
        return {int(at): block.rows[at, : floats[at]].tobytes() for at in np.flatnonzero(block.versions == versions)}


def pulls_of(frame: ps_pb2.ExchangeRequest) -> tuple[np.ndarray, np.ndarray]:
    return np.frombuffer(frame.pulls.ids, np.uint64), np.frombuffer(frame.pulls.versions, np.int64)


def answered(spec: TableSpec, messages: list[bytes], pulls: int, stateless: int) -> dict[int, bytes]:
    """The rows in answers to a frame, by position."""
    rows: dict[int, bytes] = {}
    cursor = 0
    for message in map(ps_pb2.ExchangeResponse.FromString, messages):
        some = answered_rows(message, spec, cursor, pulls, stateless)
        assert len(some) <= LIMIT
        assert not rows.keys() & some.keys()
        rows |= some
        cursor = max(some) + 1 if some else cursor
    return rows


@pytest.mark.parametrize(
    ("kind", "max_norm"), [*((kind, 0.0) for kind in OptimizerKind), (OptimizerKind.ROWWISE_ADAGRAD, 0.4)]
)
def test_a_frame_does_what_its_parts_do_one_by_one(kind: OptimizerKind, max_norm: float) -> None:
    rng = np.random.default_rng([8, list(OptimizerKind).index(kind)])
    spec = TableSpec("t", 3, OptimizerSpec(kind, 0.1, 1e-6, max_norm=max_norm), seed=9, init_scale=0.5)
    table, reference = new_table(spec), Reference(spec)
    taken = refused = stale = 0
    for step in range(2500):
        if step in (700, 1500):
            for each in (table, reference.table):
                each.history.cut(0, step, 0, 1)
        have = {row: version for row, (version, _) in as_dict(table._store.rows).items()}
        request = random_frame(rng, spec, have)
        try:
            expected = reference.apply(request)
        except EsdError:
            expected, good = None, False
            refused += 1
        else:
            good = True
            taken += 1
        waiting = WaitingRows()
        tickets = expect_everything(waiting, reference.announced if good else [])
        applied = table.apply_at_once(HeldFrame(request.SerializeToString()), waiting, LIMIT)
        assert applied is not None
        assert applied.good == good, request
        assert as_dict(table._store.rows) == as_dict(reference.table._store.rows)
        assert table.pending_gradients() == reference.table.pending_gradients()
        if not good:
            continue
        assert applied.stored == expected
        assert sorted(applied.woken) == tickets
        stale += check_answer(reference, table, request, applied)
    for cut in (700, 1500):
        kept, expected_rows = (scan(t._store.rows.pre_images[cut], 100) for t in (table, reference.table))
        assert blocks_as_dict(kept) == blocks_as_dict(expected_rows)
    assert min(taken, refused, stale) > 30


def expect_everything(waiting: WaitingRows, announced: list[tuple[int, int]]) -> list[int]:
    """Waits for each announced row, and for one version more; returns the tickets that are served."""
    tickets = []
    for row, version in set(announced):
        for more in (0, 1):
            ticket = 2 * (row * 2**50 + version) + more
            waiting.expect_due(ticket, ExactPulls(np.array([row], np.uint64), np.array([version + more])), 1)
        served = max(other for each, other in announced if each == row)
        tickets += [2 * (row * 2**50 + version)] + [2 * (row * 2**50 + version) + 1] * (served > version)
    return sorted(tickets)


def check_answer(reference: Reference, table: Table, request: ps_pb2.ExchangeRequest, applied: Any) -> bool:
    """Compares the answer to a frame; returns whether one of its pulls is stale."""
    spec, pulls = table.spec, len(pulls_of(request)[0])
    messages = [applied.answer]
    while applied.pulls is not None and applied.pulls.due and applied.pulls.stale is None:
        assert table.frames is not None
        messages.append(table.frames.answer(applied.pulls, request.sequence, LIMIT, storing=False))
    told = [message for message in messages if message is not None]
    try:
        expected = reference.answers(request)
    except FailedPrecondition:
        assert applied.pulls.stale is not None
        return True
    assert answered(spec, told, pulls, request.pulls.stateless) == expected
    done = [ps_pb2.ExchangeResponse.FromString(message).done for message in told]
    assert done[:-1] == [False] * (len(done) - 1)
    assert (applied.pulls is None or applied.pulls.done) == (len(expected) == pulls)
    assert not done or done[-1] == (len(expected) == pulls)
    first = ps_pb2.ExchangeResponse.FromString(told[0]) if told else ps_pb2.ExchangeResponse()
    assert first.stored == (applied.stored is not None)
    assert (first.newly_stored, first.already_known) == (applied.stored or (0, 0))
    assert {ps_pb2.ExchangeResponse.FromString(message).sequence for message in told} <= {request.sequence}
    return False


def test_what_is_decoded_is_what_protobuf_decodes() -> None:
    rng = np.random.default_rng(3)
    spec = TableSpec("t", 2, OptimizerSpec(), seed=0, init_scale=1)
    good = [random_frame(rng, spec, {}).SerializeToString() for _ in range(50)]
    decoded = 0
    for _ in range(60_000):
        data = bytearray(good[rng.integers(len(good))])
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(data) + 1))
            kind = rng.integers(3)
            if kind == 0 and at < len(data):
                data[at] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.integers(256)]))
            elif kind == 1:
                del data[at : at + int(rng.integers(1, 12))]
            else:
                data[at:at] = rng.bytes(int(rng.integers(1, 12)))
        try:
            frame = HeldFrame(bytes(data))
        except ValueError:
            continue
        decoded += 1
        message = ps_pb2.ExchangeRequest.FromString(bytes(data))  # which takes it as well
        assert (frame.sequence, frame.table, frame.epoch) == (message.sequence, message.table, message.epoch)
        assert frame.trace_parent == message.trace_parent
        assert (frame.wait_ms, frame.pulled_rows) == (message.wait_ms, len(message.pulls.ids) // 8)
        assert frame.pushes == (message.HasField("rows") or message.HasField("gradients"))
    assert decoded > 5000


def test_only_bytes_that_a_client_writes_are_decoded() -> None:
    frame = ps_pb2.ExchangeRequest(sequence=1, table="t").SerializeToString()
    assert HeldFrame(frame).table == "t"
    for data in (frame + frame, frame + b"\x78\x01", frame + b"\x12\x02\xc3\xa9", frame[:-1], b"\x08"):
        with pytest.raises(ValueError, match=r"these bytes are no message|a message of unusual form"):
            HeldFrame(data)
    with pytest.raises(DecodeError):
        ps_pb2.ExchangeRequest.FromString(frame[:-1])


def test_waiting_rows_against_a_dictionary() -> None:
    rng = np.random.default_rng(7)
    waiting = WaitingRows()
    missing: dict[int, dict[int, int]] = {}  # ticket -> row -> version
    for ticket in range(4000):
        if rng.random() < 0.4:
            ids = rng.choice(30, rng.integers(1, 6), replace=False).astype(np.uint64)
            wanted = rng.integers(0, 4, len(ids))
            waiting.expect_due(ticket, ExactPulls(ids, wanted), 9)
            missing[ticket] = dict(zip(ids.tolist(), wanted.tolist(), strict=True))
        elif rng.random() < 0.3 and missing:
            gone = int(rng.choice(list(missing)))
            waiting.forget(gone)
            del missing[gone]
        else:
            ids = rng.integers(0, 30, rng.integers(1, 5)).astype(np.uint64)
            versions = rng.integers(0, 4, len(ids))
            woken = []
            for row, version in zip(ids.tolist(), versions.tolist(), strict=True):
                for other, rows in missing.items():
                    if row in rows and rows[row] <= version:
                        del rows[row]
                        woken += [other] * (not rows)
            missing = {other: rows for other, rows in missing.items() if rows}
            assert sorted(waiting.announce(ids, versions)) == sorted(woken)
        assert len(waiting) == len({row for rows in missing.values() for row in rows})
        for other, rows in missing.items():
            assert waiting.missing(other) == len(rows)
            assert waiting.first_missing(other) in rows.items()
    assert waiting.first_missing(10**6) == (0, -1)


def test_reads_miss_no_announcement_and_keep_none_after_their_end() -> None:
    rng = np.random.default_rng(8)
    waiting = WaitingRows()
    reads: dict[int, tuple[ExactPulls, dict[int, int]]] = {}  # ticket -> pulls, newest announced version of each row
    missing: dict[int, dict[int, int]] = {}  # ticket -> row -> version
    lost = idle = 0  # rows that were announced during the read which did not find them
    for ticket in range(6000):
        action = rng.random()
        if action < 0.25:
            ids = rng.choice(30, rng.integers(1, 8), replace=False).astype(np.uint64)
            reads[ticket] = ExactPulls(ids, rng.integers(1, 4, len(ids))), {}
            waiting.begin_read(ticket)
        elif action < 0.5 and reads:
            reader = int(rng.choice(list(reads)))
            pulls, announced = reads.pop(reader)
            ids, wanted = pulls.due_rows(8)
            versions = wanted - rng.integers(0, 2, len(ids))
            pulls.answer(1, versions, np.zeros((len(ids), 1), np.float32), rng.random(len(ids)) < 0.5, 1)
            behind = dict(zip(ids[versions < wanted].tolist(), wanted[versions < wanted].tolist(), strict=True))
            left = {row: version for row, version in behind.items() if announced.get(row, -1) < version}
            lost += len(behind) - len(left)
            waiting.end_read(reader, pulls)
            assert waiting.missing(reader) == len(left)
            if left:
                missing[reader] = left
        else:
            ids = rng.integers(0, 30, rng.integers(1, 5)).astype(np.uint64)
            versions = rng.integers(0, 4, len(ids))
            for row, version in zip(ids.tolist(), versions.tolist(), strict=True):
                for _, announced in reads.values():
                    announced[row] = max(version, announced.get(row, -1))
                for rows in missing.values():
                    if rows.get(row, version + 1) <= version:
                        del rows[row]
            woken = [each for each, rows in missing.items() if not rows]
            assert sorted(waiting.announce(ids, versions)) == sorted(woken)
            missing = {each: rows for each, rows in missing.items() if rows}
        assert len(waiting) == len({row for rows in missing.values() for row in rows})
        if not reads:
            idle += 1
            assert waiting.kept_announcements == 0
    assert min(lost, idle) > 100


def test_announcements_before_every_read_under_way_are_dropped() -> None:
    waiting = WaitingRows()
    rows = np.arange(100, dtype=np.uint64)
    for ticket in range(50):  # a read is under way at all times
        waiting.begin_read(ticket + 1)
        waiting.announce(rows, np.ones(len(rows), np.int64))
        waiting.forget(ticket)
        assert waiting.kept_announcements <= 4 * len(rows)


def test_the_read_of_a_pull_that_was_forgotten_leaves_nothing() -> None:
    waiting = WaitingRows()
    pulls = ExactPulls(np.array([4], np.uint64), np.array([1]))
    waiting.begin_read(7)
    waiting.announce(np.array([4, 5], np.uint64), np.array([0, 1]))
    waiting.forget(7)
    assert waiting.kept_announcements == 0
    pulls.answer(1, np.array([0]), np.zeros((1, 1), np.float32), np.zeros(1, np.bool_), 1)
    waiting.end_read(7, pulls)
    assert len(waiting) == waiting.missing(7) == 0


def test_answers_follow_the_rows_that_come() -> None:
    rng = np.random.default_rng(2)
    spec = TableSpec("t", 3, OptimizerSpec(OptimizerKind.ADAM), seed=0, init_scale=1)
    for _ in range(300):
        count = int(rng.integers(0, 20))
        stateless = int(rng.integers(0, count + 1))
        pulls = ExactPulls(np.arange(count, dtype=np.uint64), np.full(count, 5), stateless)
        rows = rng.standard_normal((count, spec.row_width)).astype(np.float32)
        initial = rng.random(count) < rng.choice([0, 0.3, 1])
        messages: list[bytes] = []
        storing = bool(rng.integers(0, 2))
        while not (pulls.done and (messages or storing)):  # without rows only the end is answered
            ids, wanted = pulls.due_rows(LIMIT)
            versions = wanted - rng.integers(0, 2, len(ids))
            at = ids.astype(int)
            message = pulls.answer(4, versions, rows[at], initial[at], spec.dimension, storing)
            messages += [message] if message else []
            if not pulls.due and rng.random() < 0.7:
                pulls.retry()
        whole = {at: rows[at].tobytes() for at in range(count - stateless)}
        values = {at: rows[at, : spec.dimension].tobytes() for at in range(count - stateless, count)}
        left_out = {int(at): b"" for at in np.flatnonzero(initial)}
        assert answered(spec, messages, count, stateless) == whole | values | left_out
        ends = [ps_pb2.ExchangeResponse.FromString(message).done for message in messages]
        assert ends == [False] * (len(ends) - 1) + [not storing] * min(1, len(ends))
