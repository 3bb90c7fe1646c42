import pytest

from esd.run.dimensions import parse_dimensions
from esd.services.domain.errors import InvalidArgument

FIELDS = ("origin", "dest", "carrier")


def test_one_number_per_field():
    assert parse_dimensions("16, 8,64", FIELDS, 32) == (16, 8, 64)


def test_some_fields_by_name():
    assert parse_dimensions("dest=8,carrier=4", FIELDS, 32) == (32, 8, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("16,8", "2 numbers, the data has 3 fields: origin, dest, carrier"),
        ("16,x,8", "'x' is not a whole number"),
        ("dest=", "'' is not a whole number"),
        ("gate=8", "field 'gate'; the fields are origin"),
        ("dest=8,dest=9", "'dest' twice"),
        ("dest=8,16", "field '16'"),
    ],
)
def test_what_makes_no_sense_is_refused(text, message):
    with pytest.raises(InvalidArgument, match=message):
        parse_dimensions(text, FIELDS, 32)
