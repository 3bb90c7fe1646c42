"""Memory that was freed is used again, without the kernel, until the kernel gets it back."""

from __future__ import annotations

import subprocess
import sys

import pytest

MEASURE = """
import resource
import numpy as np
from esd.services.runtime.memory import keep_freed_memory

keep_freed_memory()

def allocate():
    for size in (2**18, 2**20, 2**22):
        np.ones(size, np.uint8)

allocate()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    allocate()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


RETURN = """
from pathlib import Path
import numpy as np
from esd.services.runtime.memory import keep_freed_memory, return_freed_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

keep_freed_memory()
before = resident()
samples = [np.ones(2**20, np.uint8) for _ in range(200)]
kept = samples[::10] + [np.ones(2**20, np.uint8)]
del samples
held = resident()
return_freed_memory()
print((held - before) >> 20, (resident() - before) >> 20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it is the allocator of Linux that is told")
def test_pages_between_blocks_in_use_are_returned() -> None:
    done = subprocess.run([sys.executable, "-c", RETURN], capture_output=True, text=True, check=True)
    held, left = map(int, done.stdout.split())
    assert held > 150
    assert left < 50


@pytest.mark.skipif(sys.platform != "linux", reason="it is the allocator of Linux that is told")
def test_blocks_of_some_mib_are_used_again() -> None:
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1000, "pages; giving the blocks back takes 100,000"
