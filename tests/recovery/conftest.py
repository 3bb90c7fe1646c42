"""Runs that are looked at often, so that a kill comes at the iteration that it is meant for."""

import pytest

from esd.run import driver


@pytest.fixture(autouse=True)
def looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "POLL_SECONDS", 0.02)
