"""The example of each public name of `esd` runs as its docstring shows it.

An example may use `esd`, `np`, `torch`, `asyncio`, `itertools` and `dataclasses.replace`, the files of the folder that
`folder` makes, a dispatcher at 127.0.0.1:50051 and a parameter server at 127.0.0.1:50052.
"""

from __future__ import annotations

import asyncio
import doctest
import inspect
import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import esd
from esd.dispatcher.service.app import serve_dispatcher
from esd.dispatcher.service.settings import DispatcherSettings
from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.worker.models import build_model
from tests.support.models import save_model

# A union of classes, a module and a text have no docstring of their own; the example of Session shows a Step.
NAMES = sorted(set(esd.__all__) - {"PlanMessage", "Step", "errors", "__version__"})
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present directory, with two events and a model that takes them."""
    monkeypatch.chdir(tmp_path)
    Path("events.csv").write_text("clicked,user,item,price\n1,ann,tea,1.5\n0,bob,tea,3\n")
    table = esd.TableSpec("clicks", 4, esd.OptimizerSpec(), 0, 0.01)
    job = esd.JobSpec(
        name="clicks", workers=1, features=(esd.Feature("user"), esd.Feature("item")), dense_features=1, batch_size=2,
        workloads=(2,), mechanism="joint", policy="emark", seed=0, window=2, tables=(table,),
        model=esd.ModelSpec("wdl", (8,), esd.OptimizerSpec()), parameter_servers=("none",), labels=("clicked",),
    )  # fmt: skip
    dense = {name: value.numpy() for name, value in build_model(job).state_dict().items()}
    schema = esd.Schema(label="clicked", ids=("user", "item"), dense=("price",))
    rows = np.array([1, 2], np.uint64), np.ones((2, 4), np.float32), np.ones(2, np.int64)
    save_model(Path("model"), job, dense, schema, clicks=rows)
    return tmp_path


@pytest.fixture
def addresses() -> Iterator[dict[str, str]]:
    """A dispatcher and a parameter server in a thread: their addresses, by the ones that the examples show."""
    found: dict[str, str] = {}
    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        dispatcher = DispatcherSettings(metrics_port=None, grace_seconds=0)
        server = ParameterServerSettings(metrics_port=None, grace_seconds=0)
        async with serve_dispatcher(dispatcher) as served, parameter_server(server) as rows:
            found.update({"127.0.0.1:50051": served.address, "127.0.0.1:50052": rows.address})
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(60)
        yield found
    finally:
        over.set()
        thread.join()


def example(text: str, name: str) -> doctest.DocTest:
    names = {"esd": esd, "np": np, "torch": torch, "asyncio": asyncio, "itertools": itertools, "replace": replace}
    return doctest.DocTestParser().get_doctest(text, names, name, None, 0)


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_name(name: str, folder: Path, request: pytest.FixtureRequest) -> None:
    text = inspect.getdoc(getattr(esd, name)) or ""
    if "127.0.0.1" in text:
        addresses: dict[str, str] = request.getfixturevalue("addresses")
        for shown, real in addresses.items():
            text = text.replace(shown, real)
    output: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    result = runner.run(example(text, name), out=output.append)
    assert result.attempted > 0, f"esd.{name} has no example"
    assert result.failed == 0, "".join(output)
