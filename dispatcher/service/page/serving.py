"""The page of a dispatcher: its files and the live document, over HTTP."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files

from esd.dispatcher.service.page_document import state_document
from esd.dispatcher.service.run.current_job import CurrentJob
from esd.dispatcher.service.settings import DispatcherSettings
from esd.services.runtime.http import Resource, serve_http

_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "/plans.js": ("plans.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}

_log = logging.getLogger(__name__)


@asynccontextmanager
async def serve_page(current_job: CurrentJob, settings: DispatcherSettings) -> AsyncIterator[str | None]:
    """Serves the page while the block runs, on the service's host. Yields its `host:port`; None if it is turned off.

    Raises:
        FailedPrecondition: the port cannot be listened on.
    """
    folder = files("esd.dispatcher.service.page") / "static"
    resources = {path: Resource(kind, _constant((folder / name).read_bytes())) for path, (name, kind) in _FILES.items()}
    resources["/state.json"] = Resource("application/json", lambda: state_document(current_job.latest))
    variable = settings.variable("page_port")
    async with serve_http("the page", settings.listen, settings.page_port, variable, resources) as address:
        if address:
            _log.info("the page is at http://%s/", address)
        yield address


def _constant(content: bytes) -> Callable[[], Awaitable[bytes]]:
    async def constant() -> bytes:
        return content

    return constant
