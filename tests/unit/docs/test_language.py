"""The docstrings of each package match the forms of scripts/language.py as often as recorded, and never more."""

from __future__ import annotations

import pytest

from scripts import language

PLAIN = "Grows the cache to at least `slots` slots. A concurrent reader sees the old or the new buffer."

FORMS = [
    ("Returns what is to be pushed.", "relative clause for a noun", "what"),
    ("Whatever waits is dropped.", "relative clause for a noun", "Whatever"),
    ("Nobody holds the row.", "person for a program", "Nobody"),
    ("The row has\n    no one that holds it.", "person for a program", "no one"),
    ("Its rows and those of a peer.", "pronoun for a repeated noun", "those of"),
    ("Sends a frame to one of them.", "pronoun for a repeated noun", "one of them"),
]


def test_the_numbers_are_the_recorded_ones() -> None:
    real = {package: matching for package, (matching, _) in language.counts(language.docstrings()).items() if matching}
    numbers = language.recorded()
    packages = real.keys() | numbers.keys()
    changed = {package: (numbers.get(package, 0), real.get(package, 0)) for package in packages}
    risen = {package: pair for package, pair in changed.items() if pair[0] < pair[1]}
    assert not risen, "more than recorded (recorded, real); `python -m scripts.language FOLDER` lists the docstrings"
    assert real == numbers, "the numbers have fallen; write them down with `python -m scripts.language --record`"


def test_at_most_six_of_a_hundred_docstrings_match() -> None:
    every = language.counts(language.docstrings()).values()
    assert sum(matching for matching, _ in every) <= 0.06 * sum(number for _, number in every)


@pytest.mark.parametrize(("text", "form", "match"), FORMS)
def test_a_form_is_found_in_a_docstring_of_each_kind(text: str, form: str, match: str) -> None:
    line = 1 + text.count("\n")
    quoted = f'"""{text}"""'
    for source, first in (
        (quoted, 0),
        (f"class Rows:\n    {quoted}", 1),
        (f"class Rows:\n    def push(self):\n        {quoted}", 2),
        (f"async def push():\n    {quoted}", 1),
    ):
        (found,) = language.of_module("ps_server/core/rows/slots.py", source)
        assert (found.package, found.line, found.form, found.match) == ("ps_server/core", first + line, form, match)


def test_plain_sentences_and_quoted_names_match_nothing() -> None:
    source = f'"""{PLAIN} See `who`."""\nWHAT = "what is not a docstring"  # nor what a comment says\n'
    (found,) = language.of_module("slots.py", source)
    assert (found.form, found.match) == (None, "")


def test_numbers_move_between_packages_and_never_rise(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "RECORDED", tmp_path / "language.toml")
    language.RECORDED.write_text('[matching]\n"hardening/fuzz" = 50\n"esd" = 2\n')
    language.record({"esd": 1, "hardening/fuzz": 50, "protos": 0})
    assert language.recorded() == {"esd": 1, "hardening/fuzz": 50}
    with pytest.raises(ValueError, match="52 docstrings match, and the recorded number is 51"):
        language.record({"esd": 1, "hardening/fuzz": 51})
