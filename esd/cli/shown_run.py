"""How a command shows a run on standard error, and how to resume it if it is stopped.

A terminal shows a progress bar. Elsewhere, as in a pipe, a log or a notebook, a line every ten seconds reports the
phase, the speed and the time left.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from esd.cli.console import messages
from esd.run.events import (
    AlreadyTrained,
    Checkpointed,
    Ended,
    EpochTrained,
    Evaluated,
    EvaluationMissed,
    EvaluationsNotKept,
    Event,
    NotCancelled,
    OpeningData,
    Progressed,
    Resumed,
    Retrying,
    SchemaChanged,
    StandsStill,
    Started,
    StoppingEarly,
    TakesLong,
    Unanswered,
    VariableUnread,
)
from esd.run.output_events import RecordKept, RecordNotKept
from esd.run.pace import Pace
from esd.services.domain.state import JobState

_LINE_SECONDS = 10.0  # between two lines on the progress, where no terminal shows a bar

_COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TextColumn("iterations"),
    TimeElapsedColumn(),
    TextColumn("{task.fields[figures]}"),
)


class ShownRun:
    """A listener that prints the events of one run. Use it as a context, which ends when the run does.

    Args:
        title: of the progress bar.
        resumed_by: returns the command that resumes the run, given the name of its table; None if none does.
        clock: returns monotonic seconds.
    """

    def __init__(
        self, title: str, resumed_by: Callable[[str], str] | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._title = title
        self._clock = clock
        self._resumed_by = resumed_by
        self._table = ""
        self._checkpoint = 0
        self._pace = Pace(0, None)
        self._next_line = 0.0
        self._progress = Progress(*_COLUMNS, console=messages, disable=not messages.is_terminal)
        self._bar: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Prints how the run is resumed if Ctrl-C or SIGTERM has stopped it."""
        self._progress.stop()
        stopped = isinstance(error, KeyboardInterrupt | SystemExit)
        if stopped and self._resumed_by is not None and self._checkpoint:
            command = self._resumed_by(self._table)
            messages.print(f"stopped; {command} goes on at iteration {self._checkpoint}, the last checkpoint")

    def __call__(self, event: Event) -> None:
        """Shows one event."""
        match event:
            case Started():
                self._start(event)
            case Progressed():
                self._show(event.state)
            case Checkpointed():
                self._checkpoint = event.iteration
            case EpochTrained():
                pass  # the bar shows the iterations
            case Ended():
                self._progress.stop()
            case Resumed() | SchemaChanged() | AlreadyTrained():
                messages.print(str(event))
            case RecordKept() | RecordNotKept():  # a path in two lines is none
                messages.print(str(event), markup=False, highlight=False, soft_wrap=True)
            case NotCancelled() | OpeningData() | TakesLong() | Unanswered() | VariableUnread():
                messages.print(str(event), markup=False, highlight=False)
            case Retrying() | StandsStill() | Evaluated() | EvaluationMissed() | EvaluationsNotKept() | StoppingEarly():
                messages.print(str(event), markup=False, highlight=False, soft_wrap=True)
            case _:
                messages.print(str(event))

    def _start(self, started: Started) -> None:
        messages.print(str(started), highlight=False, soft_wrap=True)  # an address in two lines is none
        self._table = started.table
        self._pace = Pace(started.first_iteration, started.iterations)
        self._next_line = self._clock() + _LINE_SECONDS
        self._progress.start()
        self._bar = self._progress.add_task(f"{self._title}: starting", total=started.iterations, figures="")

    def _show(self, state: JobState) -> None:
        assert self._bar is not None  # noqa: S101 - a run starts before it progresses
        quality = f"loss {state.quality.loss:.4f}, AUC {state.quality.auc:.4f}" if state.iterations_confirmed else ""
        now, phase = self._clock(), f"{self._title}: {state.phase.value}"
        self._pace.seen(state.iterations_confirmed, now)
        self._progress.update(self._bar, description=phase, completed=self._pace.done, figures=quality)
        if self._progress.disable and now >= self._next_line:
            self._next_line = now + _LINE_SECONDS
            line = ", ".join(filter(None, (phase, str(self._pace), quality)))
            messages.print(line, markup=False, highlight=False, soft_wrap=True)
