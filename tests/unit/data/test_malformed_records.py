"""The error of a malformed record, and the number of records that may be skipped."""

import logging

import pytest

from esd.data import open_data
from esd.services.domain.errors import InvalidArgument

GOOD = "1" + "\t5" * 13 + "\t05db9164" * 26
RATINGS = "userId,movieId,rating,timestamp"
AVAZU = (
    "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,device_id,"
    "device_ip,device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21"
)


def open_lines(tmp_path, reader, lines, skip_bad=0):
    file = tmp_path / "data.txt"
    file.write_bytes("\n".join(lines).encode("latin-1"))
    return open_data(f"{reader}:{file}", 10, seed=0, skip_bad=skip_bad)


def message_of(tmp_path, reader, lines, skip_bad=0):
    with pytest.raises(InvalidArgument) as caught:
        list(open_lines(tmp_path, reader, lines, skip_bad))
    return str(caught.value).removeprefix(f"{tmp_path}/")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (GOOD.replace("1", "2", 1), "column 1 (label): expected 0 or 1, found '2'"),
        (GOOD.replace("\t5", "\t5.5", 1), "column 2 (I1): expected an integer within +-2^53, found '5.5'"),
        (GOOD[: GOOD.index("05db")] + "x", "column 16 (C2): expected 40 columns, found the end of the line"),
        ("", "column 1 (label): expected 0 or 1, found ''"),
        (GOOD + "\tmore", "column 41: expected the line to end after 40 columns, found 'more'"),
        ("\xff\x00" * 3, r"column 1 (label): expected 0 or 1, found '\\xff\x00\\xff\x00\\xff\x00'"),
    ],
)
def test_criteo_messages_name_file_line_and_column(tmp_path, line, message):
    found = message_of(tmp_path, "criteo", [GOOD, GOOD, line, GOOD])
    assert found == f"data.txt:3: {message} (--skip-bad N would skip it)"


@pytest.mark.parametrize("length", [70_000, 5_000_000])
def test_an_over_long_line_is_one_malformed_record(tmp_path, length):
    lines = [GOOD, "x" * length, GOOD]
    expected = f"data.txt:2: expected a line of at most 65536 bytes, found '{'x' * 40}' (--skip-bad N would skip it)"
    assert message_of(tmp_path, "criteo", lines) == expected
    assert sum(len(batch) for batch in open_lines(tmp_path, "criteo", lines, skip_bad=1)) == 2


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([RATINGS, "1,2,nan,3"], "data.txt:2: column 3 (rating): expected a finite number, found 'nan'"),
        ([RATINGS, "1,2,,3"], "data.txt:2: column 3 (rating): expected a finite number, found ''"),
        (["1,2,3,4"], "data.txt:1: column 1: expected the header 'userId', found the header '1'"),
        ([RATINGS + ",tag"], "data.txt:1: column 5: expected the end of the header, found the header 'tag'"),
        (["userId,movieId"], "data.txt:1: column 3: expected the header 'rating', found the end of the header"),
    ],
)
def test_csv_messages(tmp_path, lines, message):
    assert message_of(tmp_path, "movielens", lines).removesuffix(" (--skip-bad N would skip it)") == message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('1,0,14102100,"1005,0', "expected a closing quote on the same line, found '\"1005,0'"),
        ('1,0,14102100,"10"05,0', "expected the end of the field after its closing quote, found '\"10\"05,0'"),
    ],
)
def test_broken_quotes(tmp_path, line, message):
    assert message_of(tmp_path, "avazu", [AVAZU, line]).startswith(f"data.txt:2: column 4 (C1): {message}")


def test_lines_are_counted_over_blocks(tmp_path):
    lines = [GOOD] * 10_000  # 2.6 MB
    lines[9_000] = "x"
    assert message_of(tmp_path, "criteo", lines).startswith("data.txt:9001: ")


def test_skips_counts_and_reports(tmp_path, caplog):
    dataset = open_lines(tmp_path, "criteo", [GOOD, "bad", GOOD, "worse", GOOD], skip_bad=2)
    with caplog.at_level(logging.WARNING):
        assert sum(len(batch) for batch in dataset) == 3
    assert dataset.skipped == 2
    (record,) = (each for each in caplog.records if each.name.startswith("esd."))
    assert "data.txt:2: column 1 (label): expected 0 or 1, found 'bad'" in record.message
    list(dataset)
    assert dataset.skipped == 2  # of the latest iteration, not of all


def test_fails_at_one_more_than_allowed(tmp_path):
    found = message_of(tmp_path, "criteo", [GOOD, "bad", GOOD, "worse", "worst", GOOD], skip_bad=2)
    assert found == "data.txt:5: column 1 (label): expected 0 or 1, found 'worst' (--skip-bad 2 allows no more)"


def test_the_limit_holds_over_blocks(tmp_path):
    lines = [GOOD] * 10_000
    lines[10] = lines[9_000] = "bad"
    assert message_of(tmp_path, "criteo", lines, skip_bad=1).startswith("data.txt:9001: ")
    assert sum(len(batch) for batch in open_lines(tmp_path, "criteo", lines, skip_bad=2)) == 9_998
