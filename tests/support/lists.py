"""Events whose columns are lists, with two labels, weights and groups; and schemas of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

MODEL = "tests.support.list_model:Net"

_SCHEMA = """
label = ["clicked", "bought"]
weight = "importance"
group = "user"
dense = ["price"]
ids = [
    "user",
    {{ column = "tags", max = 4, pool = "mean" }},
    {{ column = "shops", max = 3, pool = "sum", longer = "cut" }},
    {{ column = "item"{item} }},
    {{ column = "seen", max = 5, pool = "list"{item} }},
]
{tables}
"""
ONE_TABLE = _SCHEMA.format(item="", tables="")
SHARED = _SCHEMA.format(item=', table = "item"', tables='[tables.item]\ndim = 3\noptimizer = "sgd"')


def write_events(folder: Path, rows: int, *, times: int = 1) -> None:
    """Writes events in three files that a data set of the folder reads in order; more distinct ids on demand."""
    rng = np.random.default_rng(8)
    table = pa.table(
        {
            "user": (200 * times * rng.random(rows) ** 2).astype(int),
            "tags": pa.array(_lists(rng, rows, 60 * times, 4), pa.list_(pa.int64())),
            "shops": ["|".join(map(str, each or [])) for each in _lists(rng, rows, 30 * times, 5)],
            "item": (150 * times * rng.random(rows) ** 2).astype(int),
            "seen": pa.array(_lists(rng, rows, 150 * times, 5), pa.list_(pa.int64())),
            "price": rng.normal(size=rows),
            "importance": rng.choice([0.0, 0.5, 1.0, 3.0], rows),
            "clicked": rng.random(rows) < 0.3,
            "bought": rng.random(rows) < 0.1,
        }
    )
    for part in range(3):
        pyarrow.parquet.write_table(table.slice(part * rows // 3, rows // 3), folder / f"{part}.parquet")


def _lists(rng: np.random.Generator, rows: int, values: int, longest: int) -> list[list[int] | None]:
    """Skewed lists, some of them empty or absent, some with repeats."""
    lengths = rng.integers(0, longest + 1, rows)
    made: list[list[int] | None] = [(values * rng.random(n) ** 2).astype(int).tolist() for n in lengths]
    made[3] = None
    return made
