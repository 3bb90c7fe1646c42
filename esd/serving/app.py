"""The process of a served model, as `esd serve model` runs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from esd.services.domain.errors import FailedPrecondition
from esd.services.runtime import logs
from esd.services.runtime.extras import is_missing
from esd.services.runtime.process import announce
from esd.services.runtime.server import Server, serve
from esd.services.runtime.threads import named_threads
from esd.serving.folder import ServedFolder
from esd.serving.follow import Follower
from esd.serving.grpc_calls import SERVICE, InferenceServicer, add_to_server
from esd.serving.service import ModelService
from esd.serving.settings import ModelSettings


@dataclass(frozen=True, slots=True)
class Serving:
    """The addresses of a served model, each as `host:port`; None for a listener that is turned off."""

    address: str
    metrics_address: str | None
    rest_address: str | None


@asynccontextmanager
async def serve_model(settings: ModelSettings) -> AsyncIterator[Serving]:
    """Serves the model of a folder while the block runs.

    Raises:
        As ServedFolder. FailedPrecondition: uvicorn or starlette is not installed, or a port is not available.
    """
    loading = named_threads("esd-load")
    folder = ServedFolder(settings.folder)
    model = ModelService(settings, folder)
    try:
        async with (
            serve("model", [(add_to_server, InferenceServicer(model), SERVICE)], settings) as server,
            _rest_api(model, server, settings) as rest_address,
        ):
            following = [asyncio.create_task(folder.follow(settings.reload_seconds, loading), name="follow folder")]
            if settings.fresh:
                following.append(asyncio.create_task(Follower(folder, settings).run(), name="follow job"))
            try:
                await server.set_serving(True)
                yield Serving(server.address, server.metrics_address, rest_address)
                model.ready = False
                await server.set_serving(False)
            finally:
                for each in following:
                    each.cancel()
                await asyncio.gather(*following, return_exceptions=True)
    finally:
        loading.shutdown(wait=False, cancel_futures=True)
        model.close()


def _rest_api(model: ModelService, server: Server, settings: ModelSettings) -> AbstractAsyncContextManager[str | None]:
    if settings.rest_port is None:
        return nullcontext()
    for package in ("starlette", "uvicorn"):
        if find_spec(package) is None:
            off = f"{settings.variable('rest_port')}=none"
            raise FailedPrecondition(f"{is_missing('the REST API', package, 'serve')}; {off} leaves it out")
    module: Any = import_module("esd.serving.rest_server")
    served: AbstractAsyncContextManager[str] = module.serve_rest(model, server, settings.rest_port, settings)
    return served


async def run_model(settings: ModelSettings, stop: asyncio.Event) -> None:
    """Serves until `stop` is set."""
    logs.configure(settings.log_level)
    async with serve_model(settings) as serving:
        announce("model", serving.address, serving.metrics_address, rest=serving.rest_address)
        await stop.wait()
