"""`esd status`: what a dispatcher's job is doing."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.console import Console

from dispatcher.client import DispatcherClient
from services.cli import options as opt
from services.cli.connection import credentials
from services.cli.report import comparison, print_result, training_result
from services.domain.errors import NotFound
from services.domain.state import JobState


def command(
    dispatcher: Annotated[str, typer.Option(help="host:port of the dispatcher.")] = "127.0.0.1:50051",
    as_json: opt.Json = False,
) -> None:
    """Shows the state of the running job."""
    state = asyncio.run(_describe(dispatcher))
    if state is None:
        raise NotFound(f"the dispatcher at {dispatcher} has no job yet")
    result = training_result(state)
    if as_json:
        print_result(state.job.name, {"job": state.job.name, "phase": state.phase.value, **result}, as_json=True)
        return
    console = Console()
    console.print(f"{state.job.name}: {state.phase.value}{': ' + state.failure if state.failure else ''}")
    console.print(comparison({state.job.mechanism: result}))


async def _describe(address: str) -> JobState | None:
    async with DispatcherClient(address, credentials=credentials()) as client:
        return await client.describe()
