"""The example with data and a model of one's own: its job as options, and the model it has to make."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

from esd.run.options import RunOptions
from esd.run.stream import global_batches, training_stream
from esd.services.domain.batches import SampleBatch
from examples.visits.make_data import make
from tests.support.reference import TrainedModel, train_reference

EXAMPLE = Path(__file__).parents[2] / "examples" / "visits"
LEFT_OUT = {"out"}  # where a test says so itself


def copied(folder: Path, visits: int) -> Path:
    """Makes a copy of the example with this number of visits a day. A process in it finds the files of its job."""
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__", "visits", "out"))
    make(folder / "visits", visits)
    return folder


def options_of(folder: Path, **changes: Any) -> RunOptions:
    """The options of a copy's job.toml, with full paths of its files, and with changes."""
    said = tomllib.loads((folder / "job.toml").read_text())
    options: dict[str, Any] = {key.replace("-", "_"): value for key, value in said.items() if key not in LEFT_OUT}
    options["learning_rate"], options["lr_schedule"] = options.pop("lr"), options.pop("lr_schedule")
    options |= {name: str(folder / options[name]) for name in ("data", "evaluate")}
    return RunOptions(**options | {"schema": folder / options["schema"]} | changes)


def model_of_one_process(options: RunOptions) -> tuple[TrainedModel, list[SampleBatch]]:
    """The model, and the global batches that it was trained with. The caller must be able to import its class."""
    stream = training_stream(options)
    job = options.job(
        features=stream.dataset.features,
        dense_features=stream.dataset.dense_features,
        parameter_servers=("none",),
        labels=stream.dataset.labels,
        iterations=stream.iterations,
    )
    batches = list(global_batches(stream, job.batch_size))
    return train_reference(job, batches), batches
