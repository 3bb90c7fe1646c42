"""A quote that is not closed is named by its line, and takes no samples with it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import esd

SCHEMA = esd.Schema("clicked", ("user",))
ROWS = "".join(f'{at % 2},user-{at},"a note, {at}"\n' for at in range(10))


def read(tmp_path: Path, text: str, name: str = "e.csv", skip_bad: int = 0) -> int:
    file = tmp_path / name
    file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return sum(len(batch) for batch in esd.read(str(file), SCHEMA, skip_bad=skip_bad))


@pytest.mark.parametrize("name", ["e.csv", "e.csv.gz"])
@pytest.mark.parametrize(
    ("rows", "named"),
    [
        (
            f'{ROWS}1,user,"lost\n{ROWS}',
            r"row 11: expected 3 values, .*; the quote that line 12 opens is closed by line 13$",
        ),
        ('1,a,"two\nlines"\n0,b,"lost\n1,c,d\n', r"e\.csv.*: the quote that line 4 opens is not closed$"),
        ('1,a,b\n0,c,"lost', "the quote that line 3 opens is not closed$"),
        ('1,a,"say ""hi"""\n0,b,"lost ""\n1,c,d\n', "the quote that line 3 opens is not closed$"),
    ],
    ids=["a row of others", "the rest of the file", "the last value", "doubled quotes"],
)
def test_the_line_that_opens_it_is_named(tmp_path: Path, name: str, rows: str, named: str) -> None:
    with pytest.raises(esd.errors.InvalidArgument, match=named):
        read(tmp_path, f"clicked,user,note\n{rows}", name)


def test_it_is_named_where_the_rest_is_longer_than_what_is_parsed_at_once(tmp_path: Path) -> None:
    rows = "".join(f"{at % 2},user-{at},note\n" for at in range(300_000))  # 6 MB
    with pytest.raises(esd.errors.InvalidArgument, match="the quote that line 300002 opens is not closed"):
        read(tmp_path, f'clicked,user,note\n{rows}1,lost,"note\n{rows}')


def test_no_row_that_is_skipped_takes_the_others_with_it(tmp_path: Path) -> None:
    with pytest.raises(esd.errors.InvalidArgument, match="the quote that line 3 opens is not closed"):
        read(tmp_path, 'clicked,user,note\n1,a,b\n0,c,"d\n1,e,f\n', skip_bad=100)


@pytest.mark.parametrize("rows", ['1,a,5" wide\n0,b,c\n', '1,a,"two\n\nlines"\n0,b,c\n', '1,a,""""\n\n0,b,"c"x"\n'])
def test_other_quotes_are_taken(tmp_path: Path, rows: str) -> None:
    assert read(tmp_path, f"clicked,user,note\n{rows}") == 2
