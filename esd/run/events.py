"""The events of a run, as values for a listener; the text of each is a line for people.

    def listener(event: Event) -> None:
        match event:
            case Progressed(state=state):
                print(state.iterations_confirmed, state.quality.loss)
            case Evaluated():
                print(event)

Nothing in `esd.run` prints. A listener is called in the event loop of the run and must return at once; an exception
that it raises ends the run. A callback of `fit` may raise any: `StopRun` ends the run with a model, and others are
warnings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from esd.run.cache_size import DEFAULT_CACHE_BYTES, DEFAULT_CACHE_RATIO
from esd.run.output_events import EventsNotKept, GraphsNotWritten, RecordKept, RecordNotKept
from esd.services.domain.state import Evaluation, JobState, Quality

if TYPE_CHECKING:
    from esd.run.cluster import LocalServices
    from esd.run.options import RunOptions


class StopRun(Exception):
    """Raised by a callback of `fit`: the run ends after the samples that were submitted, and has a model.

    Example:
        >>> def until_good(event):
        ...     if isinstance(event, Evaluated) and event.evaluation.quality.auc > 0.8:
        ...         raise esd.StopRun
    """


@dataclass(frozen=True, slots=True)
class Started:
    """The services run, and the job is about to be opened.

    Attributes:
        options: of the run.
        table: name of the first table.
        first_iteration: number of the first iteration; above 0 for a model that is trained on.
        iterations: how many the run has, None if its data do not tell.
        page: address of the page that shows the run, None if the services ran before.
        cluster: the services, None if they ran before.
    """

    options: RunOptions
    table: str
    first_iteration: int
    iterations: int | None
    page: str | None = None
    cluster: LocalServices | None = None

    def __str__(self) -> str:
        shown = f"table {self.table}" if self.page is None else f"live: {self.page}"
        if self.options.submitters == 1 or self.cluster is None:
            return shown
        last = self.options.submitters - 1
        others = "part 1" if last == 1 else f"parts 1 to {last}"
        submit = f"esd submit --dispatcher {self.cluster.dispatcher.address} --part N --data ..."
        return f"{shown}\nthe stream waits for {others}: {submit}"


@dataclass(frozen=True, slots=True)
class VariableUnread:
    """The environment has an ESD_* variable that nothing reads.

    Attributes:
        reason: its name, and the nearest known name.
    """

    reason: str

    def __str__(self) -> str:
        return f"warning: {self.reason}"


@dataclass(frozen=True, slots=True)
class OpeningData:
    """The data of a run are still being opened, before anything is trained. It is repeated every few seconds.

    Attributes:
        seconds: the time since the opening began.
    """

    seconds: float

    def __str__(self) -> str:
        return (
            f"opening the data, for {self.seconds:.0f} s: every file is looked at, and the ids of new data are counted "
            "unless --cache-rows is given"
        )


@dataclass(frozen=True, slots=True)
class CacheBounded:
    """The default cache of a worker is smaller than the default share of the ids, which would take too much memory.

    Attributes:
        rows: rows of the first table that each worker caches.
    """

    rows: int

    def __str__(self) -> str:
        return (
            f"each worker caches {self.rows:,} rows: the default, {DEFAULT_CACHE_RATIO:.0%} of the ids, would be "
            "more, and is bounded so that all caches and the dispatcher's memory of them take "
            f"{DEFAULT_CACHE_BYTES >> 20} MiB; --cache-ratio and --cache-rows have no such bound"
        )


@dataclass(frozen=True, slots=True)
class Progressed:
    """The state of the job, several times a second.

    Attributes:
        state: as the dispatcher describes it.
    """

    state: JobState

    def __str__(self) -> str:
        done = f"{self.state.phase.value}, {self.state.iterations_confirmed} iterations"
        return f"{done}, {_quality_in_words(self.state.quality)}" if self.state.iterations_confirmed else done


@dataclass(frozen=True, slots=True)
class SchemaChanged:
    """A run continues the model of another one with samples that are made by another rule.

    Attributes:
        table: name of the first table.
        change: the rule, as it was and as it is now.
    """

    table: str
    change: str

    def __str__(self) -> str:
        return f"the schema differs from the one that table {self.table} was trained with: {self.change}"


@dataclass(frozen=True, slots=True)
class Resumed:
    """Training resumes at a checkpoint.

    Attributes:
        table: name of the first table.
        iteration: the first one that is trained now.
    """

    table: str
    iteration: int

    def __str__(self) -> str:
        return f"goes on at iteration {self.iteration}, the last checkpoint of table {self.table}"


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """A checkpoint is complete, to which the run returns if it loses a process.

    Attributes:
        iteration: the one that follows the checkpoint.
    """

    iteration: int

    def __str__(self) -> str:
        return f"checkpoint at iteration {self.iteration}"


@dataclass(frozen=True, slots=True)
class EpochTrained:
    """The data were trained once more from their first sample to their last. Reported where their number is known.

    Attributes:
        epoch: how often they were trained by now.
        epochs: how often they are trained in all.
    """

    epoch: int
    epochs: int

    def __str__(self) -> str:
        return f"epoch {self.epoch} of {self.epochs} is trained"


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The model was scored on the held-out samples.

    Attributes:
        evaluation: the figures, and the iteration that follows the model's state.
        labels: names of the labels.
    """

    evaluation: Evaluation
    labels: Sequence[str]

    def __str__(self) -> str:
        figures = _quality_in_words(self.evaluation.quality)
        if len(self.labels) > 1:
            of_labels = zip(self.labels, self.evaluation.labels, strict=True)
            figures = "; ".join(f"{label}: {_quality_in_words(quality)}" for label, quality in of_labels)
        figures += "" if self.evaluation.ranking is None else f"; {self.evaluation.ranking}"
        return f"held out, iteration {self.evaluation.iteration}: {figures}"


