"""`esd status` shows the state of a dispatcher's job."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from esd.cli.console import Json, waiting_for
from esd.cli.report import comparison, print_result
from esd.cli.tables import print_figures, print_table
from esd.run.results import training_result
from esd.services.clients.dispatcher import DispatcherClient
from esd.services.domain.errors import NotFound
from esd.services.domain.state import JobState
from esd.services.runtime.security import Credentials


def command(
    dispatcher: Annotated[str, typer.Option(help="host:port of the dispatcher.")] = "127.0.0.1:50051",
    as_json: Json = False,
) -> None:
    """Shows the state of the running job."""
    peer = f"the dispatcher at {dispatcher}"
    with waiting_for(peer), DispatcherClient(dispatcher, credentials=Credentials.load()) as client:
        state = client.describe()
    if state is None:
        raise NotFound(f"{peer} has no job yet")
    result = training_result(state)
    if as_json:
        told = {"job": state.job.name, "phase": state.phase.value, "workers": _workers(state), **result}
        print_result(state.job.name, told, as_json=True)
        return
    console = Console()
    reason = state.failure or state.standstill
    console.print(f"{state.job.name}: {state.phase.value}{': ' + reason if reason else ''}")
    print_figures(comparison({state.job.mechanism: result}))
    print_table(_worker_table(state))


def _worker_table(state: JobState) -> Table:
    columns = ("worker", "slot", "samples each\niteration", "link,\nMbit/s", "measured,\nMbit/s", "iterations")
    table = Table(*columns, show_edge=False, pad_edge=False)
    for worker in state.workers:
        measured = f"{8e-6 * worker.measured_bandwidth:,.1f}" if worker.measured_bandwidth else ""
        counts = [str(worker.slot), f"{worker.workload}{', rests' if worker.rests else ''}"]
        table.add_row(worker.worker, *counts, f"{8e-6 * worker.bandwidth:,.1f}", measured, f"{worker.iterations:,}")
    return table


def _workers(state: JobState) -> list[dict[str, Any]]:
    """Returns the present figures of each worker: `workload` is m_j, links are in bytes per second."""
    names = ("worker", "slot", "workload", "rests", "bandwidth", "measured_bandwidth", "cache_rows", "iterations",
             "held_back")  # fmt: skip
    return [{name: getattr(worker, name) for name in names} for worker in state.workers]
