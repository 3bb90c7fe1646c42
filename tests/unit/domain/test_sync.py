"""What `--sync` accepts."""

import pytest

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.sync import Sync, parse_sync

WRONG_NUMBERS = ("replicated", "replicated:", "replicated:-1", "replicated:1,2")
REFUSED = [(text, "form replicated:REPLICATED_ROWS") for text in WRONG_NUMBERS]


@pytest.mark.parametrize("sync", [each for each in Sync if not each.numbers])
def test_a_name_alone_says_it_all(sync):
    assert parse_sync(sync.value) == {"sync": sync}


def test_numbers_stand_behind_the_name():
    assert parse_sync("replicated:500") == {"sync": Sync.REPLICATED, "replicated_rows": 500}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is unknown"),
        ("Full", "is unknown"),
        ("sync:1", "is unknown"),
        ("full:", r"form full$"),
        ("full:1", r"form full$"),
    ],
)
def test_anything_else_is_refused_with_what_there_is(text, said):
    with pytest.raises(InvalidArgument, match=said):
        parse_sync(text)
