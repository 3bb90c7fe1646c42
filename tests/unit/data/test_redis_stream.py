"""Streams of a real Valkey as sources: messages, places, trimmed streams, and a server that is away for a while."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest
import redis

import esd
from esd.data.logs import log
from esd.run.options import RunOptions
from esd.run.stream import training_stream
from esd.run.valkey import valkey_server
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, Unavailable
from testbed.redis_server import RedisServer, redis_server
from tests.support.certificates import Certificates
from tests.support.clicks import KEY, SCHEMA, add_clicks, clicks
from tests.support.redis_encrypted import encrypted_redis_server
from tests.support.samples import assert_same_samples, taken

LISTS = esd.Schema(label="clicked", ids=("user", esd.IdList("tags", max=4)), dense=("price",))
ROWS = 40


@pytest.fixture(scope="module")
def module_valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("valkey"), program=valkey_server()) as server:
        yield server


@pytest.fixture
def valkey(module_valkey: RedisServer) -> RedisServer:
    module_valkey.empty()
    return module_valkey


@pytest.fixture
def client(valkey: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis(port=valkey.port) as client:
        yield client


def address(server: RedisServer, options: str = "") -> str:
    return f"redis+stream://{server.address}/{KEY}{options}"


def as_arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_fields_json_and_arrow_give_the_samples_of_the_same_frame(valkey: RedisServer, client: redis.Redis) -> None:
    rows = [
        {"user": at % 5, "tags": ["a", "b", "c"][: at % 4], "price": at / 2, "clicked": at % 2, "other": None}
        for at in range(20)
    ]
    for row in rows:
        client.xadd(KEY, {"json": json.dumps(row)})
    for row in rows:
        client.xadd(
            KEY, {"user": row["user"], "tags": "|".join(row["tags"]), "price": row["price"], "clicked": row["clicked"]}
        )
    client.xadd(KEY, {"arrow": as_arrow(pa.Table.from_pylist(rows))})
    expected = SampleBatch.concatenate(list(esd.read(pa.Table.from_pylist(rows), LISTS)))
    found = SampleBatch.concatenate(taken(iter(esd.read(address(valkey), LISTS, batch_size=7)), 60))
    for begin in (0, 20, 40):
        assert_same_samples(found[begin : begin + 20], expected)


def test_a_stream_goes_on_at_every_sample(valkey: RedisServer, client: redis.Redis) -> None:
    add_clicks(valkey.port, clicks(ROWS))
    client.xadd(KEY, {"user": "1"})
    client.xadd(KEY, {"arrow": as_arrow(pa.Table.from_pylist(clicks(9, seed=6)))})
    stream = esd.read(address(valkey), SCHEMA, batch_size=8, skip_bad=1)
    batches = taken(iter(stream), ROWS + 9)
    whole, before = SampleBatch.concatenate(batches), 0
    for batch in batches:
        assert batch.source is not None
        for at in range(len(batch)):
            if before + at + 3 <= len(whole):
                rest = stream.open(batch[at:].source)
                found = SampleBatch.concatenate(taken(rest, 3))[:3]
                assert_same_samples(found, whole[before + at : before + at + 3])
        before += len(batch)


def test_skipped_messages_count_over_all_readings(valkey: RedisServer, client: redis.Redis) -> None:
    """A run that was killed and goes on skips no more than one that was not."""
    for _ in range(2):
        client.xadd(KEY, {"user": "1"})
        add_clicks(valkey.port, clicks(8))
    *_, last = taken(iter(esd.read(address(valkey), SCHEMA, batch_size=4, skip_bad=1)), 7)
    with pytest.raises(InvalidArgument, match="--skip-bad 1 allows no more"):
        taken(esd.read(address(valkey), SCHEMA, batch_size=4, skip_bad=1).open(last.source), 12)
    again = esd.read(address(valkey), SCHEMA, batch_size=4, skip_bad=2)
    taken(again.open(last.source), 12)
    assert again.skipped == 2


def test_lag_and_new_messages(valkey: RedisServer) -> None:
    add_clicks(valkey.port, clicks(20))
    batches = iter(esd.read(address(valkey), SCHEMA, batch_size=8))
    assert [each.source.lag for each in islice(batches, 3)] == [12, 4, 0]
    late = threading.Timer(0.2, add_clicks, [valkey.port, clicks(3)])
    late.start()
    assert len(next(batches)) >= 1  # it has waited for them
    late.join()


def test_bounds(valkey: RedisServer, client: redis.Redis) -> None:
    for at, row in enumerate(clicks(10)):
        client.xadd(KEY, {"json": json.dumps(row)}, id=f"{1_700_000_000_000 + 1000 * at}-0")
    day = esd.read(address(valkey, "?from=2023-11-14T22:13:22Z&until=1700000007000-0"), SCHEMA)
    assert not day.endless
    assert sum(map(len, day)) == 5
    assert day.fingerprint != esd.read(address(valkey), SCHEMA).fingerprint
    assert sum(map(len, esd.read(address(valkey, "?until=2020-01-01"), SCHEMA))) == 0


@pytest.mark.parametrize("exists", [True, False])
def test_a_position_that_is_gone_is_refused_by_name(valkey: RedisServer, client: redis.Redis, exists: bool) -> None:
    add_clicks(valkey.port, clicks(ROWS))
    stream = esd.read(address(valkey), SCHEMA, batch_size=8)
    place = next(iter(stream)).source
    if exists:
        client.xtrim(KEY, maxlen=30, approximate=False)
    else:
        client.delete(KEY)
        add_clicks(valkey.port, clicks(ROWS))
    with pytest.raises(FailedPrecondition, match=rf"the position {place.text.partition(':')[0]} is gone: it begins at"):
        next(stream.open(place))


def test_a_stream_that_is_trimmed_before_its_reader_is_refused(valkey: RedisServer, client: redis.Redis) -> None:
    add_clicks(valkey.port, clicks(ROWS))
    batches = iter(esd.read(address(valkey), SCHEMA, batch_size=8))
    next(batches)
    client.xtrim(KEY, maxlen=ROWS - 8, approximate=False)
    next(batches)  # only what was read is gone
    client.xtrim(KEY, maxlen=5, approximate=False)
    with pytest.raises(FailedPrecondition, match=r"is gone: it begins at .* trimmed or deleted"):
        next(batches)


def test_a_server_that_has_lost_what_was_read_is_refused(valkey: RedisServer, client: redis.Redis) -> None:
    add_clicks(valkey.port, clicks(ROWS))
    batches = iter(esd.read(address(valkey), SCHEMA, batch_size=8))
    taken(batches, ROWS)
    client.delete(KEY)
    client.xadd(KEY, {"user": "1"}, id="5-0")
    with pytest.raises(FailedPrecondition, match=r"is gone: the stream ends at 5-0, so it was made anew"):
        next(batches)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"json": '{"user": 1'}, "Expecting"),
        ({"json": "[1]"}, r"expected a JSON object, found b'\[1\]'"),
        ({"json": '{"user": 1, "item": 2, "price": NaN, "clicked": 1}'}, "NaN is no JSON"),
        ({"json": '{"user": {"id": 1}, "item": 2, "price": 1, "clicked": 1}'}, "column 'user': expected a text or a"),
        ({"user": "1", "item": "2", "clicked": "1"}, "it has no 'price', only 'user'"),
        (
            {"user": "1", "item": "2", "price": "dear", "clicked": "1"},
            "column 'price': expected a number, found 'dear'",
        ),
        ({"user": b"\xff", "item": "2", "price": "1", "clicked": "1"}, "can't decode byte 0xff"),
        ({"arrow": b"\xff\xff\xff\xff broken"}, "Expected to read"),
        ({"arrow": as_arrow(pa.table({"user": [1]}))}, "its Arrow stream has no column 'item'"),
    ],
)
def test_a_malformed_message_is_refused_with_its_position_or_skipped(
    fields: dict[str, str], wrong: str, valkey: RedisServer, client: redis.Redis
) -> None:
    add_clicks(valkey.port, clicks(4))
    at = client.xadd(KEY, fields).decode()
    add_clicks(valkey.port, clicks(4))
    with pytest.raises(InvalidArgument, match=rf"{KEY}: message {at}: .*{wrong}.*--skip-bad N skips it"):
        taken(iter(esd.read(address(valkey), SCHEMA)), 8)
    stream = esd.read(address(valkey), SCHEMA, skip_bad=1)
    assert sum(map(len, taken(iter(stream), 8))) == 8
    assert stream.skipped == 1


def test_a_server_that_is_away_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with redis_server(tmp_path, program=valkey_server()) as server:
        add_clicks(server.port, clicks(20))
        batches = iter(esd.read(address(server), SCHEMA, batch_size=8))
        next(batches)
        server.kill()
        back = threading.Timer(0.3, server.start)
        back.start()
        assert len(taken(batches, 12)) == 2
        back.join()
        server.kill()
        monkeypatch.setattr(log, "PATIENCE_SECONDS", 0.2)
        with pytest.raises(Unavailable, match=f"{KEY}: its server is away for 0.2 s"):
            next(batches)


def test_user_and_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with redis_server(tmp_path, program=valkey_server()) as server:
        server.cli("acl", "setuser", "reader", "on", ">secret", "~*", "+@all")
        add_clicks(server.port, clicks(3))
        named = f"redis+stream://reader@{server.address}/{KEY}"
        (tmp_path / "password").write_text("wrong\n")
        monkeypatch.setenv("ESD_SOURCE_PASSWORD_FILE", str(tmp_path / "password"))
        with pytest.raises(InvalidArgument, match=r"refuses user or password \(ESD_SOURCE_PASSWORD_FILE\)"):
            esd.read(named, SCHEMA)
        (tmp_path / "password").write_text("secret\n")
        assert len(next(iter(esd.read(named, SCHEMA)))) == 3


def test_a_server_with_an_own_authority_that_asks_for_a_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = Certificates.make(tmp_path / "certificates", "redis", "reader")
    ours = certificates.of("reader")
    (tmp_path / "password").write_text("secret\n")
    monkeypatch.setenv("ESD_SOURCE_PASSWORD_FILE", str(tmp_path / "password"))
    with encrypted_redis_server(tmp_path, certificates, "secret") as server:
        server.cli("xadd", KEY, "*", "json", json.dumps(clicks(1)[0]))
        there = f"rediss+stream://{server.address}/{KEY}"
        with pytest.raises(InvalidArgument, match=r"refuse each other \(ESD_SOURCE_CA_FILE.*certificate verify failed"):
            esd.read(there, SCHEMA)
        monkeypatch.setenv("ESD_SOURCE_CA_FILE", str(ours["tls_ca"]))
        monkeypatch.setenv("ESD_SOURCE_CERTIFICATE_FILE", str(ours["tls_certificate"]))
        monkeypatch.setenv("ESD_SOURCE_KEY_FILE", str(ours["tls_key"]))
        assert len(next(iter(esd.read(there, SCHEMA)))) == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("redis+stream://h/clicks", r"is the address of a log, which is redis\+stream://HOST:PORT/NAME"),
        ("redis+stream://h:70000/clicks", "with a port up to 65535"),
        ("redis+stream://u:p@h:1/clicks", r"'redis\+stream://...@h:1/clicks': a password would stand in the record"),
        ("redis+stream://h:1/" + "x" * 513, "a name of 513 characters, at most 512"),
        ("redis+stream://h:1/clicks?to=1", "'to' is unknown; an address of such a log takes from and until"),
        ("redis+stream://h:1/clicks?from=now", "from=now is neither an id of an entry"),
    ],
)
def test_a_wrong_address_is_refused(wrong: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        esd.read(wrong, SCHEMA)


def test_what_the_server_has_decides_whether_it_is_a_stream(valkey: RedisServer, client: redis.Redis) -> None:
    with pytest.raises(InvalidArgument, match="clicks: this key cannot be read as a stream: no such key"):
        esd.read(address(valkey), SCHEMA)
    client.set(KEY, "text")
    with pytest.raises(InvalidArgument, match="clicks: this key cannot be read as a stream: WRONGTYPE"):
        esd.read(address(valkey), SCHEMA)
    client.delete(KEY)
    add_clicks(valkey.port, clicks(1))
    with pytest.raises(InvalidArgument, match="until 2100-01-01 lies ahead of the server's clock"):
        esd.read(address(valkey, "?until=2100-01-01"), SCHEMA)


def test_a_run_on_a_log_needs_no_end_and_takes_no_option_that_needs_its_beginning(valkey: RedisServer) -> None:
    add_clicks(valkey.port, clicks(1))
    options = {"data": address(valkey), "schema": SCHEMA, "cache_rows": 10}
    assert training_stream(RunOptions(**options)).iterations is None
    with pytest.raises(InvalidArgument, match="--shuffle, --holdout and --hot-batches would need its beginning"):
        training_stream(RunOptions(**options, shuffle=10))
    with pytest.raises(InvalidArgument, match="is a log, whose columns --schema FILE describes"):
        training_stream(RunOptions(data=address(valkey)))
