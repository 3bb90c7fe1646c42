"""What `--sync` accepts."""

import pytest

from services.domain.errors import InvalidArgument
from services.domain.sync import Sync, parse_sync


@pytest.mark.parametrize("sync", [each for each in Sync if not each.numbers])
def test_a_name_alone_says_it_all(sync):
    assert parse_sync(sync.value) == {"sync": sync}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is unknown"),
        ("Full", "is unknown"),
        ("sync:1", "is unknown"),
        ("full:", "form full"),
        ("full:1", "form full"),
    ],
)
def test_anything_else_is_refused_with_what_there_is(text, said):
    with pytest.raises(InvalidArgument, match=said):
        parse_sync(text)
