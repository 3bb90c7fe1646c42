"""`esd cancel` ends the job of a dispatcher, such as one whose driver was killed."""

from __future__ import annotations

from typing import Annotated

import typer

from esd.cli.console import messages, waiting_for
from esd.services.clients.dispatcher import DispatcherClient
from esd.services.domain.errors import NotFound
from esd.services.runtime.security import Credentials


def command(
    dispatcher: Annotated[str, typer.Option(help="host:port of the dispatcher.")] = "127.0.0.1:50051",
    reason: Annotated[str, typer.Option(help="What everybody who takes part in the job is told.")] = "by esd cancel",
) -> None:
    """Ends the running job, so that another one may begin. Repeated, it goes on at its last checkpoint."""
    peer = f"the dispatcher at {dispatcher}"
    with waiting_for(peer), DispatcherClient(dispatcher, credentials=Credentials.load()) as client:
        state = client.describe()
        if state is None:
            raise NotFound(f"{peer} has no job yet")
        cancelled = client.cancel_job(state.job.name, reason)
    messages.print(f"job {state.job.name} {'is cancelled' if cancelled else 'was over before'}", highlight=False)
