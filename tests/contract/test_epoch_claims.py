"""Dispatchers that are after one job at the same moment, in every order in which their calls can reach the servers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

from esd.dispatcher.service.checkpoint.servers import CheckpointStore
from esd.dispatcher.service.settings import DispatcherSettings
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.table import Table
from esd.ps_server.core.tables import Tables
from esd.services.clients.checkpoints import StoredState
from esd.services.domain.claimants import new_claimant
from esd.services.domain.errors import FailedPrecondition, StaleEpoch
from tests.support.simple_clients import job_with
from tests.support.stores import SPEC, open_url

Order = Callable[[int], int]  # of how many calls that wait, which is made

SETTINGS = DispatcherSettings(metrics_port=None)
_TURNS = 8  # of the event loop, after which whoever can go on has come to its next call
_DRAWN = 50  # of the orders where there are thousands, or where a call takes longer


def every_order() -> Iterator[Order]:
    """Yields all orders in which calls can be made: of each, which call is next."""
    chosen: list[int] = []
    while True:
        taken: list[tuple[int, int]] = []  # which call, of how many that waited

        def choose(waiting: int, chosen: list[int] = chosen, taken: list[tuple[int, int]] = taken) -> int:
            taken.append((chosen[len(taken)] if len(taken) < len(chosen) else 0, waiting))
            return taken[-1][0]

        yield choose
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            return
        chosen = [at for at, _ in taken]
        chosen[-1] += 1


def drawn_orders() -> Iterator[Order]:
    """Yields some of the orders, by a seed."""
    rng = random.Random(0)
    yield from (rng.randrange for _ in range(_DRAWN))


class Steps:
    """Lets one call after the other through."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    async def turn(self) -> None:
        """Waits until the call may be made."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    async def run(self, *actors: Coroutine[Any, Any, None], choose: Order = lambda _: 0) -> None:
        """Takes all to their ends; `choose` says which of the calls that wait is made."""
        tasks = [asyncio.ensure_future(actor) for actor in actors]
        while True:
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            if not self._waiting:
                break
            self._waiting.pop(choose(len(self._waiting))).set_result(None)
        for task in tasks:
            task.result()


class Server:
    """A participant, as a dispatcher's client: in this process, and each call waits for its turn."""

    def __init__(self, table: Table, claimant: bytes, steps: Steps, *, looked_at: bool) -> None:
        self._table = table
        self._claimant = claimant
        self._steps = steps
        self._looked_at = looked_at  # whether a look at all servers takes its turn here

    async def create_table(self) -> None: ...

    async def get_checkpoint(self) -> StoredState:
        if self._looked_at:
            await self._steps.turn()
        return StoredState(self._table.history.record.epoch, b"manifest", 0, durable=True)

    async def begin_epoch(self, epoch: int, *, takes_over: bool) -> None:
        await self._steps.turn()
        self._table.history.begin_epoch(epoch, self._claimant, takes_over=takes_over)

    async def restore(self, checkpoint: int, *, epoch: int, within: float) -> int:
        await self._steps.turn()
        return self._table.history.restore(checkpoint, epoch, self._claimant)


class Contender:
    """A dispatcher that wants the job, and whose workers train in the epochs that it gets."""

    def __init__(self, tables: list[Table], steps: Steps, trained: dict[int, Contender]) -> None:
        claimant = new_claimant()
        self.ended = ""
        self.attempts = 0
        self._trained = trained
        addresses = tuple(f"nowhere:{1 + index}" for index in range(len(tables)))
        self._store = CheckpointStore(job_with(checkpoint_every=5, parameter_servers=addresses), SETTINGS)
        servers: Any = [Server(table, claimant, steps, looked_at=not index) for index, table in enumerate(tables)]
        self._store._participants, self._store._first = servers, servers[0]

    async def start(self) -> None:
        """Takes the job over, as `find_starting_point` does, and begins to train."""
        await self._until_it_ends(self._start)

    async def recover(self) -> None:
        """Begins another epoch of the job, as `Checkpoints.restore` does."""
        await self._until_it_ends(self._recover)

    async def close(self) -> None:
        await self._store.close()

    async def _until_it_ends(self, begin: Callable[[], Awaitable[None]]) -> None:
        try:
            try:
                await begin()
            except StaleEpoch:  # as the planning loop does
                while True:
                    self.attempts += 1
                    try:
                        return await self._recover()
                    except StaleEpoch:
                        assert self.attempts < 5, "there is no end of it"
        except FailedPrecondition as error:
            self.ended = str(error)

    async def _start(self) -> None:
        epoch = await self._store.take_over(lambda _: None)
        await self._train(epoch)

    async def _recover(self) -> None:
        await self._train((await self._store.find()).epoch + 1)

    async def _train(self, epoch: int) -> None:
        await self._store.restore(0, epoch)
        assert self._trained.setdefault(epoch, self) is self, f"two dispatchers train in epoch {epoch}"


async def loses_rows(table: Table, steps: Steps) -> None:
    """The behaviour of a server that was restarted and has lost rows."""
    await steps.turn()
    table.history._begin_after_last_checkpoint()


@pytest.fixture(params=["memory", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("redis_url") if request.param == "redis" else request.param


@pytest.fixture
def tables(url: str) -> Iterator[list[Table]]:
    """The table on two shards."""
    stores = [open_url(url, Shard(index, 2)) for index in range(2)]
    found = []
    for index, store in enumerate(stores):
        tables = Tables(store, Shard(index, 2))
        tables.create(SPEC)
        found.append(tables.get(SPEC.name))
    yield found
    for store in stores:
        store.close()


@pytest.mark.parametrize(
    ("trains", "loses"),
    [(True, False), (False, False), (True, True)],
    ids=["one trains already", "both start", "one trains already and a server loses rows"],
)
async def test_one_dispatcher_gets_the_job_and_no_two_train_in_one_epoch(
    url: str, tables: list[Table], trains: bool, loses: bool
) -> None:
    trained: dict[int, Contender] = {}
    few = trains and not loses and url == "memory"
    for choose in every_order() if few else drawn_orders():
        steps = Steps()
        first, second = contenders = [Contender(tables, steps, trained) for _ in range(2)]
        if trains:
            await steps.run(first.start())
        mishaps = [loses_rows(tables[1], steps)] if loses else []
        begins = first.recover() if trains else first.start()
        await steps.run(begins, second.start(), *mishaps, choose=choose)
        for contender in contenders:  # whoever has not heard that it is replaced hears it when it recovers
            if not contender.ended:
                await steps.run(contender.recover())
        (winner,) = (contender for contender in contenders if not contender.ended)
        (ended,) = (contender.ended for contender in contenders if contender.ended)
        assert "another dispatcher has taken table" in ended
        assert {trained[table.history.record.epoch] for table in tables} == {winner}
        for contender in contenders:
            await contender.close()
