import pytest

from esd.advice.sizes import parse_size
from esd.services.domain.errors import InvalidArgument


@pytest.mark.parametrize(("text", "expected"), [("512m", 512e6), ("2G", 2e9), ("1.5k", 1500), (" 7 ", 7)])
def test_sizes_are_decimal(text, expected):
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "0", "0m", "-1g", "2gb", "many", "1e3"])
def test_anything_else_is_refused(text):
    with pytest.raises(InvalidArgument, match="not a positive number of bytes"):
        parse_size(text)
