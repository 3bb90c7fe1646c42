"""26 tables of 26 dimensions, as the samples of Criteo may have, and a job over them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from esd.run.options import RunOptions
from esd.services.domain.tables import OptimizerKind

ITERATIONS, BATCH, TABLES = 30, 32, 26
COLUMNS = [f"c{number}" for number in range(TABLES)]


def write_events(folder: Path) -> RunOptions:
    """Writes events with 26 columns of ids; returns options of a job in which rows of column i have 3 + i values."""
    rng = np.random.default_rng(5)
    rows = ITERATIONS * BATCH
    columns = {name: (150 * rng.random(rows) ** 2).astype(int) for name in COLUMNS}
    columns |= {"price": rng.normal(size=rows), "clicked": rng.random(rows) < 0.3}
    pyarrow.parquet.write_table(pa.table(columns), folder / "events.parquet")
    named = "\n".join(f'    {{ column = "{name}", table = "{name}" }},' for name in COLUMNS[1:])
    sections = "\n".join(f"[tables.{name}]\ndim = {3 + at}" for at, name in enumerate(COLUMNS) if at)
    schema = folder / "schema.toml"
    schema.write_text(f'label = "clicked"\ndense = ["price"]\nids = [\n    "{COLUMNS[0]}",\n{named}\n]\n{sections}\n')
    return RunOptions(
        data=str(folder / "events.parquet"), schema=schema, workers=2, batch=BATCH // 2, links="20m,10m", dim=3,
        cache_rows=6000, model="dcn", optimizer=OptimizerKind.ROWWISE_ADAGRAD, mechanism="joint", learning_rate=0.02,
        seed=3, checkpoint_every=12,
    )  # fmt: skip
