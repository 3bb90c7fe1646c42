"""`esd plans` prints the plans of all workers as the dispatcher publishes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated

import typer

from esd.cli.console import waiting_for
from esd.services.clients.dispatcher import DispatcherClient
from esd.services.domain.errors import InvalidArgument, NotFound
from esd.services.domain.watched import MoveReason, Moves, PlanStage, WatchedPlans
from esd.services.runtime.security import Credentials

_TITLES = {
    PlanStage.RELOAD: "caches as of the checkpoint at iteration {iteration}",
    PlanStage.CHECKPOINT: "checkpoint at iteration {iteration}",
    PlanStage.ITERATION: "iteration {iteration}",
    PlanStage.END: "end after {iteration} iterations",
}
_REASONS = {
    MoveReason.PULL: "pulls",
    MoveReason.DIRECT_PULL: "pulls from workers",
    MoveReason.UPDATE_PUSH: "update pushes",
    MoveReason.AHEAD_PUSH: "pushes ahead",
    MoveReason.DIRECT_PUSH: "pushes to workers",
    MoveReason.EVICT_PUSH: "evict pushes",
    MoveReason.FLUSH_PUSH: "flush pushes",
    MoveReason.DROP: "drops",
}


def command(
    dispatcher: Annotated[str, typer.Option(help="host:port of the dispatcher.")] = "127.0.0.1:50051",
    first: Annotated[
        int | None, typer.Option("--from", min=0, help="First iteration; without it the next that is planned.")
    ] = None,
    epoch: Annotated[
        int | None, typer.Option(min=0, help="Epoch of that iteration; without it the present epoch.")
    ] = None,
    ids: Annotated[bool, typer.Option("--ids", help="Print the ids of the rows, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Prints the plans of all workers as the dispatcher publishes them, with reasons and receivers."""
    if epoch is not None and first is None:
        raise InvalidArgument("--epoch is the epoch of an iteration: give --from, too")
    peer = f"the dispatcher at {dispatcher}"
    with DispatcherClient(dispatcher, credentials=Credentials.load()) as client:
        with waiting_for(peer):
            state = client.describe()
        if state is None:
            raise NotFound(f"{peer} has no job yet")
        for plans in client.watch_plans(state.job.name, first, epoch=epoch, ids=ids):
            print(json.dumps(plans.as_json()) if as_json else in_words(plans), flush=True)


def in_words(plans: WatchedPlans) -> str:
    """Returns plans as lines for people: a title, and a line for each worker."""
    title = f"{_TITLES[plans.stage].format(iteration=plans.iteration)}, epoch {plans.epoch}"
    names = {each.slot: each.worker for each in plans.workers}
    width = max(map(len, names.values()), default=0)
    lines = [
        f"  {each.worker:<{width}}  "
        + (f"{each.samples} samples; " if plans.stage is PlanStage.ITERATION else "")
        + (", ".join(_moves_in_words(moves, names) for moves in each.moves) or "nothing moves")
        for each in plans.workers
    ]
    return "\n".join([title, *lines])


def _moves_in_words(moves: Moves, names: Mapping[int, str]) -> str:
    by_worker = ", ".join(f"{name} {count}" for name, count in moves.for_workers(names).items())
    text = f"{moves.rows} {_REASONS[moves.reason]}" + (" of gradients" if moves.gradients else "")
    if by_worker:
        text += f" ({by_worker})"
    return text if moves.ids is None else f"{text} [{' '.join(map(str, moves.ids.tolist()))}]"
