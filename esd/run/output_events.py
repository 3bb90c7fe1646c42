"""The events of a run that concern the files it leaves; esd.run.events has all others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RecordKept:
    """The record of the run is in its folder now (esd.run.record).

    Attributes:
        page: the page, which shows the last state of the job.
        history: the points of the charts and the evaluations, as JSON Lines.
        run: the options, the figures and the fingerprint of the data, as JSON.
    """

    page: Path
    history: Path
    run: Path

    def __str__(self) -> str:
        return f"page: {self.page}, history: {self.history}, run: {self.run}"


@dataclass(frozen=True, slots=True)
class GraphsNotWritten:
    """A model was exported without a file of its computation.

    Attributes:
        model: its name.
        files: the missing ones.
        reason: why they could not be made.
    """

    model: str
    files: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        return f"warning: model {self.model!r} is exported without {' and '.join(self.files)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class RecordNotKept:
    """The record of the run could not be written.

    Attributes:
        reason: the error.
    """

    reason: str

    def __str__(self) -> str:
        return f"warning: the record of the run is not kept: {self.reason}"


@dataclass(frozen=True, slots=True)
class EventsNotKept:
    """The events of the run are written to its folder no longer.

    Attributes:
        reason: the error.
    """

    reason: str

    def __str__(self) -> str:
        return f"warning: the events of the run are not kept from here on: {self.reason}"
