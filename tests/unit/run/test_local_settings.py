"""A local run takes the settings of services from variables and file, or refuses them by name."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from esd.run.local_settings import NOT_TAKEN, LocalSettings, unknown_variables, without_settings
from esd.services.domain.errors import InvalidArgument
from esd.services.runtime import gpus
from esd.services.runtime.settings import SettingsError


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in set(os.environ) - set(without_settings(os.environ)):
        monkeypatch.delenv(name)


def test_variables_and_file_reach_the_service_that_they_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "services.toml"
    config.write_text("[dispatcher]\nrejoin_seconds = 7\n")
    monkeypatch.setenv("ESD_CONFIG", str(config))
    monkeypatch.setenv("ESD_PS_MAX_DENSE_BYTES", "2000000000")
    monkeypatch.setenv("esd_worker_device", "cuda")
    monkeypatch.setattr(gpus, "usable_gpus", lambda: (2, ""))
    settings = LocalSettings(workers=2, shards=2)
    settings.check()

    assert settings.server(1) == {
        "ESD_CONFIG": str(config),
        "ESD_PS_MAX_DENSE_BYTES": "2000000000",
        "ESD_PS_STORE": "memory",
        "ESD_PS_SHARD": "1",
        "ESD_PS_SHARDS": "2",
    }
    # The file decides on rejoin_seconds, which a local run has another default for.
    assert settings.dispatcher() == {"ESD_CONFIG": str(config), "ESD_DISPATCHER_PAGE_PORT": "0"}
    assert settings.worker(name="w", link=1500.5) == {
        "ESD_CONFIG": str(config),
        "ESD_WORKER_DEVICE": "cuda",
        "ESD_WORKER_NAME": "w",
        "ESD_WORKER_LINK": "1500.5",
    }


def test_what_the_run_decides_wins_over_variables_of_the_same_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESD_DISPATCHER_SHADOW_MECHANISMS", "hash")
    monkeypatch.setenv("ESD_DISPATCHER_REJOIN_SECONDS", "3")
    assert LocalSettings(workers=1).dispatcher() == {
        "ESD_DISPATCHER_PAGE_PORT": "0",
        "ESD_DISPATCHER_SHADOW_MECHANISMS": "hash",
        "ESD_DISPATCHER_REJOIN_SECONDS": "3",
    }
    decided = LocalSettings(workers=1, shadows=(), rejoin_seconds=2.0).dispatcher()
    assert decided["ESD_DISPATCHER_SHADOW_MECHANISMS"] == "none"
    assert decided["ESD_DISPATCHER_REJOIN_SECONDS"] == "2.0"


@pytest.mark.parametrize(
    ("variable", "reason"),
    [(each.variable(field), reason) for each, fields in NOT_TAKEN.items() for field, reason in fields.items()],
)
def test_a_setting_that_a_local_run_cannot_take_is_refused_by_name(
    variable: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "7")
    with pytest.raises(SettingsError, match=f"(?s)\n  {variable}: {re.escape(reason)}\nunset .* --dispatcher$"):
        LocalSettings(workers=1).check()


def test_a_setting_of_the_file_is_refused_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "services.toml"
    config.write_text('[ps]\nstore = "redis://user:sesame@head:6379"\n[worker]\nlink = 1e9\n')
    monkeypatch.setenv("ESD_CONFIG", str(config))
    with pytest.raises(SettingsError) as refused:
        LocalSettings(workers=1).check()
    assert f"\n  store under [ps] in {config}: --store decides it in a local run\n" in str(refused.value)
    assert f"\n  link under [worker] in {config}: --links decides it in a local run\n" in str(refused.value)
    assert "sesame" not in str(refused.value)


def test_a_variable_that_says_what_the_option_says_is_no_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESD_PS_CHECKPOINT_DIR", str(tmp_path))
    LocalSettings(workers=1, checkpoint_dir=tmp_path).check()
    with pytest.raises(SettingsError, match="ESD_PS_CHECKPOINT_DIR: --checkpoint-dir decides it"):
        LocalSettings(workers=1, checkpoint_dir=tmp_path / "another").check()


def test_all_mistakes_of_all_services_are_reported_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESD_PS_MAX_DENSE_BYTES", "many")
    monkeypatch.setenv("ESD_DISPATCHER_LEASE_SECOND", "3")
    monkeypatch.setenv("ESD_WORKER_METRICS_PORT", "9100")
    with pytest.raises(SettingsError) as refused:
        LocalSettings(workers=2).check()
    for mistake in (
        "ESD_PS_MAX_DENSE_BYTES=many: ",
        "ESD_DISPATCHER_LEASE_SECOND: no such setting; did you mean 'ESD_DISPATCHER_LEASE_SECONDS'?",
        "ESD_WORKER_METRICS_PORT=9100: 2 services of a local run cannot have one port; 0 takes any free one, none ",
    ):
        assert mistake in str(refused.value)


def test_one_service_may_have_a_port_of_its_own_and_all_may_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESD_DISPATCHER_METRICS_PORT", "9100")
    monkeypatch.setenv("ESD_DISPATCHER_PAGE_PORT", "8080")
    monkeypatch.setenv("ESD_WORKER_METRICS_PORT", "none")
    settings = LocalSettings(workers=2)
    settings.check()
    assert settings.dispatcher()["ESD_DISPATCHER_PAGE_PORT"] == "8080"


def test_a_shadow_that_is_no_mechanism_is_refused_by_the_name_of_the_option() -> None:
    with pytest.raises(InvalidArgument, match=r"^--shadows: mechanism 'lala' is unknown; known are random, "):
        LocalSettings(workers=1, shadows=("laia", "lala")).check()


def test_a_variable_that_nothing_reads_is_named_with_the_nearest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ESD_CONFIG", "ESD_CLIENT_TLS_CA", "ESD_REPLICA", "ESD_PS_LISTENN"):  # a service refuses the last one
        monkeypatch.setenv(name, "x")
    assert unknown_variables() == []
    monkeypatch.setenv("ESD_DISPATCHR_LEASE_SECONDS", "3")
    monkeypatch.setenv("ESD_XYZZY", "3")
    assert unknown_variables() == [
        "ESD_DISPATCHR_LEASE_SECONDS: nothing reads this variable; did you mean 'ESD_DISPATCHER_LEASE_SECONDS'?",
        "ESD_XYZZY: nothing reads this variable",
    ]
