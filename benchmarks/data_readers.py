"""Records per second of the Criteo reader on one core, plain and gzip, on a file of random records.

Run: `python -m benchmarks.data_readers`
"""

from __future__ import annotations

import gzip
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from services.data import open_data

RECORDS = 300_000
BATCH = 512


def write_criteo(path: Path) -> None:
    """Records as in the Kaggle file: counts of 1 to 4 digits, one in ten blank, and 8 hexadecimal digits."""
    random = np.random.default_rng(0)
    counts = random.integers(-300, 3000, (RECORDS, 13)).tolist()
    categories = random.integers(0, 2**32, (RECORDS, 26)).tolist()
    with path.open("w") as file:
        for row in range(RECORDS):
            numbers = ("" if count < 0 else str(count) for count in counts[row])
            values = (f"{value:08x}" for value in categories[row])
            file.write("\t".join((str(int(row % 4 == 0)), *numbers, *values)) + "\n")


def records_per_second(path: Path) -> float:
    """CPU time of one pass, batches thrown away."""
    start = time.process_time()
    records = sum(len(batch) for batch in open_data(f"criteo:{path}", BATCH, seed=0))
    return records / (time.process_time() - start)


def main() -> None:
    """Prints one line per kind of file."""
    with tempfile.TemporaryDirectory() as directory:
        plain = Path(directory) / "train.txt"
        write_criteo(plain)
        packed = plain.with_suffix(".gz")
        with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target)
        for path in (plain, packed):
            best = max(records_per_second(path) for _ in range(3))
            sys.stdout.write(f"{path.name}: {best / 1e6:.2f} million records/s\n")


if __name__ == "__main__":
    main()
