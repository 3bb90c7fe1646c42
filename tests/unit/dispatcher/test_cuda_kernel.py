"""The kernels compile for every architecture, by the compiler that the solver uses. Needs no device."""

from __future__ import annotations

import numpy as np
import pytest
from cuda.core.utils import FileStreamProgramCache

from dispatcher.solvers.cuda.kernel import Variant, compile_kernel, source

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90")
DTYPES = (np.int32, np.float32, np.float64)
WORKERS = (8, 64)
ELF = b"\x7fELF"


@pytest.mark.parametrize("grid", [False, True], ids=["block", "grid"])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_compiles_for(arch, grid):
    """Over all cases every type of costs and both widths of worker sets; the ascent contains the other algorithm."""
    case = ARCHITECTURES.index(arch) + grid * 3
    variant = Variant.of(DTYPES[case % 3], WORKERS[case % 2], "hungarian" if case == 7 else "dual", grid=grid)
    code = compile_kernel(variant, arch)
    assert code.code.startswith(ELF)
    assert b"solve" in code.code


def test_compiled_code_is_cached_on_disk(tmp_path):
    variant = Variant.of(np.int32, 8, "hungarian", grid=False)
    with FileStreamProgramCache(tmp_path) as cache:
        first = compile_kernel(variant, "sm_80", cache)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes().startswith(ELF)]
    assert len(files) == 1
    with FileStreamProgramCache(tmp_path) as cache:
        assert compile_kernel(variant, "sm_80", cache).code == first.code


def test_the_source_is_one_text():
    text = source()
    assert '#include "' not in text
    assert text.count("class GridTeam") == 1
