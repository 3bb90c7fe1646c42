"""A worker that misbehaves is refused by the parameter server, named in its log, and leaves nothing behind."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import grpc
import numpy as np
import pytest

from esd.protos import ps_pb2
from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.runtime.logs import JsonFormatter
from esd.services.runtime.settings import LEAST_LOGGED_BYTES
from tests.support.frames import gradient_push, row_push
from tests.support.ps_client import Client, refused

NAME = "rogue worker"
SHOWN = "rogue%20worker"  # in a header, which takes no blanks


@pytest.fixture
async def rogue() -> AsyncIterator[Client]:
    """A worker's connection to a parameter server whose table has a few rows and is in epoch 3."""
    settings = ParameterServerSettings(metrics_port=None, grace_seconds=0, max_request_bytes=LEAST_LOGGED_BYTES)
    async with parameter_server(settings) as server, Client(server.address, caller=NAME) as client:
        await client.create_table()
        await client.send(row_push([1, 2], 1, 0.5))
        await client.restore(0, epoch=3)
        yield client


def of_epoch(chunk: ps_pb2.ExchangeRequest, epoch: int) -> ps_pb2.ExchangeRequest:
    chunk.epoch = epoch
    return chunk


@pytest.mark.parametrize(
    ("chunk", "code", "text"),
    [
        (of_epoch(row_push([1], 1, np.nan), 3), grpc.StatusCode.INVALID_ARGUMENT, "row 1 holds NaN"),
        (of_epoch(gradient_push(0, [1], 1, 1, np.inf), 3), grpc.StatusCode.INVALID_ARGUMENT, "row 1 holds NaN or inf"),
        (
            ps_pb2.ExchangeRequest(
                table="t", epoch=3, rows=ps_pb2.RowBlock(ids=bytes(8), versions=bytes(8), rows=bytes(4))
            ),
            grpc.StatusCode.INVALID_ARGUMENT,
            "rows.rows has 4 bytes",
        ),
        (
            of_epoch(row_push([1], 1, 0.5), 2),
            grpc.StatusCode.FAILED_PRECONDITION,
            "epoch 2 is not the epoch of table 't'",
        ),
    ],
    ids=["NaN rows", "infinite gradients", "wrong shape", "old epoch"],
)
async def test_a_bad_push_is_refused_and_its_sender_named(rogue, caplog, chunk, code, text):
    with caplog.at_level(logging.INFO), refused(code, text):
        await rogue.send(chunk)
    (line,) = [record for record in caplog.records if record.message.startswith("frame 1 refused")]
    assert line.code == code.name
    assert (await rogue.describe()).tables[0].rows == 0


async def test_the_log_names_who_was_refused(rogue, capsys):
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.getLogger().addHandler(handler)
    try:
        logging.getLogger().setLevel(logging.INFO)
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "NaN"):
            await rogue.send(of_epoch(row_push([1], 1, np.nan), 3))
    finally:
        logging.getLogger().removeHandler(handler)
        logging.getLogger().setLevel(logging.WARNING)
    assert f'"caller": "{SHOWN}"' in capsys.readouterr().err


async def test_a_message_over_the_limit_is_refused(rogue):
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max"):
        await rogue.send(of_epoch(row_push(range(200_000), 1, 0.5), 3))
