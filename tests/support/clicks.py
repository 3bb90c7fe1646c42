"""Clicks as messages of a stream of Redis or Valkey, the same ones each time."""

from __future__ import annotations

import json

import numpy as np
import redis

import esd

SCHEMA = esd.Schema(label="clicked", ids=("user", "item"), dense=("price",))
SCHEMA_FILE = 'label = "clicked"\nids = ["user", "item"]\ndense = ["price"]\n'
KEY = "clicks"
_TIME = 1_700_000_000_000  # of the first click, in milliseconds since 1970


def clicks(count: int, seed: int = 5) -> list[dict[str, object]]:
    """The rows of `count` clicks."""
    draw = np.random.default_rng(seed)
    users, items = draw.zipf(1.3, count) % 500, draw.zipf(1.2, count) % 2000
    return [
        {"user": int(user), "item": f"i{item}", "price": round(price, 3), "clicked": int(user + item) % 2}
        for user, item, price in zip(users, items, draw.random(count).tolist(), strict=True)
    ]


def add_clicks(port: int, rows: list[dict[str, object]], first: int | None = None) -> None:
    """Appends rows to the stream: every second one as JSON, the others as fields.

    With `first`, the number of the first row, ids follow from the numbers, so that two streams have the same ones.
    """
    with redis.Redis(port=port) as client, client.pipeline(transaction=False) as adding:
        for at, row in enumerate(rows):
            fields = {"json": json.dumps(row)} if at % 2 else {name: str(value) for name, value in row.items()}
            adding.xadd(KEY, fields, id="*" if first is None else f"{_TIME + first + at}-0")
        adding.execute()
