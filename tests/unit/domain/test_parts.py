"""A long part of a checkpoint is stored in pieces, and a short one under its own name."""

import pytest

from esd.services.domain.parts import is_last, named_pieces


@pytest.mark.parametrize(
    ("size", "names"),
    [
        (0, ["engine"]),
        (9, ["engine"]),
        (10, ["engine", "engine-1"]),
        (19, ["engine", "engine-1"]),
        (20, ["engine", "engine-1", "engine-2"]),
    ],
)
def test_pieces_join_to_the_whole_and_tell_the_last(size: int, names: list[str]) -> None:
    data = bytes(range(size))
    stored = dict(named_pieces("engine", data, 10))
    assert list(stored) == names
    assert b"".join(stored.values()) == data
    assert [is_last(each, 10) for each in stored.values()] == [False] * (len(names) - 1) + [True]
