"""Versioned reads: a pull is answered with exactly the version it names."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from services.domain.errors import StaleVersion


def behind(ids: NDArray[np.uint64], have: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows have not reached the wanted version yet, bool [r].

    Raises:
        StaleVersion: a row is newer than wanted; who asks follows an outdated plan.
    """
    ahead = have > wanted
    if ahead.any():
        at = int(np.argmax(ahead))
        raise StaleVersion(f"row {ids[at]} is at version {have[at]}, the pull wants the older version {wanted[at]}")
    return have < wanted


class Awaited:
    """The rows that one pull waits for, and which of them have been announced since."""

    def __init__(self, ids: NDArray[np.uint64], wanted: NDArray[np.int64]) -> None:
        self._order = np.argsort(ids)
        self._sorted_ids = ids[self._order]
        self._wanted = wanted
        self._missing = np.zeros(len(ids), np.bool_)

    @property
    def complete(self) -> bool:
        """Every expected row was found or announced: reading again makes sense."""
        return not self._missing.any()

    def expect(self, rows: NDArray[np.bool_]) -> None:
        """These rows are read now; announcements count from here on, so none is missed while the read runs."""
        self._missing = rows.copy()

    def found(self, rows: NDArray[np.bool_]) -> None:
        """These rows were read at the wanted version."""
        self._missing &= ~rows

    def announce(self, ids: NDArray[np.uint64], versions: NDArray[np.int64]) -> None:
        """Rows `ids` can be read at `versions` or newer."""
        at = np.searchsorted(self._sorted_ids, ids)
        at[at == len(self._sorted_ids)] = 0
        known = self._sorted_ids[at] == ids
        rows = self._order[at[known]]
        self._missing[rows[versions[known] >= self._wanted[rows]]] = False

    def first_missing(self) -> int | None:
        """Position of a row that is still waited for."""
        return None if self.complete else int(np.argmax(self._missing))
