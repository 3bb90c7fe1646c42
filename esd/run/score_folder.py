"""The figures of a model's folder on held-out samples, computed in this process."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from esd.data import Dataset
from esd.model.trained import TrainedModel
from esd.run.evaluation import OfLabel
from esd.run.stream import READ_SAMPLES, global_batches
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.ids import parts_of_tables
from esd.services.domain.reports import label_classes
from esd.services.domain.state import Quality
from esd.services.runtime.extras import require_torch
from esd.services.wire.trained_models import PARAMETERS


def evaluate_folder(model: TrainedModel, samples: Dataset) -> tuple[Quality, ...]:
    """Returns the figures of a model by label, in the order of its job's labels.

    Raises:
        FailedPrecondition: torch is not installed.
        InvalidArgument: the samples do not fit the model, or there are none.
    """
    require_torch("evaluating a model")
    job, count = model.job, 0
    of_labels = [OfLabel() for _ in job.labels]
    buffer = io.BytesIO()
    np.savez(buffer, **load_file(model.folder / PARAMETERS))  # type: ignore[arg-type] # no parameter is `allow_pickle`
    with torch_kept():
        scorer: Any = import_module("esd.worker.training.scorer").Scorer(job, buffer.getvalue())
        for given in global_batches(samples, READ_SAMPLES):
            batch = given.arranged(job.columns)
            batch.check_shape(job.features, job.dense_features, len(job.labels))
            parts = parts_of_tables(batch.ids, len(job.tables))
            found = [np.unique(batch.ids[part], return_inverse=True) for part in parts]
            values = [model.table(number).look_up(ids) for number, (ids, _) in enumerate(found)]
            losses, bins = scorer.score(batch, values, [inverse for _, inverse in found])
            count += len(batch)
            for label, figures in enumerate(of_labels):
                figures.add(losses[label], bins[:, label], label_classes(batch.labels[:, label]), batch.groups)
    if not count:
        raise InvalidArgument("there are no samples to evaluate the model with")
    return tuple(each.quality(count) for each in of_labels)


@contextmanager
def torch_kept() -> Iterator[None]:
    """Restores the settings of torch, which belong to the whole process, at the end of the block."""
    torch: Any = import_module("torch")
    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(mode)
