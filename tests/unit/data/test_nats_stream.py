"""Streams of a real NATS server as sources: places, bounds, deleted messages, and a server that is away for a while."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

import esd
from esd.data.logs import log, nats_session
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable
from esd.services.domain.sources import SourcePosition
from testbed.nats_server import NatsServer, nats_server
from tests.support.certificates import Certificates
from tests.support.clicks import SCHEMA, clicks
from tests.support.samples import assert_same_samples, beginning_at, taken

STREAM = "clicks"
ROWS = clicks(40)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server of the test's own: one that removes a stream has its place free for the next only a moment later."""
    with nats_server(tmp_path / "nats") as server:
        server.make_stream(STREAM)
        yield server


def address(server: NatsServer, options: str = "") -> str:
    return f"nats://{server.address}/{STREAM}{options}"


def messages(rows: list[dict[str, object]]) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows]


def samples_of(rows: list[dict[str, object]]) -> SampleBatch:
    return SampleBatch.concatenate(list(esd.read(pa.Table.from_pylist(rows), SCHEMA)))


def test_a_stream_goes_on_at_every_sample(server: NatsServer) -> None:
    server.add(STREAM, messages(ROWS))
    stream = esd.read(address(server), SCHEMA, batch_size=8)
    batches = taken(iter(stream), len(ROWS))
    whole, before = SampleBatch.concatenate(batches), 0
    assert_same_samples(whole, samples_of(ROWS))
    for batch in batches:
        for at in (0, 3):
            rest = stream.open(batch[at:].source)
            found = SampleBatch.concatenate(taken(rest, 5))[:5]
            assert_same_samples(found, whole[before + at : before + at + 5])
            rest.close()
        before += len(batch)


def test_lag_and_new_messages(server: NatsServer) -> None:
    server.add(STREAM, messages(ROWS[:20]))
    batches = iter(esd.read(address(server), SCHEMA, batch_size=8))
    assert [each.source.lag for each in islice(batches, 3)] == [12, 4, 0]
    late = threading.Timer(0.2, server.add, [STREAM, messages(ROWS[20:23])])
    late.start()
    assert len(next(batches)) >= 1  # it has waited for them
    late.join()


def test_bounds(server: NatsServer) -> None:
    server.add(STREAM, messages(ROWS[:10]))
    after = int(time.time() * 1000) + 1  # times are known to a millisecond
    while time.time() * 1000 < after + 1:
        pass
    between = datetime.fromtimestamp(after / 1000, UTC).isoformat().replace("+00:00", "Z")
    server.add(STREAM, messages(ROWS[10:20]))
    stretch = esd.read(address(server, "?from=4&until=13"), SCHEMA, batch_size=4)
    assert not stretch.endless
    for _ in range(2):
        assert_same_samples(SampleBatch.concatenate(list(stretch)), samples_of(ROWS[3:12]))
    for bounds, rows in {"until": ROWS[:10], "from": ROWS[10:20]}.items():
        more = "" if bounds == "until" else "&until=21"
        found = list(esd.read(address(server, f"?{bounds}={between}{more}"), SCHEMA))
        assert_same_samples(SampleBatch.concatenate(found), samples_of(rows))
    with pytest.raises(InvalidArgument, match="until=22 lies ahead of the stream's end, 21"):
        esd.read(address(server, "?until=22"), SCHEMA)
    with pytest.raises(InvalidArgument, match="until 2100-01-01 lies ahead of the server's clock"):
        esd.read(address(server, "?until=2100-01-01"), SCHEMA)
    with pytest.raises(InvalidArgument, match="until=x is neither a sequence number, such as 1200, nor a time"):
        esd.read(address(server, "?until=x"), SCHEMA)


def test_a_stretch_ends_where_its_last_messages_were_deleted(server: NatsServer) -> None:
    server.add(STREAM, messages(ROWS[:10]))
    server.use(lambda context: context.delete_msg(STREAM, 9))
    server.use(lambda context: context.delete_msg(STREAM, 10))
    assert sum(map(len, esd.read(address(server, "?until=11"), SCHEMA))) == 8


def test_a_position_that_is_gone_is_refused_by_name(server: NatsServer) -> None:
    server.add(STREAM, messages(ROWS))
    stream = esd.read(address(server), SCHEMA, batch_size=8)
    batches = iter(stream)
    place = next(batches).source
    assert place is not None
    server.use(lambda context: context.purge_stream(STREAM, seq=5))
    taken(batches, 8)  # only what was read is gone
    with pytest.raises(FailedPrecondition, match=r"the position 1 is gone: the stream begins at 5 now.*max_age"):
        next(stream.open(place))
    server.use(lambda context: context.purge_stream(STREAM, seq=30))
    with pytest.raises(FailedPrecondition, match=r"the position \d+ is gone: the stream begins at 30 now"):
        next(batches)
    with pytest.raises(InvalidArgument, match="is no position in a stream, such as"):
        next(stream.open(SourcePosition("5-0:0")))


def test_a_single_message_that_was_deleted_is_left_out_unless_a_position_names_it(server: NatsServer) -> None:
    server.add(STREAM, messages(ROWS))
    stream = esd.read(address(server), SCHEMA, batch_size=8)
    batches = taken(iter(stream), 16)
    server.use(lambda context: context.delete_msg(STREAM, 9))
    found = SampleBatch.concatenate(taken(stream.open(batches[0].source), 12))
    assert_same_samples(found[:12], samples_of(ROWS[:8] + ROWS[9:13]))
    with pytest.raises(FailedPrecondition, match="the position 9 is gone: it was deleted"):
        next(stream.open(beginning_at(8, batches).source))


