import gzip
import os
from pathlib import Path

from services.data import open_data


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
