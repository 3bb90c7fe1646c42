"""Two releases that meet: a call is refused that says which both are; callers that name none are served."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from esd.protos import ps_pb2, ps_pb2_grpc
from esd.services.domain.errors import FailedPrecondition
from esd.services.runtime import channel
from esd.services.runtime.release import INTERFACES, RELEASE

OTHER = "0.0.1+0123abcd"


@pytest.fixture
def _of_another_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "user_agent", lambda caller: f"{caller} esd/{OTHER}")


@pytest.mark.usefixtures("_of_another_release")
@pytest.mark.parametrize(
    "call",
    [lambda toy: toy.create("fine"), lambda toy: toy.pull("fine"), lambda toy: toy.push("fine"),
     lambda toy: toy.submit("fine")],
    ids=["one for one", "one for many", "many for one", "many for many"],
)  # fmt: skip
async def test_a_caller_of_another_release_is_refused_and_both_are_named(
    serve_toy: Any, call: Callable[[Any], Awaitable[Any]]
) -> None:
    async with serve_toy() as toy:
        with pytest.raises(FailedPrecondition) as caught:
            await call(toy)
        assert not toy.servicer.attempts
    assert f"the caller has release {OTHER} of ESD, and this service has {RELEASE}" in str(caught.value)


def test_every_interface_is_part_of_a_release() -> None:
    """The imports of a file are no part of its own description. The contract of a served model is a public one."""
    folder = Path(__file__).parents[3] / "protos"
    ours = {path.name for path in folder.glob("*.proto")} - {"inference.proto"}
    assert {file.name for file in INTERFACES} == {f"esd/protos/{name}" for name in ours}


async def test_callers_with_stubs_of_their_own_are_served(toy: Any) -> None:
    options = [("grpc.primary_user_agent", "shop/1.0")]
    async with grpc.aio.insecure_channel(toy.server.address, options=options) as opened:
        answer = await ps_pb2_grpc.ParameterServerStub(opened).CreateTable(
            ps_pb2.CreateTableRequest(table={"name": "fine"}), timeout=60
        )
    assert answer.created
