"""A parameter server watches its store: after every answer it asks again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from esd.ps_server.service import monitoring
from esd.ps_server.service.monitoring import store_followed
from esd.ps_server.service.store_access import StoreThreads
from esd.services.domain.errors import Unavailable


class Store:
    """Fails with one error after the other, and is well then."""

    def __init__(self, *errors: Exception) -> None:
        self._errors: Iterator[Exception] = iter(errors)

    def ping(self) -> None:
        for error in self._errors:
            raise error


class Server:
    """Records the reports that it should make about itself."""

    def __init__(self) -> None:
        self.said: list[bool] = []
        self.told = asyncio.Event()

    async def set_serving(self, serving: bool) -> None:
        self.said.append(serving)
        self.told.set()


async def test_an_error_that_nobody_has_thought_of_is_logged_and_the_store_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(monitoring, "_INTERVAL_SECONDS", 0.0)
    store: Any = Store(ValueError("of no kind that is known"), Unavailable("it is away"))
    server: Any = Server()
    with closing(StoreThreads(1)) as threads:
        async with asyncio.timeout(30), store_followed(store, threads, server, lambda _: None):
            while server.said != [True, False, True]:
                server.told.clear()
                await server.told.wait()
    (told,) = (record for record in caplog.records if "not serving" in record.getMessage())
    assert told.exc_info is not None
