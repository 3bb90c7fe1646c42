"""Records per second of the readers on one core, on files of random records.

Run: `python -m benchmarks.data_readers`
"""

from __future__ import annotations

import gzip
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import esd
from esd.data import Dataset, open_data

RECORDS = 300_000
BATCH = 512
FIELDS = 26


def write_criteo(path: Path) -> None:
    """Records as in the Kaggle file: counts of 1 to 4 digits, one in ten blank, and 8 hexadecimal digits."""
    random = np.random.default_rng(0)
    counts = random.integers(-300, 3000, (RECORDS, 13)).tolist()
    categories = random.integers(0, 2**32, (RECORDS, FIELDS)).tolist()
    with path.open("w") as file:
        for row in range(RECORDS):
            numbers = ("" if count < 0 else str(count) for count in counts[row])
            values = (f"{value:08x}" for value in categories[row])
            file.write("\t".join((str(int(row % 4 == 0)), *numbers, *values)) + "\n")


def table() -> tuple[pa.Table, esd.Schema]:
    """A table of skewed categories, half of them texts of 8 characters and half numbers, and 4 columns of decimals."""
    random = np.random.default_rng(0)
    names = [f"c{field}" for field in range(FIELDS)]
    columns: dict[str, object] = {"clicked": random.integers(0, 2, RECORDS)}
    for field, name in enumerate(names):
        values = random.zipf(1.3, RECORDS) % 1_000_000
        columns[name] = values if field % 2 else np.char.mod("%08x", values)
    dense = [f"d{feature}" for feature in range(4)]
    columns |= {name: random.random(RECORDS) for name in dense}
    return pa.table(columns), esd.Schema("clicked", tuple(names), dense=tuple(dense))


def records_per_second(opened: Callable[[], Dataset]) -> float:
    """CPU time of one pass, batches thrown away; the best of three."""
    seconds = []
    for _ in range(3):
        start = time.process_time()
        records = sum(len(batch) for batch in opened())
        seconds.append(time.process_time() - start)
    return records / min(seconds)


def main() -> None:
    """Prints one line per kind of file."""
    with tempfile.TemporaryDirectory() as directory:
        plain = Path(directory) / "train.txt"
        write_criteo(plain)
        packed = plain.with_suffix(".gz")
        with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target)
        for path in (plain, packed):
            report(path.name, records_per_second(partial(open_data, f"criteo:{path}", BATCH, seed=0)))

        events, schema = table()
        parquet, text = Path(directory) / "events.parquet", Path(directory) / "events.csv"
        pyarrow.parquet.write_table(events, parquet)
        pyarrow.csv.write_csv(events, text)
        for path in (parquet, text):
            report(path.name, records_per_second(partial(esd.read, path, schema, batch_size=BATCH)))


def report(name: str, speed: float) -> None:
    """Prints one line."""
    sys.stdout.write(f"{name}: {speed / 1e6:.2f} million records/s\n")


if __name__ == "__main__":
    main()
