"""Finds the kind of a log. The client of each broker is imported when a log of its kind is opened."""

from __future__ import annotations

from typing import Any

from esd.data.log_address import KAFKA, NATS, LogAddress
from esd.data.logs.log import Log
from esd.data.logs.redis_stream import RedisStream
from esd.services.runtime.extras import reader_module


def open_log(address: LogAddress) -> Log:
    """Returns the log at an address.

    Raises:
        NotFound: the client of its broker is not installed.
        InvalidArgument: a bound is wrong, or a file of the credentials cannot be read.
    """
    if address.kind == KAFKA:
        kafka: Log = _with_client("esd.data.logs.kafka_topic", "confluent-kafka", "kafka").KafkaTopic(address)
        return kafka
    if address.kind == NATS:
        nats: Log = _with_client("esd.data.logs.nats_stream", "nats-py", "nats").NatsStream(address)
        return nats
    return RedisStream(address)


def _with_client(module: str, package: str, extra: str) -> Any:
    return reader_module(module, "a reader of such logs", package, extra)
