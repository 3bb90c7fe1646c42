"""The kernels compile for every architecture, by the compiler that the solver uses. Needs no device."""

from __future__ import annotations

import numpy as np
import pytest
from cuda.core.utils import FileStreamProgramCache

from dispatcher.solvers.cuda.kernel import Variant, compile_kernel, source

ELF = b"\x7fELF"


@pytest.mark.parametrize(
    ("arch", "dtype", "workers", "algorithm", "grid"),
    [
        ("sm_75", np.int32, 8, "dual", False),
        ("sm_80", np.float64, 64, "hungarian", False),
        ("sm_86", np.float32, 64, "dual", True),
        ("sm_89", np.int32, 8, "hungarian", True),
        ("sm_90", np.float64, 8, "dual", True),
    ],
)
def test_compiles_for_and_is_kept_on_disk(tmp_path, arch, dtype, workers, algorithm, grid):
    """Over all cases every type of costs, both widths of worker sets, both algorithms, both kinds of launch."""
    variant = Variant.of(dtype, workers, algorithm, grid=grid)
    with FileStreamProgramCache(tmp_path) as cache:
        code = compile_kernel(variant, arch, cache).code
    assert code.startswith(ELF)
    assert b"solve" in code
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes().startswith(ELF)]
    assert len(kept) == 1
    with FileStreamProgramCache(tmp_path) as cache:
        assert compile_kernel(variant, arch, cache).code == code


def test_the_source_is_one_text():
    text = source()
    assert '#include "' not in text
    assert text.count("class GridTeam") == 1
