"""Runs one parameter server: `python -m esd.ps_server`, configured by ESD_PS_* variables."""

from __future__ import annotations

from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.runtime import logs
from esd.services.runtime.process import StopEvent, announce, run
from esd.services.runtime.settings import load
from esd.services.runtime.tracing import tracing


async def main(stop: StopEvent) -> None:
    """Serves until the process is told to stop."""
    settings = load(ParameterServerSettings)
    logs.configure(settings.log_level)
    async with tracing("ps", settings.listen), parameter_server(settings) as server:
        announce("ps", server.address, server.metrics_address)
        await stop.wait()


if __name__ == "__main__":
    run(main)
