"""Memory that was freed is used again, without the kernel."""

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


@pytest.mark.skipif(sys.platform != "linux", reason="it is the allocator of Linux that is told")
def test_blocks_of_some_mib_are_used_again() -> None:
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1000, "pages; giving the blocks back takes 100,000"
