"""Topics of Kafka as sources, on librdkafka's mock broker, which knows no times, users or TLS and cannot restart."""

from __future__ import annotations

import json
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from socket import create_server

import pyarrow as pa
import pytest

import esd
from esd.data.logs import kafka_consumer, kafka_reader, log
from esd.data.logs.turns import TURN
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable
from esd.services.domain.sources import SourcePosition
from testbed.kafka_broker import PARTITIONS, MockKafka, mock_kafka
from tests.support.certificates import Certificates
from tests.support.clicks import SCHEMA, clicks
from tests.support.samples import assert_same_samples, beginning_at, taken

ROUND = PARTITIONS * TURN
ROWS = clicks(2 * ROUND + TURN)


@pytest.fixture(scope="module")
def broker() -> Iterator[MockKafka]:
    with mock_kafka() as broker:
        yield broker


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return str(request.node.name)


def address(broker: MockKafka, topic: str, options: str = "") -> str:
    return f"kafka://{broker.address}/{topic}{options}"


def messages(rows: list[dict[str, object]], begin: int = 0) -> list[tuple[int, bytes]]:
    """The rows with their partitions, which they go to in turns of one."""
    return [(at % PARTITIONS, json.dumps(row).encode()) for at, row in enumerate(rows, begin)]


def by_turns(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """The rows in the order in which a reader has to give them, as far as no partition is waited for."""
    parts = [rows[at::PARTITIONS] for at in range(PARTITIONS)]
    order: list[dict[str, object]] = []
    for begin in range(0, len(rows), TURN):
        for part in parts:
            order += part[begin : begin + TURN]
            if len(part) < begin + TURN:
                return order
    return order


def samples_of(rows: list[dict[str, object]]) -> SampleBatch:
    return SampleBatch.concatenate(list(esd.read(pa.Table.from_pylist(rows), SCHEMA)))


def test_partitions_come_in_turns_however_their_messages_arrived(broker: MockKafka, topic: str) -> None:
    together, late = messages(ROWS), messages(ROWS)
    broker.add(topic, together)
    expected = samples_of(by_turns(ROWS))
    found = taken(iter(esd.read(address(broker, topic), SCHEMA)), len(expected))
    assert_same_samples(SampleBatch.concatenate(found), expected)
    late.sort(key=lambda each: -each[0])  # the last partition has its messages first
    broker.add(f"{topic}.late", late[:ROUND])
    batches = iter(esd.read(address(broker, f"{topic}.late"), SCHEMA))
    adding = threading.Timer(0.3, broker.add, [f"{topic}.late", late[ROUND:]])
    adding.start()
    assert_same_samples(SampleBatch.concatenate(taken(batches, len(expected))), expected)
    adding.join()


def test_a_topic_goes_on_at_every_sample(broker: MockKafka, topic: str) -> None:
    broker.add(topic, messages(ROWS))
    stream = esd.read(address(broker, topic), SCHEMA, batch_size=24)
    batches = taken(iter(stream), 3 * TURN)
    whole, before = SampleBatch.concatenate(batches), 0
    assert len(batches) >= 9  # of 24, 24 and 16 messages of each turn, or less where messages were still coming
    for batch in batches[:5]:
        for at in (0, len(batch) // 3, len(batch) - 1):
            rest = stream.open(batch[at:].source)
            assert_same_samples(SampleBatch.concatenate(taken(rest, 30))[:30], whole[before + at : before + at + 30])
            rest.close()
        before += len(batch)


def test_a_partition_that_is_added_later_joins_when_a_run_goes_on(broker: MockKafka, topic: str) -> None:
    broker.add(topic, messages(ROWS))
    known = esd.read(address(broker, topic, "?partitions=0,2"), SCHEMA)
    first = next(iter(known))
    assert first.source.text == "0+0@0=0,2=0:0"
    grown = esd.read(address(broker, topic), SCHEMA)
    found = taken(grown.open(first.source), 2 * TURN)
    expected = samples_of(ROWS[0 : PARTITIONS * TURN : PARTITIONS] + ROWS[1 : PARTITIONS * TURN : PARTITIONS])
    assert_same_samples(SampleBatch.concatenate(found), expected)
    assert beginning_at(TURN, found).source.text == f"1+0@0={TURN},1=0,2=0,3=0:0"


def test_some_partitions_are_read_alone(broker: MockKafka, topic: str) -> None:
    broker.add(topic, messages(ROWS))
    stream = esd.read(address(broker, topic, "?partitions=3"), SCHEMA)
    rows = ROWS[3::PARTITIONS]
    found = taken(iter(stream), len(rows))
    assert_same_samples(SampleBatch.concatenate(found), samples_of(rows))
    assert found[-1].source.lag == 0
    assert stream.fingerprint != esd.read(address(broker, topic), SCHEMA).fingerprint
    with pytest.raises(InvalidArgument, match=f"partitions=4 is none of the topic's: {PARTITIONS}, from 0 on"):
        esd.read(address(broker, topic, "?partitions=0,4"), SCHEMA)


def test_bounds(broker: MockKafka, topic: str) -> None:
    broker.add(topic, messages(ROWS))
    stretch = esd.read(address(broker, topic, "?partitions=1&from=3&until=9"), SCHEMA)
    assert not stretch.endless
    for _ in range(2):
        assert_same_samples(SampleBatch.concatenate(list(stretch)), samples_of(ROWS[1::PARTITIONS][3:9]))
    for bound in ("from", "until"):
        with pytest.raises(InvalidArgument, match=rf"{bound}=3 is an offset of one partition, and 4 are read"):
            next(iter(esd.read(address(broker, topic, f"?{bound}=3"), SCHEMA)))
    with pytest.raises(InvalidArgument, match=r"until=999 lies ahead of the partition's end, \d+"):
        esd.read(address(broker, topic, "?partitions=1&until=999"), SCHEMA)
    with pytest.raises(InvalidArgument, match="until 2100-01-01 lies ahead of this machine's clock"):
        esd.read(address(broker, topic, "?until=2100-01-01"), SCHEMA)


def test_a_bound_is_found_once_and_ends_every_partition(broker: MockKafka, topic: str) -> None:
    """The mock broker has no message of a time, as a real one has none after the last message."""
    rows = ROWS[: TURN + 6]
    broker.add(topic, messages(rows))
    whole = esd.read(address(broker, topic, "?until=2020-01-01"), SCHEMA)
    broker.add(topic, messages(ROWS))
    for _ in range(2):
        parts = [row for at in range(PARTITIONS) for row in rows[at::PARTITIONS]]
        assert_same_samples(SampleBatch.concatenate(list(whole)), samples_of(parts))


def test_a_position_that_is_gone_is_refused_by_name(
    broker: MockKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_reader, "_HELD_BYTES", 100)  # so that the reader has paused before more comes
    broker.add(topic, messages(ROWS))
    stream = esd.read(address(broker, topic), SCHEMA, batch_size=1)  # more wait behind it, or the reader goes on
    reading = iter(stream)
    place = next(reading).source
    assert place is not None
    broker.add(topic, [(0, b"x" * 100_000)] * 60)
    with pytest.raises(FailedPrecondition, match=r"the position 0 of partition 0 is gone: the partition begins at \d+"):
        next(stream.open(place))
    with pytest.raises(FailedPrecondition, match=r"position \d+ of partition 0 is gone.*retention\.ms"):
        taken(reading, len(ROWS) + 1)
    for wrong, told in {
        "1+0@1=9999": r"the position 9999 of partition 1 is gone: the partition ends at \d+, so the topic",
        "0+0@0=0,7=0": "the topic has no partition 7 any more, so it was made anew",
    }.items():
        with pytest.raises(FailedPrecondition, match=told):
            next(stream.open(SourcePosition(f"{wrong}:0")))
    for wrong in ("17:0", "0+64@0=0:0", "1+0@0=0:0"):
        with pytest.raises(InvalidArgument, match="is no position in a topic"):
            next(stream.open(SourcePosition(wrong)))


def test_a_malformed_message_is_refused_with_its_offset_or_skipped(broker: MockKafka, topic: str) -> None:
    broker.add(topic, [(0, b"no json"), (0, b""), *messages(ROWS)])
    with pytest.raises(InvalidArgument, match=r"message 0 of partition 0: Expecting value.*--skip-bad N skips it"):
        next(iter(esd.read(address(broker, topic), SCHEMA)))
    stream = esd.read(address(broker, topic), SCHEMA, skip_bad=2)
    assert sum(map(len, taken(iter(stream), TURN - 2))) == TURN - 2
    assert stream.skipped == 2


def test_messages_that_wait_for_their_turn_are_bounded(
    broker: MockKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions of which more waits are paused, and go on where they were left."""
    monkeypatch.setattr(kafka_reader, "_HELD_BYTES", 4 * 40 * len(json.dumps(ROWS[0])))
    paused: list[int] = []
    pause = kafka_consumer.TopicConsumer.pause
    monkeypatch.setattr(kafka_consumer.TopicConsumer, "pause", lambda self, at: (paused.append(at), pause(self, at))[1])
    broker.add(topic, messages(ROWS)[:ROUND])
    expected = samples_of(by_turns(ROWS))
    batches = iter(esd.read(address(broker, topic), SCHEMA))
    found = [next(batches)]
    broker.add(topic, messages(ROWS)[ROUND:])
    found += taken(batches, len(expected) - len(found[0]))
    assert paused
    assert_same_samples(SampleBatch.concatenate(found), expected)


def test_brokers_that_are_away_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_consumer, "_ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(log, "PATIENCE_SECONDS", 0.3)
    with mock_kafka() as broker:
        broker.add("clicks", messages(ROWS[:20]))
        batches = iter(esd.read(address(broker, "clicks"), SCHEMA))
        taken(batches, 20 // PARTITIONS)  # all of the first partition, whose turn is not over
    with pytest.raises(Unavailable, match=r"clicks: its server is away for 0\.3 s"):
        next(batches)
    with pytest.raises(Unavailable, match=r"clicks: its server is away for 0\.3 s"):
        esd.read("kafka://127.0.0.1:1,127.0.0.1:2/clicks", SCHEMA)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("kafka://h:1,i/clicks", r"is the address of a log, which is kafka://HOST:PORT\[,HOST:PORT...\]/NAME"),
        ("kafka://u:p@h:1/clicks", "'kafka://...@h:1/clicks': a password would stand in the record"),
        ("kafka://h:1/clicks?offset=1", "'offset' is unknown; .* takes from, until, partitions and sasl"),
        ("kafka://h:1/clicks?partitions=1,1", "partitions=1,1 are no different numbers"),
        ("kafka://h:1/clicks?from=first", "from=first is neither an offset, such as 1200, nor a time"),
        ("kafka://u@h:1/clicks?sasl=gssapi", "sasl=gssapi is unknown; there are plain, scram-sha-256, scram-sha-512"),
        ("kafka://u@h:1/clicks", "user u needs a password, in the file of ESD_SOURCE_PASSWORD_FILE"),
        ("kafka://h:1/clicks?sasl=plain", "sasl=plain needs a user: kafka://USER@HOST:PORT/TOPIC"),
        ("redis+stream://h:1/clicks?partitions=1", "'partitions' is unknown; .* takes from and until"),
        ("redis+stream://h:1,i:2/clicks", r"which is redis\+stream://HOST:PORT/NAME"),
    ],
)
def test_a_wrong_address_is_refused(wrong: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        esd.read(wrong, SCHEMA)


def test_a_topic_that_is_not_there_is_refused(broker: MockKafka) -> None:
    with pytest.raises(InvalidArgument, match=r"none: this topic cannot be read: .*Unknown topic"):
        esd.read(address(broker, "none"), SCHEMA)


def test_a_client_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("kafka_topic", "kafka_reader", "kafka_consumer"):
        monkeypatch.delitem(sys.modules, f"esd.data.logs.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(NotFound, match=r"needs confluent-kafka, .*pip install 'esd-train\[kafka\]'"):
        esd.read("kafka://127.0.0.1:1/clicks", SCHEMA)


def test_brokers_are_checked_by_an_own_authority_and_see_the_certificate_of_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = Certificates.make(tmp_path, "broker", "reader")
    theirs, ours = certificates.of("broker"), certificates.of("reader")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(theirs["tls_ca"]))
    context.load_cert_chain(theirs["tls_certificate"], theirs["tls_key"])
    context.verify_mode = ssl.CERT_REQUIRED
    seen: list[bytes] = []
    with create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            """Reads the first request that comes by TLS; a reader without trust ends its connection before."""
            while not seen:
                connection, _ = server.accept()
                with suppress(ssl.SSLError), connection, context.wrap_socket(connection, server_side=True) as encrypted:
                    seen.append(encrypted.recv(1000))

        serving = threading.Thread(target=serve)
        serving.start()
        monkeypatch.setattr(kafka_consumer, "_ANSWER_SECONDS", 1.0)
        monkeypatch.setattr(log, "PATIENCE_SECONDS", 0.0)
        there = f"kafka+tls://127.0.0.1:{server.getsockname()[1]}/clicks"
        with pytest.raises(InvalidArgument, match=r"refuse each other \(user, .*ESD_SOURCE_CA_FILE"):
            esd.read(there, SCHEMA)
        monkeypatch.setenv("ESD_SOURCE_CA_FILE", str(ours["tls_ca"]))
        monkeypatch.setenv("ESD_SOURCE_CERTIFICATE_FILE", str(ours["tls_certificate"]))
        with pytest.raises(InvalidArgument, match="a certificate and its key belong together"):
            esd.read(there, SCHEMA)
        monkeypatch.setenv("ESD_SOURCE_KEY_FILE", str(ours["tls_key"]))
        with pytest.raises(Unavailable):  # it says nothing back
            esd.read(there, SCHEMA)
        serving.join(10)
    assert b"esd" in seen[0]  # the name of the client, which each request of Kafka has
