"""`python -m esd.worker`: one worker, configured by ESD_WORKER_* (see worker/service/settings.py)."""

from __future__ import annotations

from esd.services.runtime.extras import require_torch
from esd.services.runtime.process import StopEvent, run


async def serve(stop: StopEvent) -> None:
    """Serves a worker until `stop` is set or its job is over.

    Raises:
        FailedPrecondition: torch is not installed.
    """
    require_torch("a worker")
    from esd.worker.service.app import serve_worker  # noqa: PLC0415 - imports torch

    await serve_worker(stop)


if __name__ == "__main__":
    run(serve)
