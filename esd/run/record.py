"""The record of a run, files that stay when the services have ended: its page, the history of its figures, its result.

`run.json` has all that tells one run from another: the options, the fingerprint of the samples, the versions, the
figures. `esd.run.comparison` reads it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from esd.dispatcher.service.page.saved import saved_page
from esd.run.events import Event, Listener, Progressed
from esd.run.lineage import Lineage
from esd.run.options import RunOptions, plain
from esd.run.output_events import RecordKept, RecordNotKept
from esd.run.results import training_result
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.errors import EsdError, Unavailable
from esd.services.domain.jobs import JobSpec
from esd.services.runtime.whole_files import write_whole

PAGE, HISTORY, RUN = "page.html", "history.jsonl", "run.json"
RUN_FORMAT = 1
_SECONDS = 10.0  # for the dispatcher's answer: a run that was stopped must not wait for a dispatcher that hangs


@asynccontextmanager
async def recorded(
    client: AsyncDispatcherClient, job: JobSpec, options: RunOptions, out: Path | None, listener: Listener
) -> AsyncIterator[Listener]:
    """Writes the record of a run when the block ends, also when the run has failed or was stopped.

    A record that cannot be written is reported, and ends nothing.

    Args:
        client: of the dispatcher, which must still run at the end of the block.
        job: the job.
        options: of the run.
        out: the directory of the files; None: there is no record.
        listener: gets `RecordKept` or `RecordNotKept`.

    Yields:
        The listener of the run, which must get the events in the block. A run of which no state was seen has no record:
        the dispatcher's job may be another one.
    """
    seen = False

    def watching(event: Event) -> None:
        nonlocal seen
        seen = seen or isinstance(event, Progressed)
        listener(event)

    try:
        yield watching
    finally:
        if out is not None and seen:
            await _write(client, job, options, out, listener)


async def history(client: AsyncDispatcherClient, job: str, listener: Listener) -> list[dict[str, Any]]:
    """Returns the history of a job's figures; none, and a report, if the dispatcher does not answer in time."""
    try:
        async with asyncio.timeout(_SECONDS):
            return list(history_of(json.loads(await client.describe_page(job))))
    except TimeoutError:
        listener(RecordNotKept(f"the dispatcher has not answered within {_SECONDS:g} s"))
    except EsdError as error:
        listener(RecordNotKept(str(error)))
    return []


async def _write(
    client: AsyncDispatcherClient, job: JobSpec, options: RunOptions, out: Path, listener: Listener
) -> None:
    page, history, run = out / PAGE, out / HISTORY, out / RUN
    try:
        async with asyncio.timeout(_SECONDS):
            state = await client.describe_page(job.name)
            figures = await _figures(client, job)
        shown = json.loads(state)
        described = {
            "format": RUN_FORMAT,
            "job": {name: shown["job"][name] for name in ("name", "phase", "failure")} | {"labels": shown["labels"]},
            **Lineage(options=plain(options), figures=figures).described(job),
        }
        lines = "".join(json.dumps(line) + "\n" for line in history_of(shown))
        html = saved_page(state, datetime.now(UTC))
        for path, text in ((run, json.dumps(described, indent=1) + "\n"), (history, lines), (page, html)):
            await asyncio.to_thread(_write_text, path, text)
    except TimeoutError:
        listener(RecordNotKept(f"the dispatcher has not answered within {_SECONDS:g} s"))
    except (EsdError, OSError) as error:
        listener(RecordNotKept(str(error)))
    else:
        listener(RecordKept(page, history, run))


async def _figures(client: AsyncDispatcherClient, job: JobSpec) -> dict[str, Any]:
    """Returns the result of the job so far. Raises Unavailable if the dispatcher has another job by now."""
    state = await client.describe()
    if state is None or state.job.name != job.name:
        raise Unavailable(f"the dispatcher has job {job.name!r} no longer")
    return training_result(state, state.evaluations)


def _write_text(path: Path, text: str) -> None:
    write_whole(path, lambda file: file.write(text.encode()))


def history_of(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the lines of the history: the points of the charts, then the evaluations, label by label.

    Args:
        state: the document of the page.
    """
    points = state["history"]
    for values in zip(*points.values(), strict=True):
        yield {"kind": "point", **dict(zip(points, values, strict=True))}
    for evaluation in state["evaluations"]:
        for label, quality in zip(state["labels"], evaluation["labels"], strict=True):
            yield {"kind": "evaluation", "iteration": evaluation["iteration"], "label": label, **quality}
