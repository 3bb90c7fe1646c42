"""The default number of rows that a worker caches."""

from dataclasses import replace
from pathlib import Path

import pytest

from esd.run.options import RunOptions


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({}, 20),  # two samples of a worker have up to ten ids each; 8% of all would be 16
        ({"batch": 1}, 16),
        ({"batch": 64}, 200),  # all there are
        ({"cache_ratio": 0.08}, 16),  # as somebody wants it
        ({"cache_rows": 7}, 7),
        ({"batch": None, "workloads": "4,0"}, 40),
    ],
)
def test_a_cache_holds_what_an_iteration_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], rows: int
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lists = ["|".join(f"{10 * row + at}" for at in range(9)) for row in range(20)]
    rows_of_file = (f"{row % 2},u{row},{seen}\n" for row, seen in enumerate(lists))
    (tmp_path / "e.csv").write_text("y,u,seen\n" + "".join(rows_of_file))
    (tmp_path / "s.toml").write_text('label = "y"\nids = ["u", { column = "seen", max = 9 }]\n')
    chosen = RunOptions(data=str(tmp_path / "e.csv"), schema=tmp_path / "s.toml", workers=2, batch=2)
    chosen = replace(chosen, **options)
    assert chosen.cache_size(chosen.open(10)) == rows
