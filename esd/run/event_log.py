"""The events of a run with their times, as a file in its folder, also of a run that was killed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from esd.run.events import Event, Listener, Progressed
from esd.run.output_events import EventsNotKept

EVENTS = "events.jsonl"


def kept(out: Path | None, listener: Listener) -> Listener:
    """Returns a listener that appends a line for each event to the file, and tells the other one.

    States of the job are left out: they come several times a second, and the history has their figures. The first line
    that cannot be written is reported and is the last one that is tried, since a full disk must not end the run.

    Args:
        out: the folder of the run; None: nothing is written.
        listener: gets every event, and `EventsNotKept`.
    """
    if out is None:
        return listener
    path, writes = out / EVENTS, True

    def keep(event: Event) -> None:
        nonlocal writes
        if writes and not isinstance(event, Progressed):
            line = {"time": datetime.now(UTC).isoformat(), "event": type(event).__name__, "text": str(event)}
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
            except OSError as error:
                writes = False
                listener(EventsNotKept(str(error)))
        listener(event)

    return keep
