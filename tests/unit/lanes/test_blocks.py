"""Blocks: the bytes of a connection come back from any order, without any one block of each group."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from esd.lanes.blocks import MOST_GROUP_BYTES, Assembly, Head, MalformedBlock, blocks_of


def assembled(blocks, lanes=16):
    """The bytes that come of blocks in this order, and the assembly that put them together."""
    assembly = Assembly()
    data = b"".join(assembly.add(Head.decode(head.encode(), lanes), content) for head, content in blocks)
    return data, assembly


@pytest.mark.parametrize("lanes", [2, 3, 16, 64])
@pytest.mark.parametrize("size", [1, 1199, 1200, 1201, 4801, 100_000, MOST_GROUP_BYTES])
def test_any_one_block_of_a_group_may_be_missing(size, lanes):
    data = random.Random(size).randbytes(size)
    blocks = blocks_of(0, data, lanes)
    assert 2 <= len(blocks) <= lanes
    for missing in range(len(blocks)):
        arrived, assembly = assembled([*blocks[:missing], *blocks[missing + 1 :]], lanes)
        assert arrived == data
        assert (assembly.restored, assembly.held) == (missing < len(blocks) - 1, 0)


def test_without_two_blocks_nothing_of_a_group_or_after_it_arrives():
    first, second = blocks_of(0, bytes(9000), 16), blocks_of(1, b"later", 16)
    arrived, assembly = assembled([*first[2:], *second])
    assert arrived == b""
    assert assembly.held > 0
    assert assembly.add(*first[0]) == bytes(9000) + b"later"
    assert assembly.held == 0


def test_blocks_arrive_in_any_order():
    chance = random.Random(5)
    groups = [chance.randbytes(chance.randrange(1, 40_000)) for _ in range(60)]
    blocks = [block for group, data in enumerate(groups) for block in blocks_of(group, data, 16)]
    chance.shuffle(blocks)
    arrived, assembly = assembled(blocks)
    assert arrived == b"".join(groups)
    assert assembly.held == 0


def test_a_block_that_comes_twice_before_its_group_is_whole_is_refused():
    blocks = blocks_of(0, bytes(9000), 16)
    with pytest.raises(MalformedBlock, match="block 1 twice"):
        assembled([blocks[0], blocks[1], blocks[1]])


@pytest.mark.parametrize(
    "other",
    [
        Head(0, 1, 1, 100, 1),  # the group would be whole by it, without two blocks
        Head(0, 3, 3, 200, 1),  # a parity that is longer than the blocks
        Head(0, 2, 3, 100, 50),
    ],
)
def test_blocks_of_different_groups_with_one_number_are_refused(other):
    blocks = [(head, bytes(head.length)) for head in (Head(0, 0, 3, 100, 1), other)]
    with pytest.raises(MalformedBlock, match=r"group 0 has blocks of \(3, 100, 1\) and of \("):
        assembled(blocks)


@pytest.mark.parametrize("blocks", [1, 2, 63])
def test_the_memory_of_many_short_groups_that_wait_is_known(blocks):
    assembly, count = Assembly(), 2000
    tracemalloc.start()
    try:
        for group in range(1, count):
            for index in range(max(1, blocks - 1)):
                assembly.add(Head(group, index, blocks, 2, 2), b"%02d" % index)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert count * 100 < taken < assembly.held


@pytest.mark.parametrize(
    "head",
    [
        Head(0, 0, 0, 10, 10),  # no block
        Head(0, 0, 16, 10, 10),  # as many blocks as lanes, and a parity
        Head(0, 3, 2, 10, 10),  # a block after the parity
        Head(0, 0, 2, 10, 0),
        Head(0, 0, 2, 10, 11),
        Head(0, 0, 1, MOST_GROUP_BYTES + 1, 1),
        Head(0, 0, 15, MOST_GROUP_BYTES // 4, 1),
    ],
)
def test_heads_of_no_group_are_refused(head):
    with pytest.raises(MalformedBlock):
        Head.decode(head.encode(), 16)


def test_the_longest_group_is_accepted():
    for lanes in range(2, 65):
        for head, _ in blocks_of(0, bytes(MOST_GROUP_BYTES), lanes):
            Head.decode(head.encode(), lanes)
