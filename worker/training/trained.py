"""A trained model, for scoring by its users."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray
from torch import Tensor

from esd.native.rows import initialise
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument, NotFound
from esd.services.domain.ids import parts_of_tables
from esd.services.domain.jobs import JobSpec
from esd.services.wire.trained_models import job_of_model
from esd.worker.models import build_model
from esd.worker.training.embeddings import Embedder


class TrainedModel:
    """A trained model on the CPU, with the rows of all its tables in memory.

    Args:
        job: describes the model; only the part of `job_of_model` is used.
        arrays: the content of `model.npz`.

    Attributes:
        job: the job of the model.
        model: the torch module, in evaluation mode, so without dropout.

    Raises:
        InvalidArgument: the arrays belong to another model.

    Example:
        >>> trained = esd.TrainedModel.load("model.npz")
        >>> schema = esd.Schema(label="clicked", ids=("user", "item"), dense=("price",))
        >>> for batch in esd.read("events.csv", schema, labelled=False):
        ...     scores = trained.scores(batch)
        >>> scores.shape, bool(((0 < scores) & (scores < 1)).all())
        ((2, 1), True)
    """

    def __init__(self, job: JobSpec, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.job = job
        self.model = build_model(job).eval()
        self._embed = Embedder(job)
        dense = {name.removeprefix("dense/"): arrays[name] for name in arrays if name.startswith("dense/")}
        prefixes = [f"{table.name}/" if len(job.tables) > 1 else "" for table in job.tables]
        try:
            self.model.load_state_dict({name: torch.from_numpy(values) for name, values in dense.items()})
            self._rows = [_in_order(arrays[f"{prefix}ids"], arrays[f"{prefix}rows"]) for prefix in prefixes]
        except (KeyError, RuntimeError) as error:
            raise InvalidArgument(f"these are not the arrays of model {job.model.name!r}: {error}") from None

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Reads the file `model.npz` that `esd train --out` has written.

        A user's own model is imported by the path under which it was trained.

        Raises:
            NotFound: the file does not exist.
            InvalidArgument: the file cannot be read, is damaged or does not name its model, or the model cannot be
                imported.
        """
        try:
            with Path(path).open("rb") as file, NpzFile(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        except FileNotFoundError:
            raise NotFound(f"model file {path} does not exist") from None
        except OSError as error:
            raise InvalidArgument(f"model file {path} cannot be read: {error.strerror}") from None
        except (BadZipFile, ValueError, zlib.error) as error:
            raise InvalidArgument(f"{path} is damaged, or is not a model.npz: {error}") from None
        if "model" not in arrays:
            raise InvalidArgument(f"{path} does not name its model, so it is not a model.npz of this version")
        return cls(job_of_model(str(arrays["model"])), arrays)

    @torch.inference_mode()
    def scores(self, batch: SampleBatch) -> NDArray[np.float32]:
        """Returns the scores of k samples, float32 [k, L]: probabilities, or the values that its loss defines.

        Columns are matched by name, in any order. Ids that were never trained count with their initial rows. The labels
        of the batch are not used.

        Raises:
            InvalidArgument: a column is missing, has another meaning or is unknown to the model; or the argument is not
                a batch of samples.
        """
        if not isinstance(batch, SampleBatch):
            raise InvalidArgument(
                f"a {type(batch).__name__} cannot be scored, only one batch of samples after the other: "
                "`for batch in esd.read(..., labelled=False)`"
            )
        batch = batch.arranged(self.job.columns, labelled=False)
        batch.check_shape(self.job.features, self.job.dense_features, len(self.job.labels))
        ids = batch.ids.reshape(-1)
        parts = parts_of_tables(ids, len(self.job.tables))
        rows = [self._look_up(table, ids[part]) for table, part in enumerate(parts)]
        outputs = self.model(self._embed(rows, batch.lengths), torch.tensor(batch.dense))
        scores: NDArray[np.float32] = self.model.scores(outputs).numpy()
        return scores

    def _look_up(self, table: int, ids: NDArray[np.uint64]) -> Tensor:
        """Returns the rows of ids, float32 [r, D]."""
        spec = self.job.tables[table]
        known_ids, known_rows = self._rows[table]
        wanted, inverse = np.unique(ids, return_inverse=True)
        rows = np.empty((len(wanted), spec.dimension), np.float32)
        initialise(wanted, np.zeros(len(wanted), np.int64), rows, spec.dimension, spec.seed, spec.init_scale)
        # A binary search per id; an operation on all known ids would take seconds for ten million of them.
        places = np.searchsorted(known_ids, wanted)
        within = places < len(known_ids)
        known = np.zeros(len(wanted), np.bool_)
        known[within] = known_ids[places[within]] == wanted[within]
        rows[known] = known_rows[places[known]]
        return torch.from_numpy(rows[inverse])


def _in_order(ids: NDArray[np.uint64], rows: NDArray[np.float32]) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
    """Returns ids in ascending order, as `esd train --out` writes them, and their rows."""
    if (ids[1:] > ids[:-1]).all():
        return ids, rows
    order = np.argsort(ids)
    return ids[order], rows[order]
