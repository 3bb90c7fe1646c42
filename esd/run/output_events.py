"""The events of a run that concern the files it leaves; esd.run.events has all others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RecordKept:
    """The page of the run and the history of its figures are files now.

    Attributes:
        page: the page, which shows the last state of the job.
        history: the points of the charts and the evaluations, as JSON Lines.
    """

    page: Path
    history: Path

    def __str__(self) -> str:
        return f"page: {self.page}, history: {self.history}"


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
    """The page of the run and its history could not be written.

    Attributes:
        reason: the error.
    """

    reason: str

    def __str__(self) -> str:
        return f"warning: the page and the history of the run are not kept: {self.reason}"