@dataclass(frozen=True, slots=True)
class EvaluationMissed:
    """An evaluation that was due cannot be made; training continues.

    Attributes:
        iteration: at which it was due.
        reason: why.
    """

    iteration: int
    reason: str

    def __str__(self) -> str:
        return f"no evaluation at iteration {self.iteration}: {self.reason}"


@dataclass(frozen=True, slots=True)
class EvaluationsNotKept:
    """The dispatcher refuses to keep evaluations with the job; training continues.

    Attributes:
        reason: why.
    """

    reason: str

    def __str__(self) -> str:
        return f"the dispatcher has not kept the evaluations: {self.reason}"


@dataclass(frozen=True, slots=True)
class StoppingEarly:
    """The model does not get better, and the stream ends at the sample where it waits.

    Attributes:
        metric: the figure that decides.
        best: its best value.
        iteration: of the evaluation with that value.
    """

    metric: str
    best: float
    iteration: int

    def __str__(self) -> str:
        return f"stopping early: the best {self.metric}, {self.best:.4f}, was at iteration {self.iteration}"


@dataclass(frozen=True, slots=True)
class AlreadyTrained:
    """The table holds the finished job, and nothing was trained now.

    Attributes:
        table: name of the first table.
        iteration: at which the job had finished.
    """

    table: str
    iteration: int

    def __str__(self) -> str:
        return (
            f"table {self.table} holds this job already, finished at iteration {self.iteration}: "
            "nothing was trained now; to train anew, give another --table or an empty store"
        )


@dataclass(frozen=True, slots=True)
class ServiceRestarted:
    """A service has died and is started again.

    Attributes:
        service: its name, such as `worker-2`.
        code: its exit code, -N if signal N has ended it.
        pause: seconds before it is started.
    """

    service: str
    code: int
    pause: float

    def __str__(self) -> str:
        after = f" in {self.pause:g} s" if self.pause else ""
        early = "" if self.code else " before the job was over"
        return f"{self.service} ended with exit code {self.code}{early} and is started again{after}"


