"""FRUGAL's two-level priority queue and a tree heap, with what their operations touch counted (FRUGAL §3.4, Exp. 4)."""

from __future__ import annotations

from typing import Protocol

NEVER = 2**31  # the priority of an update whose next read is not known: infinity


class FlushQueue(Protocol):
    """Rows that have updates to be flushed, by the step that reads them next.

    Attributes:
        touched: entries of the data structure that were read or written so far.
    """

    touched: int

    def __len__(self) -> int: ...

    def put(self, row: int, priority: int) -> None:
        """Enqueues a row, or changes its priority (adjustPriority)."""
        ...

    def take(self) -> tuple[int, int]:
        """Dequeues a row of the lowest priority: (row, priority)."""
        ...

    def front(self) -> int:
        """Returns the lowest priority; NEVER when it is that, or there is no row."""
        ...


class TwoLevelQueue:
    """An index of priorities over hash tables of rows: every operation touches a constant number of entries.

    The index is scanned from the last priority that was dequeued to the latest that is known (scan-range compression),
    and at infinity.
    """

    def __init__(self) -> None:
        self.touched = 0
        self._rows: dict[int, int] = {}  # priority of each
        self._index: dict[int, dict[int, None]] = {}
        self._lowest, self._highest = NEVER, -1  # of the finite ones

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, row: int, priority: int) -> None:
        """Insert, then delete the old entry."""
        before = self._rows.get(row)
        if before == priority:
            return
        self._index.setdefault(priority, {})[row] = None
        self._rows[row] = priority
        self.touched += 1
        if before is not None:
            del self._index[before][row]
            self.touched += 1
        if priority != NEVER:
            self._lowest, self._highest = min(self._lowest, priority), max(self._highest, priority)

    def front(self) -> int:
        """Scans the index."""
        while self._lowest <= self._highest:
            if self._index.get(self._lowest):
                return self._lowest
            self.touched += 1
            self._lowest += 1
        self._lowest, self._highest = NEVER, -1
        return NEVER

    def take(self) -> tuple[int, int]:
        """Takes any row of the first table that is not empty."""
        priority = self.front()
        row, _ = self._index[priority].popitem()
        del self._rows[row]
        self.touched += 1
        return row, priority


class TreeHeap:
    """A binary heap whose rows know their places, so that a priority can be changed: logarithmic."""

    def __init__(self) -> None:
        self.touched = 0
        self._heap: list[tuple[int, int]] = []  # (priority, row)
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, row: int, priority: int) -> None:
        """Sifts up or down from where the row is, or from the end."""
        place = self._places.get(row)
        if place is None:
            self._heap.append((priority, row))
            self._up(len(self._heap) - 1)
        elif self._heap[place][0] != priority:
            rises = priority < self._heap[place][0]
            self._heap[place] = priority, row
            if rises:
                self._up(place)
            else:
                self._down(place)

    def front(self) -> int:
        """Looks at the root."""
        self.touched += 1
        return self._heap[0][0] if self._heap else NEVER

    def take(self) -> tuple[int, int]:
        """Takes the root; the last entry sifts down from there."""
        priority, row = self._heap[0]
        last = self._heap.pop()
        del self._places[row]
        self.touched += 1
        if self._heap:
            self._heap[0] = last
            self._down(0)
        return row, priority

    def _up(self, place: int) -> None:
        entry = self._heap[place]
        self.touched += 1
        while place > 0:
            parent = (place - 1) // 2
            self.touched += 1
            if self._heap[parent] <= entry:
                break
            self._set(place, self._heap[parent])
            place = parent
        self._set(place, entry)

    def _down(self, place: int) -> None:
        entry = self._heap[place]
        self.touched += 1
        while (child := 2 * place + 1) < len(self._heap):
            self.touched += 1
            if child + 1 < len(self._heap):
                self.touched += 1
                child += self._heap[child + 1] < self._heap[child]
            if entry <= self._heap[child]:
                break
            self._set(place, self._heap[child])
            place = child
        self._set(place, entry)

    def _set(self, place: int, entry: tuple[int, int]) -> None:
        self._heap[place] = entry
        self._places[entry[1]] = place
