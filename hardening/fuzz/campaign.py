"""Sends malformed requests to one service, a few at a time."""

from __future__ import annotations

import asyncio
import socket
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisWarning

from esd.services.runtime.settings import LEAST_LOGGED_BYTES
from hardening.fuzz.calls import Method, call, fault
from hardening.fuzz.messages import Request, requests
from hardening.fuzz.targets import Target

MAX_MESSAGE_BYTES = LEAST_LOGGED_BYTES  # of the services: the least that each takes, so that a longer message is cheap
_AT_ONCE = 24
_REFRESH_EVERY = 4  # batches
_OPTIONS = (("grpc.max_send_message_length", -1), ("grpc.enable_retries", 0))
_GARBAGE = [
    b"",
    b"\0" * 64,
    b"GET / HTTP/1.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 200,
    b"\x16\x03\x01" * 50,
]


@dataclass
class Tally:
    """The requests sent, and the number of answers by code and method."""

    sent: int = 0
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)


def campaign(runner: asyncio.Runner, target: Target, *, count: int, number: int, until: float) -> Tally:
    """Sends about `count` requests.

    Args:
        runner: the event loop that calls the service.
        target: the called service.
        count: number of requests.
        number: the seed.
        until: time of the monotonic clock at which to stop with fewer requests.

    Raises:
        AssertionError: an answer was wrong; hypothesis has made the requests as small as possible.
    """
    tally = Tally()
    methods = target.methods()
    current: Mapping[bytes, bytes] = {}
    one = st.one_of(
        [
            st.tuples(
                st.just(method),
                requests(
                    descriptor,
                    target.examples[descriptor_name(method)],
                    target.pools,
                    streaming=method.client_streaming,
                    huge=MAX_MESSAGE_BYTES + 1,
                ),
            )
            for method, descriptor in methods
        ]
    )
    batches = 0

    @seed(number)
    @settings(
        max_examples=-(-count // _AT_ONCE),
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(one, min_size=_AT_ONCE, max_size=_AT_ONCE))
    def attempt(batch: list[tuple[Method, Request]]) -> None:
        nonlocal batches, current
        if time.monotonic() > until:
            return
        if batches % _REFRESH_EVERY == 0:
            current = runner.run(target.refresh())
        batches += 1
        runner.run(_send(channel, threads, batch, current, tally))

    # Not grpc.aio, which makes up a status of its own when a stream ends while it is being sent.
    with (
        grpc.insecure_channel(target.address, _OPTIONS) as channel,
        ThreadPoolExecutor(_AT_ONCE) as threads,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", HypothesisWarning)  # its output would be long
        attempt()
    garbage(target.address)
    runner.run(target.check())
    return tally


def garbage(address: str) -> None:
    """Connections that do not speak HTTP/2."""
    host, _, port = address.rpartition(":")
    for data in _GARBAGE:
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(data)


def descriptor_name(method: Method) -> str:
    """Returns the name of a method without its service."""
    return method.path.rpartition("/")[2]


async def _send(
    channel: grpc.Channel,
    threads: Executor,
    batch: list[tuple[Method, Request]],
    placeholders: Mapping[bytes, bytes],
    tally: Tally,
) -> None:
    loop = asyncio.get_running_loop()
    filled = [(method, [_filled(message, placeholders) for message in request]) for method, request in batch]
    answers = await asyncio.gather(*(loop.run_in_executor(threads, call, channel, *each) for each in filled))
    for (method, request), answer in zip(batch, answers, strict=True):
        tally.sent += 1
        tally.answers[descriptor_name(method), answer.code.name] += 1
        wrong = fault(method, answer)
        if wrong is not None:
            raise AssertionError(f"{wrong}\n  request: {request!r}"[:2000])


def _filled(message: bytes, placeholders: Mapping[bytes, bytes]) -> bytes:
    for placeholder, value in placeholders.items():
        message = message.replace(placeholder, value)
    return message
