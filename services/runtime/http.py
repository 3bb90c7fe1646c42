"""The smallest web server that metrics and the page need: GET of a few fixed paths, one answer per connection.

It requires no credentials, so it bounds the resources of any client: the connections, and the duration of each. At a
loopback address it also refuses requests for other hosts: a page of the web whose name resolves to this machine (DNS
rebinding) could read the answers otherwise.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus

from esd.services.domain.errors import FailedPrecondition
from esd.services.runtime.settings import join_address, split_address

_LONGEST_HEAD = 2**14  # bytes of a request line and its headers
_HEAD_SECONDS = 2.0  # for the request to arrive
_PATIENCE_SECONDS = 10.0  # for the client to read the answer
_CONNECTIONS = 64  # served at a time; a browser opens six
_PAUSE_SECONDS = 0.1

# The page loads nothing from elsewhere, and nothing is cached: it always shows the server's present state.
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
    """The content of a path.

    Attributes:
        kind: its media type.
        content: makes the content, for every request; slow work in it must be done in a thread.
        richer: the same in another format, for clients whose Accept names its media type; None: there is none.
    """

    kind: str
    content: Callable[[], Awaitable[bytes]]
    richer: Resource | None = None

    def accepted_by(self, head: str) -> Resource:
        """Returns the format that a request asks for."""
        if self.richer is None:
            return self
        kind = self.richer.kind.partition(";")[0]
        return self.richer if any(kind in accepted for accepted in _header(head, "accept")) else self


@asynccontextmanager
async def serve_http(
    what: str, listen: str, port: int | None, variable: str, resources: Mapping[str, Resource]
) -> AsyncIterator[str | None]:
    """Serves while the block runs, on the host of a service; yields the `host:port`, None if it is turned off.

    Args:
        what: name of the content, for the error.
        listen: `host:port` of the service.
        port: port on the same host; 0 takes any free one, None turns it off.
        variable: the setting of the port, for the error.
        resources: the content of each path.

    Raises:
        FailedPrecondition: the port is not available.
    """
    if port is None:
        yield None
        return
    with listen_beside(what, listen, port, variable) as listening:
        local = is_loopback(listening.getsockname()[0])
        accepting = asyncio.create_task(_accept(listening, resources, local=local), name=f"serve {what}")
        try:
            yield address_of(listening, listen)
        finally:
            accepting.cancel()
            await asyncio.gather(accepting, return_exceptions=True)


def listen_beside(what: str, listen: str, port: int, variable: str) -> socket.socket:
    """Returns a listening socket at a port of the host of a service. For the arguments and errors see `serve_http`."""
    host = split_address(listen)[0]
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error  # Python's own text repeats the address
        raise FailedPrecondition(
            f"cannot serve {what} on {join_address(host, port)}: {reason}; choose another port with {variable}, or none"
        ) from error
    listening.setblocking(False)
    return listening


def address_of(listening: socket.socket, listen: str) -> str:
    """Returns the `host:port` of a socket at the host of a service."""
    return join_address(split_address(listen)[0], listening.getsockname()[1])


async def _accept(listening: socket.socket, resources: Mapping[str, Resource], *, local: bool) -> None:
    """Accepts up to 64 connections at a time; further ones wait in the kernel, and cost this process nothing."""
    places = asyncio.Semaphore(_CONNECTIONS)
    async with asyncio.TaskGroup() as tasks:
        while True:
            await places.acquire()
            try:
                connection = await _accepted(listening)
            except OSError as error:  # the process has no file descriptor left, or the peer has gone already
                _log.warning("a connection cannot be accepted: %s", error.strerror)
                places.release()
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            tasks.create_task(_answer(connection, resources, local=local)).add_done_callback(lambda _: places.release())


async def _accepted(listening: socket.socket) -> socket.socket:
    """Waits for a connection. The loop's own `sock_accept` never closes one that comes while it is cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return listening.accept()[0]
        except BlockingIOError:
            readable: asyncio.Future[None] = loop.create_future()
            loop.add_reader(listening, _set, readable)
            try:
                await readable
            finally:
                loop.remove_reader(listening)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _answer(connection: socket.socket, resources: Mapping[str, Resource], *, local: bool) -> None:
    reader, writer = await asyncio.open_connection(sock=connection, limit=_LONGEST_HEAD)
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await _head(reader)
            writer.write(await _response(head, resources, local=local))
            writer.write_eof()
            # Unread bytes at the close would make the kernel reset the connection and drop the answer.
            while await reader.read(_LONGEST_HEAD):
                pass
            writer.close()
            await writer.wait_closed()
    except (TimeoutError, OSError, asyncio.IncompleteReadError):
        pass  # the peer is slow or gone
    finally:
        writer.transport.abort()


async def _head(reader: asyncio.StreamReader) -> str | None:
    """Returns the request line and headers; None if they are too long."""
    try:
        return (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError:
        return None


async def _response(head: str | None, resources: Mapping[str, Resource], *, local: bool) -> bytes:
    request = head.split("\r\n", 1)[0].split(" ") if head else []
    if len(request) != 3 or not request[2].startswith("HTTP/1."):
        return _error(HTTPStatus.BAD_REQUEST)
    if local and head and not _names_loopback(head):
        return _error(HTTPStatus.MISDIRECTED_REQUEST)
    method, target, _ = request
    if method not in ("GET", "HEAD"):
        return _error(HTTPStatus.METHOD_NOT_ALLOWED)
    resource = resources.get(target.partition("?")[0])
    if resource is None:
        return _error(HTTPStatus.NOT_FOUND)
    resource = resource.accepted_by(head or "")
    try:
        body = await resource.content()
    except Exception:  # noqa: BLE001 - a defect in a page must not disturb the service
        _log.exception("defect while answering %s", target)
        return _error(HTTPStatus.INTERNAL_SERVER_ERROR)
    return _message(HTTPStatus.OK, resource.kind, body, with_body=method == "GET")


def _names_loopback(head: str) -> bool:
    """Returns whether the header Host names this machine. A client that sends none is no browser."""
    return all(map(is_loopback_name, _header(head, "host")))


def _header(head: str, name: str) -> list[str]:
    """Returns the values of a header, in small letters: one for each time that the request has it."""
    fields = (line.partition(":") for line in head.split("\r\n")[1:])
    return [value.strip().lower() for field, _, value in fields if field.strip().lower() == name]


def is_loopback_name(host: str) -> bool:
    """Returns whether the value of a header Host, with a port or not, names this machine by a loopback address."""
    host = host.strip().lower()
    host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return host == "localhost" or host.endswith(".localhost") or is_loopback(host)


def is_loopback(host: str) -> bool:
    """Returns whether an address is a loopback address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _error(status: HTTPStatus) -> bytes:
    return _message(status, "text/plain; charset=utf-8", f"{status.phrase}\n".encode(), with_body=True)


def _message(status: HTTPStatus, kind: str, body: bytes, *, with_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{_HEADERS}"
    )
    return f"{head}\r\n".encode() + (body if with_body else b"")
