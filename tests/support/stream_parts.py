"""The order of a stream with several submitters, as its rule says it: in turn, each part gives its share."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def merged(parts: Sequence[Sequence[T]], shares: Sequence[int]) -> list[T]:
    """Merges the samples of all parts; one that has ended gives fewer samples, and then none."""
    left = [deque(part) for part in parts]
    order: list[T] = []
    while any(left):
        for part, share in zip(left, shares, strict=True):
            order += [part.popleft() for _ in range(min(share, len(part)))]
    return order
