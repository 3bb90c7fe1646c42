"""Finds the kind of a log. The client of each broker is imported when a log of its kind is opened."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from esd.data.log_address import KAFKA, NATS, LogAddress
from esd.data.logs.log import Log
from esd.data.logs.redis_stream import RedisStream
from esd.services.domain.errors import NotFound
from esd.services.runtime.extras import is_missing


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
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise NotFound(is_missing("a reader of such logs", package, extra)) from error
