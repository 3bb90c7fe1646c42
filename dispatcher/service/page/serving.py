"""The page of a dispatcher: its files and the live document, over HTTP."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files

from dispatcher.service.page.document import state_document
from dispatcher.service.page.http import Resource, open_http
from dispatcher.service.run.current_job import CurrentJob
from dispatcher.service.settings import DispatcherSettings
from services.domain.errors import FailedPrecondition
from services.runtime.settings import split_address

_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}

_log = logging.getLogger(__name__)


@asynccontextmanager
async def serve_page(current_job: CurrentJob, settings: DispatcherSettings) -> AsyncIterator[str | None]:
    """Serves the page while the block runs, on the service's host; yields its `host:port`, None when off.

    Raises:
        FailedPrecondition: the port cannot be listened on.
    """
    if settings.page_port is None:
        yield None
        return
    host, _, _ = settings.listen.rpartition(":")
    folder = files("dispatcher.service.page") / "static"
    resources = {path: Resource(kind, _constant((folder / name).read_bytes())) for path, (name, kind) in _FILES.items()}
    resources["/state.json"] = Resource("application/json", lambda: state_document(current_job.latest))
    try:
        server = await open_http(split_address(settings.listen)[0], settings.page_port, resources)
    except OSError as error:
        raise FailedPrecondition(
            f"cannot serve the page on {host}:{settings.page_port}: {error.strerror}; "
            f"choose another port with {settings.variable('page_port')}, or none"
        ) from error
    async with server:
        address = f"{host}:{server.sockets[0].getsockname()[1]}"
        _log.info("the page is at http://%s/", address)
        yield address


def _constant(content: bytes) -> Callable[[], bytes]:
    return lambda: content