@pytest.mark.parametrize("more", [0, 100])
def test_a_stream_that_was_made_anew_is_refused(more: int, server: NatsServer) -> None:
    server.add(STREAM, messages(ROWS))
    stream = esd.read(address(server), SCHEMA, batch_size=8)
    batches = iter(stream)
    first, *_ = taken(batches, 8)
    server.make_stream(STREAM)
    server.add(STREAM, messages(clicks(more)))
    with pytest.raises(FailedPrecondition, match=r"the position 1 is gone: .*was made anew"):
        next(stream.open(first.source))
    with pytest.raises(FailedPrecondition, match=r"the position 9 is gone: .*was made anew"):
        next(batches)


def test_a_malformed_message_is_refused_with_its_number_or_skipped(server: NatsServer) -> None:
    server.add(STREAM, [*messages(ROWS[:3]), b"no json", *messages(ROWS[3:6])])
    with pytest.raises(InvalidArgument, match=r"clicks: message 4: Expecting value.*--skip-bad N skips it"):
        taken(iter(esd.read(address(server), SCHEMA)), 6)
    stream = esd.read(address(server), SCHEMA, skip_bad=1)
    assert sum(map(len, taken(iter(stream), 6))) == 6
    assert stream.skipped == 1


def test_messages_that_the_client_drops_come_again(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client keeps a limited number of bytes, and drops the messages beyond."""
    rows = clicks(500)
    monkeypatch.setattr(nats_session, "_QUEUED_BYTES", 5000)
    server.add(STREAM, messages(rows))
    batches = iter(esd.read(address(server), SCHEMA))
    assert_same_samples(SampleBatch.concatenate(taken(batches, len(rows))), samples_of(rows))


def test_a_server_that_is_away_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with nats_server(tmp_path) as server:
        server.make_stream(STREAM)
        server.add(STREAM, messages(ROWS[:20]))
        batches = iter(esd.read(address(server), SCHEMA, batch_size=8))
        read = SampleBatch.concatenate(taken(batches, 8))
        server.kill()
        back = threading.Timer(0.3, server.start)
        back.start()
        rest = SampleBatch.concatenate(taken(batches, 20 - len(read)))
        assert_same_samples(rest, samples_of(ROWS[len(read) : 20]))
        back.join()
        server.kill()
        monkeypatch.setattr(log, "PATIENCE_SECONDS", 0.2)
        with pytest.raises(Unavailable, match=r"clicks: its server is away for 0\.2 s"):
            next(batches)


def test_a_stream_that_is_not_there_is_refused(server: NatsServer) -> None:
    with pytest.raises(InvalidArgument, match="none: this stream cannot be read: stream not found"):
        esd.read(f"nats://{server.address}/none", SCHEMA)
    server.add(STREAM, messages(ROWS[:3]))
    batches = iter(esd.read(address(server), SCHEMA))
    taken(batches, 3)
    server.use(lambda context: context.delete_stream(STREAM))
    with pytest.raises(FailedPrecondition, match="the stream cannot be read any more: stream not found"):
        next(batches)


def test_a_client_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("nats_stream", "nats_session"):
        monkeypatch.delitem(sys.modules, f"esd.data.logs.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "nats", None)
    with pytest.raises(NotFound, match=r"needs nats-py, .*pip install 'esd-train\[nats\]'"):
        esd.read("nats://127.0.0.1:1/clicks", SCHEMA)


def test_a_server_that_refuses_the_reader_is_left() -> None:
    """It does not close the connection itself, as a real one does soon."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> bytes:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                connection.sendall(b'INFO {"server_id": "it", "max_payload": 1024, "auth_required": true}\r\n')
                assert lines.readline().startswith(b"CONNECT ")
                assert lines.readline() == b"PING\r\n"
                connection.sendall(b"-ERR 'Authorization Violation'\r\n")
                connection.settimeout(20)
                return lines.read()

        with ThreadPoolExecutor(1) as pool:
            served = pool.submit(refuse)
            with pytest.raises(InvalidArgument, match="refuse each other"):
                esd.read(f"nats://127.0.0.1:{listener.getsockname()[1]}/{STREAM}", SCHEMA)
            assert served.result(30) == b""


def test_user_password_and_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates = Certificates.make(tmp_path / "certificates", "broker", "reader")
    theirs, ours = certificates.of("broker"), certificates.of("reader")
    tls = ["--tls", "--tlscert", theirs["tls_certificate"], "--tlskey", theirs["tls_key"]]
    checked = ["--tlsverify", "--tlscacert", theirs["tls_ca"]]
    (tmp_path / "password").write_text("secret\n")
    with nats_server(tmp_path / "data", *map(str, [*tls, *checked]), "--user", "reader", "--pass", "secret") as server:
        there = f"nats+tls://reader@{server.address}/{STREAM}"
        with pytest.raises(InvalidArgument, match=r"refuse each other \(user, .*ESD_SOURCE_CA_FILE"):
            esd.read(there, SCHEMA)
        monkeypatch.setenv("ESD_SOURCE_CA_FILE", str(ours["tls_ca"]))
        monkeypatch.setenv("ESD_SOURCE_CERTIFICATE_FILE", str(ours["tls_certificate"]))
        monkeypatch.setenv("ESD_SOURCE_KEY_FILE", str(ours["tls_key"]))
        with pytest.raises(InvalidArgument, match=r"refuse each other \(user, ESD_SOURCE_PASSWORD_FILE"):
            esd.read(there, SCHEMA)
        monkeypatch.setenv("ESD_SOURCE_PASSWORD_FILE", str(tmp_path / "password"))
        with pytest.raises(InvalidArgument, match="this stream cannot be read: stream not found"):  # it was let in
            esd.read(there, SCHEMA)
