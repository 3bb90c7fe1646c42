"""`fit`, which local clusters and running ones have: a call that trains a model, within any program."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from enum import EnumType
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, get_type_hints

from esd.data.derived import DerivedDataset
from esd.fitted import Run, Training
from esd.printed_run import PrintedRun
from esd.run.events import Event, StopRun
from esd.run.options import RunOptions
from esd.run.stream import OpenData
from esd.run.worker_here import Submit
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition, InvalidArgument

if TYPE_CHECKING:
    from esd.data import Dataset
    from esd.worker.models.model import Model

_DECIDED = ("data", "schema", "model", "workers", "links", "evaluate", "holdout")  # by the cluster, and by arguments

Callback = Callable[[Event], object]


class FittingCluster(ABC):
    """Workers that train one model after the other. A `with` block cancels a run that still trains.

    Args:
        decided: the options of a run that the cluster decides.
    """

    def __init__(self, decided: Mapping[str, Any]) -> None:
        self._decided = decided
        self._folder: Path | None = None
        self._runs: list[Run] = []

    @abstractmethod
    def _name_of(self, model: type[Model] | str, code: Path) -> str:
        """Returns the name of a model for a job. A folder may get the code of a class that has none."""

    @abstractmethod
    def _training(self, submit: Submit) -> Training:
        """Returns the call that trains on this cluster.

        Args:
            submit: has a function called in the thread that waits for the run.
        """

    def __enter__(self) -> Self:
        """Makes the folder of the models, which lasts as long as the block."""
        self._folder = Path(tempfile.mkdtemp(prefix="esd-fit-"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Cancels a run that still trains, and removes the folder."""
        for run in self._runs:
            run.cancel()
        if self._folder is not None:
            shutil.rmtree(self._folder)
        self._folder = None

    def fit(
        self,
        model: type[Model] | str,
        train: Dataset,
        *,
        evaluate: Dataset | None = None,
        keep: str = "last",
        callbacks: Sequence[Callback] = (),
        progress: bool = True,
        graphs: bool | None = None,
        wait: bool = True,
        **options: Any,
    ) -> Run:
        """Trains a model, also within a running event loop, in a notebook, and in any thread.

        Args:
            model: the class of a model, which may be defined in a notebook's cell; or a built-in one's name.
            train: the samples, as `esd.read` opens them.
            evaluate: held-out samples, which judge the model at the end, and with `evaluate_every=N` every N
                iterations.
            keep: `last`, or `best` for the model of the best evaluation by `early_stop`'s metric, or by the AUC.
            callbacks: each is called with every event of the run (esd.run.events) in the thread of the run. One that
                raises `StopRun` ends the run, which has a model; one that fails otherwise is reported by a warning, and
                the run continues. `close` of one that has it is called when the run has ended, however it has ended.
            progress: whether events are printed on standard error, among them the address of the live page, and the
                progress as a bar.
            graphs: whether the model gets `model.pt2` and `model.onnx`; None: as far as that is possible.
            wait: False: returns at once; `Run.wait` waits for the end.
            options: any other field of `esd.run.options.RunOptions`, such as `epochs`, `dim`, `batch`, `optimizer`.

        Raises:
            InvalidArgument: an option is unknown or wrong, or the samples do not fit the model.
            FailedPrecondition: the job failed; or this is outside the cluster's `with` block, or within another run.
            ServiceFailed: a service has died too often.
        """
        if self._folder is None:
            raise FailedPrecondition(
                "fit needs the cluster's block: `with esd.LocalCluster(...) as cluster:`, or `with esd.connect(...)`"
            )
        if any(not run.ended for run in self._runs):
            raise FailedPrecondition("the cluster still trains another model: wait for it, or stop it")
        if keep not in ("last", "best"):
            raise InvalidArgument(f"keep is {keep!r}, it must be 'last' or 'best'")
        for name, samples in (("train", train), ("evaluate", evaluate)):
            if samples is not None and not hasattr(samples, "fingerprint"):
                raise InvalidArgument(f"{name} is a {type(samples).__name__}, it must be samples of esd.read(...)")
        folder, code = self._folder / f"run-{len(self._runs)}", self._folder / "code"
        stoppable = _Stoppable(train)
        chosen = _options(options) | {
            "data": train.name,
            "schema": getattr(train, "schema", None),
            "model": self._name_of(model, code),
            **self._decided,
        }
        run = Run(
            RunOptions(**chosen),
            folder,
            code,
            OpenData(stoppable, evaluate),
            _listener([*([PrintedRun()] if progress else []), *callbacks], stoppable.stop),
            stoppable.stop,
            [each.close for each in callbacks if hasattr(each, "close")],
            self._training,
            graphs=graphs,
            keep_best=keep == "best",
        )
        self._runs.append(run)
        return run.wait() if wait else run


class _Stoppable(DerivedDataset):
    """A stream that ends when `stop` is called."""

    def __init__(self, dataset: Dataset) -> None:
        super().__init__(dataset)
        self.samples = dataset.samples
        self._stopped = False

    @property
    def fingerprint(self) -> str:
        """Of the whole stream."""
        return self._source.fingerprint

    def stop(self) -> None:
        self._stopped = True

    def __iter__(self) -> Iterator[SampleBatch]:
        for batch in self._source:
            if self._stopped:
                return
            yield batch


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of RunOptions with texts for enumerations and lists as the command line takes them."""
    kinds = get_type_hints(RunOptions)
    known = [each.name for each in fields(RunOptions) if each.name not in _DECIDED]
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            near = get_close_matches(name, known, 1)
            meant = f", is {near[0]} meant" if near else ""
            raise InvalidArgument(f"fit has no option {name!r}{meant}; esd.run.options.RunOptions lists them")
        kind = kinds[name]
        if isinstance(kind, EnumType) and isinstance(value, str):
            names = [each.value for each in kind]  # type: ignore[var-annotated]
            if value not in names:
                raise InvalidArgument(f"{name} is {value!r}, it must be one of {', '.join(names)}")
            found[name] = kind(value)
        else:
            found[name] = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
    return found


def _listener(callbacks: Sequence[Callback], stop: Callable[[], object]) -> Callback:
    """Returns a listener that calls all callbacks. One may stop the run; the first failure of each is a warning."""
    failed: set[int] = set()

    def listen(event: Event) -> None:
        for number, callback in enumerate(callbacks):
            try:
                callback(event)
            except StopRun:
                stop()
            except Exception as error:  # noqa: BLE001 - of a user's code, which may not end the run
                if number not in failed:
                    failed.add(number)
                    warnings.warn(
                        f"callback {callback!r} fails at {type(event).__name__}, and training continues: {error!r}",
                        RuntimeWarning,
                        stacklevel=2,
                    )

    return listen
