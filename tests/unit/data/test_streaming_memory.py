import gzip
import os
from pathlib import Path

import numpy as np
import pyarrow as pa

import esd
from esd.data import open_data
from tests.support.event_tables import write


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_does_not_grow_with_the_file(tmp_path):
    line = b"1" + b"\t12" * 13 + b"\t05db9164" * 26 + b"\n"
    member = gzip.compress(line * 4000, compresslevel=1)
    file = tmp_path / "train.gz"
    file.write_bytes(member * 180)  # 200 MB of text: gzip files may be strung together

    samples, before, most = 0, 0, 0
    for batch in open_data(f"criteo:{file}", 512, seed=0):
        samples += len(batch)
        if samples <= 20_000:
            before = resident_bytes()
        most = max(most, resident_bytes())
    assert samples == 4000 * 180
    assert most - before < 16 << 20


def test_of_an_arrow_file_memory_holds_a_record_batch_and_the_next_with_the_columns_of_the_schema(tmp_path):
    numbers = {name: np.arange(2_000_000) for name in ("item", *map(str, range(8)))}
    events = pa.table({**numbers, "clicked": numbers["item"] % 2})
    file = write(events, tmp_path / "events.arrow", piece=100_000)
    del numbers, events

    batches = iter(esd.read(file, esd.Schema(label="clicked", ids=("item",))))
    next(batches)
    before = resident_bytes()
    most = max(resident_bytes() for _ in batches)
    assert most - before < file.stat().st_size / 8
