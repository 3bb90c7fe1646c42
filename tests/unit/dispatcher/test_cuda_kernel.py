"""The kernels compile for every architecture, by the compiler that the solver uses. Needs no device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cuda.core.utils import FileStreamProgramCache

from esd.dispatcher.solvers.cuda import kernel
from esd.dispatcher.solvers.cuda.kernel import Variant, compile_kernel, source

ELF = b"\x7fELF"
COMPILED = (
    Path(__file__).parents[3] / "build" / "cuda_kernels"
)  # stays, so that only what has changed is compiled again


@pytest.mark.parametrize(
    ("arch", "dtype", "workers", "algorithm", "grid"),
    [
        ("sm_75", np.int32, 8, "dual", False),
        ("sm_80", np.float64, 64, "hungarian", False),
        ("sm_86", np.float32, 64, "dual", True),
        ("sm_89", np.int32, 8, "hungarian", True),
        ("sm_90", np.float64, 8, "dual", True),
        ("sm_100", np.int32, 64, "hungarian", False),
    ],
)
def test_compiles_for(arch, dtype, workers, algorithm, grid):
    """Over all cases every type of costs, both widths of worker sets, both algorithms, both kinds of launch."""
    with FileStreamProgramCache(COMPILED) as cache:
        code = compile_kernel(Variant.of(dtype, workers, algorithm, grid=grid), arch, cache).code
    assert code.startswith(ELF)
    assert b"solve" in code


def test_what_was_compiled_is_kept_on_disk_by_source_and_variant(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel, "source", lambda: 'extern "C" __global__ void solve(ESD_COST* a) { *a = ESD_GRID; }')
    variants = [Variant("int", "WorkerSet", "dual", grid=grid) for grid in (False, True)]
    with FileStreamProgramCache(tmp_path) as cache:
        codes = [compile_kernel(variant, "sm_90", cache).code for variant in variants]
    assert codes[0] != codes[1]
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes().startswith(ELF)]
    assert len(kept) == 2
    with FileStreamProgramCache(tmp_path) as cache:
        assert [compile_kernel(variant, "sm_90", cache).code for variant in variants] == codes


def test_the_source_is_one_text():
    text = source()
    assert '#include "' not in text
    assert text.count("class GridTeam") == 1
