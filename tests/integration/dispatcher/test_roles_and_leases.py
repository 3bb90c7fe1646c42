"""A lease is valid for its worker alone, and no other client that learns of it can use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from esd.dispatcher.service.state.leases import Workers
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.errors import EsdError, NotFound, PermissionDenied
from esd.services.domain.plans import Membership, PlanMessage
from esd.services.domain.reports import FailureReport, FlushReport, Lease, Report, TransferCounts
from esd.services.domain.state import JobPhase
from esd.services.runtime.caller import Caller, bind_caller
from esd.services.runtime.roles import Role
from esd.services.runtime.security import Credentials
from esd.services.runtime.settings import ClientSettings
from tests.support.certificates import Certificates
from tests.support.simple_clients import JOB, Dispatcher, registration

Start = Callable[..., Awaitable[Dispatcher]]


def shown(certificates: Certificates, name: str) -> Credentials:
    return Credentials.read(ClientSettings(**certificates.of(name)))


async def attended(client: AsyncDispatcherClient, lease: Lease, report: Report | None = None) -> PlanMessage:
    """The first message on a lease's stream, after a report."""
    async with client.attend(lease) as attendance:
        if report is not None:
            await attendance.report(report)
        return await anext(attendance)


async def test_nobody_else_calls_with_a_workers_lease(start_dispatcher: Start, certificates: Certificates) -> None:
    address = (await start_dispatcher(**certificates.of("service"), tls_clients="*")).address
    async with (
        AsyncDispatcherClient(address, credentials=shown(certificates, "client")) as driver,
        AsyncDispatcherClient(address, credentials=shown(certificates, "edge-1")) as first,
        AsyncDispatcherClient(address, credentials=shown(certificates, "edge-2")) as second,
    ):
        await driver.create_job(JOB)
        lease = await first.register(registration("edge-1"))
        await second.register(registration("edge-2"))
        membership = await attended(first, lease)
        assert isinstance(membership, Membership)
        epoch = membership.epoch
        calls: list[Awaitable[object]] = [
            attended(second, lease, FlushReport(0, TransferCounts(), epoch)),
            attended(second, lease, FailureReport("bored", epoch, fatal=True)),
            second.put_group_key(lease, epoch, "0/0", b"elsewhere"),
            second.get_group_key(lease, epoch, "0/0", within=60),
            attended(second, lease),
            second.register(registration("edge-1")),
            second.register(registration("edge-1", instance="another-process")),
        ]
        for call in calls:
            with pytest.raises(
                PermissionDenied,
                match=r"worker edge-1 \(slot .\) belongs to the certificate edge-1, and this call comes from the "
                r"certificate edge-2",
            ):
                await call
        assert await attended(first, lease) == membership
        state = await driver.describe()
    assert state is not None
    assert state.phase is JobPhase.RUNNING, "the job goes on"


async def test_a_lease_belongs_to_a_token(start_dispatcher: Start, certificates: Certificates, tmp_path: Path) -> None:
    def caller(token: str) -> Credentials:
        (tmp_path / token).write_text(token)
        return Credentials.read(ClientSettings(tls_ca=certificates.authority, token_file=tmp_path / token))

    (tmp_path / "all").write_text("driver zero\nworker one\nworker two\n")
    address = (await start_dispatcher(**certificates.of("service"), token_file=tmp_path / "all")).address
    async with (
        AsyncDispatcherClient(address, credentials=caller("zero")) as driver,
        AsyncDispatcherClient(address, credentials=caller("one")) as first,
        AsyncDispatcherClient(address, credentials=caller("two")) as second,
    ):
        await driver.create_job(JOB)
        lease = await first.register(registration("edge-1"))
        with pytest.raises(PermissionDenied, match="belongs to the token of role worker in line 2") as caught:
            await attended(second, lease)
    assert "one" not in str(caught.value).replace("token", "").replace("one.", "")


async def test_a_lease_belongs_to_a_machine_where_nothing_else_is_known() -> None:
    workers = Workers(2, lease_seconds=60.0, on_expired=lambda _: None)
    bind_caller(Caller("the machine 10.0.0.7", frozenset(Role)))
    lease, _ = workers.register(registration("edge-1"))
    workers.holder(lease.lease_id)

    bind_caller(Caller("the machine 10.0.0.8", frozenset(Role)))
    refused: list[Callable[[], object]] = [
        lambda: workers.holder(lease.lease_id),
        lambda: workers.register(registration("edge-1")),
    ]
    for attempt in refused:
        with pytest.raises(
            PermissionDenied, match=r"belongs to the machine 10\.0\.0\.7, .* from the machine 10\.0\.0\.8"
        ):
            attempt()
    moved, _ = workers.register(registration("edge-1", instance="started there"))
    workers.holder(moved.lease_id)
    with pytest.raises(NotFound):
        workers.holder(lease.lease_id)


async def test_a_name_is_free_for_others_when_its_lease_has_ended(
    start_dispatcher: Start, certificates: Certificates
) -> None:
    address = (await start_dispatcher(**certificates.of("service"), tls_clients="*", lease_seconds=0.2)).address
    async with (
        AsyncDispatcherClient(address, credentials=shown(certificates, "client")) as driver,
        AsyncDispatcherClient(address, credentials=shown(certificates, "edge-1")) as first,
        AsyncDispatcherClient(address, credentials=shown(certificates, "edge-2")) as second,
    ):
        await driver.create_job(JOB)
        await first.register(registration("edge-1"))
        while True:
            try:
                await second.register(registration("edge-1", instance="another-process"))
            except PermissionDenied:
                continue
            break


async def test_a_worker_drives_nothing_and_a_driver_trains_nothing(
    start_dispatcher: Start, certificates: Certificates
) -> None:
    address = (await start_dispatcher(**certificates.of("service"), tls_clients="*")).address
    async with (
        AsyncDispatcherClient(address, credentials=shown(certificates, "client")) as driver,
        AsyncDispatcherClient(address, credentials=shown(certificates, "worker")) as worker,
    ):
        await driver.create_job(JOB)
        refused: list[tuple[Awaitable[object], str]] = [
            (worker.cancel_job(JOB.name, "bored"), "CancelJob is for the roles driver, operator"),
            (worker.submit(JOB.name, []), "Submit is for the roles driver"),
            (driver.register(registration("edge-1")), "RegisterWorker is for the roles worker"),
        ]
        for call, text in refused:
            with pytest.raises(EsdError, match=text) as caught:
                await call
            assert isinstance(caught.value, PermissionDenied)
