"""The values that `--sync` accepts."""

import pytest

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.sync import WAYS, Bounded, OnDemand, Replicated, parse_sync

WRONG_NUMBERS = ("replicated", "replicated:", "replicated:-1", "replicated:1,2")
REFUSED = [(text, "form replicated:ROWS") for text in WRONG_NUMBERS]


@pytest.mark.parametrize("name", sorted(set(WAYS) - {"replicated", "bounded"}))
def test_a_name_alone_says_it_all(name):
    assert parse_sync(name) == WAYS[name]()
    assert str(parse_sync(name)) == name


def test_numbers_stand_behind_the_name():
    assert parse_sync("replicated:500") == Replicated(500)
    assert parse_sync("bounded:8,2") == Bounded(pull=8, push=2)
    assert str(Bounded(pull=8, push=2)) == "bounded:8,2"


def test_rows_may_go_directly_on_demand_only():
    assert parse_sync("on-demand", direct=True) == OnDemand(direct=True)
    with pytest.raises(InvalidArgument, match="--sync is none"):
        parse_sync("none", direct=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is unknown"),
        ("Full", "is unknown"),
        ("sync:1", "is unknown"),
        ("full:", r"form full$"),
        ("full:1", r"form full$"),
        *REFUSED,
    ],
)
def test_anything_else_is_refused_with_what_there_is(text, said):
    with pytest.raises(InvalidArgument, match=said):
        parse_sync(text)
