"""The reference pages agree with the code: every setting, metric, RPC and field."""

from pathlib import Path

import pytest

from scripts.reference import ROOT, pages

PAGES = pages()


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_reference_is_up_to_date(path: Path) -> None:
    assert (ROOT / path).read_text() == PAGES[path], "run `make docs`"
