"""Which answers of Redis are believed: at least those that Redis gives, and none of another form."""

from __future__ import annotations

import pytest

from esd.ps_server.stores.redis import row_scripts, scripts
from esd.ps_server.stores.redis.replies import is_answer

Command = tuple[bytes | int, ...]


def run(script: bytes, *keys: bytes) -> Command:
    return (b"EVAL", script, 1 + len(keys), b"fence", *keys, 0, b"token", b"prefix")


def write(name: bytes) -> Command:
    return (b"EVAL", scripts.WRITE, 2, b"fence", b"key", 0, b"token", name, b"field", b"value")


TWO_NAMES = b"field_afield_b"
WRITE_TWO = (*run(row_scripts.WRITE_NEWER, b"a", b"b"), b"", b"counts", TWO_NAMES, b"records")
READ_TWO = (b"EVAL", row_scripts.READ, 2, b"a", b"b", b"counts", TWO_NAMES)
LOOK = (b"EVAL", row_scripts.READ_VERSIONS, 2, b"a", b"b", 76, b"counts", TWO_NAMES)
ENTRY = [b"8-0", [b"samples", b"8"]]
HOLDER = [b"0", b"1", b"token", b"1700000000000", 900, b"process"]


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        ((b"GET", b"k"), None), ((b"GET", b"k"), b""), (READ_TWO, [[None], [b"x"]]), (READ_TWO, [[None, b"x"]]),
        ((b"HMGET", b"k", b"a", b"b"), [b"1", None]), ((b"HGETALL", b"k"), []), ((b"SET", b"k", b"v", b"NX"), None),
        ((b"HSCAN", b"k", b"0"), [b"0", [b"a", b"1"]]), ((b"SCAN", b"0"), [b"17", [b"a"]]),
        ((b"XRANGE", b"k", b"-", b"+"), [ENTRY]), (write(b"SET"), b"OK"), (write(b"HSET"), 0), (write(b"XADD"), b"8-1"),
        (WRITE_TWO, b"10"), (LOOK, bytes(16)), (run(scripts.CLAIM), b"token"), (run(scripts.CLAIM), HOLDER),
        (run(row_scripts.PUT_BACK, b"a"), None), (run(scripts.MISSING_ROWS), 3), ((b"WAIT", 1, 100), 1),
    ],
)  # fmt: skip
def test_an_answer_is_one(command: Command, reply: object) -> None:
    assert is_answer(command, reply)


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        ((b"GET", b"k"), 1), ((b"GET", b"k"), [b"x"]), (READ_TWO, [[b"x"]]), (READ_TWO, [[b"x"], [1]]),
        (READ_TWO, [b"x", b"y"]), (READ_TWO, None), (run(scripts.MISSING_ROWS), -3),
        ((b"HMGET", b"k", b"a"), None), ((b"HGETALL", b"k"), [b"a"]), ((b"SET", b"k", b"v"), b"QUEUED"),
        ((b"SET", b"k", b"v"), None),
        ((b"HSCAN", b"k", b"0"), [b"x", []]), ((b"HSCAN", b"k", b"0"), [b"0", [b"a"]]), ((b"SCAN", b"0"), [b"0"]),
        ((b"XRANGE", b"k", b"-", b"+"), [[b"8", []]]), ((b"XRANGE", b"k", b"-", b"+"), [b"8-0"]),
        (write(b"SET"), None), (write(b"HSET"), None), (write(b"HSET"), b"OK"), (write(b"XADD"), None),
        (WRITE_TWO, b"1"), (WRITE_TWO, b"101"), (WRITE_TWO, b"12"), (WRITE_TWO, None), (WRITE_TWO, 11),
        (LOOK, bytes(15)), (LOOK, None), (run(scripts.CLAIM), HOLDER[:5]), (run(scripts.CLAIM), [b""] * 6),
        (run(row_scripts.PUT_BACK, b"a"), b"OK"), (run(scripts.SAVE_RECORD, b"a"), b"1"), ((b"WAIT", 1, 100), b"OK"),
    ],
)  # fmt: skip
def test_what_is_none_is_not_believed(command: Command, reply: object) -> None:
    assert not is_answer(command, reply)
