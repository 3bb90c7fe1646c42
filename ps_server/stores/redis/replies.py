"""The forms of Redis' answers to the commands of this store.

The peer may be another program, a proxy, or a Redis that a fault has put out of step. So a reply is used only if it has
the form of an answer to its command; otherwise a push could be acknowledged that was never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from esd.ps_server.stores.redis import row_scripts, scripts
from esd.ps_server.stores.redis.records import HEAD_BYTES, NAME_BYTES

_TEXT, _TEXT_OR_NONE = frozenset([bytes]), frozenset([bytes, type(None)])

Fits = Callable[[Any, int], bool]  # whether a reply fits a command with this number of keys or fields


def is_answer(command: tuple[bytes | int, ...], reply: object) -> bool:
    """Returns whether a reply, which is not an error, has the form of an answer to the command."""
    name = command[0]
    if name != b"EVAL":
        return _COMMANDS[name](reply, len(command) - 2)
    script, keys = command[1], int(command[2])
    if script == scripts.WRITE:  # the name of the command it runs follows keys, shard and token; it writes, or fails
        return reply is not None and _COMMANDS[command[5 + keys]](reply, 0)
    return _SCRIPTS[script](reply, _rows_of(command) if script in _NAMES_AT else keys)


def _rows_of(command: tuple[bytes | int, ...]) -> int:
    """Returns the number of rows that a script of `_NAMES_AT` names."""
    names = command[_NAMES_AT[command[1]]]
    return len(names) // NAME_BYTES  # type: ignore[arg-type]  # bytes


def _is_text_or_none(reply: object, _: int) -> bool:
    return reply is None or type(reply) is bytes


def _is_none(reply: object, _: int) -> bool:
    return reply is None


def _is_count(reply: object, _: int) -> bool:
    return type(reply) is int and reply >= 0


def _is_set(reply: object, count: int) -> bool:
    """Whether the value was set, or, with NX, existed already."""
    return reply == b"OK" or (reply is None and count == 2)


def _are_texts(reply: object, _: int) -> bool:
    return type(reply) is list and _TEXT.issuperset(map(type, reply))


def _are_pairs(reply: object, _: int) -> bool:
    return _are_texts(reply, 0) and len(reply) % 2 == 0  # type: ignore[arg-type]  # a list


def _are_values(reply: object, count: int) -> bool:
    return type(reply) is list and len(reply) == count and _TEXT_OR_NONE.issuperset(map(type, reply))


def _is_piece(reply: object, _: int) -> bool:
    """Whether it is a cursor, and a list of fields and values."""
    return type(reply) is list and len(reply) == 2 and _is_cursor(reply[0]) and _are_pairs(reply[1], 0)


def _are_keys(reply: object, _: int) -> bool:
    """Whether it is a cursor, and a list of keys."""
    return type(reply) is list and len(reply) == 2 and _is_cursor(reply[0]) and _are_texts(reply[1], 0)


def _is_cursor(reply: object) -> bool:
    return type(reply) is bytes and reply.isdigit()


def _are_entries(reply: object, _: int) -> bool:
    return type(reply) is list and all(
        type(each) is list and len(each) == 2 and _is_entry(each[0]) and _are_pairs(each[1], 0) for each in reply
    )


def _is_entry(name: object) -> bool:
    """Whether it is the name of a stream entry, `<number>-<number>`."""
    return type(name) is bytes and len(parts := name.split(b"-")) == 2 and all(part.isdigit() for part in parts)


def _are_digits(reply: object, rows: int) -> bool:
    return type(reply) is bytes and len(reply) == rows and not reply.strip(b"01")


def _are_heads(reply: object, rows: int) -> bool:
    return type(reply) is bytes and len(reply) == HEAD_BYTES * rows


def _are_lists_of_values(reply: object, rows: int) -> bool:
    return (
        type(reply) is list
        and all(type(each) is list and _TEXT_OR_NONE.issuperset(map(type, each)) for each in reply)
        and sum(map(len, reply)) == rows
    )


def _is_claim(reply: object, _: int) -> bool:
    """Whether it is a token, or the description of another claim: texts, and in fifth place its time to live."""
    if type(reply) is not list:
        return type(reply) is bytes
    texts = [*reply[:4], *reply[5:]]
    return len(reply) == 6 and type(reply[4]) is int and _are_texts(texts, 0) and reply[3].isdigit()


_COMMANDS: Mapping[bytes | int, Fits] = {
    b"DEL": _is_count,
    b"EXPIRE": _is_count,
    b"GET": _is_text_or_none,
    b"HDEL": _is_count,
    b"HGET": _is_text_or_none,
    b"HGETALL": _are_pairs,
    b"HKEYS": _are_texts,
    b"HLEN": _is_count,
    b"HMGET": _are_values,
    b"HSCAN": _is_piece,
    b"HSET": _is_count,
    b"HSETNX": _is_count,
    b"SCAN": _are_keys,
    b"SET": _is_set,
    b"UNLINK": _is_count,
    b"WAIT": _is_count,
    b"XADD": lambda reply, _: _is_entry(reply),
    b"XRANGE": _are_entries,
    b"XREVRANGE": _are_entries,
    b"XTRIM": _is_count,
}

_SCRIPTS: Mapping[bytes | int, Fits] = {
    scripts.CLAIM: _is_claim,
    scripts.CONFIRM: _is_none,
    row_scripts.CONVERT_PRE_IMAGES: _is_none,
    row_scripts.CONVERT_ROWS: _is_none,
    row_scripts.FORGET_OLDER: _is_count,
    row_scripts.PUT_BACK: _is_none,
    row_scripts.READ: _are_lists_of_values,
    row_scripts.READ_VERSIONS: _are_heads,
    row_scripts.WRITE_NEWER: _are_digits,
    scripts.LEAVE: _is_none,
    scripts.MISSING_ROWS: _is_count,
    scripts.REMOVE: _is_count,
    scripts.RENEW_CLAIM: _is_none,
    scripts.RESHARD_RECORDS: _is_none,
    scripts.SAVE_RECORD: _is_count,
    scripts.SET_FENCE: _is_none,
}

# Where a command has the names of its rows, by its script.
_NAMES_AT: Mapping[bytes | int, int] = {
    row_scripts.READ: -1,
    row_scripts.READ_VERSIONS: -1,
    row_scripts.WRITE_NEWER: -2,
}
