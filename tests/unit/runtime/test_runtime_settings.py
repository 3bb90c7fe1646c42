"""Settings: the sources of values, and the messages about wrong ones."""

import os
from pathlib import Path

import pytest
from pydantic import Field, SecretStr

from esd.services.runtime.settings import ServerSettings, SettingsError, join_address, load, split_address


class PsSettings(ServerSettings, env_prefix="ESD_PS_"):
    """As a service would write it."""

    store: str = "memory"
    shards: int = Field(1, ge=1)
    password: SecretStr = SecretStr("")


class NeedySettings(ServerSettings, env_prefix="ESD_WORKER_"):
    """With a field that has no default."""

    dispatcher: str


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("ESD_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "esd.toml"
    monkeypatch.setenv("ESD_CONFIG", str(path))
    return path


def test_defaults() -> None:
    settings = load(PsSettings)
    assert (settings.listen, settings.metrics_port, settings.store) == ("127.0.0.1:0", 0, "memory")


def test_environment_over_file_over_default(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text('[ps]\nstore = "redis://file"\nshards = 2\n[worker]\ndispatcher = "elsewhere:1"\n')
    monkeypatch.setenv("ESD_PS_STORE", "redis://environment")
    settings = load(PsSettings)
    assert (settings.store, settings.shards, settings.log_level) == ("redis://environment", 2, "info")


@pytest.mark.parametrize(("text", "port"), [("none", None), ("off", None), ("-1", None), ("0", 0), ("9100", 9100)])
def test_metrics_port(text: str, port: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESD_PS_METRICS_PORT", text)
    assert load(PsSettings).metrics_port == port


def test_all_mistakes_are_reported_at_once_with_their_names(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text('[ps]\nshards = 0\nstoer = "memory"\n')
    monkeypatch.setenv("ESD_PS_LISTEN", "nowhere")
    monkeypatch.setenv("ESD_PS_METRICS_PORT", "70000")
    monkeypatch.setenv("ESD_PS_GRACE_SECOND", "3")
    with pytest.raises(SettingsError) as caught:
        load(PsSettings)
    assert str(caught.value).splitlines() == [
        "wrong settings:",
        "  ESD_PS_GRACE_SECOND: no such setting; did you mean 'ESD_PS_GRACE_SECONDS'?",
        "  ESD_PS_LISTEN=nowhere: 'nowhere' is not host:port with a port in 0..65535, such as 127.0.0.1:50051 "
        "or [::1]:50051",
        "  ESD_PS_METRICS_PORT=70000: Input should be less than 65536",
        f"  ESD_PS_SHARDS=0 (shards under [ps] in {config}): Input should be greater than or equal to 1",
        f"  ESD_PS_STOER (stoer under [ps] in {config}): no such setting; did you mean 'store'?",
    ]


def test_an_algorithm_that_the_kernel_does_not_allow_is_refused_with_the_allowed_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
    monkeypatch.setenv("ESD_PS_CONGESTION", "fast")
    with pytest.raises(SettingsError, match=f"ESD_PS_CONGESTION=fast: this kernel allows {', '.join(allowed)}; "):
        load(PsSettings)
    monkeypatch.setenv("ESD_PS_CONGESTION", allowed[0])
    assert load(PsSettings).congestion == allowed[0]


def test_a_missing_value_is_named() -> None:
    with pytest.raises(SettingsError, match="ESD_WORKER_DISPATCHER must be set"):
        load(NeedySettings)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[ps\n", "line 1"),
        ("[parameter_server]\nshards = 2\n", "no such section: parameter_server"),
        ("ps = 2\n", "ps must be a section"),
    ],
)
def test_a_wrong_file_is_named(text: str, reason: str, config: Path) -> None:
    config.write_text(text)
    with pytest.raises(SettingsError, match=reason) as caught:
        load(PsSettings)
    assert f"ESD_CONFIG={config}" in str(caught.value)


def test_a_missing_file_is_named(config: Path) -> None:
    with pytest.raises(SettingsError, match="No such file") as caught:
        load(PsSettings)
    assert str(config) in str(caught.value)


def test_secrets_show_neither_in_settings_nor_in_mistakes(config: Path) -> None:
    config.write_text('[ps]\npassword = "hunter2"\n')
    settings = load(PsSettings)
    assert settings.password.get_secret_value() == "hunter2"
    assert "hunter2" not in repr(settings) + str(settings)
    config.write_text('[ps]\npassword = ["hunter2"]\n')
    with pytest.raises(SettingsError, match="ESD_PS_PASSWORD") as caught:
        load(PsSettings)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "parts"),
    [("localhost:1", ("localhost", 1)), ("[::1]:50051", ("::1", 50051)), ("0.0.0.0:0", ("0.0.0.0", 0))],
)
def test_addresses(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


def test_addresses_are_put_together() -> None:
    assert [join_address(host, 1) for host in ("host", "::1", "[::1]")] == ["host:1", "[::1]:1", "[::1]:1"]


@pytest.mark.parametrize(
    "address",
    ["", "localhost", ":1", "host:", "host:65536", "host:-1", "::1:50051", "[::1:50051", "[host]:1", "host:1a"],
)
def test_wrong_addresses(address: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        split_address(address)
