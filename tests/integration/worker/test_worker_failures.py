"""Every failure ends the worker with a clear error, within a bound."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from esd.dispatcher.core.planner import Planner
from esd.protos import worker_pb2, worker_pb2_grpc
from esd.services.domain.dense_sums import AllReduce, ServerSum
from esd.services.domain.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    NotFound,
    StaleEpoch,
    StaleVersion,
    Unavailable,
)
from esd.services.domain.parcels import Parcel
from esd.services.domain.plans import IterationPlan
from esd.services.domain.reports import FailureReport
from esd.services.domain.rows import GradientBlock, RowBlock
from esd.services.domain.tables import OptimizerSpec
from esd.services.runtime.channel import channel
from esd.services.wire.attend import decode_request, encode_answer
from esd.services.wire.exchange import sequence_of
from esd.worker.models import MODELS
from esd.worker.models.wdl import WideDeep
from tests.integration.worker.conftest import ScriptedDispatcher
from tests.integration.worker.small import small_job, small_stream, worker_settings
from tests.support.cuttable_proxy import CuttableProxy
from tests.support.server_client import ServerClient


def plans_of(job, iterations):
    """The plans of every worker."""
    planner = Planner(job, [1e9] * job.workers, [64] * job.workers)
    decisions = [planner.plan(batch) for batch in small_stream(iterations)]
    return [[decision.plans[slot] for decision in decisions] for slot in range(job.workers)]


def with_first_pull_at(plan: IterationPlan, version: int) -> IterationPlan:
    """The plan, with another version of the first row that it pulls."""
    pulled, trained = plan.pulls.versions.copy(), plan.unique_versions.copy()
    pulled[0] = version
    trained[plan.unique_ids == plan.pulls.ids[0]] = version
    return replace(plan, pulls=replace(plan.pulls, versions=pulled), unique_versions=trained)


async def test_a_plan_that_does_not_fit_is_refused_before_anything_moves(start_servers, run_worker_job, serve_scripts):
    job = small_job(await start_servers(1), 1, OptimizerSpec())
    ((first, second),) = plans_of(job, 2)
    slots = second.unique_slots.copy()
    slots[0], slots[1] = slots[1], slots[0]
    dispatcher, address = await serve_scripts(job, [[first, replace(second, unique_slots=slots)]])
    with pytest.raises(FailedPrecondition, match=rf"iteration 1 does not fit .* id {second.unique_ids[0]} "):
        await run_worker_job(address)
    assert all(report.iteration == 0 for report in dispatcher.reports[0])


async def test_a_loss_that_is_not_finite_ends_the_worker_before_anything_is_pushed(
    start_servers, run_worker_job, serve_scripts
):
    job = small_job(await start_servers(1), 1, OptimizerSpec())
    ((first, second),) = plans_of(job, 2)
    dispatcher, address = await serve_scripts(job, [[replace(first, dense=np.full_like(first.dense, np.nan)), second]])
    with pytest.raises(FailedPrecondition, match="the loss of iteration 0 is nan: training diverged"):
        await run_worker_job(address)
    assert dispatcher.reports == [[]]
    async with ServerClient(job.parameter_servers[0], job.table) as server:
        described = await server.describe()
    assert described.tables[0].rows == 0


class FailsLater(WideDeep):
    """Trains one iteration."""

    def forward(self, embeddings, dense):
        if self.samples.iteration:
            raise IndexError("no such thing")
        return super().forward(embeddings, dense)


async def test_a_model_that_fails_is_named_and_the_job_is_told(
    start_servers, run_worker_job, serve_scripts, monkeypatch
):
    """Otherwise the process would die, be started again, and fail again."""
    monkeypatch.setitem(MODELS, "fails-later", FailsLater)
    job = small_job(await start_servers(1), 1, OptimizerSpec())
    job = replace(job, model=replace(job.model, name="fails-later"))
    (plans,) = plans_of(job, 3)
    dispatcher, address = await serve_scripts(job, [plans])
    failure = "model 'fails-later' fails in iteration 1: IndexError: no such thing"
    with pytest.raises(FailedPrecondition, match=failure):
        await run_worker_job(address)
    (told,) = dispatcher.failures
    assert told.fatal
    assert failure in told.cause


class Deaf(ScriptedDispatcher):
    """The first failure report comes when another worker has ended the epoch."""

    streams = 0

    async def _take_in(self, slot, requests, outbox):
        self.streams += 1
        if self.streams > 1:
            await super()._take_in(slot, requests, outbox)
            return
        async for data in requests:
            if any(isinstance(each, FailureReport) for each in decode_request(data)):
                outbox.put_nowait(StaleEpoch("epoch 0 is over: worker slot 0 has left the sums"))
                return
            outbox.put_nowait(encode_answer(sequence_of(data), []))


async def test_a_failure_that_ends_the_job_is_told_though_another_worker_has_ended_the_epoch(
    start_servers, run_worker_job, serve_scripts
):
    """Otherwise the job would wait for this worker, which has gone, and never name the reason."""
    job = small_job(await start_servers(1), 1, OptimizerSpec())
    ((plan,),) = plans_of(job, 1)
    broken = replace(plan, dense=np.full_like(plan.dense, np.nan))
    dispatcher, address = await serve_scripts(job, [[broken]], kind=Deaf)
    with pytest.raises(FailedPrecondition, match="the loss of iteration 0 is nan"):
        await run_worker_job(address)
    (told,) = dispatcher.failures
    assert told.fatal
    assert "the loss of iteration 0 is nan" in told.cause
    assert dispatcher.streams == 2


async def test_a_stale_pull_is_refused(start_servers, run_worker_job, serve_scripts):
    """Another worker has trained the rows: the plan asks for version 0 of rows that are at version 1."""
    job = small_job(await start_servers(1), 1, OptimizerSpec())
    ((plan,),) = plans_of(job, 1)
    ids, none, nothing = plan.pulls.ids, np.empty(0, np.int64), np.empty((0, job.table.dimension), np.float32)
    trained = RowBlock(ids, np.ones(len(ids), np.int64), np.ones((len(ids), job.table.row_width), np.float32))
    untouched = GradientBlock(ids[:0], none, ids[:0], np.empty(0, np.uint32), nothing[:, 0], nothing, worker=0)
    async with ServerClient(job.parameter_servers[0], job.table) as server:
        await server.create_table()
        await server.push(Parcel(trained, untouched))
    _, address = await serve_scripts(job, [[plan]])
    with pytest.raises(StaleVersion, match="version"):
        await run_worker_job(address)


async def test_of_two_jobs_without_checkpoints_one_trains_a_table(start_servers, run_worker_job, serve_scripts):
    """Both would push the same versions of the same rows, of which the later ones count as repeated ones."""
    job = small_job(await start_servers(2), 1, OptimizerSpec())
    (plans,) = plans_of(job, 2)
    each = [await serve_scripts(job, [plans]) for _ in range(2)]
    ended = [asyncio.create_task(run_worker_job(address)) for _, address in each]
    (refused,), (trains,) = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED, timeout=60)
    with pytest.raises(FailedPrecondition, match=r"table 'rows' belongs to another job.*--table"):
        await refused
    loser, winner = (each[ended.index(task)][0] for task in (refused, trains))
    async with asyncio.timeout(60):
        await winner.until(lambda: len(winner.reports[0]) == len(plans))
    assert loser.reports == [[]]
    (told,) = loser.failures
    assert told.fatal
    trains.cancel()
    await asyncio.gather(trains, return_exceptions=True)


async def test_a_version_that_never_comes_is_waited_for_within_the_peer_timeout(
    start_servers, run_worker_job, serve_scripts
):
    job = small_job(await start_servers(1), 1, OptimizerSpec())
    ((plan,),) = plans_of(job, 1)
    _, address = await serve_scripts(job, [[with_first_pull_at(plan, 5)]])
    async with asyncio.timeout(60):
        with pytest.raises(DeadlineExceeded):
            await run_worker_job(address, peer_timeout=1)


async def test_a_lease_that_is_gone_ends_the_wait_for_a_version(start_servers, run_worker_job, serve_scripts):
    job = small_job(await start_servers(1), 1, OptimizerSpec())
    ((plan,),) = plans_of(job, 1)
    _, address = await serve_scripts(job, [[with_first_pull_at(plan, 5), NotFound("no lease")]])
    async with asyncio.timeout(60):
        with pytest.raises(NotFound, match="no lease"):
            await run_worker_job(address, peer_timeout=120)


async def test_the_cause_of_a_failed_job_is_shown(start_servers, run_worker_job, serve_scripts):
    job = small_job(await start_servers(1), 1, OptimizerSpec())
    ((plan,),) = plans_of(job, 1)
    cause = FailedPrecondition("job job failed: worker b sent no heartbeat for 5 s")
    _, address = await serve_scripts(job, [[plan, cause]])
    with pytest.raises(FailedPrecondition, match=str(cause)):
        await run_worker_job(address)


async def test_a_dispatcher_that_is_away_is_waited_for_within_the_job_timeout(run_worker_job, caplog):
    async with asyncio.timeout(60):
        with caplog.at_level(logging.WARNING), pytest.raises(Unavailable):
            await run_worker_job("127.0.0.1:1", job_timeout=1)
    assert caplog.text.count("the dispatcher at 127.0.0.1:1 is out of reach") == 1, "said, and not at every attempt"
    assert "Connection refused" in caplog.text


async def test_a_dispatcher_that_goes_away_for_longer_is_waited_for_when_the_job_can_go_on(
    start_servers, run_worker_job, serve_scripts, caplog
):
    job = replace(small_job(await start_servers(1), 1, OptimizerSpec()), checkpoint_every=100)
    ((first, second),) = plans_of(job, 2)
    dispatcher, address = await serve_scripts(job, [[first]])
    async with CuttableProxy.running(address) as link:
        running = asyncio.create_task(run_worker_job(link.address, retry_timeout=0.5))
        await asyncio.wait_for(dispatcher.until(lambda: all(dispatcher.reports)), 60)
        dispatcher.scripts = [[first, second]]
        link.refuse()
        async with asyncio.timeout(60):
            while "is out of reach" not in caplog.text:  # noqa: ASYNC110 - as it is said once the stream is given up
                await asyncio.sleep(0.01)
        link.admit()
        await asyncio.wait_for(dispatcher.until(lambda: len(dispatcher.reports[0]) == 3), 60)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert [report.iteration for report in dispatcher.reports[0]] == [0, 0, 1]


async def test_a_job_without_its_parameter_server_is_given_up_within_the_retry_timeout(run_worker_job, serve_scripts):
    job = small_job(["127.0.0.1:1"], 1, OptimizerSpec())
    _, address = await serve_scripts(job, [[]])
    async with asyncio.timeout(60):
        with pytest.raises(Unavailable):
            await run_worker_job(address, retry_timeout=1)


@pytest.mark.parametrize(("way", "sockets"), [(AllReduce(), 2), (ServerSum(), 1)])
async def test_a_worker_listens_where_it_is_told_and_nowhere_else(
    start_servers, start_worker, serve_scripts, way, sockets
):
    job = replace(small_job(await start_servers(1), 2, OptimizerSpec()), dense_sum=way)
    dispatcher, address = await serve_scripts(job, [plans[:1] for plans in plans_of(job, 1)])
    settings = {"ESD_WORKER_LISTEN": "127.0.0.1:0", "ESD_WORKER_METRICS_PORT": "none"}
    workers = await asyncio.gather(*(start_worker(address, name, **settings) for name in ("a", "b")))
    await asyncio.wait_for(dispatcher.until(lambda: all(dispatcher.reports)), 60)
    for worker in workers:
        listening = listening_addresses(worker.process.pid)
        assert f"127.0.0.1:{worker.address.rpartition(':')[2]}" in listening
        assert all(each.startswith("127.0.0.1:") for each in listening), listening
        assert len(listening) == sockets, "the service, and the connections of the all-reduce"
        others = {
            peer for peer in connected_addresses(worker.process.pid) if peer not in {address, *job.parameter_servers}
        }
        assert bool(others) == (sockets > 1), "all connections of a worker that sums at the server are to services"


def listening_addresses(pid: int) -> set[str]:
    """`host:port` of every TCP socket that a process listens on."""
    return {own for own, _ in sockets_of(pid, "0A")}


def connected_addresses(pid: int) -> set[str]:
    """`host:port` of every peer with which a process has a TCP connection."""
    return {peer for _, peer in sockets_of(pid, "01")}


def sockets_of(pid: int, state: str) -> set[tuple[str, str]]:
    """The own address and the peer's of every TCP socket of a process in a state, as Linux tells them.

    Files of the process are opened and closed meanwhile, and a table that others change may name a socket twice.
    """
    own = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            own.add(str(link.readlink()))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == state and f"socket:[{fields[9]}]" in own:
                found.add((readable(fields[1]), readable(fields[2])))
    return found


def readable(address: str) -> str:
    """`host:port` of an address in such a table."""
    host, port = address.split(":")
    numbers = bytes.fromhex(host)
    # Addresses are written as 32-bit numbers of this machine's byte order; an IPv4 one in IPv6 is the last.
    mapped = numbers[:12] == bytes(8) + b"\xff\xff\0\0"
    if len(numbers) == 4 or mapped:
        return f"{socket.inet_ntoa(numbers[-4:][::-1])}:{int(port, 16)}"
    return f"[{host}]:{int(port, 16)}"


@pytest.mark.parametrize("way", [AllReduce(), ServerSum()], ids=str)
@pytest.mark.parametrize("loss", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
async def test_a_lost_peer_ends_the_others(start_servers, start_worker, serve_scripts, loss, way):
    job = replace(small_job(await start_servers(1), 2, OptimizerSpec()), dense_sum=way)
    first_script, second_script = plans_of(job, 3)
    # Behind the first iteration only the first worker gets a plan, so it waits for the second one's part.
    dispatcher, address = await serve_scripts(job, [first_script, second_script[:1]])
    first, second = await asyncio.gather(
        *(start_worker(address, name, ESD_WORKER_PEER_TIMEOUT="10") for name in ("a", "b"))
    )
    await asyncio.wait_for(dispatcher.until(lambda: all(dispatcher.reports)), 60)
    if dispatcher.registrations[0].name == "b":
        first, second = second, first
    second.process.send_signal(loss)
    code, stderr = await first.end()
    error = stderr.splitlines()[-1]
    assert code == 1
    assert error.startswith("error: ")
    named = "another worker is lost" in error or re.search("worker slot . has (left|not sent)", error)
    assert named or "version" in error, error


async def test_a_worker_describes_itself_and_ends_on_a_signal(start_servers, start_process, serve_scripts):
    job = small_job(await start_servers(1), 1, OptimizerSpec())
    ((plan,),) = plans_of(job, 1)
    dispatcher, address = await serve_scripts(job, [[plan]])
    worker = await start_process("esd.worker", **worker_settings(address, "a"))
    await asyncio.wait_for(dispatcher.until(lambda: bool(dispatcher.reports[0])), 60)
    async with channel(worker.address) as to_worker:
        state = await worker_pb2_grpc.WorkerStub(to_worker).DescribeWorker(
            worker_pb2.DescribeWorkerRequest(), timeout=60
        )
    assert (state.worker, state.slot, state.iteration, state.device) == ("a", 0, 0, "cpu")
    assert (state.cache_rows, state.cached_rows) == (64, len(plan.unique_ids))
    assert state.bandwidth_bytes_per_second == 1e9

    worker.process.terminate()
    code, stderr = await worker.end()
    assert code == 0, stderr
    assert "stopped before the end of the stream" in stderr


async def test_a_worker_of_another_release_says_so_and_ends(start_servers, run_worker_job, serve_scripts, monkeypatch):
    job = small_job(await start_servers(1), 1, OptimizerSpec())
    _, address = await serve_scripts(job, [[]])
    monkeypatch.setattr("esd.services.runtime.channel.user_agent", lambda caller: f"{caller} esd/0.0.1+0123abcd")
    with pytest.raises(FailedPrecondition, match=r"the caller has release 0\.0\.1\+0123abcd"):
        await run_worker_job(address)
