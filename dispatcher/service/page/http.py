"""The smallest web server that the page needs: GET of a few fixed paths, one answer per connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

_LONGEST_HEAD = 2**14  # bytes of a request line and its headers
_PATIENCE_SECONDS = 10.0
_CONNECTIONS = 64  # served at a time; a browser opens six

# Nothing is loaded from elsewhere, and nothing is kept: what is on the screen is what the server says now.
_HEADERS = (
    "Cache-Control: no-store\r\n"
    "Content-Security-Policy: default-src 'self'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Connection: close\r\n"
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Resource:
    """The content that a path answers with.

    Attributes:
        kind: its media type.
        content: makes the content; it is called for every request, in the event loop.
    """

    kind: str
    content: Callable[[], bytes]


async def open_http(host: str, port: int, resources: Mapping[str, Resource]) -> asyncio.Server:
    """Starts to serve, until the server is closed. Port 0 takes any free one.

    Raises:
        OSError: the address cannot be listened on.
    """
    places = asyncio.Semaphore(_CONNECTIONS)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with places, asyncio.timeout(_PATIENCE_SECONDS):
                writer.write(_response(await _head(reader), resources))
                await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            pass  # the peer is slow or gone
        finally:
            writer.close()

    return await asyncio.start_server(answer, host, port, limit=_LONGEST_HEAD)


async def _head(reader: asyncio.StreamReader) -> str | None:
    """Request line and headers; None if they are too long."""
    try:
        return (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError:
        return None


def _response(head: str | None, resources: Mapping[str, Resource]) -> bytes:
    request = head.split("\r\n", 1)[0].split(" ") if head else []
    if len(request) != 3 or not request[2].startswith("HTTP/1."):
        return _error(HTTPStatus.BAD_REQUEST)
    method, target, _ = request
    if method not in ("GET", "HEAD"):
        return _error(HTTPStatus.METHOD_NOT_ALLOWED)
    resource = resources.get(target.partition("?")[0])
    if resource is None:
        return _error(HTTPStatus.NOT_FOUND)
    try:
        body = resource.content()
    except Exception:  # noqa: BLE001 - a defect in the page must not disturb the job
        _log.exception("defect while answering %s", target)
        return _error(HTTPStatus.INTERNAL_SERVER_ERROR)
    return _message(HTTPStatus.OK, resource.kind, body, with_body=method == "GET")


def _error(status: HTTPStatus) -> bytes:
    return _message(status, "text/plain; charset=utf-8", f"{status.phrase}\n".encode(), with_body=True)


def _message(status: HTTPStatus, kind: str, body: bytes, *, with_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{_HEADERS}"
    )
    return f"{head}\r\n".encode() + (body if with_body else b"")
