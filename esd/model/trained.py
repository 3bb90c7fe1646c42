"""A trained model, for scoring by its users: numpy and onnxruntime, without torch."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from esd.data.opening import table_reader
from esd.data.schema import Schema
from esd.data.schema_file import read_schema
from esd.model.embeddings import model_inputs
from esd.model.files import SCHEMA, read_config
from esd.model.network import Network, OnnxNetwork, TorchNetwork
from esd.model.onnx_parameters import Parameters
from esd.model.table import TrainedTable
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.ids import parts_of_tables
from esd.services.wire.trained_models import ONNX, job_of_model

if TYPE_CHECKING:
    from esd.data.tables.dataset import Frame

_TOGETHER = 4096  # samples that `predict` scores at a time


class TrainedModel:
    """A trained model on the CPU, whose rows stay on disk until samples need them.

    Args:
        folder: of the model, as `esd train --out` and `esd.LocalCluster` write it.
        threads: that compute the scores of one call; None: as many as onnxruntime chooses. Several threads may call.

    Attributes:
        folder: the same.
        config: the content of `config.json`: `data`, the fingerprint of the trained samples; `versions`; `options` and
            `figures` of the run, where they are known.
        job: the job of the model; only the parts that determine the model are of the run.
        schema: by which the samples were made; None: a reader without a schema made them.

    Raises:
        NotFound: the folder does not exist.
        InvalidArgument: it is no folder of a model, is damaged, or was written by another version.

    Example:
        >>> trained = esd.load("model")
        >>> schema = esd.Schema(label="clicked", ids=("user", "item"), dense=("price",))
        >>> for batch in esd.read("events.csv", schema, labelled=False):
        ...     scores = trained.scores(batch)
        >>> scores.shape, bool(((0 < scores) & (scores < 1)).all())
        ((2, 1), True)
    """

    def __init__(self, folder: Path | str, *, threads: int | None = None) -> None:
        self.folder = Path(folder)
        self._threads = threads
        self.config = read_config(self.folder)
        self.job = job_of_model(self.config["model"])
        described = self.folder / SCHEMA
        self.schema: Schema | None = read_schema(described) if described.exists() else None
        self._tables = [TrainedTable(self.folder, table) for table in self.job.tables]

    def predict(self, frame: Frame | Path | str) -> NDArray[np.float32]:
        """Returns the scores of all rows of a frame or of files, float32 [n, L], in their order.

        The columns are found by the names of the model's schema; columns of labels, weight, group and time need not be
        there. Ids that were never trained count with their initial rows.

        Args:
            frame: of pandas, polars or pyarrow; or a path or pattern of files, as `esd.read` takes it.

        Raises:
            FailedPrecondition: the model was trained without a schema, so that only `scores` can be used; or
                onnxruntime is not installed.
            InvalidArgument: a column is missing or has values of another kind.
            NotFound: the files do not exist, or pyarrow is not installed.
        """
        nothing = np.empty((0, len(self.job.labels)), np.float32)
        return np.concatenate([nothing, *self.predict_batches(frame)])

    def predict_batches(self, frame: Frame | Path | str) -> Iterator[NDArray[np.float32]]:
        """Yields the scores of `predict` in pieces, float32 [k, L], for files that do not fit into memory."""
        if self.schema is None:
            raise FailedPrecondition(
                f"{self.folder} has no {SCHEMA}, since its samples came from reader {self.job.name!r}: score batches "
                "of that reader by `scores`"
            )
        reader, to_score = table_reader(), self.schema
        samples = (
            reader.TableDataset(str(frame), to_score, _TOGETHER, labelled=False)
            if isinstance(frame, str | Path)
            else reader.FrameDataset(frame, to_score, _TOGETHER, labelled=False)
        )
        yield from map(self.scores, samples)

    def scores(self, batch: SampleBatch) -> NDArray[np.float32]:
        """Returns the scores of k samples, float32 [k, L]: probabilities, or the values that its loss defines.

        Columns are matched by name, in any order. Ids that were never trained count with their initial rows. The labels
        of the batch are not used.

        Raises:
            InvalidArgument: a column is missing, has another meaning or is unknown to the model; or the argument is not
                a batch of samples.
            FailedPrecondition: onnxruntime is not installed; or the folder has no `model.onnx`, and torch is not
                installed.
        """
        if not isinstance(batch, SampleBatch):
            raise InvalidArgument(
                f"a {type(batch).__name__} cannot be scored, only one batch of samples after the other: "
                "`for batch in esd.read(..., labelled=False)`"
            )
        batch = batch.arranged(self.job.columns, labelled=False)
        batch.check_shape(self.job.features, self.job.dense_features, len(self.job.labels))
        if not len(batch):
            return np.empty((0, len(self.job.labels)), np.float32)
        parts = parts_of_tables(batch.ids, len(self._tables))
        rows = [table.look_up(batch.ids[part]) for table, part in zip(self._tables, parts, strict=True)]
        return self._network(model_inputs(batch, self.job.features, rows))

    def table(self, number: int = 0) -> TrainedTable:
        """Returns the trained rows of a table, by its number in `job.tables`."""
        return self._tables[number]

    def module(self) -> Any:
        """Returns the model as its class in torch, with the trained parameters, in evaluation mode.

        Raises:
            FailedPrecondition: torch is not installed.
            InvalidArgument: the class cannot be imported.
        """
        return TorchNetwork(self.folder, self.job).part.model

    def with_parameters(self, parameters: Parameters) -> TrainedModel:
        """Returns the model with other parameters and buffers in its dense part, and the same tables.

        Args:
            parameters: all of them by name.

        Raises:
            FailedPrecondition: the folder's graph, or its class in torch, does not have these.
        """
        other = copy(self)
        other._network = self._made_network(parameters)  # noqa: SLF001 - of the same class
        return other

    @cached_property
    def _network(self) -> Network:
        return self._made_network(None)

    def _made_network(self, parameters: Parameters | None) -> Network:
        graph = self.folder / ONNX
        if graph.exists():
            return OnnxNetwork(graph, self._threads, parameters)
        return TorchNetwork(self.folder, self.job, parameters)


def load(folder: Path | str) -> TrainedModel:
    """Loads a model's folder; its rows are mapped into memory and not read.

        scores = esd.load("model/").predict(frame)

    Raises:
        As `TrainedModel`.

    Example:
        >>> esd.load("model").predict("events.csv").shape
        (2, 1)
    """
    return TrainedModel(folder)
