"""The lag of a served model behind the parameter servers that it follows, for the metrics page."""

from __future__ import annotations

import time
from collections.abc import Sequence

from esd.services.runtime import serving_metrics as metrics

PAUSE_SECONDS = 0.25  # from one round of changes to the next
_LATE_SECONDS = 4 * PAUSE_SECONDS  # without a round, after which the silence counts


class PartLag:
    """The lag of one table at one server.

    Attributes:
        connected: whether rounds come.
    """

    def __init__(self) -> None:
        self.connected = False
        self._whole = False
        self._finished = False
        self._age = 0.0
        self._heard = time.monotonic()

    def served(self, age: float, *, finished: bool) -> None:
        """A round is served, whose first change came to the server `age` seconds ago; 0: it had none.

        Args:
            age: as above.
            finished: whether the job has ended: no further changes are expected.
        """
        self._age, self._finished, self._whole, self._heard = age, finished, True, time.monotonic()
        if age:
            metrics.FRESH_SECONDS.observe(age)

    @property
    def seconds(self) -> float:
        """The time since the first change that is not served yet, as far as it is known; 0: all are served."""
        silence = time.monotonic() - self._heard
        if not self._whole:
            return silence
        return self._age + (silence if silence > _LATE_SECONDS and not self._finished else 0.0)


def show(parts: Sequence[PartLag]) -> None:
    """Has the metrics page show the lag of all parts from now on."""
    metrics.FRESH_LAG.set_function(lambda: max((part.seconds for part in parts), default=0.0))
    metrics.FRESH_CONNECTED.set_function(lambda: float(bool(parts) and all(part.connected for part in parts)))
