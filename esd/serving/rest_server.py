"""The web server of the REST API: uvicorn, with bounds for connections of strangers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from esd.services.runtime.http import address_of, listen_beside
from esd.services.runtime.server import Server
from esd.serving.rest import NAMES, RestApi
from esd.serving.service import ModelService
from esd.serving.settings import ModelSettings

_LONGEST_HEAD = 2**14  # bytes of a request line and its headers
_HEAD_SECONDS = 10.0  # for a request's head to arrive
_SPARE_CONNECTIONS = 64  # for health and for refusals that name their limit
_IDLE_SECONDS = 60  # between the requests of a connection


@asynccontextmanager
async def serve_rest(model: ModelService, server: Server, port: int, settings: ModelSettings) -> AsyncIterator[str]:
    """Serves while the block runs, on the host of the service; yields the `host:port`.

    At its end running requests may finish for the grace period.

    Args:
        model: the model that is served.
        server: serves it over gRPC; callers and limits are the same.
        port: to listen at; 0 takes any free one.
        settings: limits and files of certificates.

    Raises:
        FailedPrecondition: the port is not available.
    """
    variable = settings.variable("rest_port")
    with listen_beside("the REST API", settings.listen, port, variable) as listening:
        web = _Server(_configuration(RestApi(model, server, settings).app(), settings))
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(web.serve(sockets=[listening]), name="serve REST")
            try:
                yield address_of(listening, settings.listen)
            finally:
                web.should_exit = True
                await asyncio.wait([serving])


def _configuration(app: Starlette, settings: ModelSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=2 * settings.max_concurrent_rpcs + _SPARE_CONNECTIONS,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=round(settings.grace_seconds),
        h11_max_incomplete_event_size=_LONGEST_HEAD,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        ssl_ca_certs=str(settings.tls_ca) if settings.tls_clients else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if settings.tls_clients else ssl.CERT_NONE,
    )


class _Server(uvicorn.Server):
    """Leaves signals to the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Connection(H11Protocol):
    """A connection that is closed if no whole head of a request arrives in time, and knows the client's names."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for the first request."""
        super().connection_made(transport)
        self.app_state = {NAMES: _names_of(transport)}
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Passes bytes on; waits for the rest of a head, or no more."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait_for_head()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the wait."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        if self._patience is None:
            self._patience = self.loop.call_later(_HEAD_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def _names_of(transport: asyncio.Transport) -> tuple[bytes, ...]:
    """Returns the names in a client's certificate, which OpenSSL has verified; the common name first."""
    encrypted = transport.get_extra_info("ssl_object")
    shown = encrypted.getpeercert() if encrypted is not None else None
    if not shown:
        return ()
    common = [value for part in shown.get("subject", ()) for key, value in part if key == "commonName"]
    return tuple(str(name).encode() for name in (*common, *(value for _, value in shown.get("subjectAltName", ()))))
