"""The figures of README and docs are the results of their commands: all have their entry, and some are measured."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shlex

import pytest

from scripts.figures.compare import stale
from scripts.figures.entries import LIST, ROOT, Figure, read_list
from scripts.figures.passage import places, rewritten, span
from scripts.figures.values import evaluate

FIGURES = read_list()
ALWAYS = next(figure for figure in FIGURES if figure.page == "README.md")  # random, esd and joint
RESULTS = (
    "README.md",
    *("docs/benchmarks.md", "docs/dispatch.md", "docs/mechanisms.md", "docs/solvers.md", "docs/hardening.md"),
    *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs" / "benchmarks").glob("*.md"))),
)
MEASURED = ("dispatcher", "esd", "native", "services")  # what the simulator is made of


def cheap_ones() -> list[Figure]:
    """The figures that the simulator computes in seconds."""
    return [each for each in FIGURES if each.exact and each.command.startswith("esd simulate") and each is not ALWAYS]


@pytest.mark.parametrize("figure", FIGURES, ids=str)
def test_every_figure_stands_where_the_list_says(figure: Figure) -> None:
    span(figure.text, (ROOT / figure.page).read_text())  # or an error


@pytest.mark.parametrize("page", RESULTS)
def test_every_table_of_results_is_in_the_list(page: str) -> None:
    text = (ROOT / page).read_text()
    spans = [span(figure.text, text) for figure in FIGURES if figure.page == page]
    for row in re.finditer(r"^\|.*$(?!\n\|--)", text, re.MULTILINE):  # no heads of tables
        for number in re.finditer(r"(?<![§\w.])\d[\d,]*\.\d+", row[0]):
            at = row.start() + number.start()
            assert any(start <= at < end for start, end in spans), f"{number[0]} in {row[0]!r} is in no entry of {LIST}"


def by_the_code() -> Figure:
    """One of the figures, chosen by the contents of the code."""
    code = (path for folder in MEASURED for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".h", ".cpp"))
    contents = b"".join(path.read_bytes() for path in sorted(code))
    return random.Random(hashlib.sha256(contents).digest()).choice(cheap_ones())


@pytest.mark.parametrize("figure", [ALWAYS, by_the_code()], ids=str)
def test_figures_are_not_stale(figure: Figure) -> None:
    """README's are measured always, another one changes with the code; `make figures-check` measures all."""
    wrong = {place.expression: (place.shown, value) for place, value in stale(figure, (ROOT / figure.page).read_text())}
    assert not wrong, f"{figure.page} is stale; run `make figures`, and look at what has changed"


def test_a_passage_may_be_wrapped_in_another_way_and_must_be_there_once() -> None:
    text = "costs {a:.2f} s of transfer, {b / a:.1%} of it for {c:s}"
    page = "It costs 1,250.50 s of\n  transfer, 12.5% of it for laia-adaptive."
    assert [place.shown for place in places(text, page)] == ["1,250.50", "12.5%", "laia-adaptive"]
    for wrong in ("", page + page):
        with pytest.raises(ValueError, match="must be there once"):
            places(text, wrong)


def test_new_numbers_leave_the_rest_of_the_page_and_its_columns_as_they_are() -> None:
    page = "a   9.50 │   1,000\nend, 0.5 of it"
    found = places("a {x:.2f} │ {y:,} end, {z:g} of it", page)
    page = rewritten(page, list(zip(found, ("10.25", "7", "0.25"), strict=True)))
    assert page == "a  10.25 │       7\nend, 0.25 of it"


def test_numbers_have_three_significant_digits_and_more_before_the_point() -> None:
    (place,) = places("took {ms:3sf} ms", "It took 1 ms.")
    numbers = (0.0012345, 0.36, 1.5, 9.996, 52.25, 99.96, 111.4, 1854.3, 0.0)
    written = ("0.00123", "0.360", "1.50", "10.0", "52.2", "100", "111", "1854", "0.00")
    assert tuple(map(place.written, numbers)) == written


def test_what_stands_between_two_pieces_may_be_left_out() -> None:
    page = "| a | 1 |\n| b | 2 |\n| c | 3 |"
    assert span("| b | … 3 |", page) == (10, 29)
    assert [place.shown for place in places("| a … | c | {c:} |", page)] == ["3"]


def test_expressions_go_into_objects_sum_lists_and_compute() -> None:
    names = {"esd": {"cost": 3.0, "moved": [1, 2, 3]}, "laia": {"cost": 4.0}}
    assert evaluate("esd / laia", names, "cost") == 0.75
    assert evaluate("esd.moved - 1", names, "cost") == 5
    assert evaluate("min(esd.cost, laia.cost)", names, "") == 3
    for wrong in ("joint", "esd.hit_ratio", "__import__('os')", "laia", "esd ** 2"):
        with pytest.raises(ValueError, match=r"no (value|expression)"):
            evaluate(wrong, names, "")


def test_rows_are_found_by_their_keys_and_those_that_are_alike_are_medians() -> None:
    runs = [{"name": "joint/balanced", "turn": turn, "ms": {"worker-0": ms}} for turn, ms in enumerate((3, 9, 5))]
    command = f"echo {shlex.quote(json.dumps({'runs': runs}))}"
    figure = Figure("a.md", "{joint_balanced.ms.worker_0:} ms", command, rows="runs", key=("name",))
    assert not stale(figure, "5 ms")
    ((place, text),) = stale(figure, "6 ms")
    assert (place.shown, text) == ("6", "5")
    each = Figure("a.md", "{one.n:} {two.n:}", """echo '{"n": $each}'""", each={"one": "1", "two": "2"})
    assert not stale(each, "1 2")
    with pytest.raises(ValueError, match="ends with 3"):
        stale(Figure("a.md", "{n:}", "sh -c 'exit 3'"), "1")


def test_a_number_that_was_measured_may_be_off_by_its_tolerance() -> None:
    (place,) = places("took {ms:.1f} ms", "It took 10.0 ms.")
    assert place.shows(11.0, 0.1)
    assert not place.shows(11.2, 0.1)
    assert not place.shows(10.1, None)
    (share,) = places("saved {share:.0%}", "It saved 40%.")
    assert share.shows(0.42, 0.05)
    assert not share.shows(0.5, 0.05)


def test_the_list_refuses_keys_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    listed = tmp_path / "figures.toml"
    listed.write_text("[[figure]]\npage = 'a.md'\ntext = '1'\ncommand = 'true'\ntolerence = 0.1\n")
    monkeypatch.setattr("scripts.figures.entries.LIST", listed)
    with pytest.raises(ValueError, match="tolerence"):
        read_list()