@dataclass(frozen=True, slots=True)
class ServiceNotReady:
    """A service that was started again was not ready in time, and is started once more.

    Attributes:
        reason: which service, and where its log is.
    """

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class Retrying:
    """A service is away or cannot store more, and the run waits for it.

    Attributes:
        reason: the error.
        patience: seconds after which the run ends with it.
    """

    reason: str
    patience: float

    def __str__(self) -> str:
        return f"{self.reason}; tried again for {self.patience:g} s"


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The dispatcher has neither opened the job nor refused it for a while, and the run waits for its answer.

    Attributes:
        seconds: the time since it was asked.
    """

    seconds: float

    def __str__(self) -> str:
        return f"waiting for the dispatcher: no answer for {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class TakesLong:
    """The run waits for a user's code, such as a model that is tried.

    Attributes:
        work: the name of the work.
        limit: seconds after which it is refused.
    """

    work: str
    limit: float

    def __str__(self) -> str:
        return f"{self.work}; this is refused after {self.limit:g} s"


@dataclass(frozen=True, slots=True)
class StandsStill:
    """The job has trained nothing for a while, although samples wait.

    Attributes:
        reason: the cause of the wait, such as a worker and its phase.
    """

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class NotCancelled:
    """The run stops, and its dispatcher could not be asked to end the job.

    Attributes:
        job: its name.
        reason: why.
    """

    job: str
    reason: str

    def __str__(self) -> str:
        return f"job {self.job} could not be cancelled: {self.reason}"


@dataclass(frozen=True, slots=True)
class SamplesSkipped:
    """Some records of the data were malformed, and were left out.

    Attributes:
        records: how many.
    """

    records: int

    def __str__(self) -> str:
        return f"skipped {self.records} malformed records (--skip-bad)"


@dataclass(frozen=True, slots=True)
class HotBatchesMade:
    """The samples were cut into hot and normal mini-batches.

    Attributes:
        hot_batches: how many mini-batches needed replicated rows alone.
    """

    hot_batches: int

    def __str__(self) -> str:
        return f"{self.hot_batches} mini-batches were hot (--hot-batches)"


@dataclass(frozen=True, slots=True)
class Ended:
    """The job is finished, the model exported if it was asked for, and the last evaluation made.

    Attributes:
        state: the last state of the job.
    """

    state: JobState

    def __str__(self) -> str:
        return f"finished after {self.state.iterations_confirmed} iterations, {_quality_in_words(self.state.quality)}"


Event: TypeAlias = (
    Started
    | VariableUnread
    | OpeningData
    | CacheBounded
    | Progressed
    | SchemaChanged
    | Resumed
    | Checkpointed
    | EpochTrained
    | Evaluated
    | EvaluationMissed
    | EvaluationsNotKept
    | StoppingEarly
    | AlreadyTrained
    | ServiceRestarted
    | ServiceNotReady
    | Retrying
    | TakesLong
    | Unanswered
    | StandsStill
    | NotCancelled
    | SamplesSkipped
    | HotBatchesMade
    | RecordKept
    | RecordNotKept
    | EventsNotKept
    | GraphsNotWritten
    | Ended
)
Listener: TypeAlias = Callable[[Event], object]


def ignore(_: Event) -> None:
    """Listens to nothing."""


def on_progress(look: Callable[[JobState], object]) -> Listener:
    """Returns a listener that hands every state of the job to `look`, and ignores all other events."""

    def listener(event: Event) -> None:
        if isinstance(event, Progressed):
            look(event.state)

    return listener


def _quality_in_words(quality: Quality) -> str:
    within = "" if math.isnan(quality.gauc) else f"GAUC {quality.gauc:.4f}, "
    return (
        f"loss {quality.loss:.4f}, AUC {quality.auc:.4f}, {within}normalised entropy {quality.normalised_entropy:.4f}, "
        f"calibration {quality.calibration:.4f}"
    )
