"""The examples of docs/extending.md run, registered as the page says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from esd.cli.main import app
from esd.data import open_data
from esd.dispatcher.core.mechanisms import MECHANISMS
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.core.sync import PLANNING
from esd.native import engine
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.tables import Tables
from esd.run.options import RunOptions
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.mechanisms import OPTIONS
from esd.services.domain.sync import WAYS, parse_sync
from examples.extending.mechanism import ByField, ByFieldOptions
from examples.extending.periodic import Periodic, PeriodicPlanning
from examples.extending.store import SqliteStore
from tests.support.stores import SPEC, assert_rows, rows_of

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "extending"
PAGE = (ROOT / "docs" / "extending.md").read_text()


def test_the_page_shows_what_the_files_hold() -> None:
    files = [path.read_text() for path in EXAMPLES.iterdir() if path.is_file()]
    blocks = re.findall(r"```(?:python|cpp)\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 8
    assert [block for block in blocks if not any(block in file for file in files)] == []


def test_the_mechanism(monkeypatch: pytest.MonkeyPatch) -> None:
    assert '"by-field": ByField,' in PAGE
    assert '"by-field": ByFieldOptions,' in PAGE
    monkeypatch.setitem(MECHANISMS, "by-field", ByField)
    monkeypatch.setitem(OPTIONS, "by-field", ByFieldOptions)
    options = ["--data", "synthetic:criteo", "--iterations", "20", "--cache-rows", "4000", "--dim", "8", "--json"]
    costs = {}
    for mechanism in ("random", "by-field"):
        result = CliRunner().invoke(app, ["simulate", *options, "--mechanism", mechanism], catch_exceptions=False)
        costs[mechanism] = json.loads(result.stdout.splitlines()[-1])["cost_seconds"]
    assert 0 < costs["by-field"] < costs["random"]

    options = RunOptions(data="synthetic:criteo", mechanism="by-field")
    features = options.open(1).features
    job = options.job(features=features, dense_features=(), parameter_servers=("ps:1",))
    assert job.mechanism_options == ByFieldOptions(by_field=0)
    batch = next(iter(options.open(job.batch_size)))
    assignments = []
    for field in (0, len(features) - 1):
        planner = Planner(replace(job, mechanism_options=ByFieldOptions(by_field=field)), [1.0] * 4, [9000] * 4)
        assignments.append(planner.plan(batch).assignment.tolist())
    assert assignments[0] != assignments[1]
    with pytest.raises(InvalidArgument, match=rf"by_field is {len(features)}, it must be in 0\.\."):
        replace(job, mechanism_options=ByFieldOptions(by_field=len(features)))
    with pytest.raises(InvalidArgument, match="mechanism random has none"):
        replace(job, mechanism="random")


# Three rows are trained by one worker, in an iteration each; every second iteration lets it push what it trained.
PUSHES = """
#include "engine/batch/batch_ids.cpp"
#include "engine/batch/row_limit.cpp"
#include "engine/batch/row_ttl.cpp"
#include "engine/batch/scores.cpp"
#include "engine/batch/trainers.cpp"
#include "engine/cache/policies.cpp"
#include "engine/engine.cpp"
#include "engine/forget.cpp"
#include "engine/plan/plan.cpp"
#include "engine/plan/replacement.cpp"
#include "engine/plan/resolve.cpp"
#include "engine/plan/worker_lists.cpp"
#include "engine/release.cpp"
#include "engine/rows/state_index.cpp"
#include "engine/snapshot.cpp"
#include "engine/sync/on_demand.cpp"
#include "engine/sync/sync.cpp"
#include "periodic.h"

#include <cstdio>

namespace esd {
JointResult joint_search(const PreparedBatch&, const RowSizes&, const ReuseStatistics&, const JointRequest&) {
  return {};
}
}  // namespace esd

