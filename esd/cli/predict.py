"""`esd predict` scores files by a trained model's folder, without torch."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from esd.data.opening import table_reader
from esd.model.trained import TrainedModel, load
from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.whole_files import write_whole

_KINDS = (".csv", ".parquet")


def command(
    folder: Annotated[Path, typer.Argument(help="The folder of a model, as `esd train --out DIR` writes DIR/model.")],
    data: Annotated[str, typer.Option(help="A file, a folder, or a pattern such as 'new/*.parquet'.")],
    out: Annotated[
        Path, typer.Option(dir_okay=False, help="File for the scores, .csv or .parquet: a column for each label.")
    ],
) -> None:
    """Scores Parquet, Arrow or CSV files by a trained model, without torch, row by row in their order."""
    if out.suffix not in _KINDS:
        raise InvalidArgument(f"--out {out} must end in {' or '.join(_KINDS)}")
    table_reader()  # refuses a missing pyarrow by name, before anything is scored
    _write(load(folder), data, out)


def _write(model: TrainedModel, data: str, out: Path) -> None:
    """Writes the scores batch by batch, so that memory does not grow with the files."""
    arrow = import_module("pyarrow")
    columns = arrow.schema([(label, arrow.float32()) for label in model.job.labels])
    csv = out.suffix == ".csv"
    module = import_module("pyarrow.csv" if csv else "pyarrow.parquet")

    def write(file: object) -> None:
        with (module.CSVWriter if csv else module.ParquetWriter)(file, columns) as writer:
            for scores in model.predict_batches(data):
                writer.write_table(arrow.table([*map(arrow.array, scores.T)], schema=columns))

    write_whole(out, write)
