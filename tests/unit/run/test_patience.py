"""A call to a service that is away is repeated, and the run reports at once for which service it waits."""

from __future__ import annotations

import pytest

from esd.run import patience
from esd.run.events import Event, Retrying
from esd.run.patience import Patience
from esd.services.domain.errors import DeadlineExceeded, EsdError, FailedPrecondition, Unavailable


class Service:
    """Answers each call with the next error, and with "done" when none is left."""

    def __init__(self, *errors: EsdError) -> None:
        self._errors = list(errors)

    async def call(self) -> str:
        if self._errors:
            raise self._errors.pop(0)
        return "done"


async def test_a_service_that_is_away_is_reported_once_and_called_again() -> None:
    events: list[Event] = []
    service = Service(Unavailable("ps-0 is away"), DeadlineExceeded("ps-0 is silent"))
    assert await Patience(events.append).until_done(service.call) == "done"
    assert events == [Retrying("ps-0 is away", patience.PATIENCE_SECONDS)]


async def test_a_service_that_has_answered_meanwhile_is_reported_again() -> None:
    events: list[Event] = []
    service, waiting = Service(Unavailable("ps-0 is away"), Unavailable("ps-0 is away again")), Patience(events.append)

    async def call() -> str:
        waiting.begin_anew()
        return await service.call()

    assert await waiting.until_done(call) == "done"
    assert [str(event).partition(";")[0] for event in events] == ["ps-0 is away", "ps-0 is away again"]


async def test_another_error_is_final() -> None:
    events: list[Event] = []
    with pytest.raises(FailedPrecondition, match="no model"):
        await Patience(events.append).until_done(Service(FailedPrecondition("no model")).call)
    assert events == []


async def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.1)
    with pytest.raises(Unavailable, match="ps-0 is away"):
        await Patience(lambda _: None).until_done(Service(*(Unavailable("ps-0 is away") for _ in range(100))).call)
