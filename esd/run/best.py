"""The model of a run in its folder: the last one, or the model of the best evaluation.

The rows of a checkpoint can be read until the evaluation after the next, so a better model is written as soon as it is
evaluated, while training continues; the files that need no rows are added at the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from esd.run.early_stop import EarlyStop, figure_of, is_better
from esd.run.events import Listener
from esd.run.export import complete_model, export_model
from esd.run.lineage import Lineage
from esd.run.options import RunOptions, plain
from esd.run.patience import Patience
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.jobs import JobSpec
from esd.services.domain.state import Evaluation
from esd.services.runtime.security import Credentials

_METRIC = "auc"  # by which models are compared where the run has no --early-stop


class ModelWriter:
    """Writes the model of a run.

    Args:
        job: trains the model.
        path: the folder; None: nothing is written.
        options: of the run.
        credentials: for the parameter servers.
        listener: gets the events of the export.
        graphs: as of `export_model`.
    """

    def __init__(
        self,
        job: JobSpec,
        path: Path | None,
        options: RunOptions,
        credentials: Credentials,
        listener: Listener,
        graphs: bool | None,
    ) -> None:
        self._job = job
        self._path = path
        self._options = options
        self._credentials = credentials
        self._listener = listener
        self._graphs = graphs
        self._checkpoint = 0

    async def write(self, figures: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> None:
        """Writes the finished model."""
        path, lineage = self._path, self._lineage(figures, history)
        if path is None:
            return
        await Patience(self._listener).until_done(
            lambda: export_model(
                self._job, path, self._credentials, self._listener, lineage=lineage, graphs=self._graphs
            )
        )

    async def write_checkpoint(self, checkpoint: int) -> None:
        """Writes the rows and parameters of a kept checkpoint; `complete` adds the rest."""
        path = self._path
        if path is None:
            return
        await Patience(self._listener).until_done(
            lambda: export_model(
                self._job, path, self._credentials, self._listener, checkpoint=checkpoint, graphs=False
            )
        )
        self._checkpoint = checkpoint

    async def complete(self, figures: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> None:
        """Completes the model of the checkpoint that was written last."""
        if self._path is not None:
            lineage = self._lineage(figures, history)
            await complete_model(self._job, self._path, self._checkpoint, lineage, self._graphs, self._listener)

    def _lineage(self, figures: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> Lineage:
        return Lineage(self._options.described, plain(self._options), figures, history)


class BestModel:
    """Keeps the model of the best evaluation of a run.

    Args:
        writer: of the model.
        options: of the run, whose --early-stop names the metric; without it the AUC decides.

    Raises:
        InvalidArgument: the run has no evaluations, or forgets rows, which an earlier model would lack.
    """

    def __init__(self, writer: ModelWriter, options: RunOptions) -> None:
        if not options.evaluate_every:
            raise InvalidArgument("keep='best' compares evaluations: give evaluate= and evaluate_every=")
        if options.max_rows or options.row_ttl:
            raise InvalidArgument("keep='best' would miss rows that are forgotten later: leave out max_rows, row_ttl")
        self._writer = writer
        self._metric = _METRIC if options.early_stop is None else EarlyStop.parse(options.early_stop).metric
        self._best = math.nan
        self._at = 0

    async def evaluated(self, evaluation: Evaluation) -> None:
        """Writes the model of an evaluation at a checkpoint if it is the best so far."""
        figure = figure_of(self._metric, evaluation)
        if is_better(self._metric, figure, self._best):
            self._best, self._at = figure, evaluation.iteration
            await self._writer.write_checkpoint(evaluation.iteration)

    def is_earlier_than(self, last: Evaluation) -> bool:
        """Returns whether the best model is of a checkpoint before the last evaluation, of the finished model."""
        figure = figure_of(self._metric, last)
        return self._at not in (0, last.iteration) and not is_better(self._metric, figure, self._best)
