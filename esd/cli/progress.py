"""The progress bar of a training run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from esd.cli.report import messages
from services.domain.state import JobState


class Bar:
    """Shows polled states."""

    def __init__(self, progress: Progress, title: str, iterations: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task(f"{title}: starting", total=iterations, figures="")
        self._title = title

    def __call__(self, state: JobState) -> None:
        """Shows the latest one."""
        self._progress.update(
            self._task,
            description=f"{self._title}: {state.phase.value}",
            completed=state.iterations_confirmed,
            figures="" if state.iterations_confirmed == 0 else f"loss {state.loss:.4f}, AUC {state.auc:.4f}",
        )


@contextmanager
def progress_bar(title: str, iterations: int | None) -> Iterator[Bar]:
    """A progress bar on standard error, shown on a terminal only."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("iterations"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    with Progress(*columns, console=messages, disable=not messages.is_terminal) as progress:
        yield Bar(progress, title, iterations)