int main() {
  using namespace esd;
  Engine engine({{9}, "lru", {}, 0, {}, {}, {}}, WayOf<Periodic>({2}));
  for (std::uint64_t id = 1; id <= 5; ++id) {
    engine.prepare(SampleIds{&id, 1, 1, nullptr});
    const std::int32_t worker = 0;
    const IterationPlans plans = engine.commit(&worker, {});
    std::printf("%zu ", plans.workers[0].update_rows.ids.size);
  }
  std::printf("%zu", engine.flush().workers[0].rows.ids.size);
}
"""


def test_the_way_to_synchronise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its class of the engine compiles and pushes; its Python part is chosen by name, and builds that class."""
    for line in (
        'WAYS["periodic"] = Periodic',
        "PLANNING[Periodic] = PeriodicPlanning",
        "[](WayOf<Periodic>* way, std::uint32_t every) { new (way) WayOf<Periodic>({every}); }",
    ):
        assert line in PAGE
    (tmp_path / "pushes.cpp").write_text(PUSHES)
    command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-O0", "-I", ROOT / "native", "-I", EXAMPLES]
    for step in ([*command, "pushes.cpp", "-o", "pushes"], ["./pushes"]):
        result = subprocess.run(step, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
        assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["0", "0", "2", "0", "2", "1"]

    monkeypatch.setitem(WAYS, "periodic", Periodic)
    monkeypatch.setitem(PLANNING, Periodic, PeriodicPlanning)
    chosen: list[int] = []
    monkeypatch.setattr(engine, "Periodic", lambda *, every: chosen.append(every) or engine.OnDemand(), raising=False)
    options = ["--data", "synthetic:criteo", "--iterations", "3", "--cache-rows", "4000", "--dim", "8"]
    command = ["simulate", *options, "--sync", "periodic:20"]
    assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
    assert chosen == [20]
    with pytest.raises(InvalidArgument, match="every 0 iterations"):
        parse_sync("periodic:0")


# A cache of three copies: copy 1 is used last, and then outdated.
CACHE = """
#include <cstdio>
#include "engine/cache/cache_mirror.h"

int main() {
  using namespace esd;
  const RowSizes sizes({});
  const HotRows hot;
  const StateIndex index;
  CacheMirror cache(3, "outdated-first", RowTraits{sizes, hot, index});
  for (SlotIndex slot = 0; slot < 3; ++slot) {
    cache.copies.push_back({slot, use_stamp(0), 0, 0, 0, 0});
    cache.policy->use(&slot, 1);
  }
  const SlotIndex second = 1;
  cache.restamp(&second, 1, 1);
  cache.policy->use(&second, 1);
  cache.policy->outdate(&second, 1, 2);
  Slots order, victims;
  cache.policy->list(order);
  cache.policy->choose(2, victims);
  for (const SlotIndex slot : order) std::printf("%u ", slot);
  for (const SlotIndex slot : victims) std::printf("%u ", slot);
}
"""


def test_the_cache_policy(tmp_path: Path) -> None:
    registration = '    if (name == "outdated-first") return std::make_unique<OutdatedFirstPolicy>(copies);\n'
    assert registration in PAGE
    policies = (ROOT / "native" / "engine" / "cache" / "policies.cpp").read_text()
    before = '  if (name == "lru")'
    assert before in policies
    (tmp_path / "policies.cpp").write_text(
        '#include "outdated_first.h"\n' + policies.replace(before, registration + before, 1)
    )
    (tmp_path / "cache.cpp").write_text(CACHE)
    command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-O0", "-I", ROOT / "native", "-I", EXAMPLES]
    sources = "policies.cpp", "cache.cpp", ROOT / "native" / "engine" / "rows" / "state_index.cpp"
    for step in ([*command, *sources, "-o", "cache"], ["./cache"]):
        result = subprocess.run(step, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
        assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["1", "0", "2", "1", "0"]  # the order, then the victims


def test_the_store(tmp_path: Path, rng: np.random.Generator) -> None:
    assert 'return SqliteStore(Path(url.removeprefix("sqlite:")))' in PAGE
    path = tmp_path / "parts.db"
    tables = Tables(SqliteStore(path), Shard())
    tables.create(SPEC)
    table = tables.get(SPEC.name)
    rows = rows_of(rng, [1, 2, 3], 1)
    table.push_rows(rows)
    assert_rows(table.read(rows.ids), rows)

    blobs = table.blobs
    assert (blobs.get_part(4, "dense"), blobs.get_dense(), blobs.checkpoints()) == (None, None, set())
    blobs.put_part(4, "dense", b"old")
    blobs.put_part(4, "dense", b"\0new")
    blobs.put_part(4, "engine", b"")
    blobs.put_part(6, "engine", b"later")
    blobs.put_dense(b"model")
    again = SqliteStore(path)
    again.create(SPEC)
    kept = again.open(SPEC).blobs
    assert (kept.get_part(4, "dense"), kept.get_part(4, "engine"), kept.get_dense()) == (b"\0new", b"", b"model")
    assert kept.checkpoints() == {4, 6}
    kept.drop_parts(4)
    assert (kept.checkpoints(), kept.get_part(4, "engine"), kept.get_dense()) == ({6}, None, b"model")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the page, installed by pip in a folder of its own; and another one, which is broken."""
    folder = tmp_path_factory.mktemp("packages")
    (toml,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    broken = toml.replace("shop-data", "broken-data").replace("shop =", "broken =").replace("shop_data", "broken_data")
    for module, text, code in (
        ("shop_data", toml, (EXAMPLES / "reader.py").read_text()),
        ("broken_data", broken, "def SHOP(request):\n    return request.path\n"),
    ):
        source = folder / "sources" / module
        source.mkdir(parents=True)
        (source / f"{module}.py").write_text(code)
        backend = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        (source / "pyproject.toml").write_text(backend + text)
        options = ["--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check", "--quiet"]
        command = [sys.executable, "-m", "pip", "install", *options, "--target", folder / "site", source]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr
    return folder / "site"


def test_the_reader(tmp_path: Path, installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(installed)
    path = tmp_path / "clicks.csv"
    path.write_text("clicked,price,user,item,shop\n1,1.5,ann,tea,north\n0,,bob,tea,north\n")
    dataset = open_data(f"shop:{path}", 10, seed=0)
    (batch,) = dataset
    assert batch.labels[:, 0].tolist() == [1, 0]
    np.testing.assert_allclose(batch.dense, [[np.log(2.5)], [0]], rtol=1e-6)
    assert batch.by_field.shape == (2, 3)
    assert (batch.by_field[0] == batch.by_field[1]).tolist() == [False, True, True]
    assert dataset.fingerprint.endswith("; read by shop-data 1.2")
    path.write_text("clicked,price,user,item,shop\n1,dear,ann,tea,north\n")
    with pytest.raises(InvalidArgument, match=r"column 2 \(price\)"):
        list(open_data(f"shop:{path}", 10, seed=0))


def test_readers_are_listed_and_mistakes_name_the_package(
    tmp_path: Path, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(installed)
    listed = json.loads(CliRunner().invoke(app, ["data", "readers", "--json"]).stdout)
    assert listed["shop"] == "shop-data 1.2"
    assert listed["criteo"] == "comes with ESD"
    with pytest.raises(InvalidArgument, match=r"'shops:x' is unknown; there are flights, .*broken, shop"):
        open_data("shops:x", 10, seed=0)
    with pytest.raises(InvalidArgument, match="data 'shop' names no file, write shop:PATH"):
        open_data("shop", 10, seed=0)
    with pytest.raises(InvalidArgument, match=r"'broken' of broken-data 1\.2 .*SHOP\) fails: AttributeError"):
        open_data("broken:x", 10, seed=0)
    shutil.copytree(installed / "shop_data-1.2.dist-info", tmp_path / "other_shop-1.2.dist-info")
    metadata = tmp_path / "other_shop-1.2.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("Name: shop-data", "Name: other-shop"))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidArgument, match=r"a reader of other-shop 1\.2 and shop-data 1\.2: uninstall all but one"):
        open_data("shop:x", 10, seed=0)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
