"""Makes the events of the example: visits to hospitals, a Parquet file for each of four days.

    python examples/visits/make_data.py [FOLDER] [VISITS PER DAY]

There are twelve columns of categories, two of lists and four of numbers; whether a patient comes back depends on some
of them.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

CATEGORIES = {
    "hospital": 12, "department": 40, "ward": 200, "doctor": 900, "patient": 6000, "city": 300, "insurer": 25,
    "referral": 8, "weekday": 7, "hour": 24, "language": 15, "device": 60,
}  # fmt: skip
LISTS = {"diagnoses": 1500, "procedures": 400}
NUMBERS = ("age", "weight", "waited", "temperature")
DAYS = 4


def visits(count: int, rng: np.random.Generator, effects: np.random.Generator) -> pa.Table:
    """Returns the visits of a day; `effects` makes the same codes matter every day."""
    columns: dict[str, pa.Array] = {}
    risk = np.zeros(count)
    for name, size in CATEGORIES.items():
        codes = np.minimum(rng.zipf(1.3, count), size) - 1
        risk += effects.normal(0, 0.5, size)[codes]
        columns[name] = pa.array([f"{name}-{code}" for code in codes])
    for name, size in LISTS.items():
        lengths = rng.integers(0, 6, count)
        codes = np.minimum(rng.zipf(1.3, lengths.sum()), size) - 1
        of_visit = np.repeat(np.arange(count), lengths)
        risk += np.bincount(of_visit, effects.normal(0, 0.8, size)[codes], count) / np.maximum(lengths, 1)
        ends = np.concatenate(([0], lengths.cumsum()))
        columns[name] = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array([f"{name}-{c}" for c in codes]))
    for name in NUMBERS:
        values = rng.normal(size=count)
        risk += effects.normal(0, 0.5) * values
        columns[name] = pa.array(values.astype(np.float32))
    columns["returned"] = pa.array((rng.random(count) < 1 / (1 + np.exp(-risk))).astype(np.int8))
    return pa.table(columns)


def make(folder: Path, count: int) -> None:
    """Writes day-1.parquet to day-4.parquet."""
    folder.mkdir(parents=True, exist_ok=True)
    for day in range(1, DAYS + 1):
        table = visits(count, np.random.default_rng(day), np.random.default_rng(0))
        parquet.write_table(table, folder / f"day-{day}.parquet")


if __name__ == "__main__":
    folder, count = [*sys.argv[1:], *["visits", "20000"][len(sys.argv) - 1 :]]
    make(Path(folder), int(count))
