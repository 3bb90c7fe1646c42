"""A long part of a checkpoint is stored in pieces, and a short one under its name, as ever."""

import asyncio

import pytest

from esd.dispatcher.service.checkpoint.pieces import join, pieces


@pytest.mark.parametrize(
    ("size", "names"),
    [
        (0, ["engine"]),
        (10, ["engine"]),
        (11, ["engine", "engine-1"]),
        (20, ["engine", "engine-1"]),
        (21, ["engine", "engine-1", "engine-2"]),
    ],
)
def test_pieces_join_to_the_whole(size: int, names: list[str]) -> None:
    data = bytes(range(size))
    stored = pieces("engine", data, 10)
    assert list(stored) == names
    assert max(map(len, stored.values())) <= 10

    async def read(name: str) -> bytes:
        return stored[name]

    assert asyncio.run(join("engine", stored.__contains__, read)) == data
